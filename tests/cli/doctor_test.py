#!/usr/bin/env python3
"""gnstor doctor on this machine: what a test can bring about is found, and is gone when it is. Arguments: the gnstor and gnstord programs."""
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess

from programs import DEADLINE_S, GNSTOR, Programs, count, main

ADDRESS = "127.0.47.91"
NOBODY = 65534
CAP_NET_RAW = 13  # linux/capability.h


class Doctor(Programs):
    def doctor(self, *words):
        """Its checks by name; the exit code has to fit them."""
        count("commands")
        done = self.cli("doctor", "--address", ADDRESS, "--output", "json", *words, code=None)
        answer = json.loads(done.stdout)
        problems = [check for check in answer["checks"] if check["state"] == "problem"]
        self.assertEqual(done.returncode, 1 if problems else 0, answer)
        self.assertEqual(answer["problems"], len(problems))
        for check in answer["checks"]:
            self.assertEqual(bool(check["remedy"]), check["state"] != "ok", check)
        return {check["check"]: check for check in answer["checks"]}

    def test_a_taken_port_is_named_with_who_has_it(self):
        self.assertEqual(self.doctor()["udp-port"]["state"], "ok")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
            taken.bind((ADDRESS, 4791))
            found = self.doctor()["udp-port"]
            self.assertEqual(found["state"], "problem")
            self.assertIn(f"process {os.getpid()}", found["found"])
            self.assertIn(ADDRESS, found["found"])
            table = self.cli("doctor", "--address", ADDRESS, code=1).stdout.decode()
            self.assertIn("PROBLEM", table)
            self.assertIn("to do: stop process", table)
        self.assertEqual(self.doctor()["udp-port"]["state"], "ok")
        other = self.doctor("--address", "192.0.2.99")["udp-port"]
        self.assertIn("not an address of this machine", other["found"])

    def test_a_user_without_capabilities_is_told_and_one_with_sees_his_node(self):
        own = dict(line.split(":\t", 1) for line in pathlib.Path("/proc/self/status").read_text().splitlines())
        bounded = not int(own["CapBnd"], 16) >> CAP_NET_RAW & 1 or int(own["NoNewPrivs"]) or os.statvfs(self.root).f_flag & os.ST_NOSUID
        if os.geteuid() != 0 or shutil.which("setcap") is None or bounded:
            self.skipTest("needs root, setcap, and files with capabilities to be a user with and without one")
        self.root.chmod(0o755)
        plain, able, folder = self.root / "gnstor", self.root / "able" / "gnstor", self.root / "node"
        able.parent.mkdir()
        folder.mkdir()
        os.chown(folder, NOBODY, NOBODY)
        for program in (plain, able):
            shutil.copy(GNSTOR, program)
        if subprocess.run(["setcap", "cap_net_raw+ep", able], capture_output=True, check=False).returncode != 0:
            self.skipTest("this file system keeps no capabilities")
        # Leaks are looked for by ptrace, which a program with capabilities does not let its user do.
        env = dict(self.env, ASAN_OPTIONS=os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0")
        user = {"user": NOBODY, "group": NOBODY, "extra_groups": [], "cwd": "/", "env": env, "stdout": subprocess.PIPE}

        def doctor(program):
            count("commands")
            words = [program, "doctor", "--address", ADDRESS, "--dir", folder, "--output", "json"]
            done = subprocess.run(words, stderr=subprocess.PIPE, timeout=DEADLINE_S, check=False, **user)
            return {check["check"]: check for check in json.loads(done.stdout)["checks"]}

        told = doctor(plain)["raw-socket"]
        self.assertEqual(told["state"], "warning")
        self.assertIn(f"setcap cap_net_raw+ep {plain}", told["remedy"])
        words = [able, "node", "--dir", folder, "--listen", ADDRESS, "--ssds", "1", "--capacity", "64MiB"]
        with subprocess.Popen(words, **user) as node:
            try:
                while b"serving 1 SSDs" not in (line := node.stdout.readline()):
                    self.assertTrue(line, "the node did not start")
                found, by_another = doctor(able), doctor(plain)
            finally:
                node.terminate()
            self.assertEqual(node.wait(DEADLINE_S), 0)
        self.assertEqual(found["raw-socket"]["state"], "ok")
        for said in (found, by_another):  # it has given its capability up
            self.assertIn(f"gnstor (process {node.pid}), a part of an array", said["udp-port"]["found"])

    def test_versions_of_daemon_and_stores_are_compared(self):
        self.assertIn("no daemon runs", self.doctor()["versions"]["found"])
        self.ask("up", "--ssds", "2", "--capacity", "64MiB")
        self.assertIn("the daemon the same, 2 stores", self.doctor()["versions"]["found"])
        os.kill(self.pid(), signal.SIGSTOP)
        try:
            stopped = self.doctor()["versions"]
        finally:
            os.kill(self.pid(), signal.SIGCONT)
        self.assertEqual(stopped["state"], "problem")
        self.ask("down")
        store = self.dir / "ssd-1.store"
        with open(store, "r+b") as f:
            f.seek(8)
            f.write(b"\x07")
        newer = self.doctor()["versions"]
        self.assertEqual(newer["state"], "problem")
        self.assertIn("format 7", newer["found"])
        store.write_bytes(b"something else")
        self.assertIn("is not the store of an SSD", self.doctor()["versions"]["found"])

    def test_a_full_disk_is_found_before_it_is_met(self):
        self.assertIn(self.doctor("--dir", self.root)["free-space"]["state"], ("ok", "problem"))
        place = self.small_disk("small", "size=1m")
        if place is None:
            return
        found = self.doctor("--dir", place / "not-there-yet")["free-space"]
        self.assertEqual(found["state"], "problem")
        self.assertIn("1 MiB free", found["found"])


if __name__ == "__main__":
    main("cli_doctor")
