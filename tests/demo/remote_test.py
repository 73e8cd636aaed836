#!/usr/bin/env python3
"""The demo on arrays of other processes: its own (udp and shm), one that runs already, wrong ones, and ones that are killed meanwhile.
Arguments: the demo, gnstor, gnstord."""
import contextlib
import json
import os
import pathlib
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from hay import CHUNK, PATTERN, haystack

DEMO, GNSTOR, GNSTORD = (os.path.abspath(sys.argv.pop(1)) for _ in range(3))
DEADLINE_S = 150
TRIES = 10
counts = {"demo_remote_matches": 0, "demo_remote_kills": 0}


class Remote(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="gn-")
        self.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name)
        self.places = [0, CHUNK - 7, 2 * CHUNK - 1, 5 * CHUNK - len(PATTERN)]
        self.file = self.root / "hay"
        self.file.write_bytes(haystack(5 * CHUNK + 777, self.places))
        # Folders of the demo, and the logs that it keeps after a failure, go with the test.
        self.env = dict(os.environ, GNSTOR=GNSTOR, GNSTORD=GNSTORD, TMPDIR=str(self.root))
        self.env.pop("GNSTOR_TOKEN_FILE", None)

    def words(self, *arguments, file=None):
        return [DEMO, "--lanes", "cpu", "--input", str(file or self.file), "--pattern", PATTERN.decode(), *map(str, arguments)]

    def demo(self, *arguments, code=0, **more):
        ended = subprocess.run(self.words(*arguments, **more), capture_output=True, text=True, timeout=DEADLINE_S, env=self.env)
        self.assertEqual(ended.returncode, code, ended.stdout + ended.stderr)
        return ended

    def gnstor(self, *arguments, code=0):
        ended = subprocess.run([GNSTOR, *map(str, arguments), "--dir", str(self.root / "served"), "--output", "json"], capture_output=True, text=True,
                               timeout=DEADLINE_S, env=self.env)
        self.assertEqual(ended.returncode, code, ended.stdout + ended.stderr)
        return json.loads(ended.stdout) if code == 0 else ended.stderr

    def serve(self, *arguments):
        self.addCleanup(self.gnstor, "down")
        return self.gnstor("up", "--ssds", "2", "--capacity", "128MiB", "--durability", "process", *arguments)

    def agreed(self, ended):
        self.assertIn("every answer agrees", ended.stdout)
        self.assertEqual(int(re.search(r"\[ok\] (\d+) matches of the kernel, \1 of grep", ended.stdout)[1]), len(self.places))
        self.assertRegex(ended.stdout, r"\[ok\] \d+ block CRC-32Cs of the kernel against the CPU's on the original: 0 differ")
        self.assertRegex(ended.stdout, r"\[ok\] reads posted by lanes, counted by channels: (\d+); executed, counted by SSDs: \1\n")
        self.assertRegex(ended.stdout, r"\[ok\] writes posted by lanes, 2 replicas, counted by channels: (\d+); executed, counted by SSDs: \1\n")
        counts["demo_remote_matches"] += len(self.places)

    def pids(self, text):
        return sorted({int(pid) for pid in re.findall(r"\(process (\d+)\)", text)})

    def gone(self, pids):
        """Stopped processes may be another parent's to reap: a zombie has ended."""
        for pid in pids:
            try:
                state = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
            except (FileNotFoundError, ProcessLookupError):
                continue
            self.assertIn(state, "ZX", f"process {pid} still runs")

    def test_an_array_of_nodes_is_started_used_over_packets_and_taken_down(self):
        ended = self.demo("--remote", "--address", f"127.53.{os.getpid() % 250}.1")
        self.agreed(ended)
        self.assertRegex(ended.stdout, r"wire: udp from [\d.]+ to [\d.]+, [\d.]+, \d+ bytes a packet")
        self.assertRegex(ended.stdout, r"daemon suspended: yes, from before the kernel until after it")
        pids = self.pids(ended.stdout)
        self.assertEqual(len(pids), 3, "gnstord and two nodes")
        self.gone(pids)
        nodes = re.search(r"[0-9.]+ s of CPU of processes gnstor (\d+), gnstor (\d+)", ended.stdout)
        self.assertTrue(nodes, ended.stdout)
        self.assertTrue({int(pid) for pid in nodes.groups()} < set(pids))
        self.assertEqual([p.name for p in self.root.iterdir()], ["hay"], "the demo left files")
        stated = re.search(r"stores and logs in (\S+)", ended.stdout)[1]
        self.assertFalse(pathlib.Path(stated).exists())

    def test_an_array_of_one_process_is_used_over_shared_memory(self):
        ended = self.demo("--remote", "--nodes", "0")
        self.agreed(ended)
        self.assertIn("wire: shm: gnstord works on queues in this process's memory", ended.stdout)
        self.assertIn("daemon suspended: no, gnstord's process also serves the SSDs", ended.stdout)
        self.gone(self.pids(ended.stdout))

    def test_an_array_that_runs_is_used_and_left_as_it_was(self):
        for nodes, wire in (([], "wire: shm: gnstord works"), (["--nodes", "1"], "wire: shm: the node works"), (["--nodes", "2"], "wire: shm: the nodes work")):
            with self.subTest(nodes=nodes):
                up = self.serve(*nodes)
                ended = self.demo("--remote", f"unix:{up['socket']}")
                self.agreed(ended)
                self.assertIn(wire, ended.stdout)
                self.assertIn("the demo does not stop an array that it has not started", ended.stdout)
                self.assertEqual(self.gnstor("volume", "list")["volumes"], [])
                self.assertTrue(self.gnstor("status")["map_in_force"])
                self.gnstor("down")
                for store in (self.root / "served").iterdir():
                    subprocess.run(["rm", "-rf", str(store)], check=True)

    def test_over_http_it_shows_the_token(self):
        up = self.serve("--nodes", "1", "--listen", "127.0.0.1:0")
        port = re.search(r"127\.0\.0\.1:(\d+)", (self.root / "served" / "gnstord.log").read_text())[1]
        token = self.root / "served" / "gnstord.token"
        self.agreed(self.demo("--remote", f"http://127.0.0.1:{port}", "--token-file", token))
        self.assertIn("token", self.demo("--remote", f"http://127.0.0.1:{port}", "--token-file", self.root / "none", code=1).stderr)
        self.assertNotEqual(up["pid"], 0)

    def test_wrong_addresses_and_options_end_with_a_sentence(self):
        stale = self.root / "stale"
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(stale))
        for arguments, code, word in (
            (["--remote", "nowhere"], 2, "unix:PATH"), (["--remote", "unix:/nonexistent"], 1, "no socket /nonexistent"), (["--remote", f"unix:{stale}"], 1, "stale"),
            (["--remote", f"unix:{self.file}"], 1, "not a socket"), (["--remote", "http://127.0.0.1:9", "--token-file", self.file], 1, "token"),
            (["--remote", "http://h"], 2, "HOST:PORT"), (["--remote", "--corrupt"], 2, "--corrupt"), (["--remote", "--kill"], 2, "--kill"), (["--remote", "--strict"], 2, "--strict"),
            (["--remote", "unix:/x", "--ssds", "2"], 2, "--ssds"), (["--remote", "unix:/x", "--nodes", "2"], 2, "--nodes"), (["--nodes", "2"], 2, "--remote"),
            (["--remote", "--nodes", "3"], 2, "--nodes 3"), (["--remote", "--nodes", "17"], 2, "--nodes"), (["--remote", "--token-file", "x"], 2, "--token-file"),
        ):
            with self.subTest(arguments=arguments):
                self.assertIn(word, self.demo(*arguments, code=code).stderr)

    def test_what_is_no_gnstord_of_this_version_is_refused(self):
        # Answers as another version, another program, or nobody in particular might.
        for body, says in ((b'{"map": {"version": 1, "slots": "four"}, "ssds": []}', "what answers is not gnstord"), (b"<html>hello</html>", "not gnstord"),
                           (b'{"ssds": 7}', "what answers is not gnstord")):
            with self.subTest(body=body), socket.socket(socket.AF_UNIX) as listener:
                path = self.root / f"other-{counts['demo_remote_matches']}-{len(body)}"
                listener.bind(str(path))
                listener.listen(8)

                def answer(listener=listener, body=body):
                    try:
                        while True:
                            connection, _ = listener.accept()
                            with connection:
                                connection.recv(65536)
                                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
                    except OSError:
                        return
                thread = threading.Thread(target=answer, daemon=True)
                thread.start()
                self.assertIn(says, self.demo("--remote", f"unix:{path}", code=1).stderr)
                listener.shutdown(socket.SHUT_RDWR)
                thread.join(10)

    def test_without_programs_to_start_it_says_which(self):
        self.env["GNSTOR"] = "/nonexistent/gnstor"
        self.assertIn("/nonexistent/gnstor", self.demo("--remote", code=1).stderr)
        self.env["GNSTOR"], self.env["GNSTORD"] = GNSTOR, "/nonexistent/gnstord"
        self.assertIn("/nonexistent/gnstord", self.demo("--remote", code=1).stderr)

    def begun(self, *arguments, until, big=24 << 20):
        """A demo at work on more than it does in a moment, as far as a line that matches `until`."""
        hay = self.root / "big"
        hay.write_bytes(haystack(big, self.places))
        process = subprocess.Popen(self.words(*arguments, file=hay), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.env)
        said = ""
        for line in process.stdout:
            said += line
            if re.search(until, line):
                return process, said
        self.fail(said + process.stderr.read())

    def struck(self, strike, *arguments):
        """A demo at its storing, which `strike(process, pids)` befalls before it has come to its end. A machine that lets this process
        stand still may let the demo come to its end first: then again. Returns the process, its array's, and what it said."""
        for _ in range(TRIES):
            process, said = self.begun(*arguments, until="^2. Store")
            pids = self.pids(said)
            strike(process, pids)
            begin = time.monotonic()
            out, err = process.communicate(timeout=DEADLINE_S)
            self.assertLess(time.monotonic() - begin, 100)
            # It says so after its last use of the array.
            if "every answer agrees" not in out:
                return process, pids, out, err, said + out + err
            self.gone(pids)
        self.fail(f"in {TRIES} tries the demo ended before it could be interrupted: {out}{err}")

    @staticmethod
    def kill_array(process, pids):
        # Between a look whether it is there and the kills it does not move on and let its processes go.
        process.send_signal(signal.SIGSTOP)
        if process.poll() is None:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    ended = os.pidfd_open(pid)
                    os.kill(pid, signal.SIGKILL)
                    # A killed process needs a processor to end.
                    select.select([ended], [], [], 30)
                    os.close(ended)
        process.send_signal(signal.SIGCONT)

    def test_the_death_of_its_array_ends_it_with_an_error_in_bounded_time(self):
        for nodes in ("2", "0"):
            with self.subTest(nodes=nodes):
                process, pids, out, err, all_said = self.struck(self.kill_array, "--remote", "--nodes", nodes)
                self.assertEqual(process.returncode, 1, all_said)
                self.assertRegex(err, "demo: .*(failed|does not answer|without an answer|no association|has ended|stale|no longer exists|lost)")
                kept = re.search(r"logs of its processes are kept in (\S+)", out)
                self.assertTrue(list(pathlib.Path(kept[1]).glob("*.log")))
                self.gone(pids)
                counts["demo_remote_kills"] += len(pids)

    def test_an_interrupted_demo_takes_its_array_down(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(signal=number):
                process, pids, _, _, all_said = self.struck(lambda process, _, number=number: process.send_signal(number), "--remote")
                self.assertEqual(len(pids), 3)
                self.assertEqual(process.returncode, 128 + number, all_said)
                self.gone(pids)
                self.assertEqual(sorted(p.name for p in self.root.iterdir()), ["big", "hay"], "the demo left files")
                counts["demo_remote_kills"] += 1


if __name__ == "__main__":
    result = unittest.main(exit=False).result
    for name, value in counts.items():
        print(f"GN_COUNT {name}={value}")
    sys.exit(0 if result.wasSuccessful() else 1)
