#!/usr/bin/env python3
"""The benchmark program from outside: wrong usage ends with 2 and names the option; a short run counts, checks and keeps its result."""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import run_tables  # noqa: E402

PROGRAM = sys.argv.pop(1)
SHORT = ["--repeats", "2", "--seconds", "0.05", "--working-set", "4MiB", "--write-budget", "16MiB", "--engine-threads", "1"]
ALONE = [*SHORT, "--no-fio"]
STEPS = {f"step_{i}_{name}_ns" for i, name in enumerate(("prepare", "choose", "fill", "record", "bell", "wait", "arrival", "end"))}


def bench(*arguments, **more):
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=100, **more)


class WrongUsage(unittest.TestCase):
    def test_each_wrong_option_ends_with_2_and_says_which(self):
        for arguments, word in (
            ([], "subcommand"), (["path", "--lanes", "tpu"], "lanes"), (["path", "--sizes", "513"], "--sizes"),
            (["path", "--sizes", "131072"], "--sizes"), (["path", "--ops", "trim"], "--ops"),
            (["path", "--sizes", "512", "--ops", "write"], "4096"), (["path", "--repeats", "0"], "--repeats"),
            (["path", "--seconds", "0"], "--seconds"), (["path", "--seconds", "nan"], "--seconds"),
            (["path", "--rate", "-5"], "--rate"), (["path", "--rate", "nan"], "--rate"), (["path", "--service-units", "65"], "--service-units"),
            (["path", "--engine-threads", "2", "--nic-threads", "3"], "--nic-threads"), (["model", "--service-units", "0"], "--service-units"),
            (["path", "--ssds", "0"], "--ssds"), (["path", "--ssds", "-3"], "--ssds"), (["path", "--replicas", "5"], "--replicas"),
            (["path", "--warps", "1000"], "--warps"), (["path", "--depth", "100"], "--depth"), (["path", "--channels", "400"], "--channels"),
            (["path", "--working-set", "5"], "--working-set"), (["path", "--working-set", "many"], "many"),
            (["path", "--write-budget", "1"], "--write-budget"), (["path", "--verify", "some"], "--verify"),
            (["path", "--json", "/nonexistent/folder/x"], "/nonexistent/folder/x"), (["path", "--frobnicate"], "--frobnicate"),
            (["deengine", "--parts", "tea"], "tea"), (["deengine", "--map-slots", "5"], "--map-slots"), (["deengine", "--repeats", "0"], "--repeats"),
            (["deengine", "--path-blocks", "1"], "--path-blocks"), (["deengine", "--cores", "0"], "--cores"), (["deengine", "--data", "lots"], "lots"),
            (["path", "--profile", "gnstor-papper"], "gnstor-paper"), (["model", "--profiles", "none,tea"], "tea"),
            (["model", "--depths", "0"], "--depths"), (["model", "--loads", "1.5"], "--loads"), (["model", "--sizes", "100"], "--sizes"),
            (["model", "--json", "/nonexistent/folder/x"], "/nonexistent/folder/x"),
            (["deengine", "--json", "/nonexistent/folder/x"], "/nonexistent/folder/x"),
            (["wire", "--wires", "loop,tea"], "tea"), (["wire", "--sizes", "100"], "--sizes"), (["wire", "--depth", "65"], "--depth"),
            (["wire", "--seconds", "0"], "--seconds"), (["wire", "--addresses", "127.0.0.1"], "--addresses"), (["wire-node"], "bench wire"),
        ):
            with self.subTest(arguments=arguments):
                ended = bench(*arguments)
                self.assertEqual(ended.returncode, 2, ended.stdout + ended.stderr)
                self.assertIn(word, ended.stderr)

    def test_more_memory_than_there_is_fails_and_says_what_to_do(self):
        for arguments in (["path", "--working-set", "1TiB"], ["load", "--working-set", "1TiB"], ["load", "--write-percent", "100", "--write-budget", "1TiB"],
                          ["paper", "--figure", "13", "--working-set", "1TiB", "--json", "x"],
                          ["model", "--working-set", "1TiB"], ["model", "--ops", "write", "--write-budget", "4PiB"]):
            with self.subTest(arguments=arguments):
                ended = bench(*arguments)
                self.assertEqual(ended.returncode, 1, ended.stderr)
                self.assertIn("smaller", ended.stderr)


