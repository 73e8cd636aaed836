#!/usr/bin/env python3
"""What a change reaches: planted changes in every layer reach the tests that would see them, and every doubt means all stages."""
import pathlib
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import planted_bugs  # noqa: E402
import reach  # noqa: E402
from layer_graph import ORDER, arrows_of_repository, closure  # noqa: E402


def change(*files, doubt=None):
    return reach.Change(files, arrows_of_repository(), reach.test_folders(), doubt)


def run_stages(of):
    return {stage for stage, reason in of.stages().items() if reason is None}


class AChange(unittest.TestCase):
    def test_in_a_layer_reaches_its_own_tests_and_those_of_every_layer_above(self):
        arrows, folders = arrows_of_repository(), reach.test_folders()
        planted = 0
        for layer in ORDER:
            of = change(f"src/{layer}/planted.cpp")
            above = {upper for upper in ORDER if layer in closure(arrows, upper)} | {layer}
            self.assertEqual(of.reached, above)
            for folder, uses in folders.items():
                self.assertEqual(folder in of.folders, bool(uses & above), f"{layer}: tests/{folder}")
            self.assertTrue(of.folders - {"house"}, f"no test would detect a bug in {layer}")
            self.assertTrue({"asan", "tsan", "fuzz", "peer"} <= run_stages(of), layer)
            planted += 1
        print(f"GN_COUNT house_reach_layers={planted}")

    def test_below_gnor_reaches_the_tests_of_gnor_and_the_cuda_build(self):
        for layer in ("base", "simt", "nvme", "placement", "rdma"):
            of = change(f"src/{layer}/planted.cpp")
            self.assertIn("gnor", of.folders)
            self.assertIn("cuda", run_stages(of))

    def test_in_a_public_header_reaches_its_layer_and_all_that_compiles_it(self):
        of = change("include/gnstor/client/client.hpp")
        self.assertIn("client", of.folders)
        self.assertTrue({"cuda", "example", "release", "docs_site"} <= run_stages(of))
        self.assertIn("placement", change("include/gnstor/nvme/vendor.hpp").reached)
        self.assertNotIn("nvme", change("include/gnstor/nvme/vendor.hpp").reached)

    def test_in_the_command_line_reaches_no_test_of_the_firmware(self):
        of = change("src/cli/output.cpp")
        self.assertIn("cli", of.folders)
        self.assertFalse({"deengine", "gnor", "rdma"} & of.folders)
        self.assertNotIn("cuda", run_stages(of))

    def test_in_tests_alone_reaches_their_folder(self):
        of = change("tests/rdma/nic_test.cpp")
        self.assertEqual(of.folders, {"rdma"})
        self.assertEqual(run_stages(of), {"soak", "asan", "tsan", "fuzz"})
        self.assertIn("cuda", run_stages(change("tests/simt/gpu_lanes_test.cu")))

    def test_in_documents_alone_reaches_the_site_and_what_always_runs(self):
        self.assertEqual(run_stages(change("docs/concepts.md")), {"docs_site"})
        self.assertEqual(run_stages(change("README.md")), {"docs_site"})
        self.assertEqual(run_stages(change(".clang-format")), set())

    def test_that_nobody_can_place_reaches_everything(self):
        for name in ("run", "cmake/gnstor.cmake", "src/gnor/CMakeLists.txt", "scripts/lib/stages.sh", ".ci/run", "tests/support/x.hpp",
                     "src/new_layer/x.cpp", "include/gnstor/new.hpp", "CMakePresets.json", "tests/one_thread.cpp", "somewhere/else"):
            self.assertTrue(change("docs/concepts.md", name).doubt, name)
            self.assertEqual(run_stages(change(name)), set(reach.MORE), name)


class PlantedBugs(unittest.TestCase):
    def test_every_layer_has_one_that_can_be_planted(self):
        self.assertEqual(list(planted_bugs.BUGS), ORDER)
        self.assertEqual(list(planted_bugs.cannot_plant()), [])

    def test_each_selects_the_tests_of_its_own_layer(self):
        for layer, (name, _, _) in planted_bugs.BUGS.items():
            change = reach.Change([name], arrows_of_repository(), reach.test_folders())
            self.assertIsNone(change.doubt, name)
            self.assertIn(layer, change.folders, name)


class Packaging(unittest.TestCase):
    def test_reaches_the_packages_and_nothing_else(self):
        self.assertEqual(run_stages(change("packaging/gnstor.bash")), {"package"})

    def test_of_the_programs_is_tried_again_where_they_change(self):
        self.assertIn("package", run_stages(change("src/cli/object_commands.cpp")))


class TheBase(unittest.TestCase):
    def test_is_the_newest_commit_that_landed(self):
        self.assertEqual(reach.landed("# head\nabc whole\ndef\n"), ("def", None))

    def test_is_unknown_where_nothing_is_named(self):
        self.assertEqual(reach.landed("# nothing\n")[0], None)

    def test_calls_for_a_whole_run_at_the_tenth_landing(self):
        self.assertIsNone(reach.landed("a whole\n" + "b\n" * 8)[1])
        self.assertIn("9 landings", reach.landed("a whole\n" + "b\n" * 9)[1])
        self.assertIn("9 landings", reach.landed("b\n" * 9)[1])

    def test_means_everything_where_it_is_unknown_no_ancestor_or_out_of_sight(self):
        def git(*words, folder):
            subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x", *words], cwd=folder, check=True, capture_output=True)

        with tempfile.TemporaryDirectory() as folder:
            git("init", "-q", "-b", "main", folder=folder)
            for n in range(2):
                pathlib.Path(folder, "file").write_text(str(n))
                git("add", ".", folder=folder)
                git("commit", "-q", "-m", str(n), folder=folder)
            git("checkout", "-q", "--orphan", "other", folder=folder)
            git("commit", "-q", "-m", "other", folder=folder)
            git("checkout", "-q", "main", folder=folder)
            with unittest.mock.patch.object(reach, "ROOT", folder):
                self.assertEqual(reach.changed_since("HEAD~1"), (["file"], None))
                pathlib.Path(folder, "new").write_text("untracked")
                self.assertEqual(reach.changed_since("HEAD"), (["new"], None))
                self.assertIn("not an ancestor", reach.changed_since("other")[1])
                self.assertIn("unknown", reach.changed_since("deadbeef")[1])
                self.assertIn("no base", reach.changed_since(None)[1])
                with tempfile.TemporaryDirectory() as shallow:
                    git("clone", "-q", "--depth", "1", f"file://{folder}", "clone", folder=shallow)
                    with unittest.mock.patch.object(reach, "ROOT", pathlib.Path(shallow, "clone")):
                        self.assertIn("shallow", reach.changed_since("HEAD")[1])
                    with unittest.mock.patch.object(reach, "ROOT", shallow):
                        self.assertIn("shallow", reach.changed_since("HEAD")[1])


class TheFolders(unittest.TestCase):
    def test_of_tests_are_all_known(self):
        for folder, uses in reach.test_folders().items():
            self.assertTrue(uses or folder == "house", f"tests/{folder}: say in reach.py what its programs are made of")


if __name__ == "__main__":
    unittest.main()
