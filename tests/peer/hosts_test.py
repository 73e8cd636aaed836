#!/usr/bin/env python3
"""Two nodes, gnstord and a client on four hosts (network namespaces with links of their own): files over MTU 1500 and 9000, over a link
that loses, doubles, delays and damages packets, and over links that die for a while. Arguments: the gnstor and gnstord programs."""
import itertools
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
import hosts  # noqa: E402

if __name__ == "__main__":
    hosts.enter()

from programs import DEADLINE_S, DEFECTS, GNSTOR, GNSTORD, SEED, Programs, count, main  # noqa: E402

ADDRESSES = {"storage1": "10.78.0.1", "storage2": "10.78.0.2", "manager": "10.78.0.9", "client": "10.78.0.20"}
NODES = ("storage1", "storage2")
API = f"https://{ADDRESSES['manager']}:8470"
BIG = 12_000_001
MOMENT = 1.0  # seconds; connections live through twice as long an outage
TRIES = 10
# Takes the port of RoCEv2 at an address, until it is killed.
BINDER = ("import signal, socket, sys; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind((sys.argv[1], 4791)); "
          "print('bound', flush=True); signal.pause()")


class Hosts(Programs):
    @classmethod
    def setUpClass(cls):
        cls.hosts = hosts.Hosts(ADDRESSES, "storage1", SEED)

    @classmethod
    def tearDownClass(cls):
        cls.hosts.close()

    def setUp(self):
        super().setUp()
        self.running = {}
        self.hosts.cable.tell("mend")
        for host in ADDRESSES:
            self.hosts.set_link(host, "up")
        self.hosts.set_mtu(1500)
        self.to_stop = []

    def tearDown(self):
        for host in reversed(list(self.running)):
            self.stop(host)
        super().tearDown()

    def start(self, host, ready, *words):
        """Until the program has said that it is ready."""
        process = subprocess.Popen(hosts.Hosts.on(host, *words), env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT)
        said, is_ready = [], threading.Event()

        def listen():
            for line in process.stdout:
                said.append(line)
                if ready in line:
                    is_ready.set()
            is_ready.set()

        listener = threading.Thread(target=listen)
        listener.start()
        self.running[host] = (process, listener, said)
        self.assertTrue(is_ready.wait(DEADLINE_S) and process.poll() is None, (host, said))

    def stop(self, host, how=signal.SIGTERM):
        process, listener, said = self.running.pop(host)
        process.send_signal(how)
        code = process.wait(DEADLINE_S)
        listener.join()
        process.stdout.close()
        text = b"".join(said)
        self.assertEqual(code, 0 if how == signal.SIGTERM else -how, (host, text[-3000:]))
        for defect in DEFECTS:
            self.assertNotIn(defect, text, host)

    def array(self, *words):
        """Both nodes, gnstord for them, and a client that knows it by its address, certificate and token."""
        for host in NODES:
            self.start(host, b"serving 2 SSDs", GNSTOR, "node", "--dir", self.root / host, "--listen", ADDRESSES[host], "--ssds", 2,
                       "--capacity", "256MiB")
        self.start("manager", b"gnstord: serving", GNSTORD, "--dir", self.dir, "--nodes", ",".join(ADDRESSES[host] for host in NODES),
                   *(word for host in NODES for word in ("--node-key", f"{ADDRESSES[host]}={self.root / host / 'node.key'}")),
                   "--listen", API.removeprefix("https://"), *words)
        self.env.update(GNSTOR_ARRAY=API, GNSTOR_TOKEN_FILE=str(self.dir / "gnstord.token"), GNSTOR_TLS_CA=str(self.dir / "gnstord.crt"))

    def cli(self, *words, code=0, says=None, stdin=b"", host="client", seconds=DEADLINE_S):
        count("commands")
        words = hosts.Hosts.on(host, GNSTOR, *words)
        done = subprocess.run(words, env=self.env, input=stdin, capture_output=True, timeout=seconds, check=False)
        return self.check(words, done, code, says)

    def begin(self, *words):
        return subprocess.Popen(hosts.Hosts.on("client", GNSTOR, *words), env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE)

    def end(self, process, words, code=0, says=None):
        out, err = process.communicate(timeout=DEADLINE_S)
        return self.check(words, subprocess.CompletedProcess(words, process.returncode, out, err), code, says)

    def file(self, name, size):
        data = self.random.randbytes(size)
        return data, self.write(name, data)

    def until(self, condition, what):
        """Asks again and again; the asking takes its time."""
        end = time.monotonic() + DEADLINE_S
        while not (found := condition()):
            self.assertLess(time.monotonic(), end, what)
        return found

    def whole(self):
        status = self.ask("status")
        return status["map_in_force"] and not status["warnings"] and all(ssd["state"] == "in" for ssd in self.ask("ssd", "list")["ssds"])

    def files_cross(self, sizes):
        """put, ls, get, cat, rm; returns bytes a packet at the client."""
        packets, moved = self.hosts.moved("client")
        kept = {}
        for number, size in enumerate(sizes):
            kept[f"f{number}"], path = self.file("in", size)
            put = self.cli("put", path, f"f{number}")
            self.assertIn(f"wire: udp from {ADDRESSES['client']} to {ADDRESSES['storage1']}, {ADDRESSES['storage2']}", put.stderr.decode())
        self.assertEqual({o["name"]: o["bytes"] for o in self.ask("ls")["objects"]}, {name: len(data) for name, data in kept.items()})
        for name, data in kept.items():
            self.cli("get", name, self.root / "out")
            self.assertEqual((self.root / "out").read_bytes(), data, name)
            self.assertEqual(self.cli("cat", name).stdout, data, name)
            count("bytes", 3 * len(data))
        for name in kept:
            self.cli("rm", name)
        self.assertEqual(self.ask("ls")["objects"], [])
        packets, moved = (now - before for now, before in zip(self.hosts.moved("client"), (packets, moved)))
        print(f"  {packets} packets of {moved // packets} bytes on average at the client")
        return moved / packets

    def test_files_cross_hosts_of_mtu_1500(self):
        self.array()
        self.assertLess(self.files_cross((0, 1, 4096, 70_000, BIG)), 1200)

    def test_files_cross_hosts_of_mtu_9000_in_packets_of_4_kib(self):
        self.hosts.set_mtu(9000)
        self.array()
        self.files_cross((0, 1, 4096, 70_000))  # apart: most packets of small files only connect and authenticate
        self.assertGreater(self.files_cross((BIG,)), 2000)

    def test_a_node_with_a_smaller_mtu_gets_packets_that_fit(self):
        self.hosts.set_mtu(9000)
        self.hosts.set_mtu(1500, "storage2")
        self.array()
        self.files_cross((300_000,))

    def test_a_link_that_loses_doubles_delays_and_damages_packets_changes_no_byte(self):
        for mtu in (1500, 9000):
            self.hosts.set_mtu(mtu)
            self.hosts.cable.tell("mend")
            self.array()
            before = self.hosts.cable.counts()
            self.hosts.cable.tell("spoil", 20, 10, 20, 5)
            self.files_cross((100_000, 3_000_000))
            now = self.hosts.cable.counts()
            spoilt = {what: now[what] - before.get(what, 0) for what in ("packets", "lost", "doubled", "late", "damaged")}
            print(f"  MTU {mtu}: {spoilt}")
            for what, how_many in spoilt.items():
                self.assertGreater(how_many, 0, what)
                count(what, how_many)
            for host in reversed(list(self.running)):
                self.stop(host)

    def cut_during(self, words, after):
        """Begins a command and pulls the cable to storage1 in the middle of its traffic. It may have failed since: this process may stand still."""
        for _ in range(TRIES):
            self.hosts.cable.tell("cut", after)
            process = self.begin(*words)
            self.hosts.cable.await_line("cut")
            self.hosts.set_link("storage1", "down")
            if process.poll() != 0:
                return process
            # It was quicker than the cut, or had the time to go another way: once more.
            self.end(process, words)
            self.join_again()
            self.until(self.whole, "gnstord does not use the node again after its link is back")
            if words[0] == "put":
                self.cli("rm", words[2])
            (self.root / "out").unlink(missing_ok=True)
        self.fail(f"in {TRIES} tries the command ended before the link was cut")

    def join_again(self):
        self.hosts.set_link("storage1", "up")
        self.hosts.cable.tell("mend")
        count("outages")

    def outage(self):
        """How long no packet passed between the client and storage1, in seconds; None: none has passed since."""
        counts = self.hosts.cable.counts()
        ends = ADDRESSES["client"], ADDRESSES["storage1"]
        back = [counts.get(f"back_at_ms/{source}/{target}") for source, target in (ends, ends[::-1])]
        return None if None in back else (max(back) - counts["cut_at_ms"]) / 1000

    def test_a_cable_that_is_pulled_for_a_moment_costs_time_alone(self):
        self.array()
        data, path = self.file("in", BIG)
        self.cli("put", path, "kept")
        short = {"put": 0, "get": 0}
        deadline = time.monotonic() + DEADLINE_S
        for number in itertools.count():
            # A machine that was busy elsewhere makes an outage no moment: more of them, then.
            if number >= 3 and (all(short.values()) or time.monotonic() > deadline):
                break
            for words in (("put", path, f"f{number}"), ("get", "kept", self.root / "out")):
                process = self.cut_during(words, 1500)
                self.join_again()
                out, err = process.communicate(timeout=DEADLINE_S)
                outage = self.outage()
                is_short = outage is not None and outage < MOMENT
                print(f"  {words[0]}: no packet passed for {outage} s")
                # One that was longer may have ended the connections.
                self.check(words, subprocess.CompletedProcess(words, process.returncode, out, err), 0 if is_short else None, None)
                short[words[0]] += is_short
                self.until(self.whole, "gnstord does not use the node again after its link is back")
                if process.returncode == 0 and words[0] == "get":
                    self.assertEqual((self.root / "out").read_bytes(), data)
                elif process.returncode == 0:
                    self.assertEqual(self.cli("cat", f"f{number}").stdout, data)
                    self.cli("rm", f"f{number}")
                (self.root / "out").unlink(missing_ok=True)
                count("bytes", len(data))
        self.assertTrue(all(short.values()), f"in no try was the outage short: {short}")

    def test_a_node_that_is_away_for_long_is_taken_out_and_comes_back_with_all_it_held(self):
        self.array()
        data, path = self.file("in", BIG)
        self.cli("put", path, "kept")
        words = ("get", "kept", self.root / "out")
        start = time.monotonic()
        self.end(self.cut_during(words, 1500), words)
        self.assertEqual((self.root / "out").read_bytes(), data, "the other node holds a replica, so get must return the whole file")
        print(f"  get during which a link failed: {time.monotonic() - start:.1f} s")
        self.until(lambda: [w for w in self.ask("status")["warnings"] if ADDRESSES["storage1"] in w], "gnstord's status does not warn about the node whose link is cut")
        print(f"  gnstord warned about the cut link after {time.monotonic() - start:.1f} s")
        start = time.monotonic()
        self.until(lambda: self.cli("put", path, "meanwhile", code=None).returncode == 0, "writes still fail although the SSDs of the node must be out")
        print(f"  put that succeeds without the unreachable node: {time.monotonic() - start:.1f} s")
        self.join_again()
        self.until(self.whole, "gnstord does not use the node again after its link is back")
        words = ("put", path, "broken")
        start = time.monotonic()
        self.end(self.cut_during(words, 1500), words, code=1, says="failed at block")
        print(f"  put during which a link failed: {time.monotonic() - start:.1f} s")
        self.join_again()
        self.until(self.whole, "gnstord does not use the node again after its link is back")
        self.until(lambda: self.cli("put", path, "again", code=None).returncode == 0, "writes still fail after the outage")
        for name in ("kept", "meanwhile", "again"):
            self.assertEqual(self.cli("cat", name).stdout, data, name)
        self.cli("get", "broken", self.root / "out", code=1)
        count("bytes", 4 * len(data))

    def doctor(self, host, address=None):
        """Its checks by name; the exit code has to fit them."""
        done = self.cli("doctor", "--address", address or ADDRESSES[host], "--output", "json", host=host, code=None)
        checks = json.loads(done.stdout)["checks"]
        self.assertEqual(done.returncode, int(any(check["state"] == "problem" for check in checks)), checks)
        return {check["check"]: check for check in checks}

    def test_doctor_tells_what_is_wrong_with_a_hosts_mtu_and_port(self):
        for mtu, state in ((9000, "ok"), (1500, "warning"), (1000, "problem")):
            self.hosts.set_mtu(mtu, "client")
            found = self.doctor("client")["mtu"]
            self.assertEqual(found["state"], state, found)
            self.assertIn(str(mtu), found["found"])
        # What the doctor says does not work does not.
        self.cli("node", "--dir", self.root / "none", "--listen", ADDRESSES["client"], "--ssds", 1, "--capacity", "64MiB", code=1, says="MTU")
        self.hosts.set_mtu(1500)
        self.start("client", b"bound", sys.executable, "-c", BINDER, ADDRESSES["client"])
        taken = self.doctor("client")["udp-port"]
        self.assertEqual(taken["state"], "problem", taken)
        self.assertIn(f"process {self.running['client'][0].pid}", taken["found"])
        self.stop("client", signal.SIGKILL)
        self.assertIn("is free", self.doctor("client")["udp-port"]["found"])
        self.array()
        self.assertIn("a part of an array", self.doctor("storage1")["udp-port"]["found"])
        self.assertIn("is free", self.doctor("client")["udp-port"]["found"], "a port that a program holds on another host must not count")
        self.assertIn("not an address of this machine", self.doctor("client", ADDRESSES["storage1"])["udp-port"]["found"])
        count("doctors", 8)


if __name__ == "__main__":
    main("peer_hosts")