class ShortRun(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "path-cpu-test.json")
            cls.ended = bench("path", *ALONE, "--json", str(path))
            cls.run_ = run_tables.load(path) if path.exists() else None

    def test_it_ends_well_and_says_what_it_left_out(self):
        self.assertEqual(self.ended.returncode, 0, self.ended.stdout + self.ended.stderr)
        self.assertIn("all as written", self.ended.stdout)
        self.assertIn("writes of 512 bytes", self.ended.stdout)
        self.assertIn("before its drives collect garbage", self.ended.stdout)
        self.assertEqual(self.ended.stderr, "")

    def test_every_case_has_its_repeats_and_every_read_was_checked(self):
        seen = {(c["parameters"]["operation"], c["parameters"]["bytes"], c["parameters"]["path"]) for c in self.run_["cases"]}
        sizes = [("read", b) for b in (512, 4096, 65536)] + [("write", b) for b in (4096, 65536)]
        self.assertEqual(seen, {(o, b, p) for o, b in sizes for p in ("array", "plain copy")})
        total = 0
        for case in self.run_["cases"]:
            self.assertEqual(len(case["repeats"]), 2)
            for repeat in case["repeats"]:
                self.assertEqual(repeat["bytes"], repeat["operations"] * case["parameters"]["bytes"])
                self.assertEqual("engine_cpu_seconds" in repeat, case["parameters"]["path"] == "array")
                if case["parameters"]["operation"] == "read":
                    self.assertEqual(repeat["checked"], repeat["operations"])
                total += repeat["operations"]
        print(f"\nGN_COUNT bench_operations={total}", flush=True)

    def test_the_renderer_takes_it(self):
        self.assertIn("bytes 4096, read, array", run_tables.table("x.json", self.run_))


class SingleLane(unittest.TestCase):
    """`path --alone`: the whole by the synchronous calls, the steps that it consists of, and the same on a channel of the grid."""

    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "path-cpu-test.json")
            cls.ended = bench("path", "--alone", "--sizes", "512,4096", *ALONE, "--json", str(path))
            cls.run_ = run_tables.load(path) if path.exists() else None

    def test_it_is_measured_three_ways_and_all_is_checked(self):
        self.assertEqual(self.ended.returncode, 0, self.ended.stdout + self.ended.stderr)
        self.assertIn("all as written", self.ended.stdout)
        self.assertIn("Steps of bytes 4096 read array, step by step", self.ended.stdout)
        seen = {(c["parameters"]["operation"], c["parameters"]["bytes"], c["parameters"]["path"]) for c in self.run_["cases"]}
        ways = ("array", "array, step by step", "array, channel of the grid")
        self.assertEqual(seen, {(o, b, p) for o, b in (("read", 512), ("read", 4096), ("write", 4096)) for p in ways})

    def test_the_steps_are_the_operation(self):
        # Where the machine has other things to do, no operation of a repeat may stay on the straight path, or a clock may not tick within a
        # step of the few that did: such a case is measured again, a few times.
        untimed = {("read", 512), ("read", 4096), ("write", 4096)}
        cases = self.run_["cases"]
        for _ in range(5):
            for case in cases:
                self.check_steps(case, untimed)
            if not untimed:
                return
            cases = []
            for operation, size in sorted(untimed):
                ended = bench("path", "--alone", "--ops", operation, "--sizes", str(size), *ALONE, "--output", "json")
                self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
                cases += json.loads(ended.stdout)["cases"]
        self.assertEqual(untimed, set())

    def check_steps(self, case, untimed):
        for repeat in case["repeats"]:
            steps = {k: v for k, v in repeat.items() if k.startswith("step_")}
            if not case["parameters"]["path"].endswith("step by step"):
                self.assertEqual(steps, {})
                continue
            straight = repeat["left_straight_path"] < 1
            self.assertEqual(set(steps), STEPS if straight else set())
            if not straight:
                continue
            self.assertGreaterEqual(repeat["completion_queue_trips"], 1)
            # Between the first look at the clock and the last, within what these operations are taken to last.
            self.assertLessEqual(sum(steps.values()), repeat["steps_total_ns"] * 1.001)
            self.assertLessEqual(repeat["steps_total_ns"] * (1 - repeat["left_straight_path"]), repeat["latency_ns"]["mean"] + 1)
            if all(v > 0 for v in steps.values()):
                untimed.discard((case["parameters"]["operation"], case["parameters"]["bytes"]))


