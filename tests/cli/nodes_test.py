#!/usr/bin/env python3
"""Arrays of processes: nodes, gnstord and commands, joined by packets on loopback addresses; killed and started again.
Arguments: the gnstor and gnstord programs."""
import json
import os
import pathlib
import pty
import re
import select
import signal
import stat
import subprocess
import sys
import threading
import urllib.error
import urllib.request

from programs import DEADLINE_S, GNSTOR, Programs, count, main

HOST = os.path.abspath(sys.argv.pop(1))  # gateway_host.cpp
HOST_NQN = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555"  # its name
sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
from store_check.crc import crc32c  # noqa: E402

SMALL = ("--ssds", "2", "--capacity", "64MiB")


class Nodes(Programs):
    def setUp(self):
        super().setUp()
        self.children = []
        self.every_key = []

    def tearDown(self):
        # Daemons before their nodes; reaped here, or `down` would wait for the one that nobody reaps.
        for process in reversed(self.children):
            process.terminate()
            process.wait(DEADLINE_S)
            process.stdout.close()
        super().tearDown()

    def up(self, nodes=2, *words):
        up = self.ask("up", "--nodes", nodes, *SMALL, *words)
        self.assertEqual((up["state"], up["ssds"], len(up["nodes"])), ("up", 2 * nodes, nodes))
        self.assertTrue(all(node["running"] for node in up["nodes"]), up)
        return up

    def put(self, name, data, **more):
        return self.cli("put", self.write(name, data), name, **more)

    def test_files_go_through_processes_and_come_back(self):
        up = self.up()
        data = self.random.randbytes(5_000_001)
        put = self.put("data", data)
        sockets = ", ".join(str(self.dir / f"node-{i}" / "node.shm") for i in range(2))
        self.assertIn(f"wire: shm: the nodes work on queues in this process's memory ({sockets})", put.stderr.decode())
        # An address of its own makes it take packets; so does one node whose shared memory cannot be had.
        addresses = ", ".join(re.escape(node["address"]) for node in up["nodes"])
        listed = self.cli("cat", "data", "--array", f"unix:{self.dir}/gnstord.sock", "--address", f"127.51.{os.getpid() % 250}.1")
        self.assertEqual(listed.stdout, data)
        self.assertRegex(listed.stderr.decode(), r"wire: udp from [\d.]+ to " + addresses + r", \d+ bytes a packet$")
        socket = self.dir / "node-1" / "node.shm"
        away = socket.rename(socket.with_name("hidden"))
        self.assertRegex(self.cli("cat", "data").stderr.decode(), r"wire: udp from [\d.]+ to " + addresses + r", \d+ bytes a packet \(no shared memory: ")
        away.rename(socket)
        self.put("nothing", b"")
        self.put("one", b"x")
        self.cli("put", "-", "piped", stdin=b"through a pipe")
        listed = {o["name"]: o["bytes"] for o in self.ask("ls")["objects"]}
        self.assertEqual(listed, {"data": len(data), "nothing": 0, "one": 1, "piped": 14})
        self.cli("get", "data", self.root / "back")
        self.assertEqual((self.root / "back").read_bytes(), data)
        self.assertEqual(self.cli("cat", "piped", "--array", f"unix:{self.dir}/gnstord.sock").stdout, b"through a pipe")
        self.assertEqual(self.cli("cat", "nothing").stdout, b"")
        self.cli("put", self.root / "data", "data", code=1, says="remove it first")
        self.cli("get", "absent", code=1, says="no object 'absent'")
        # gnstord has what the nodes' SSDs count from themselves.
        def counted_by_ssds():
            counters = [ssd["counters"] for ssd in self.ask("ssd", "list")["ssds"]]
            self.assertEqual(len(counters), 4)
            return all(counters) and counters  # a node that was slow to answer has none this time

        counters = self.until(counted_by_ssds, "gnstord did not report the counters of all SSDs")
        self.assertGreaterEqual(sum(c["blocks_written"] for c in counters), 2 * len(data) // 4096)
        for counted in counters:
            self.assertGreaterEqual(counted["connections_accepted"], 2, "expected connections of gnstord and of a client")
            self.assertEqual((counted["connections_refused"], counted["connections_failed"]), (0, 0))
        self.cli("rm", "data")
        self.assertNotIn("data", {o["name"] for o in self.ask("ls")["objects"]})
        self.assertEqual(self.ask("down")["nodes_stopped"], 2)
        self.assertEqual([node["running"] for node in self.ask("up")["nodes"]], [True, True])
        self.assertEqual(self.cli("cat", "piped").stdout, b"through a pipe")
        count("bytes", len(data))

    def test_one_node_is_reached_over_shared_memory_by_who_may(self):
        self.up(1)
        socket = self.dir / "node-0" / "node.shm"
        self.assertEqual(stat.S_IMODE(socket.stat().st_mode), 0o600)
        data = self.random.randbytes(5_000_001)
        said = self.put("data", data).stderr.decode()
        self.assertIn(f"wire: shm: the node works on queues in this process's memory ({socket})", said)
        self.assertEqual(self.cli("cat", "data", "--array", f"unix:{self.dir}/gnstord.sock").stdout, data)
        # Who cannot have the shared memory takes packets, and says why.
        away = socket.rename(socket.with_name("hidden"))
        cat = self.cli("cat", "data")
        self.assertEqual(cat.stdout, data)
        self.assertRegex(cat.stderr.decode(), r"wire: udp from [\d.]+ to [\d.]+, \d+ bytes a packet \(no shared memory: ")
        away.rename(socket)
        self.assertIn("wire: shm", self.cli("cat", "data").stderr.decode())
        node = self.ask("status")["nodes"][0]
        # Who stands still is not waited for: by packets it cannot be reached either, and the command ends.
        os.kill(node["pid"], signal.SIGSTOP)
        try:
            self.cli("cat", "data", code=1)
        finally:
            os.kill(node["pid"], signal.SIGCONT)
        self.kill(node["pid"])
        self.ask("up")
        self.until(lambda: not self.ask("status")["warnings"] and self.ask("status")["map_in_force"], "gnstord does not use the restarted node again")
        cat = self.cli("cat", "data")
        self.assertEqual(cat.stdout, data, "the object differs after the node was killed and left its socket file")
        self.assertIn("wire: shm", cat.stderr.decode())
        count("kills")

    def test_doctor_names_the_process_of_another_version(self):
        up = self.up()
        version = self.ask("status")["version"]
        self.assertEqual([node["version"] for node in up["nodes"]], [version] * 2)
        self.assertEqual([ssd["firmware"] for ssd in self.ask("ssd", "list")["ssds"]], [version.split("+")[0]] * 4, "firmware must be the version that the SSDs report (eight characters)")
        self.ask("volume", "create", "disk", "16MiB", "--as", "linux")
        self.gateway(f"127.50.{os.getpid() % 250}.1")

        def versions(*words):
            answer = json.loads(self.cli("doctor", "--output", "json", *words, code=None).stdout)
            return next(check for check in answer["checks"] if check["check"] == "versions")

        self.assertIn("the daemon the same, 3 nodes or gateways too", versions()["found"])
        self.assertIn("2 nodes or gateways too", versions("--array", f"unix:{self.dir}/gnstord.sock")["found"], "nodes must be counted although only their SSDs report a version")
        for file, name in ((self.dir / "node-1" / "node.json", "node-1 at "), (self.dir / "gateway-disk" / "node.json", "the gateway of disk at ")):
            said = json.loads(file.read_text())
            file.write_text(json.dumps(said | {"version": "0.0.1"}))
            found = versions()
            self.assertEqual(found["state"], "problem")
            self.assertRegex(found["found"], rf"{name}[\d.]+ \(process {said['pid']}\) of 0\.0\.1$")
            self.assertTrue(found["remedy"])
            # As an older program wrote it. A node's SSDs still say it, a gateway has none.
            file.write_text(json.dumps({key: value for key, value in said.items() if key != "version"}))
            self.assertEqual(versions()["state"], "ok" if "node-1" in name else "unknown")
            file.write_text(json.dumps(said))
            self.assertEqual(versions()["state"], "ok")
        self.kill(up["nodes"][0]["pid"])
        self.until(lambda: [ssd["firmware"] for ssd in self.ask("ssd", "list")["ssds"]].count("") == 2, "the version of unreachable SSDs is still shown")

    def test_a_killed_node_is_reported_and_up_brings_it_back_with_all_it_held(self):
        up = self.up()
        data = self.random.randbytes(1_000_000)
        self.put("data", data)
        dead = up["nodes"][1]
        self.kill(dead["pid"])
        self.assertEqual([n["running"] for n in self.ask("status")["nodes"]], [True, False])
        warned = self.until(lambda: [w for w in self.ask("status")["warnings"] if dead["address"] in w], "gnstord's status does not show that the node is unreachable")
        self.assertIn("does not answer", warned[0])
        self.assertTrue(any("does not answer" in ssd["trouble"] for ssd in self.ask("ssd", "list")["ssds"]))
        self.cli("status", says="does NOT run")
        self.cli("status", says="health: error")
        self.cli("health", code=1, says="the array is not healthy: GNS_SLOT_DOWN, GNS_DEGRADED")
        findings = {finding["code"]: finding for finding in json.loads(self.cli("health", "--output", "json", code=1).stdout)["findings"]}
        self.assertIn("does not answer", findings["GNS_SLOT_DOWN"]["details"][0])
        self.assertEqual(findings["GNS_DEGRADED"]["severity"], "warning", "the other node has a replica of everything")
        self.assertNotIn("GNS_UNREADABLE", findings)
        self.assertEqual(self.ask("df")["room"], [])
        self.cli("df", says="how much more fits is unknown")
        again = self.ask("up")
        self.assertFalse(again["started"], "the daemon kept running, so 'up' must not have started it")
        self.assertTrue(all(node["running"] for node in again["nodes"]))
        self.until(lambda: not self.ask("status")["warnings"] and self.ask("status")["map_in_force"], "gnstord does not use the restarted node again")
        self.assertEqual(self.cli("cat", "data").stdout, data)
        self.put("more", data)
        self.assertEqual(self.cli("cat", "more").stdout, data)
        self.until(lambda: self.ask("status")["health"] == "ok", "the array does not become healthy again")
        self.cli("health", says="health: ok")
        self.assertGreaterEqual(sum(ssd["used_bytes"] for ssd in self.ask("ssd", "list")["ssds"]), 2 * 2 * len(data))
        capacity = self.ask("df")
        self.assertGreaterEqual(capacity["used_bytes"], 2 * 2 * len(data))
        self.assertEqual([room["replicas"] for room in capacity["room"]], [1, 2, 3, 4])
        self.cli("df", says="data that still fits")
        count("kills")

    def test_down_names_what_a_killed_node_would_lose_by_a_restart_of_the_machine(self):
        up = self.up(2, "--durability", "process")
        self.put("data", b"kept" * 10_000)
        self.kill(up["nodes"][1]["pid"])
        count("kills")
        self.cli("down", code=1, says=str(self.dir / "node-1"))  # gnstord ran until now
        self.cli("down", code=1, says=str(self.dir / "node-1"))  # and now nothing runs
        self.up()
        self.assertEqual(self.cli("cat", "data").stdout, b"kept" * 10_000)

    def test_two_ups_at_once_of_a_new_array_start_it_once(self):
        words = [GNSTOR, "up", "--dir", str(self.dir), "--nodes", "2", "--ssds", "1", "--capacity", "64MiB"]
        both = [subprocess.Popen(words, env=self.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for _ in range(2)]
        codes = sorted(one.wait(DEADLINE_S) for one in both)
        self.assertEqual(codes, [0, 0], "one of them starts the array, the other one finds it running")
        up = self.ask("up", "--nodes", "2", "--ssds", "1", "--capacity", "64MiB")
        self.assertFalse(up["started"])
        self.put("data", b"kept" * 10_000)
        self.assertEqual(len(list(self.dir.glob("node-*/ssd-0.store"))), 2)
        self.cli("down")
        self.cli("up")
        self.assertEqual(self.cli("cat", "data").stdout, b"kept" * 10_000)

    def test_another_host_joins_with_one_line_and_is_cut_off_when_it_is_removed(self):
        self.up(2, "--listen", "127.0.0.1:0", "--tls")
        mine, theirs = b"mine" * 10_000, self.random.randbytes(3_000_001)
        self.put("mine", mine)
        packets = ("--address", f"127.52.{os.getpid() % 250}.1")
        added = self.ask("client", "add", "alice")
        _, there = self.another_host(added["for_another_host"])
        there("put", self.write("theirs", theirs), "theirs", *packets)
        self.assertEqual(there("cat", "theirs", *packets), theirs)
        self.assertEqual([o["name"] for o in json.loads(there("ls", "--output", "json"))["objects"]], ["theirs"])
        there("cat", "mine", *packets, code=1)
        there("rm", "mine", code=1)
        rotated = self.ask("client", "rotate", "alice")
        there("cat", "theirs", *packets, code=1, says="its token was replaced")
        self.assertEqual(there("cat", "theirs", *packets, line=rotated["for_another_host"]), theirs)
        self.cli("client", "remove", "alice")
        there("cat", "theirs", *packets, line=rotated["for_another_host"], code=1, says="removed")
        self.assertEqual(self.cli("cat", "mine").stdout, mine)
        for log in self.dir.glob("*.log"):
            for secret in (b"DHHC-1", b"gnc1."):
                self.assertNotIn(secret, log.read_bytes(), log)

    def test_kills_of_every_process_lose_nothing_that_was_acknowledged(self):
        self.up()
        kept = {}
        for turn in range(3):
            name = f"kept-{turn}"
            kept[name] = self.random.randbytes(self.random.randrange(1, 2_000_000))
            self.put(name, kept[name])
            pids = [node["pid"] for node in self.ask("status")["nodes"]] + [self.pid()]
            victims = pids if turn == 2 else [pids[self.random.randrange(3)]]
            for pid in victims:
                self.kill(pid)
                count("kills")
            self.ask("up")
            self.until(lambda: not self.ask("status")["warnings"] and self.ask("status")["map_in_force"], "the array does not recover")
            for held, data in kept.items():
                self.assertEqual(self.cli("cat", held).stdout, data, (turn, held))

    def test_a_put_that_is_killed_leaves_no_half_object(self):
        self.up(1, "--lease-ms", "2000")
        data = self.random.randbytes(30_000_000)
        path = self.write("big", data)
        process = subprocess.Popen([GNSTOR, "put", str(path), "big"], env=self.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.until(lambda: any(v["writer"] for v in self.ask("volume", "list")["volumes"]) or process.poll() is not None, "the object was never opened for writing")
        if process.poll() is None:
            process.kill()
        if process.wait(DEADLINE_S) == 0:
            self.skipTest("the put was quicker than the kill")
        self.assertEqual(self.ask("ls")["objects"], [])
        self.cli("get", "big", code=1)
        # Nobody but its owner can tell that no put is under way any more: the remains go when that is said, once their lease has ended.
        self.cli("put", path, "big", code=1, says="gnstor rm")
        self.until(lambda: self.cli("rm", "big", code=None).returncode == 0, "the name of the interrupted object could not be removed")
        self.cli("put", path, "big")
        self.assertEqual(self.cli("cat", "big").stdout, data)
        count("kills")

    def test_a_read_outlives_a_node_of_several_ssds(self):
        up = self.ask("up", "--nodes", "2", "--ssds", "2", "--capacity", "256MiB", "--durability", "process")
        data = self.random.randbytes(64 << 20)
        self.put("data", data)
        # What the pipe does not take yet has not been read either, but for a little.
        process = subprocess.Popen([GNSTOR, "cat", "data"], env=self.env, bufsize=0, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        first = process.stdout.read(65536)
        self.kill(up["nodes"][1]["pid"])
        rest, _ = process.communicate(timeout=DEADLINE_S)
        self.assertEqual(process.returncode, 0)
        self.assertTrue(first + rest == data, "cat returned other bytes than were stored")
        # Also when gnstord has noticed, and grants are renewed without it.
        self.until(lambda: not self.ask("status")["map_in_force"], "gnstord's status does not show that the node is unreachable")
        late = self.cli("cat", "data")
        self.assertTrue(late.stdout == data, "a command started while the node is away returned other bytes")
        self.assertIn(b"works without", late.stderr)
        count("kills")
        # The node comes back without one of its SSDs, under the gnstord that has known it with both.
        (self.dir / "node-1" / "ssd-1.store").write_bytes(b"damaged")
        # It waits in vain: as short as this machine allows, for the node has to begin in that time.
        for wait_s in (1, 5, 25):
            said = self.cli("up", "--wait", wait_s, code=1).stderr
            if b"did not start to serve in time" not in said:
                break
        self.assertIn(b"no longer serves SSD", said)
        late = self.cli("cat", "data")
        self.assertTrue(late.stdout == data, "a command returned other bytes while the node serves one SSD less")

    def test_up_fails_while_the_array_does_not_serve_and_leaves_gnstord_there(self):
        up = self.up()
        still = up["nodes"][1]["pid"]
        os.kill(still, signal.SIGSTOP)
        try:
            self.until(lambda: not self.ask("status")["map_in_force"], "the map stays in force without a node")
            self.cli("up", "--wait", "1", code=1, says="was not in force within 1 s")
            # And longer than gnstord itself nobody waits for it.
            waiting = subprocess.Popen([GNSTOR, "up", "--wait", "3600"], env=self.env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            self.assertIn(b"gnstord is up, but the array is not ready yet", waiting.stderr.readline())
            self.kill(up["pid"])
            _, said = waiting.communicate(timeout=DEADLINE_S)
            self.assertEqual(waiting.returncode, 1)
            self.assertIn(b"ended before it served", said)
        finally:
            os.kill(still, signal.SIGCONT)
        again = self.ask("up")
        self.assertTrue(again["started"])
        self.put("data", b"at once")

    def test_nodes_and_daemon_by_hand_and_a_node_that_comes_late(self):
        addresses = [f"127.47.{os.getpid() % 250}.{i}" for i in (1, 2)]
        nodes = [self.node(i, address) for i, address in enumerate(addresses)]
        about = json.loads((self.root / "n0" / "node.json").read_text())
        self.assertEqual((about["address"], about["pid"], len(about["ssds"])), (addresses[0], nodes[0].pid, 2))
        self.assertTrue(all(ssd["nqn"].endswith(ssd["uuid"]) for ssd in about["ssds"]))
        self.cli("node", "--dir", self.root / "n0", "--listen", "127.47.0.9", code=1, says="another node serves")
        self.cli("node", "--dir", self.root / "n9", "--listen", addresses[0], *SMALL, code=1, says=addresses[0])
        self.cli("node", "--dir", self.root / "n9", "--listen", "localhost", code=2)
        without = ("--dir", str(self.dir), "--nodes", ",".join(addresses))
        keys = [f"{address}={self.root / f'n{i}' / 'node.key'}" for i, address in enumerate(addresses)]
        self.refused_without_its_keys(without, keys)
        words = (*without, "--node-key", keys[0], "--node-key", keys[1])
        daemon = self.daemon(*words)
        self.put("data", b"kept" * 10_000)
        nodes[1] = self.reads_beside_a_stranger(nodes[1], addresses[1])
        for process in (daemon, nodes[1]):
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(DEADLINE_S), 0)
        self.assertFalse((self.root / "n1" / "node.json").exists())
        # Without one of its nodes the daemon begins all the same, whatever became of its last life, and who comes then reads.
        for last in (signal.SIGTERM, signal.SIGKILL):
            daemon = self.daemon(*words)
            self.assertFalse(self.ask("status")["map_in_force"])
            self.assertEqual(self.cli("cat", "data").stdout, b"kept" * 10_000)
            self.assertEqual([o["name"] for o in self.ask("ls")["objects"]], ["data"])
            daemon.send_signal(last)
            daemon.wait(DEADLINE_S)
        # It takes the node in when it is there.
        daemon = self.daemon(*words)
        self.assertTrue(self.ask("status")["warnings"])
        self.node(1, addresses[1])
        self.until(lambda: self.ask("status")["map_in_force"] and all(not s["trouble"] for s in self.ask("ssd", "list")["ssds"]),
                   "the late node is not taken in")
        self.assertEqual(self.cli("cat", "data").stdout, b"kept" * 10_000)

    def reads_beside_a_stranger(self, node, address):
        """Who answers at a node's address and does not prove its key is refused, and the other replica is read. Returns the node."""
        node.send_signal(signal.SIGTERM)
        self.assertEqual(node.wait(DEADLINE_S), 0)
        stranger = self.node(1, address, "--no-authentication")
        said = self.cli("cat", "data", "--address", f"127.53.{os.getpid() % 250}.1")
        self.assertEqual(said.stdout, b"kept" * 10_000)
        self.assertIn(b"does not ask", said.stderr)
        stranger.send_signal(signal.SIGTERM)
        self.assertEqual(stranger.wait(DEADLINE_S), 0)
        node = self.node(1, address)
        self.until(lambda: not self.ask("status")["warnings"] and self.ask("status")["map_in_force"], "gnstord does not use the node again")
        return node

    def refused_without_its_keys(self, words, keys):
        """gnstord without the keys of its nodes, with one of them for both, and with a file that others may read."""
        readable = self.root / "readable.key"
        readable.write_text((self.root / "n0" / "node.key").read_text())
        readable.chmod(0o644)
        own = self.root / "n0" / "node.key"
        for given, says in (((), b"demands authentication"), (("--node-key", own), b"could not authenticate"),
                            (("--node-key", readable), b"other users may read"), (("--node-key", self.root / "none"), b"cannot be read"),
                            (("--node-key", keys[0], "--node-key", keys[0]), b"two key files")):
            refused = subprocess.run([self.env["GNSTORD"], *words, *map(str, given)], env=self.env, capture_output=True, timeout=DEADLINE_S, check=False)
            self.assertEqual(refused.returncode, 1, (given, refused.stderr))
            self.assertIn(says, refused.stderr)
            self.assertNotIn(own.read_bytes().strip(), refused.stderr)

    def test_a_volume_is_served_to_ordinary_hosts_until_the_gateway_stops(self):
        self.up(1)
        self.ask("volume", "create", "disk", "16MiB", "--as", "linux")
        address = f"127.48.{os.getpid() % 250}.1"
        process = subprocess.Popen([GNSTOR, "node", "--gateway", "disk", "--as", "linux", "--listen", address,
                                    "--http", "127.0.0.1:0"], env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.served(process, b"metrics at http://")
        about = json.loads((self.dir / "gateway-disk" / "node.json").read_text())
        self.assertEqual((about["address"], about["gateway"]), (address, "disk"))
        self.assertEqual(about["ssds"][0]["nqn"], "nqn.2026-11.io.gnstor:volume:disk")
        self.assertEqual(about["ssds"][0]["capacity_bytes"], 16 << 20)
        self.assertNotEqual(self.ask("volume", "show", "disk")["writer"], 0)
        self.what_a_gateway_says(process, about["http"])
        # A gateway is no node of SSDs.
        refused = subprocess.run([self.env["GNSTORD"], "--dir", str(self.root / "none"), "--nodes", address], env=self.env,
                                 capture_output=True, timeout=DEADLINE_S, check=False)
        self.assertEqual(refused.returncode, 1)
        self.assertIn(b"serves no SSDs", refused.stderr)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(DEADLINE_S), 0)
        self.assertEqual(self.ask("volume", "show", "disk")["writer"], 0)
        self.cli("node", "--gateway", "absent", "--listen", address, code=1, says="absent")
        self.cli("node", "--gateway", "../x", "--listen", address, code=1, says="0x2f")

    def gateway(self, address, *words):
        process = subprocess.Popen([GNSTOR, "node", "--gateway", "disk", "--as", "linux", "--listen", address, *words], env=self.env,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.served(process, b"serving 1 volume at")
        return process

    def let_in(self, how="add", *words):
        """A file with the keys that the host of gateway_host has from now on."""
        made = self.ask("gateway", "host", how, "disk", HOST_NQN, *words)
        keys = [made["key"], made["controller_key"]]
        self.every_key += keys
        file = self.root / "keys"
        file.touch(0o600)
        file.write_text("\n".join(keys) + "\n")
        return file

    def listed(self):
        return [host["nqn"] for host in self.ask("gateway", "host", "list", "disk")["hosts"]]

    def host(self, address, *words, refused=""):
        """What an ordinary host is answered."""
        done = subprocess.run([HOST, address, "nqn.2026-11.io.gnstor:volume:disk", *words], capture_output=True, timeout=DEADLINE_S, check=False)
        if refused:
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertIn(refused, done.stderr.decode())
            return []
        self.assertEqual(done.returncode, 0, done.stderr)
        return [line.split(": ", 1)[1] for line in done.stdout.decode().splitlines()]

    def test_a_gateway_that_was_killed_is_followed_by_one_that_knows_what_it_answered(self):
        self.up(1)
        self.ask("volume", "create", "disk", "16MiB", "--as", "linux")
        address = f"127.49.{os.getpid() % 250}.1"
        record = self.dir / "gateway-disk" / "loss.record"
        process = self.gateway(address, "--allow-any-host")
        self.assertEqual(self.host(address, "flush", "write:1"), ["Success"] * 2)
        self.kill(process.pid)
        self.assertEqual(record.read_bytes()[40], 1, "the record must say that there are answered writes without a flush")
        process = self.gateway(address, "--allow-any-host")
        self.assertEqual(self.host(address, "flush", "write:2"), ["Success"] * 2, "a flush must succeed while all SSDs are present")
        self.until(lambda: record.read_bytes()[40] == 1, "the write was answered, but the record does not say so")
        self.kill(process.pid)
        # As if all SSDs had been replaced since: the record knows others, under an older map.
        known = bytearray(record.read_bytes())
        known[48:52] = (int.from_bytes(known[48:52], "little") - 1).to_bytes(4, "little")
        for slot in range(int.from_bytes(known[52:56], "little")):
            known[56 + 24 * slot + 8] ^= 0xFF
        known[12:16] = crc32c(known[16:]).to_bytes(4, "little")
        record.write_bytes(known)
        process = self.gateway(address, "--allow-any-host")
        said = self.host(address, "flush", "flush", "write:3")
        self.assertIn("Internal", said[0])
        self.assertEqual(said[1:], ["Success"] * 2)
        self.kill(process.pid)
        # A record that is torn.
        record.write_bytes(record.read_bytes()[:512] + bytes(3000))
        self.gateway(address, "--allow-any-host")
        said = self.host(address, "flush", "flush")
        self.assertIn("Internal", said[0])
        self.assertEqual(said[1], "Success")

    def test_a_gateway_lets_in_only_the_hosts_that_have_a_key(self):
        self.up(1)
        self.ask("volume", "create", "disk", "16MiB", "--as", "linux")
        address = f"127.52.{os.getpid() % 250}.1"
        self.assertEqual(self.listed(), [])
        process = self.gateway(address)
        self.host(address, "write:1", refused="has no key for it")
        keys = self.let_in()
        file = self.dir / "gateway-disk" / "hosts.json"
        self.assertEqual(file.stat().st_mode & 0o777, 0o600)
        self.until(lambda: self.hosts_of_gateway()["listed"] == 1, "the gateway does not take the new list")
        self.assertEqual(self.host(address, f"keys:{keys}", "write:1", "flush"), ["Success"] * 2)
        self.host(address, "write:1", refused="has no key for it")
        self.assertIn("1 host may connect", self.cli("status").stdout.decode())
        # Rotated while it writes: its queue ends, and the old keys are worth nothing.
        writer = self.writer(address, keys)
        keys = self.let_in("rotate", "--hash", "sha256")
        self.assertEqual(writer.wait(DEADLINE_S), 0, "the gateway must end the queue of a host whose key was rotated")
        self.assertEqual(self.host(address, f"keys:{keys}", "write:2"), ["Success"])
        # Removed while it writes.
        writer = self.writer(address, keys)
        self.cli("gateway", "host", "remove", "disk", HOST_NQN, says="may no longer use")
        self.assertEqual(writer.wait(DEADLINE_S), 0, "the gateway must end the queue of a host that was removed")
        self.host(address, f"keys:{keys}", "write:3", refused="the key of this host is wrong")
        self.a_bad_list_changes_nothing(address, file)
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=DEADLINE_S)[0].decode()
        self.assertIn("its key was removed", said)
        for key in self.every_key:
            self.assertNotIn(key.split(":")[2][:12], said)
        self.assertEqual(said.count("is malformed"), 1, said)
        file.write_text("{")
        self.cli("node", "--gateway", "disk", "--as", "linux", "--listen", address, code=1, says="malformed")
        file.unlink()

    def hosts_of_gateway(self):
        return self.ask("status")["gateways"][0]["says"]["hosts"]

    def writer(self, address, keys):
        """A host that writes until its queue ends; it has begun."""
        process = subprocess.Popen([HOST, address, "nqn.2026-11.io.gnstor:volume:disk", f"keys:{keys}", "writes"], stdout=subprocess.PIPE)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.kill)
        self.assertEqual(process.stdout.readline(), b"writes: Success\n")
        return process

    def a_bad_list_changes_nothing(self, address, file):
        keys = self.let_in()
        self.until(lambda: self.hosts_of_gateway()["listed"] == 1, "the gateway does not take the new list")
        good = file.read_text()
        file.write_text(good[:len(good) // 2])
        self.until(lambda: self.hosts_of_gateway()["trouble"], "the gateway does not see that its list is malformed")
        self.assertIn("hosts.json is BAD", self.cli("status").stdout.decode())
        self.assertEqual(self.host(address, f"keys:{keys}", "write:1"), ["Success"])
        self.cli("gateway", "host", "add", "disk", HOST_NQN + "0", code=1, says="malformed")
        file.write_text(good)
        self.until(lambda: not self.hosts_of_gateway()["trouble"], "the gateway does not see that its list was mended")
        self.assertEqual(self.host(address, f"keys:{keys}", "write:1"), ["Success"])

    def test_the_hosts_of_a_gateway_are_kept_with_or_without_one_that_runs(self):
        made = self.ask("gateway", "host", "add", "disk", HOST_NQN, "--hash", "sha384")
        for key in (made["key"], made["controller_key"]):
            self.assertRegex(key, "^DHHC-1:02:[A-Za-z0-9+/]{70}==:$")
        self.assertNotEqual(made["key"], made["controller_key"])
        self.assertEqual(made["connect"], f"nvme connect -t rdma -a GATEWAY-ADDRESS -s 4420 -n nqn.2026-11.io.gnstor:volume:disk --hostnqn={HOST_NQN}"
                         f" --dhchap-secret={made['key']} --dhchap-ctrl-secret={made['controller_key']}")
        self.assertEqual(self.listed(), [HOST_NQN])
        shown = self.cli("gateway", "host", "list", "disk").stdout.decode()
        self.assertIn(HOST_NQN, shown)
        self.assertNotIn("DHHC", shown)
        self.cli("gateway", "host", "add", "disk", HOST_NQN, code=1, says="rotate")
        self.cli("gateway", "host", "add", "disk", "me", code=2, says="no NVMe Qualified Name")
        self.cli("gateway", "host", "add", "../x", HOST_NQN, code=2, says="0x2f")
        self.cli("gateway", "host", "add", "disk", HOST_NQN, "--hash", "md5", code=2)
        for how in ("remove", "rotate"):
            self.cli("gateway", "host", how, "disk", HOST_NQN + "0", code=1, says="not among the hosts")
        # A key of the host's own, which the list of processes need not show.
        own = subprocess.run([GNSTOR, "gateway", "host", "rotate", "disk", HOST_NQN, "--key", "-", "--output", "json"], env=self.env, check=True,
                             input=made["key"].encode() + b"\n", stdout=subprocess.PIPE, timeout=DEADLINE_S)
        self.assertEqual(json.loads(own.stdout)["key"], made["key"])
        bad = self.cli("gateway", "host", "rotate", "disk", HOST_NQN, "--key", made["key"][:-4], code=2)
        self.assertNotIn(made["key"][10:22], bad.stderr.decode())
        adding = [subprocess.Popen([GNSTOR, "gateway", "host", "add", "disk", f"{HOST_NQN}{i}"], env=self.env, stdout=subprocess.DEVNULL) for i in range(8)]
        self.assertEqual([process.wait(DEADLINE_S) for process in adding], [0] * 8)
        self.assertEqual(len(self.listed()), 9)
        self.ask("gateway", "host", "remove", "disk", HOST_NQN)
        self.assertNotIn(HOST_NQN, self.listed())

    def what_a_gateway_says(self, process, http):
        self.assertEqual(pathlib.Path(http["socket"]).stat().st_mode & 0o777, 0o600)
        url = f"http://{http['listen']}"
        with urllib.request.urlopen(f"{url}/healthz", timeout=DEADLINE_S) as answer:
            self.assertEqual(json.load(answer), {"status": "ok"})
        for token, status in (("", 401), ("Bearer " + "x" * 16, 401), ("Bearer " + pathlib.Path(http["token_file"]).read_text().strip(), 200)):
            request = urllib.request.Request(f"{url}/metrics", headers={"Authorization": token} if token else {})
            try:
                with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
                    code, text = answer.status, answer.read().decode()
            except urllib.error.HTTPError as refused:
                code, text = refused.code, refused.read().decode()
            self.assertEqual(code, status, text)
        samples = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        self.assertEqual(samples["gnstor_gateway_writable"], "1")
        self.assertEqual(samples["gnstor_gateway_flushes_fail"], "0")
        for name in ("connections_accepted", "connections_failed", "bytes_to_host", "refused", "share_waits", "flushes"):
            self.assertIn(f"gnstor_gateway_{name}_total", samples)
        status = self.ask("status")
        self.assertEqual([(g["volume"], g["pid"], g["says"]["writable"]) for g in status["gateways"]], [("disk", process.pid, True)])
        self.cli("status", says=f"gateway of volume disk at {status['gateways'][0]['address']} (process {process.pid}): ")

    def test_an_array_of_one_process_is_reached_over_shared_memory(self):
        self.ask("up", *SMALL)
        contents = os.urandom(5_000_003)
        self.assertIn("shm", self.cli("put", self.write("big", contents)).stderr.decode())
        self.assertEqual(self.cli("cat", "big").stdout, contents)
        self.assertEqual(self.cli("get", "big", self.root / "back").returncode, 0)
        self.assertEqual((self.root / "back").read_bytes(), contents)
        self.cli("rm", "big")
        # Whoever may use the socket of gnstord may use the other, and nobody else.
        self.assertEqual((self.dir / "gnstord.sock.shm").stat().st_mode & 0o777, 0o600)
        self.ask("down")
        self.assertFalse((self.dir / "gnstord.sock.shm").exists())

    def on_a_terminal(self, *words):
        """What a command shows on a terminal of its standard error, and nothing there of its standard output."""
        ours, theirs = pty.openpty()
        process = subprocess.Popen([GNSTOR, *map(str, words)], env=self.env, stdout=subprocess.PIPE, stderr=theirs, stdin=subprocess.DEVNULL)
        os.close(theirs)
        shown = b""
        reader = threading.Thread(target=process.stdout.read)
        reader.start()
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # nobody has it open any more
                break
            if not piece:
                break
            shown += piece
        os.close(ours)
        reader.join()
        self.assertEqual(process.wait(DEADLINE_S), 0, shown)
        process.stdout.close()
        return shown

    def test_long_copies_show_a_bar_on_a_terminal_and_nothing_elsewhere(self):
        # Of several steps: the first of them draws the bar, however fast the copy is.
        self.ask("up", "--nodes", "2", "--ssds", "1", "--capacity", "256MiB", "--durability", "process")
        size = 96 << 20
        path = self.root / "long"
        path.touch()
        os.truncate(path, size)
        for words, name in ((("put", path), "put long"), (("get", "long", self.root / "back"), "get long"), (("cat", "long"), "cat long")):
            shown = self.on_a_terminal(*words)
            drawn = re.findall(rb"\r\x1b\[K" + name.encode() + rb": \[([#.]{24})\] (\d+) %, [^\r]* of 96 MiB, [^\r]*/s", shown)
            self.assertTrue(drawn, shown)
            percents = [int(percent) for _, percent in drawn]
            self.assertEqual(percents, sorted(percents))
            self.assertTrue(all(abs(bar.count(b"#") - 24 * int(percent) / 100) <= 1.3 for bar, percent in drawn), drawn)
            self.assertTrue(shown.rstrip(b"\r\n").endswith(b"\r\x1b[K"), "the progress line must be cleared at the end")
            count("bars", len(drawn))
        self.assertEqual((self.root / "back").stat().st_size, size)
        self.assertNotIn(b"\r", self.cli("cat", "long").stderr)

    def test_what_does_not_fit_is_said(self):
        self.ask("up", *SMALL)
        self.cli("put", self.write("f", b"x"), "--array", "http://127.0.0.1:9", code=1)
        self.cli("up", "--nodes", "2", code=1, says="created without nodes")
        self.ask("down")
        other = self.root / "other"
        self.to_stop.append(other)
        self.cli("up", "--dir", other, "--nodes", "2", "--node-addresses", "127.0.0.1", code=1, says="2 nodes, but 1 addresses were given")
        self.cli("up", "--dir", other, "--nodes", "1", "--node-addresses", "192.0.2.1", *SMALL, code=1, says="did not start")
        self.refused_before_anything_is_made()
        done = subprocess.run([GNSTOR, "ls", "--array", f"unix:{self.root}/no.sock"], env=self.env,
                              capture_output=True, timeout=DEADLINE_S, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"no.sock", done.stderr)

    def refused_before_anything_is_made(self):
        folder = self.root / "none"
        for words, says in ((("--nodes", "2", "--ssds", "33"), "2 nodes of 33 SSDs each are too many"),
                            (("--nodes", "1", "--node-addresses", "--dir"), "is not an IP address"),
                            (("--nodes", "1", "--node-addresses", "../x"), "is not an IP address")):
            self.cli("up", *words, "--dir", folder, code=1, says=says)
            self.assertEqual([path.name for path in folder.iterdir()], ["up.lock"], words)
        for name in ("../stray", str(self.root / "stray"), ".", ""):
            (folder / "up.json").write_text(json.dumps({"nodes": [{"name": name, "address": "127.0.0.1"}]}))
            for command in (("up", *SMALL), ("down",)):
                self.cli(*command, "--dir", folder, code=1, says="name of a node")
            self.assertEqual({path.name for path in folder.iterdir()}, {"up.json", "up.lock"})
            self.assertFalse(list(self.root.glob("stray*")), "a node created files outside its array's folder")

    def node(self, index, address, *words):
        process = subprocess.Popen([GNSTOR, "node", "--dir", str(self.root / f"n{index}"), "--listen", address, *SMALL, *words],
                                   env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.served(process, b"serving 2 SSDs at")
        return process

    def daemon(self, *words):
        process = subprocess.Popen([self.env["GNSTORD"], *words], env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.served(process, b"gnstord: serving")
        return process

    def served(self, process, word):
        self.children.append(process)
        said = b""
        while word not in said:
            self.assertTrue(select.select([process.stdout], [], [], DEADLINE_S)[0], said)
            piece = os.read(process.stdout.fileno(), 4096)
            self.assertTrue(piece, said)
            said += piece


if __name__ == "__main__":
    main("cli_nodes")
