#!/usr/bin/env python3
"""`bench load`, `bench paper` and the plots from outside: wrong usage ends with 2 and names the option; every path is measured, checked and
counted; a figure that was stopped goes on where it was, and its plot is drawn from the result alone."""
import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as xml

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = sys.argv.pop(1)
SHORT = ["--repeats", "1", "--seconds", "0.05", "--working-set", "4MiB", "--write-budget", "8MiB", "--engine-threads", "1",
         "--array-threads", "1", "--threads", "1"]
PATHS = ["gnor", "strong-cpu", "gd-deengine", "gd", "basic", "ported-locks", "coordinating"]


def bench(*arguments):
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=100)


def plot(*arguments):
    return subprocess.run([sys.executable, str(ROOT / "scripts/plot_paper.py"), *arguments], capture_output=True, text=True, timeout=60)


def has_latencies(case):
    """Whether a case of reads or writes must have some: of the first read in each of a client's 32 places in flight, lanes beside a CPU that
    initiates do not know when it began. One more has a place that was used twice."""
    lanes_initiate = case["parameters"]["path"] in ("gnor", "ported-locks", "coordinating")
    return lanes_initiate or case["parameters"]["operation"] == "write" or case["repeats"][0]["operations"] > 32 * case["parameters"]["clients"]


class WrongUsage(unittest.TestCase):
    def test_each_wrong_option_ends_with_2_and_says_which(self):
        for arguments, word in (
            (["load", "--path", "spdk"], "gd-deengine"), (["load", "--bytes", "256"], "--bytes"), (["load", "--bytes", "131072"], "--bytes"),
            (["load", "--bytes", "512", "--write-percent", "50"], "4096"), (["load", "--write-percent", "101"], "--write-percent"),
            (["load", "--clients", "33"], "--clients"), (["load", "--clients", "0"], "--clients"), (["load", "--ssds", "0"], "--ssds"),
            (["load", "--ssds", "1"], "--replicas"), (["load", "--replicas", "5"], "--replicas"), (["load", "--depth", "0"], "--depth"),
            (["load", "--depth", "1000"], "--depth"), (["load", "--channels", "2"], "--channels"), (["load", "--warps", "500"], "--warps"),
            (["load", "--repeats", "0"], "--repeats"), (["load", "--seconds", "0"], "--seconds"), (["load", "--pattern", "zipf"], "--pattern"),
            (["load", "--lanes", "tpu"], "tpu"), (["load", "--working-set", "much"], "much"), (["load", "--working-set", "1KiB"], "--working-set"),
            (["load", "--write-budget", "5"], "--write-budget"), (["load", "--write-budget", "4PiB"], "--write-budget"),
            (["load", "--working-set", "8PiB"], "--working-set"), (["load", "--seconds", "nan"], "--seconds"), (["load", "--array-threads", "65"], "--array-threads"),
            (["load", "--profile", "floppy"], "floppy"), (["load", "--json", "/nonexistent/folder/x"], "/nonexistent/folder/x"),
            (["load", "--output", "xml"], "--output"), (["paper", "--figure", "8", "--json", "x"], "--figure"), (["paper", "--figure", "9"], "--json"),
            (["load", "--path", "gnor", "--rate", "-1"], "--rate"),
            (["load", "--service-units", "0"], "--service-units"), (["load", "--engine-threads", "1", "--nic-threads", "2"], "--nic-threads"),
            (["load", "--engine-threads", "257"], "--engine-threads"),
            (["paper", "--json", "x"], "--figure"), (["paper", "--figure", "9", "--path", "nbd", "--json", "x"], "nbd"),
        ):
            with self.subTest(arguments=arguments):
                ended = bench(*arguments)
                self.assertEqual(ended.returncode, 2, ended.stdout + ended.stderr)
                self.assertIn(word, ended.stderr)


class OpenLoop(unittest.TestCase):
    def test_sends_what_it_means_to_and_no_more(self):
        ended = bench("load", *[w for w in SHORT if w not in ("--seconds", "0.05")], "--seconds", "0.2", "--path", ",".join(PATHS), "--write-percent", "0,50", "--rate", "2000", "--output", "json")
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
        cases = json.loads(ended.stdout)["cases"]
        self.assertEqual(len(cases), len(PATHS) * 2)
        for case in cases:
            repeat = case["repeats"][0]
            self.assertEqual(repeat["offered_per_second"], 2000)
            self.assertGreater(repeat["operations"], 0)
            # Each was timed from when it was meant to be sent.
            self.assertEqual(repeat["latency_ns"]["samples"], repeat["operations"], case["parameters"])
            self.assertGreater(repeat["latency_ns"]["p50"], 0)
            # Every member sends once an interval, the first time within the first.
            self.assertLessEqual(repeat["operations"], 0.2 * 2000 + 32)


    def test_latency_counts_from_the_intended_send_where_no_path_keeps_up(self):
        # A thousand times what any of them does: all are meant to be sent at the very beginning, and the last ones under way end when the time
        # is up or later, however the machine works. Timed from the real send they would take some milliseconds.
        ended = bench("load", *[w for w in SHORT if w not in ("--seconds", "0.05")], "--seconds", "0.2", "--path", ",".join(PATHS),
                      "--write-percent", "0", "--rate", "1000000000", "--depth", "32", "--output", "json")
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
        for case in json.loads(ended.stdout)["cases"]:
            repeat = case["repeats"][0]
            self.assertGreater(repeat["latency_ns"]["max"], 0.9 * 0.2e9, case["parameters"])


