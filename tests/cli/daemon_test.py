#!/usr/bin/env python3
"""gnstor and gnstord on real SSD stores: starting, stopping, volumes, kills, restarts. Arguments: the two programs."""
import os
import pathlib
import re
import signal
import subprocess
import time

from programs import DEADLINE_S, GNSTOR, Programs, count, main

SMALL = ("--ssds", "3", "--capacity", "64MiB")


class Daemon(Programs):
    def test_up_says_what_the_array_has_not_what_was_asked_for(self):
        up = self.ask("up", *SMALL)
        self.assertEqual((up["state"], up["started"], up["ssds"], up["notes"]), ("up", True, 3, []))
        ssds = self.ask("ssd", "list")["ssds"]
        self.assertEqual([ssd["slot"] for ssd in ssds], [0, 1, 2])
        self.assertGreaterEqual(ssds[0]["capacity_bytes"], 64 << 20)
        self.assertEqual(up["ssd_capacity_bytes"], ssds[0]["capacity_bytes"])
        self.assertTrue(all(ssd["counters"]["refused"] == 0 for ssd in ssds), "a fresh array refused a command")
        again = self.ask("up", "--ssds", "5")
        self.assertEqual((again["started"], again["ssds"], again["pid"]), (False, 3, up["pid"]))
        self.assertIn("--ssds 5", again["notes"][0])
        self.cli("up", says="already up")
        self.assertEqual(self.ask("down")["pid"], up["pid"])
        reopened = self.ask("up", "--ssds", "5", "--capacity", "1GiB")
        self.assertEqual((reopened["started"], reopened["ssds"], len(reopened["notes"])), (True, 3, 2))
        self.assertEqual(reopened["ssd_capacity_bytes"], up["ssd_capacity_bytes"])
        self.assertFalse({e.name for e in self.dir.iterdir()} - {"gnstord.pid", "gnstord.lock", "up.lock", "gnstord.log", "gnstord.sock",
                         "gnstord.sock.lock", "gnstord.sock.shm", "records.db", "records.db-wal", "records.db-shm", "records.db-journal", "ssd-0.store",
                         "ssd-1.store", "ssd-2.store"}, "files that nobody documented")

    def test_down_finds_the_daemon_by_its_socket_alone(self):
        place = self.root / "elsewhere.sock"
        pid = self.ask("up", *SMALL, "--socket", place)["pid"]
        other = dict(self.env, GNSTOR_DIR=str(self.root / "no-array"))
        self.env, mine = other, self.env
        self.assertEqual(self.ask("status", "--socket", place)["ssds"], 3)
        down = self.ask("down", "--socket", place)
        self.assertEqual((down["stopped"], down["pid"]), (True, pid))
        self.assertEqual(self.ask("down", "--socket", place), {"state": "down", "stopped": False, "stale_socket": False})
        self.env = mine
        # A socket that nobody serves does not make `down` stop the array of the default folder.
        pid = self.ask("up")["pid"]
        self.assertFalse(self.ask("down", "--socket", place)["stopped"])
        self.assertEqual(self.pid(), pid)
        # By its folder alone, though its socket is elsewhere.
        self.ask("down")
        self.ask("up", "--socket", place)
        self.assertTrue(self.ask("down", "--dir", self.dir)["stopped"])

    def down_while_killed(self, pid, says):
        """`down`, which signals a process that is halted, and the end of that process by SIGKILL."""
        os.kill(pid, signal.SIGSTOP)
        down = subprocess.Popen([GNSTOR, "down"], env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        pending = lambda: int(re.search(r"ShdPnd:\s*(\w+)", pathlib.Path(f"/proc/{pid}/status").read_text())[1], 16)
        self.until(lambda: pending() >> (signal.SIGTERM - 1) & 1, "'gnstor down' sent no SIGTERM")
        self.kill(pid)
        said = b"".join(down.communicate(timeout=DEADLINE_S))
        self.assertEqual(down.returncode, 1, said)
        for words in says:
            self.assertIn(words.encode(), said)

    def test_down_says_that_a_gnstord_ended_without_closing_its_stores(self):
        for durability, meaning in (("power", "nothing that was acknowledged is lost"), ("process", "before this machine is restarted")):
            with self.subTest(durability):
                self.ask("up", *SMALL, "--durability", durability)
                data = self.write("data", self.random.randbytes(1 << 20))
                self.ask("put", data, durability)
                self.down_while_killed(self.pid(), (f"did not close {self.dir / 'ssd-0.store'}, {self.dir / 'ssd-1.store'}", meaning))
                self.ask("up")
                self.assertEqual(self.cli("cat", durability).stdout, data.read_bytes())
                self.assertTrue(self.ask("down")["stopped"])

    def test_down_says_that_a_node_or_its_gnstord_did_not_finish(self):
        self.ask("up", "--nodes", "1", "--ssds", "1", "--capacity", "64MiB")
        self.down_while_killed(self.pid(), ("gnstord (process", "did not finish"))
        self.ask("up")
        node = int((self.dir / "node-0" / "node.pid").read_text())
        self.down_while_killed(node, ("node-0 (process", f"did not close {self.dir / 'node-0' / 'ssd-0.store'}"))
        self.ask("up")
        self.assertEqual(self.ask("down")["nodes_stopped"], 1)

    def test_one_daemon_a_folder_and_a_socket(self):
        self.ask("up", *SMALL)
        second = self.root / "second"
        self.to_stop.append(second)
        self.cli("up", "--dir", self.dir, "--socket", self.root / "s2.sock", code=1, says="another gnstord runs on")
        self.cli("up", "--dir", second, "--socket", self.dir / "gnstord.sock", code=1, says="serves another folder")
        self.assertFalse((second / "ssd-0.store").exists())
        self.assertEqual(self.ask("status")["ssds"], 3)
        # Objects in a folder that a daemon serves: its SSDs are locked.
        self.cli("ls", "--store", self.dir, code=1, says="in use")

    def test_what_a_running_daemon_does_not_hear_is_said(self):
        self.assertEqual(self.ask("up", *SMALL, "--service-units", "2", "--scrub", "8", "--durability", "process")["notes"], [])
        heard = self.ask("up", "--scrub", "1", "--durability", "power", "--direct", "--profile", "none", "--service-units", "4")["notes"]
        self.assertIn("--scrub, --durability, --direct, --profile", heard[-1])
        self.assertIn("gnstor down", heard[-1])
        self.assertIn("--service-units", heard[0])
        self.ask("down")
        self.assertEqual(self.ask("up", "--scrub", "1", "--durability", "power")["notes"], [], "the changed option must be used after the restart")

    def test_a_byte_that_rots_under_a_running_array_is_told_once(self):
        data = self.random.randbytes(24 << 20)
        self.cli("put", self.write("data", data), "--store", self.dir, "--ssds", "2", "--capacity", "64MiB")
        self.ask("up", "--scrub", "4096")
        store = self.dir / "ssd-1.store"
        at = store.read_bytes().find(data[4096 * 7:4096 * 8])
        self.assertGreater(at, 0)
        with open(store, "r+b") as f:
            f.seek(at + 2000)
            f.write(bytes([data[4096 * 7 + 2000] ^ 4]))
        log, told, rounds = self.dir / "gnstord.log", "", 0
        until = time.monotonic() + DEADLINE_S
        # Found again and again, and still said once.
        while rounds < 3 and time.monotonic() < until:
            rounds = self.ask("ssd", "list")["ssds"][1]["counters"]["scrub_bad_pages"]
            told = log.read_text()
        self.assertGreaterEqual(rounds, 3)
        self.assertRegex(told, r"scrub: flash page \d+ fails its checksums: reads of block 7 of volume \d+ fail on this SSD")
        self.assertEqual(told.count("scrub:"), 1, told)
        self.assertEqual(self.cli("ssd", "list").stdout.count(b"bad pages found by the scrub"), 1)
        self.ask("down")
        self.assertEqual(self.cli("cat", "data", "--store", self.dir).stdout, data, "the object must be read from the other replica")
        count("scrubbed")

    def test_any_drive_that_is_lost_leaves_its_volumes_readable_and_brought_back_makes_them_whole(self):
        self.ask("up", *SMALL)
        data = os.urandom(4_000_000)
        source = self.root / "data"
        source.write_bytes(data)
        self.cli("put", source, "data")
        for slot in (0, 1):
            self.ask("down")
            store, kept = self.dir / f"ssd-{slot}.store", self.root / f"kept-{slot}"
            store.rename(kept)
            if slot == 0:
                self.cli("ssd", "format", store, "--capacity", "64MiB")
            else:
                store.write_bytes(b"damaged")
            self.ask("up")
            if slot == 1:
                self.cli("status", says="SSD 1 is left out")
            self.assertEqual([ssd["state"] for ssd in self.ask("ssd", "list")["ssds"]].count("missing"), 1)
            self.assertEqual(self.cli("cat", "data").stdout, data, f"the object must be readable without the SSD in slot {slot}")
            self.cli("put", source, "more", code=1, says=f"slot {slot} is missing")
            self.ask("down")
            kept.rename(store)
            self.ask("up")
            self.assertEqual(self.cli("cat", "data").stdout, data)
            self.cli("put", source, "more")
            self.cli("rm", "more")

    def test_a_store_that_is_an_older_copy_is_stale_and_older_records_are_brought_up_to_date(self):
        self.ask("up", *SMALL)
        source = self.root / "data"
        source.write_bytes(self.random.randbytes(1 << 20))
        for name in ("kept", "removed"):
            self.cli("put", source, name)
        self.ask("down")
        names = ("ssd-0.store", "ssd-1.store", "ssd-2.store", "records.db")
        older = {name: (self.dir / name).read_bytes() for name in names}
        self.ask("up")
        self.cli("put", source, "later")
        self.cli("rm", "removed")
        self.ask("down")
        newest = {name: (self.dir / name).read_bytes() for name in names}

        def put_back(*what):
            self.ask("down")
            for name in names:
                (self.dir / name).write_bytes((older if name in what else newest)[name])
            self.ask("up")

        def expect(volumes, *states):
            self.assertEqual([ssd["state"] for ssd in self.ask("ssd", "list")["ssds"]], list(states))
            self.assertEqual({v["name"] for v in self.ask("volume", "list")["volumes"]}, volumes)
            for name in volumes:
                self.assertTrue(self.cli("cat", name).stdout == source.read_bytes(), name)

        put_back("ssd-1.store")
        expect({"kept", "later"}, "in", "stale", "in")
        self.cli("status", says="is an older copy of itself")
        self.cli("volume", "create", "new", "1MiB", code=1, says="put its newest store back")
        put_back("records.db")
        expect({"kept", "later"}, "in", "in", "in")
        self.cli("status", says="volume 'removed' was deleted since")
        put_back(*names)
        expect({"kept", "removed"}, "in", "in", "in")
        put_back()
        expect({"kept", "later"}, "in", "in", "in")
        count("older_copies", 3)

    def test_a_killed_daemon_leaves_a_clear_word_and_a_whole_array(self):
        self.ask("up", *SMALL)
        self.ask("volume", "create", "kept", "8MiB", "--as", "alice")
        self.ask("volume", "share", "kept", "--with", "bob", "--as", "alice")
        added = self.ask("client", "add", "carol")
        self.assertNotIn("token", added, "there is no use for one: gnstord does not listen on TCP")
        identity = {field: added[field] for field in ("id", "name", "host_nqn")}
        self.assertIn(identity, self.ask("client", "list")["clients"])
        self.assertEqual(self.ask("client", "add", "carol"), added)
        before = self.ask("volume", "list")
        for lost in ((), ("records.db", "records.db-wal", "records.db-shm", "records.db-journal")):
            self.kill_daemon()
            self.assertIn("stale", self.ask("status", code=1)["message"])
            self.assertTrue(self.ask("down")["stale_socket"])
            self.cli("down", says="was killed")
            for name in lost:
                (self.dir / name).unlink(missing_ok=True)
            self.ask("up")
            self.assertEqual(self.ask("volume", "list"), before)
            self.assertEqual(self.ask("status")["volumes"], 1)
            count("kills")
        self.ask("volume", "create", "after", "8MiB", "--as", "alice")
        self.ask("volume", "delete", "kept", "--as", "alice")
        self.assertEqual([v["name"] for v in self.ask("volume", "list")["volumes"]], ["after"])
        self.ask("down")
        self.cli("status", code=1, says="gnstor up")

    def test_kills_in_the_middle_of_changes_lose_nothing_that_was_answered(self):
        self.ask("up", *SMALL)
        there, gone = set(), set()
        for turn in range(4):
            for step in range(self.random.randrange(1, 4)):
                name = f"v{turn}.{step}"
                self.ask("volume", "create", name, "1MiB")
                there.add(name)
            victim = self.random.choice(sorted(there))
            self.ask("volume", "delete", victim)
            there.discard(victim)
            gone.add(victim)
            self.kill_daemon()
            self.ask("up")
            self.assertEqual({v["name"] for v in self.ask("volume", "list")["volumes"]}, there)
            count("kills")

    def test_a_suspended_daemon_is_said_to_be_late_and_lives_on(self):
        self.ask("up", *SMALL)
        os.kill(self.pid(), signal.SIGSTOP)
        try:
            self.cli("down", "--wait", "1", code=1, says="has not stopped within 1 s")
        finally:
            os.kill(self.pid(), signal.SIGCONT)
        self.cli("down", code=0)

    def test_volumes_from_beginning_to_end(self):
        self.ask("up", *SMALL)
        made = self.ask("volume", "create", "data", "32MiB", "--replicas", "3", "--chunk", "128KiB", "--as", "alice")
        self.assertEqual((made["capacity_bytes"], made["chunk_bytes"], made["replicas"]), (32 << 20, 128 << 10, 3))
        self.assertEqual(self.ask("volume", "show", "data"), made)
        self.assertEqual(self.ask("volume", "create", "data", "1M", "--as", "bob", code=1)["code"], "exists")
        self.assertEqual(self.ask("volume", "create", "wide", "1M", "--replicas", "4", code=1)["code"], "invalid_argument")
        self.assertEqual(self.ask("volume", "create", "huge", "17TiB", code=1)["code"], "invalid_argument")
        self.assertEqual(self.ask("volume", "create", "none", "0", code=1)["code"], "invalid_argument")
        self.assertEqual(self.ask("volume", "create", "odd", "1M", "--chunk", "12KiB", code=1)["code"], "invalid_argument")
        for name in ("a/b", "..", ".hidden", "with space", "x" * 64, "", "tab\t", "ü"):
            self.assertEqual(self.ask("volume", "create", name, "1M", code=1)["code"], "invalid_argument", name)
        self.assertEqual(self.ask("volume", "share", "data", "--as", "bob", code=1)["code"], "permission")
        self.assertEqual(self.ask("volume", "delete", "data", "--as", "bob", code=1)["code"], "permission")
        self.assertTrue(self.ask("volume", "share", "data", "--as", "alice")["world_readable"])
        self.ask("volume", "release", "data", "--as", "alice")
        self.assertEqual(self.ask("volume", "delete", "data", "--as", "alice"), {"deleted": "data"})
        self.assertEqual(self.ask("volume", "delete", "data", "--as", "alice", code=1)["code"], "not_found")
        for words in (["volume", "list"], ["client", "list"], ["ssd", "list"], ["status"]):
            self.cli(*words)

    def test_wrong_usage_is_2_and_says_why(self):
        for words in ([], ["fly"], ["volume"], ["volume", "mount"], ["ssd"], ["up", "--ssds", "0"], ["up", "--ssds", "65"],
                      ["up", "--ssds", "-1"], ["up", "--ssds", "x"], ["up", "--capacity", "lots"], ["up", "--capacity", "-1G"],
                      ["up", "--capacity", "99999999999999P"], ["up", "--lease-ms", "1"], ["up", "extra"], ["down", "--wait", "0"],
                      ["volume", "create", "v"], ["volume", "create", "v", "1.5"], ["volume", "create", "v", "1Q"],
                      ["volume", "create", "v", "1M", "--replicas", "0"], ["status", "--output", "xml"], ["put"], ["get"],
                      ["get", "--store"], ["cat", "--store", "d"], ["rm", "--store", "d"], ["ls", "x"]):
            self.assertTrue(self.cli(*words, code=2).stderr.strip(), words)
        self.assertFalse(self.dir.exists(), "a command with wrong usage created files")

    def test_an_absurd_capacity_is_an_error_and_leaves_no_store(self):
        for capacity in ("4096PiB", "1PiB", "7000P"):
            self.cli("up", "--ssds", "1", "--capacity", capacity, code=1)
            self.assertFalse(list(self.dir.glob("*.store*")), "a store that could not be created left files")
        self.cli("up", "--ssds", "1", "--capacity", "0", code=1)

    def test_places_that_cannot_be_used_are_named(self):
        self.cli("up", "--dir", self.write("file", b"x"), code=1, says="file")
        self.cli("up", "--dir", "/proc/nowhere", code=1, says="/proc/nowhere")
        long = self.root / ("s" * 120)
        self.cli("up", *SMALL, "--socket", long, code=1, says="characters")
        self.cli("status", "--socket", long, code=1, says="characters")
        self.cli("status", "--socket", self.root / "file", code=1, says="not a socket")
        self.env["GNSTORD"] = str(self.root / "no-such-gnstord")
        self.cli("up", code=1, says="GNSTORD")


if __name__ == "__main__":
    main("cli_daemon")
