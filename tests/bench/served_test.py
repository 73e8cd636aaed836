#!/usr/bin/env python3
"""`bench load --array` and `bench path --array`: arrays of other processes measured over both wires, checked, named, and left as they were; what is refused.
Arguments: gnstor_bench, gnstor, gnstord."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

BENCH, GNSTOR, GNSTORD = (os.path.abspath(sys.argv.pop(1)) for _ in range(3))
SHORT = ["--repeats", "2", "--seconds", "0.05", "--working-set", "4MiB"]
ENV = dict(os.environ, GNSTORD=GNSTORD)
counts = {"bench_served_requests": 0}


def bench(*arguments, code=0):
    ended = subprocess.run([BENCH, *map(str, arguments)], capture_output=True, text=True, timeout=150)
    assert ended.returncode == code, (arguments, ended.returncode, ended.stdout, ended.stderr)
    return ended


class Served(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="gn-")
        self.addCleanup(self.folder.cleanup)
        self.dir = pathlib.Path(self.folder.name, "a")

    def gnstor(self, *arguments):
        ended = subprocess.run([GNSTOR, *map(str, arguments), "--dir", str(self.dir), "--output", "json"], capture_output=True, text=True, timeout=150, env=ENV)
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
        return json.loads(ended.stdout)

    def serve(self, *arguments):
        self.addCleanup(self.gnstor, "down")
        up = self.gnstor("up", "--ssds", "2", "--capacity", "128MiB", "--durability", "process", *arguments)
        return up, f"unix:{up['socket']}"

    def test_nodes_are_measured_over_packets_each_process_apart(self):
        up, address = self.serve("--nodes", "2")
        result = self.dir.parent / "r.json"
        ended = bench("load", "--array", address, "--address", f"127.52.{os.getpid() % 250}.1", *SHORT, "--write-percent", "0,50,100", "--json", result)
        self.assertIn("Wire: udp from ", ended.stdout)
        self.assertIn("all as written", ended.stdout)
        run = json.loads(result.read_text())
        self.assertTrue(run["configuration"]["wire"].startswith("udp from "), run["configuration"])
        self.assertEqual(run["configuration"]["array"], "served by other processes")
        self.assertNotIn(str(self.dir), result.read_text(), "the result must not contain a folder of this machine")
        self.assertEqual([c["parameters"]["operation"] for c in run["cases"]], ["read", "50 % writes", "write"])
        processes = {f"process_gnstor-{node['pid']}_cpu_seconds" for node in up["nodes"]}
        initiator = []
        for case in run["cases"]:
            self.assertEqual((case["parameters"]["path"], case["parameters"]["SSDs"]), ("gnor", 4))
            for repeat in case["repeats"]:
                self.assertEqual({name for name in repeat if name.startswith("process_")}, processes)
                self.assertGreater(repeat["operations"], 0)
                self.assertGreater(repeat["engine_cpu_seconds"], sum(repeat[name] for name in processes), "the CPU time must include this process's own NIC")
                initiator.append(repeat["initiator_cpu_seconds"])
                counts["bench_served_requests"] += repeat["operations"]
        # In most repeats: one that stands still between two of the clocks may find less than nothing (bench/cpu_meter.hpp).
        self.assertGreater(sorted(initiator)[len(initiator) // 2], 0, initiator)
        self.assertEqual(self.gnstor("volume", "list")["volumes"], [], "the benchmark must remove its volumes")

    def test_nodes_of_this_machine_are_measured_over_shared_memory(self):
        up, address = self.serve("--nodes", "2")
        result = self.dir.parent / "r.json"
        ended = bench("load", "--array", address, *SHORT, "--write-percent", "0,50", "--json", result)
        self.assertIn("Wire: shm: the nodes work on queues in this process's memory", ended.stdout)
        self.assertIn("all as written", ended.stdout)
        run = json.loads(result.read_text())
        self.assertEqual(run["configuration"]["wire"], "shm: the nodes work on queues in this process's memory")
        processes = {f"process_gnstor-{node['pid']}_cpu_seconds" for node in up["nodes"]}
        for repeat in (r for c in run["cases"] for r in c["repeats"]):
            self.assertEqual({name for name in repeat if name.startswith("process_")}, processes)
            self.assertGreater(repeat["operations"], 0)
            counts["bench_served_requests"] += repeat["operations"]
        self.assertEqual(self.gnstor("volume", "list")["volumes"], [], "the benchmark must remove its volumes")

    def test_the_whole_path_is_measured_over_packets_and_its_volumes_go(self):
        up, address = self.serve("--nodes", "2")
        result = self.dir.parent / "r.json"
        ended = bench("path", "--array", address, "--address", f"127.52.{os.getpid() % 250}.2", *SHORT, "--sizes", "512,4096", "--no-reference", "--json", result)
        self.assertIn("Wire: udp from ", ended.stdout)
        self.assertIn("4 SSDs that other processes serve", ended.stdout)
        # 4 MiB after each of two repeats of writes.
        self.assertRegex(ended.stdout, "Checked: [0-9,]+ reads, every word; 2,048 blocks after writes; all as written")
        text = result.read_text()
        run = json.loads(text)
        self.assertTrue(run["configuration"]["wire"].startswith("udp from "), run["configuration"])
        self.assertEqual((run["configuration"]["ssds"], run["configuration"]["drives"]), (4, "served by other processes"))
        self.assertNotIn("engine threads", run["configuration"], "the benchmark does not know the engine threads of the nodes")
        self.assertNotIn(str(self.dir), text, "the result must not contain a folder of this machine")
        self.assertIn("unix:SOCKET", run["command"])
        processes = {f"process_gnstor-{node['pid']}_cpu_seconds" for node in up["nodes"]}
        self.assertEqual([(c["parameters"]["operation"], c["parameters"]["bytes"]) for c in run["cases"]], [("read", 512), ("read", 4096), ("write", 4096)])
        for repeat in (r for c in run["cases"] for r in c["repeats"]):
            self.assertEqual({name for name in repeat if name.startswith("process_")}, processes)
            self.assertGreater(repeat["engine_cpu_seconds"], sum(repeat[name] for name in processes))
            counts["bench_served_requests"] += repeat["operations"]
        self.assertEqual(self.gnstor("volume", "list")["volumes"], [], "the benchmark must remove its volumes")

    def test_one_lane_alone_on_shared_memory_and_gnstors_own_array_option(self):
        up, address = self.serve("--nodes", "1")
        words = [GNSTOR, "--array", address, "--output", "json", "bench", "path", "--alone", *SHORT, "--sizes", "4096", "--ops", "read"]
        ended = subprocess.run(words, capture_output=True, text=True, timeout=150)
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
        run = json.loads(ended.stdout)
        self.assertTrue(run["configuration"]["wire"].startswith("shm: the node"), run["configuration"])
        self.assertEqual(len(run["cases"]), 3)
        for repeat in (r for c in run["cases"] for r in c["repeats"]):
            self.assertEqual([n for n in repeat if n.startswith("process_")], [f"process_gnstor-{up['nodes'][0]['pid']}_cpu_seconds"])
        # Told by the environment, it says so; a benchmark that has no use for it is not stopped by that, but by the word.
        told = subprocess.run([GNSTOR, "bench", *SHORT, "--bytes", "4096", "--write-percent", "0"], capture_output=True, text=True, timeout=150, env=dict(ENV, GNSTOR_ARRAY=address))
        self.assertEqual(told.returncode, 0, told.stdout + told.stderr)
        self.assertIn("(GNSTOR_ARRAY)", told.stderr)
        self.assertIn("Wire: shm", told.stdout)
        refused = subprocess.run([GNSTOR, "--array", address, "bench", "pool"], capture_output=True, text=True, timeout=150)
        self.assertEqual(refused.returncode, 2)
        self.assertIn("measures only an array that it creates itself", refused.stderr)
        self.assertEqual(self.gnstor("volume", "list")["volumes"], [])

    def test_one_nodes_ssds_are_measured_over_shared_memory_with_its_cpu_time(self):
        up, address = self.serve("--nodes", "1")
        run = json.loads(bench("load", "--array", address, *SHORT, "--output", "json").stdout)
        self.assertTrue(run["configuration"]["wire"].startswith("shm: the node"), run["configuration"])
        process = f"process_gnstor-{up['nodes'][0]['pid']}_cpu_seconds"
        for repeat in (r for c in run["cases"] for r in c["repeats"]):
            self.assertEqual([n for n in repeat if n.startswith("process_")], [process])
            self.assertGreater(repeat[process], 0)
            counts["bench_served_requests"] += repeat["operations"]

    def test_gnstords_own_ssds_are_measured_over_shared_memory(self):
        up, address = self.serve()
        run = json.loads(bench("load", "--array", address, *SHORT, "--clients", "2", "--output", "json").stdout)
        self.assertTrue(run["configuration"]["wire"].startswith("shm"), run["configuration"])
        for repeat in (r for c in run["cases"] for r in c["repeats"]):
            self.assertEqual([n for n in repeat if n.startswith("process_")], [f"process_gnstord-{up['pid']}_cpu_seconds"])
            self.assertAlmostEqual(repeat["engine_cpu_seconds"], repeat[f"process_gnstord-{up['pid']}_cpu_seconds"], places=6)
            counts["bench_served_requests"] += repeat["operations"]
        self.assertEqual(self.gnstor("volume", "list")["volumes"], [])

    def test_an_embedded_run_names_its_wire_too(self):
        run = json.loads(bench("load", "--path", "gnor", *SHORT, "--write-percent", "0", "--engine-threads", "1", "--output", "json").stdout)
        self.assertTrue(run["configuration"]["wire"].startswith("loop"))
        self.assertEqual(run["configuration"]["array"], "in this process")

    def test_wrong_usage_is_refused_with_a_word(self):
        for arguments, code, word in (
            (["--path", "gd"], 2, "gd"), (["--path", "gnor,strong-cpu"], 2, "strong-cpu"), (["--ssds", "4"], 2, "--ssds"), (["--engine-threads", "1"], 2, "--engine-threads"),
            (["--profile", "none"], 2, "--profile"), (["--steady"], 2, "--steady"), (["--write-budget", "64MiB"], 2, "--write-budget"), ([], 1, "no socket /nonexistent"),
        ):
            with self.subTest(arguments=arguments):
                self.assertIn(word, bench("load", "--array", "unix:/nonexistent", *arguments, code=code).stderr)
        for arguments, word in ((["--ssds", "4"], "--ssds"), (["--store", "."], "--store"), (["--profile", "none"], "--profile"), (["--durability", "power"], "--durability")):
            with self.subTest(arguments=arguments):
                self.assertIn(word, bench("path", "--array", "unix:/nonexistent", *arguments, code=2).stderr)
        self.assertIn("no socket /nonexistent", bench("path", "--array", "unix:/nonexistent", code=1).stderr)
        self.assertIn("unix:PATH", bench("load", "--array", "nowhere", code=2).stderr)
        self.assertIn("--array", bench("load", "--token-file", "x", code=2).stderr)
        self.assertIn("--array", bench("paper", "--figure", "9", "--json", "x", "--array", "unix:/x", code=2).stderr)


if __name__ == "__main__":
    result = unittest.main(exit=False).result
    for name, value in counts.items():
        print(f"GN_COUNT {name}={value}")
    sys.exit(0 if result.wasSuccessful() else 1)