class Model(unittest.TestCase):
    """What is achieved is a matter of the machine: here only that every case is measured, kept and shown beside its profile."""

    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "model-cpu-test.json")
            cls.ended = bench("model", "--profiles", "gnstor-paper,samsung-pm1743", "--sizes", "4096,65536", "--depths", "1,8", "--loads", "0.001",
                              "--repeats", "1", "--seconds", "0.1", "--working-set", "4MiB", "--write-budget", "64MiB", "--json", str(path))
            if cls.ended.returncode not in (0, 3):
                raise AssertionError(f"bench model ended with {cls.ended.returncode}:\n{cls.ended.stdout}{cls.ended.stderr}")
            cls.run_ = run_tables.load(path)

    def test_every_profile_is_measured_in_closed_and_open_loop_beside_the_host(self):
        self.assertIn(self.ended.returncode, (0, 3), self.ended.stdout + self.ended.stderr)
        seen = {tuple(c["parameters"][k] for k in ("profile", "operation", "bytes", "loop")) for c in self.run_["cases"]}
        for operation in ("read", "write"):
            for size in (4096, 65536):
                for profile in ("none", "unbounded"):
                    self.assertIn((profile, operation, size, "closed"), seen)
                for profile in ("gnstor-paper", "samsung-pm1743"):
                    self.assertIn((profile, operation, size, "closed"), seen)
        # An open loop is measured, or a line below its profile's heading says that this machine could not do as much.
        sections = re.findall(r"^(gnstor-paper|samsung-pm1743), (read|write)s of (\d+) bytes: (.*?)\n\n", self.ended.stdout, re.DOTALL | re.MULTILINE)
        self.assertEqual(len(sections), 8, self.ended.stdout)
        for profile, operation, size, text in sections:
            self.assertNotEqual((profile, operation, int(size), "open") in seen, "left out: more than the host can do" in text, text)
        self.assertTrue(any(loop == "open" and profile in ("gnstor-paper", "samsung-pm1743") for profile, _, _, loop in seen), "no case with an open loop")
        self.assertIn("Within 3 %", self.ended.stdout)
        self.assertIn("the host alone", self.ended.stdout)

    def test_every_case_beside_a_profile_has_a_verdict_and_the_program_ends_by_them(self):
        judged = [c for c in self.run_["cases"] if c["parameters"]["profile"] not in ("none", "unbounded")]
        outside = 0
        for case in judged:
            self.assertIn(case["verdict"], ("within 3 %", "rate outside", "latency outside", "bound by the host", "latency bound by the host"))
            outside += case["verdict"].endswith("outside")
        self.assertEqual(self.ended.returncode, 3 if outside else 0, self.ended.stdout)
        self.assertEqual(f"{outside} CASES OUTSIDE" in self.ended.stdout, outside != 0)
        self.assertFalse([c for c in self.run_["cases"] if "verdict" in c and c not in judged])
        # What the host adds is that of an operation alone: one lane, whatever the others could do.
        alone = {(c["parameters"]["operation"], c["parameters"]["bytes"]): c["repeats"][0]["latency_ns"]["p50"] for c in self.run_["cases"]
                 if c["parameters"]["load"] == "one alone"}
        self.assertEqual(len(alone), 4)
        for case in judged:
            of = (case["parameters"]["operation"], case["parameters"]["bytes"])
            self.assertEqual(case["repeats"][0]["host_latency_ns"], alone[of])

    def test_what_was_configured_is_kept_with_every_repeat(self):
        for case in self.run_["cases"]:
            if case["parameters"]["profile"] in ("none", "unbounded"):
                continue
            for repeat in case["repeats"]:
                self.assertGreater(repeat["configured_limit_per_second"], 0)
                self.assertGreater(repeat["expected_per_second_most"], 0)
        drive = [c["repeats"][0] for c in self.run_["cases"] if c["parameters"]["profile"] == "samsung-pm1743" and c["parameters"]["bytes"] == 4096
                 and c["parameters"]["operation"] == "read"]
        self.assertAlmostEqual(drive[0]["configured_limit_per_second"], 2_500_000, delta=50)

    def test_the_renderer_takes_it(self):
        table = run_tables.table("x.json", self.run_)
        self.assertIn("| 4096", table.replace("| bytes 4096", "| 4096"))
        self.assertIn(" | verdict |", table)