class EveryPath(unittest.TestCase):
    def test_is_measured_checked_and_counted_and_programs_get_json_alone(self):
        ended = bench("load", *SHORT, "--path", ",".join(PATHS), "--write-percent", "0,40,100", "--clients", "2", "--ssds", "3",
                      "--client-threads", "1", "--output", "json")
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
        self.assertEqual(ended.stderr, "")
        run = json.loads(ended.stdout)
        self.assertEqual(len(run["cases"]), len(PATHS) * 3)
        total, of_lanes = 0, []
        for case in run["cases"]:
            parameters, repeat = case["parameters"], case["repeats"][0]
            with self.subTest(parameters=parameters):
                self.assertEqual(repeat["bytes"], repeat["operations"] * 4096)
                lanes = parameters["path"] in ("gnor", "ported-locks", "coordinating")
                if lanes:
                    of_lanes.append(repeat["initiator_cpu_seconds"])
                else:
                    self.assertGreater(repeat["initiator_cpu_seconds"], 0)
                self.assertEqual("array_cpu_seconds" in repeat, parameters["path"] in ("gd", "basic"))
                self.assertEqual(case["threads"], {"engine": 1, **({} if lanes else {"client": 1}),
                                                   **({"array": 1} if parameters["path"] in ("gd", "basic") else {})})
                self.assertEqual("stage_copy_us" in repeat, parameters["path"] == "basic")
                logs = parameters["path"] in ("gd", "basic") and parameters["operation"] != "read"
                self.assertEqual("stage_log_us" in repeat, logs)
                self.assertEqual("work_lane_submit_us" in repeat, lanes)
                self.assertEqual("work_client_submit_us" in repeat, not lanes)
                self.assertEqual("work_lane_lock_us" in repeat, parameters["path"] == "ported-locks")
                self.assertEqual("work_client_copy_us" in repeat, parameters["path"] == "basic")
                self.assertEqual("work_array_lock_us" in repeat, parameters["path"] in ("gd", "basic"))
                self.assertEqual("work_array_log_us" in repeat, logs)
                if has_latencies(case):
                    self.assertGreater(repeat["latency_ns"]["samples"], 0)
                if parameters["operation"] == "read":
                    self.assertEqual(repeat["checked"], repeat["operations"])
                total += repeat["operations"]
        # In most cases: one that stands still between two of the clocks may find less than nothing (bench/cpu_meter.hpp).
        self.assertGreater(sorted(of_lanes)[len(of_lanes) // 2], 0, of_lanes)
        print(f"\nGN_COUNT bench_load_requests={total}", flush=True)

    def test_modelled_hardware_bounds_each_of_them(self):
        ended = bench("load", *SHORT, "--path", "gnor,strong-cpu,gd", "--profile", "gnstor-paper", "--write-percent", "0", "--output", "json")
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
        run = json.loads(ended.stdout)
        self.assertEqual(run["configuration"]["profile"], "gnstor-paper")
        for case in run["cases"]:
            # The drive's own latency is in every request, whoever initiates.
            if has_latencies(case):
                self.assertGreater(case["repeats"][0]["latency_ns"]["p50"], 10_000, case["parameters"])
            # 4 SSDs of 3250 MB/s (2^20 bytes), and 21.6 GB/s (2^30) of network.
            self.assertAlmostEqual(case["repeats"][0]["limit_drives_per_second"], 4 * 832_000, delta=1)
            self.assertAlmostEqual(case["repeats"][0]["limit_network_per_second"], 23192823398 / 4112, delta=1)

    def test_a_steady_run_keeps_its_array_while_drives_collect_garbage(self):
        ended = bench("load", "--path", "gnor,gd", "--steady", "--seconds", "0.3", "--repeats", "3", "--write-percent", "100", "--ssds", "2",
                      "--working-set", "4MiB", "--write-budget", "8MiB", "--engine-threads", "1", "--array-threads", "1", "--output", "json")
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
        self.assertEqual(ended.stderr, "")
        for case in json.loads(ended.stdout)["cases"]:
            for repeat in case["repeats"]:
                self.assertNotIn("ended_at_write_budget", repeat)
                self.assertGreaterEqual(repeat["seconds"], 0.3)


class Figure(unittest.TestCase):
    def command(self, file, *more):
        return bench("paper", "--figure", "13", "--path", "gnor,gd", *SHORT, "--json", str(file), *more)

    def test_one_that_was_stopped_goes_on_where_it_was_and_is_plotted(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "figure.json")
            first = self.command(file, "--limit", "0.000001")
            self.assertEqual(first.returncode, 0, first.stderr)
            self.assertIn("8 cases are left", first.stdout)
            self.assertFalse(file.exists())
            # Half of a figure, as one that was stopped left it.
            whole = self.command(file)
            self.assertEqual(whole.returncode, 0, whole.stderr)
            run = json.loads(file.read_text())
            self.assertEqual(len(run["cases"]), 8)
            run["cases"] = run["cases"][:3]
            file.write_text(json.dumps(run))
            second = self.command(file)
            self.assertEqual(second.returncode, 0, second.stderr)
            self.assertIn("3 of 8 cases", second.stdout)
            again = json.loads(file.read_text())["cases"]
            self.assertEqual(len(again), 8)
            self.assertEqual(again[:3], run["cases"])

            other = self.command(file, "--replicas", "1")
            self.assertEqual(other.returncode, 2)
            self.assertIn("other options", other.stderr)

            drawn = plot(str(file))
            if not importlib.util.find_spec("matplotlib"):
                self.assertEqual(drawn.returncode, 1)
                self.assertIn("'./run plot' installs it", drawn.stderr)
                return
            self.assertEqual(drawn.returncode, 0, drawn.stderr)
            image = pathlib.Path(folder, "figure.svg").read_text()
            xml.fromstring(image)
            for word in ("gnor", "gd", "The paper", "Figure 13", "profile none"):
                self.assertIn(word, image)
            self.assertNotIn("nan", image)

            # A repeat in which nothing ended, as on a machine that had other things to do: a figure all the same.
            run = json.loads(file.read_text())
            for repeat in run["cases"][0]["repeats"]:
                repeat["operations"] = repeat["bytes"] = 0
                repeat.pop("latency_ns", None)
            file.write_text(json.dumps(run))
            drawn = plot(str(file))
            self.assertEqual(drawn.returncode, 0, drawn.stderr)
            xml.fromstring(pathlib.Path(folder, "figure.svg").read_text())

    def test_what_is_no_figure_is_not_plotted(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "x.json")
            for text, word in (("{}", "no figure"), ("nothing", "x.json"), ("[]", "no figure"), ('{"schema": 1, "benchmark": 9}', "no figure"),
                               ('{"schema": 1, "benchmark": "paper-figure-9", "cases": []}', "no case"),
                               ('{"schema": 1, "benchmark": "paper-figure-9", "cases": [7]}', "damaged"),
                               ('{"schema": 1, "benchmark": "paper-figure-9", "cases": [{"parameters": {"path": "gd"}, "repeats": []}]}', "damaged")):
                file.write_text(text)
                ended = plot(str(file))
                self.assertEqual(ended.returncode, 1)
                self.assertIn(word, ended.stderr)
            self.assertEqual(plot().returncode, 2)

    def test_a_file_that_no_stopped_figure_left_is_refused_and_kept(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "figure.json")
            whole = self.command(file)
            self.assertEqual(whole.returncode, 0, whole.stderr)
            run = json.loads(file.read_text())
            self.assertIn("paper", run["command"])
            for text in ("", "7", "[]", '{"cases": []}', '{"benchmark": 5, "cases": []}', '{"benchmark": "paper-figure-13", "cases": []}',
                         json.dumps({**run, "cases": 5}), json.dumps({**run, "cases": [7]}), json.dumps({**run, "commit": 5}),
                         json.dumps({**run, "cases": [{"parameters": 5, "repeats": [{}]}]}),
                         json.dumps({**run, "cases": [{**run["cases"][0], "repeats": []}]}),
                         json.dumps({**run, "cases": [{**run["cases"][0], "repeats": [{"latency_ns": 5}]}]})):
                with self.subTest(text=text[:60]):
                    file.write_text(text)
                    ended = self.command(file)
                    self.assertIn(ended.returncode, (1, 2), ended.stderr)
                    self.assertIn(str(file), ended.stderr)
                    self.assertEqual(file.read_text(), text)
            for limit in ("nan", "-1", "0", "1e30"):
                self.assertEqual(self.command(pathlib.Path(folder, "other.json"), "--limit", limit).returncode, 2)
            self.assertEqual(self.command(pathlib.Path(folder)).returncode, 2)
            self.assertEqual(self.command(pathlib.Path(folder, "no", "such.json")).returncode, 2)


if __name__ == "__main__":
    unittest.main()
