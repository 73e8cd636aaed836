#!/usr/bin/env python3
"""`bench wire` from outside: every wire beside memcpy and sockets, checked, judged and kept; its node is a process of its own that never
outlives it, and whose death it notices. Argument: gnstor_bench."""
import os
import pathlib
import select
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import run_tables  # noqa: E402

PROGRAM = os.path.abspath(sys.argv.pop(1))
# Ends of this process's own: nobody else of this machine is in the way on theirs.
OWN_ENDS = ",".join(f"127.{128 + (os.getpid() >> 8 & 63)}.{os.getpid() & 255}.{end}" for end in (4, 5))
DEADLINE_S = 150


def children(pid):
    """Of every thread of it."""
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:  # gone meanwhile
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            found.append(int(entry.parent.name))
    return found


class ShortRun(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "wire-cpu-test.json")
            cls.ended = subprocess.run([PROGRAM, "wire", "--repeats", "2", "--seconds", "0.05", "--addresses", OWN_ENDS, "--json", str(path)],
                                       capture_output=True, text=True, timeout=150,
                                       env=dict(os.environ, TMPDIR=folder, GNSTOR_LOG="error"))
            cls.run_ = run_tables.load(path) if path.exists() else None
            cls.left = [p.name for p in pathlib.Path(folder).iterdir() if p != path]

    def cases(self, through):
        found = [c for c in self.run_["cases"] if c["parameters"]["through"] == through]
        self.assertTrue(found, f"no case through {through}")
        return found

    def test_every_wire_is_measured_and_checked_beside_memcpy_and_sockets(self):
        self.assertEqual((self.ended.returncode, self.ended.stderr), (0, ""), self.ended.stdout)
        self.assertEqual(self.left, [], "files were left in the folder of temporary files")
        operations = 0
        for through in ("loop", "shm", "udp"):
            seen = {tuple(c["parameters"][k] for k in ("operation", "bytes", "depth")) for c in self.cases(through)}
            self.assertEqual(seen, {(o, b, d) for o in ("RDMA WRITE", "RDMA READ") for b in (4096, 65536) for d in (1, 32)})
            for repeat in (r for c in self.cases(through) for r in c["repeats"]):
                self.assertGreater(repeat["checked"], 0)
                self.assertEqual(repeat["latency_ns"]["samples"], repeat["operations"])
                self.assertEqual("retransmissions" in repeat, through == "udp")
                self.assertEqual("node_cpu_seconds" in repeat, through == "shm")
                operations += repeat["operations"]
        self.assertEqual({c["parameters"]["bytes"] for c in self.cases("memcpy") + self.cases("TCP socket")}, {4096, 65536})
        self.assertEqual({(c["parameters"]["bytes"], c["parameters"]["datagram"]) for c in self.cases("UDP socket")},
                         {(4096, 4096), (4096, 1024), (65536, 4096), (65536, 1024), (65536, 65507)})
        for repeat in (r for c in self.cases("UDP socket") for r in c["repeats"]):
            self.assertIn("lost_share", repeat)
        if "LEFT OUT: UDP with GSO" not in self.ended.stdout:
            self.assertEqual(len(self.cases("UDP socket, GSO and GRO")), 2)
        print(f"\nGN_COUNT bench_wire_operations={operations}", flush=True)

    def test_packets_are_counted_and_none_is_lost_by_our_own_overrun(self):
        for case in self.cases("udp"):
            packets_each = -(-case["parameters"]["bytes"] // 4096)  # the largest MTU
            for repeat in case["repeats"]:
                self.assertGreaterEqual(repeat["packets"], repeat["operations"] * packets_each)
                self.assertEqual(repeat["receive_overruns"], 0)
        self.assertEqual(self.run_["verdicts"]["receive_overruns"], 0)
        self.assertIn(" 0 lost by our own overrun (aimed at 0: met)", self.ended.stdout)

    def test_client_and_node_have_their_cpu_time_apart(self):
        for case in self.cases("shm"):
            for repeat in case["repeats"]:
                self.assertEqual((repeat["client_cpu_seconds"], repeat["node_cpu_seconds"]), (repeat["lane_cpu_seconds"], repeat["engine_cpu_seconds"]))
            self.assertGreater(sum(r["node_cpu_seconds"] for r in case["repeats"]), 0)
            self.assertGreater(sum(r["client_cpu_seconds"] for r in case["repeats"]), 0)

    def test_what_is_aimed_at_stands_under_the_table_and_in_the_result(self):
        header = next(line for line in self.ended.stdout.splitlines() if line.startswith("case"))
        for column in ("IOPS", "GB/s", "p99 us", "engine us", "lanes us", "CPU s/GB", "resent", "overruns", "lost %"):
            self.assertIn(column, header)
        ratios = self.run_["verdicts"]["ratios"]
        self.assertEqual(sum(r.get("target") == 0.8 for r in ratios), 8)
        # Sockets lose what they cannot take, in so short a run on a busy machine all of it: no ratio then.
        whole = [c for c in self.cases("UDP socket") if c["parameters"]["datagram"] == 65507]
        aimed = 2 * all(r["bytes"] for c in whole for r in c["repeats"])
        self.assertEqual(sum(r.get("target") == 0.5 for r in ratios), aimed)
        for ratio in ratios:
            self.assertLessEqual(ratio["least"], ratio["median"])
            self.assertLessEqual(ratio["median"], ratio["most"])
            if "target" in ratio:
                self.assertEqual(ratio["met"], ratio["median"] >= ratio["target"])
        self.assertEqual(self.ended.stdout.count("aimed at 0.80: "), 8)
        self.assertEqual(self.ended.stdout.count("aimed at 0.50: "), aimed)

    def test_the_renderer_takes_it(self):
        self.assertIn("bytes 4096, depth 32, RDMA WRITE, shm", run_tables.table("x.json", self.run_))


class NodeProcess(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.bench = subprocess.Popen([PROGRAM, "wire", "--wires", "shm", "--sizes", "4096", "--seconds", "60", "--repeats", "1"], text=True,
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ, TMPDIR=self.folder.name))
        self.addCleanup(self.bench.communicate)
        self.addCleanup(self.bench.kill)
        until = time.monotonic() + DEADLINE_S
        while not (found := self.serving()):
            self.assertIsNone(self.bench.poll(), "the benchmark ended before it started its node process")
            self.assertLess(time.monotonic(), until, "the benchmark started no node process")
        self.node = found[0]
        self.watched = os.pidfd_open(self.node)
        self.addCleanup(os.close, self.watched)
        self.addCleanup(self.end_node)

    def end_node(self):
        try:
            signal.pidfd_send_signal(self.watched, signal.SIGKILL)
        except ProcessLookupError:  # as it shall be
            pass

    def serving(self):
        """Its child, once that serves."""
        return list(pathlib.Path(self.folder.name).glob("*.sock")) and children(self.bench.pid)

    def test_it_ends_with_the_one_that_started_it(self):
        self.assertNotEqual(self.node, self.bench.pid)
        self.bench.kill()
        self.bench.wait(DEADLINE_S)
        self.assertTrue(select.select([self.watched], [], [], DEADLINE_S)[0], "the node process did not end with its client")

    def at_work(self):
        """It has had a tenth of a second of CPU time: idle, it sleeps."""
        fields = pathlib.Path(f"/proc/{self.node}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12]) >= os.sysconf("SC_CLK_TCK") // 10

    def test_its_death_fails_the_run_at_once_and_is_said(self):
        until = time.monotonic() + DEADLINE_S
        while not self.at_work():
            self.assertLess(time.monotonic(), until, "the node process did not start to work")
        os.kill(self.node, signal.SIGKILL)
        out, err = self.bench.communicate(timeout=DEADLINE_S)
        self.assertEqual(self.bench.returncode, 1, out + err)
        self.assertRegex(err, "the node's process ended with [0-9]+ operations under way")
        self.assertEqual(list(pathlib.Path(self.folder.name).iterdir()), [])


if __name__ == "__main__":
    unittest.main()