class Pool(unittest.TestCase):
    def test_lanes_of_a_gpu_that_it_has_no_kernel_for_are_not_passed_over_in_silence(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "pool.json")
            ended = bench("pool", "--lanes", "gpu", "--allocations", "20000", "--pool", "8MiB", "--repeats", "1", "--most-lanes", "1", "--json", str(path))
            self.assertEqual(ended.returncode, 0, ended.stderr)
            self.assertIn("CPU lanes", ended.stderr)
            self.assertEqual(json.loads(path.read_text())["configuration"]["lanes"], "cpu")


class DeEngine(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "deengine-cpu-test.json")
            cls.ended = bench("deengine", "--lanes", "cpu", "--repeats", "1", "--map-slots", "262144", "--path-blocks", "8192", "--data", "16MiB", "--wear-blocks", "16384", "--recover-blocks", "16384", "--json", str(path))
            cls.run_ = run_tables.load(path) if path.exists() else None

    def cases(self, **wanted):
        found = [c for c in self.run_["cases"] if all(c["parameters"].get(k) == v for k, v in wanted.items())]
        self.assertTrue(found, f"no case with {wanted}")
        return found

    def test_it_measures_every_structure_at_every_load_and_the_whole_path(self):
        self.assertEqual(self.ended.returncode, 0, self.ended.stdout + self.ended.stderr)
        for structure in ("block map", "std::unordered_map", "flat page table"):
            for load in (0.5, 0.9, 0.97):
                for operation in ("lookup", "lookup of absent keys", "insert", "update", "delete"):
                    self.cases(structure=structure, load=load, operation=operation, way="single")
        for flash in ("null flash", "memory flash"):
            for cores in (1, 2):
                self.cases(flash=flash, cores=cores, operation="read", bytes=512, way="batches of 32")
                self.cases(flash=flash, cores=cores, operation="read", bytes=4096, way="batches of 32")
                self.cases(flash=flash, cores=cores, operation="write", bytes=4096, way="batches of 32")
        for case in self.cases(flash="memory flash"):
            self.assertGreater(case["repeats"][0]["checked"], 0, case["parameters"])

    def test_the_block_map_takes_at_most_9_bytes_a_block_when_full(self):
        for case in self.cases(structure="block map", load=0.97):
            self.assertLessEqual(case["repeats"][0]["bytes_a_block"], 9.0)

    def test_every_copy_is_compared_with_the_plain_one_of_its_repeat(self):
        for case in self.cases(operation="copy"):
            self.assertIn("times_reference", case["repeats"][0])
        for case in self.cases(operation="copy", variant="memcpy"):
            self.assertEqual(case["repeats"][0]["times_reference"], 1.0)

    def test_full_drives_say_what_collection_costs_and_how_long_they_take_to_open(self):
        for percent in (7, 15, 28):
            repeat = self.cases(**{"operation": "overwrite of a full drive", "over-provisioning %": percent})[0]["repeats"][0]
            self.assertGreater(repeat["write_amplification"], 1.0)
            self.assertEqual(repeat["latency_ns"]["samples"], repeat["operations"])
        for operation in ("opening after a close", "opening after a kill, a sixteenth overwritten"):
            self.assertGreater(self.cases(operation=operation)[0]["repeats"][0]["memory_mib_a_gib"], 0)
        text = run_tables.table("x.json", self.run_)
        self.assertIn("write amplification", text)
        self.assertIn("longest ns", text)

    def test_the_renderer_takes_it(self):
        self.assertIn("load 0.9, lookup, block map, single", run_tables.table("x.json", self.run_))


