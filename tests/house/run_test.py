#!/usr/bin/env python3
"""./run refuses what it does not know with status 2, and never changes lanes silently. Nothing is installed or built here."""
import os
import pathlib
import re
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
STAGES = ["setup", "lint", "cpu", "soak", "peer", "asan", "tsan", "cuda", "fuzz", "example", "release", "package", "toolchains", "docs", "docs_site"]


def run(*arguments):
    done = subprocess.run([ROOT / "run", *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
                          env={**os.environ, "GN_INSTALL": "no"})
    return done.returncode, done.stdout, done.stderr


class Run(unittest.TestCase):
    def test_help_names_every_command(self):
        status, out, _ = run("help")
        self.assertEqual(status, 0)
        for command in ("demo", "test", "bench", "plot", "report", "docs", "sim", "gpu-test", "lint", "format", "--lanes"):
            self.assertIn(command, out)

    def test_list_names_every_stage(self):
        status, out, _ = run("test", "--list")
        self.assertEqual(status, 0)
        self.assertEqual([line.split()[0] for line in out.strip().split("\n")], STAGES)

    def test_what_it_does_not_know_ends_with_status_2_and_says_what_it_knows(self):
        for arguments, said in ((["tset"], "help"), (["test", "--only", "nonsense"], "setup lint cpu"), (["test", "--quick"], "--quick"),
                                (["demo", "--lanes", "tpu"], "cpu or gpu"), (["test", "--lanes"], "cpu or gpu"),
                                (["test", "--jobs", "0"], "number"), (["gpu-test", "--lanes", "cpu"], "GPU lanes only"),
                                (["sim", "--lanes", "gpu"], "no device code"), (["plot"], "plot --docs")):
            status, _, errors = run(*arguments)
            self.assertEqual(status, 2, arguments)
            self.assertIn(said, errors, arguments)

    @unittest.skipIf(pathlib.Path("/dev/nvidia0").exists(), "this machine has a GPU")
    def test_gpu_lanes_without_a_gpu_are_an_error(self):
        for command in ("demo", "test", "bench", "gpu-test"):
            status, out, errors = run(command, "--lanes", "gpu")
            self.assertEqual(status, 1, command)
            self.assertIn("no GPU on this machine", errors)
            self.assertIsNone(re.search(r"lanes: cpu", out + errors))

    def test_the_packages_are_a_whole_table(self):
        text = (ROOT / "scripts/lib/packages.sh").read_text()
        rows = re.search(r"GN_PACKAGES='\n(.*?)'", text, re.S)[1].strip().split("\n")
        self.assertGreaterEqual(len(rows), 18)
        for row in rows:
            name, kind, probe, why = row.split("|")
            self.assertRegex(name, r"^@?[a-z0-9+.-]+$")
            self.assertIn(kind, {"build", "cache", "isal", "blkid", "uring", "daemon", "test", "bench", "plot", "site", "property", "oracle", "fuzz", "link", "lint", "package", "peer", "roots"})
            self.assertRegex(probe, r"^(cmd:|inc:|file:|py:).+|^fuzzer$")
            self.assertTrue(why)


if __name__ == "__main__":
    unittest.main()