class Choices(unittest.TestCase):
    def test_what_was_left_out_is_left_out(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "r.json")
            ended = bench("path", *ALONE, "--ops", "read", "--sizes", "4096", "--no-reference", "--verify", "none", "--warps", "2",
                          "--depth", "1", "--json", str(path))
            self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
            cases = json.loads(path.read_text())["cases"]
        self.assertEqual([c["parameters"] for c in cases], [{"operation": "read", "bytes": 4096, "path": "array"}])
        self.assertNotIn("checked", cases[0]["repeats"][0])

    def test_engine_threads_and_shards_are_kept_and_each_thread_says_how_busy_it_was(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "r.json")
            ended = bench("path", *ALONE[:-3], "--engine-threads", "3", "--nic-threads", "1", "--service-units", "2", "--ssds", "2", "--sizes", "4096",
                          "--no-fio", "--json", str(path))
            self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
            run = run_tables.load(path)
        self.assertIn("3 engine threads (1 for NICs), 2 service units an SSD", ended.stdout)
        self.assertEqual([run["configuration"][k] for k in ("engine threads", "NIC threads", "service units an SSD")], [3, 1, 2])
        for case in run["cases"]:
            names = sorted(k for k in case["repeats"][0] if run_tables.BUSY.fullmatch(k))
            self.assertEqual(names, ["busy_gn-nic-0", "busy_gn-ssd-1", "busy_gn-ssd-2"] if case["parameters"]["path"] == "array" else [])
            for name in names:
                self.assertTrue(0 < case["repeats"][0][name] <= 1, case["repeats"][0])
        self.assertIn("gn-nic-0 ", ended.stdout)
        self.assertIn("engine threads busy, %", run_tables.table("x.json", run))

    def test_an_open_loop_sends_what_it_means_to_and_no_more(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "r.json")
            ended = bench("path", *[w for w in SHORT if w not in ("--seconds", "0.05")], "--sizes", "4096", "--rate", "1000", "--seconds", "0.2", "--json", str(path))
            self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
            run = json.loads(path.read_text())
        self.assertIn("open loop", run["configuration"]["fio"])
        self.assertEqual({c["parameters"]["path"] for c in run["cases"]}, {"array"})
        for case in run["cases"]:
            for repeat in case["repeats"]:
                self.assertEqual(repeat["offered_per_second"], 1000)
                # Each lane sends once an interval, the first time within the first.
                self.assertTrue(0 < repeat["operations"] <= 0.2 * 1000 + 256, repeat)


    def test_programs_get_json_alone_with_the_initiators_cpu_time(self):
        ended = bench("path", *ALONE, "--sizes", "4096", "--output", "json")
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        shares = []
        for case in json.loads(ended.stdout)["cases"]:
            for repeat in case["repeats"]:
                self.assertEqual("initiator_cpu_seconds" in repeat, case["parameters"]["path"] == "array")
                if "initiator_cpu_seconds" in repeat:  # the lanes' threads are the initiator
                    self.assertGreater(repeat["lane_cpu_seconds"], 0)
                    if repeat["lane_cpu_seconds"] >= 0.02:  # less may go under in the time that reading the clocks takes
                        shares.append(repeat["initiator_cpu_seconds"] / repeat["lane_cpu_seconds"])
        # In most repeats: whoever stands still between two of the clocks counts the hardware's time as the initiator's, or takes it off.
        if shares:
            self.assertGreater(sorted(shares)[len(shares) // 2], 0.5, shares)


class Fio(unittest.TestCase):
    @unittest.skipUnless(shutil.which("fio"), "fio is not installed")
    def test_stands_beside_the_array_in_every_case_where_the_kernel_lets_it(self):
        with tempfile.TemporaryDirectory() as folder:
            path, stores = pathlib.Path(folder, "r.json"), pathlib.Path(folder, "stores")
            stores.mkdir()
            for more in ([], ["--store", str(stores), "--durability", "process"], ["--store", str(stores), "--durability", "power"]):
                with self.subTest(more=more):
                    ended = bench("path", *SHORT, *more, "--sizes", "4096", "--json", str(path))
                    self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
                    run = run_tables.load(path)
                    if "LEFT OUT" in run["configuration"]["fio"]:
                        self.assertIn("LEFT OUT", ended.stdout)
                        self.skipTest(run["configuration"]["fio"])
                    self.assertIn("one copy, nothing checked", ended.stdout)
                    found = [c for c in run["cases"] if c["parameters"]["path"] == "fio io_uring"]
                    self.assertEqual([c["parameters"]["operation"] for c in found], ["read", "write"])
                    for repeat in (r for c in found for r in c["repeats"]):
                        self.assertEqual(repeat["bytes"], 4096 * repeat["operations"])
                        self.assertGreater(repeat["latency_ns"]["p50"], 0)
                    self.assertIn("bytes 4096, read, fio io_uring", run_tables.table("x.json", run))
                    self.assertEqual(list(stores.iterdir()), [], "fio's test file was not removed")

    def test_is_left_out_aloud_where_there_is_none(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "r.json")
            ended = bench("path", *SHORT, "--sizes", "4096", "--ops", "read", "--json", str(path), env={"PATH": folder})
            self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
            self.assertIn("LEFT OUT: fio is not installed", ended.stdout)
            self.assertIn("LEFT OUT: fio is not installed", json.loads(path.read_text())["configuration"]["fio"])


if __name__ == "__main__":
    unittest.main()
