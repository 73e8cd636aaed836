#!/usr/bin/env python3
"""Disks without room, and file systems that became read-only: what is there can be read. Arguments: the gnstor and gnstord programs."""
import contextlib
import errno
import os
import re
import shlex
import sqlite3
import subprocess

from programs import DEADLINE_S, GNSTOR, GNSTORD, Programs, count, main

SMALL = ("--ssds", "2", "--capacity", "64MiB")


class FullDisk(Programs):
    def disk(self, megabytes):
        disk = self.small_disk("disk", f"size={megabytes}m")
        if disk is None:
            self.skipTest("this machine does not allow mounting a tmpfs")
        self.dir = disk / "array"
        self.store = disk / "store"
        self.env["GNSTOR_DIR"] = str(self.dir)
        self.to_stop.append(self.dir)
        return disk

    def fill(self, disk):
        """To the last byte."""
        filler = disk / "filler"
        with open(filler, "ab", buffering=0) as f:
            size = 1 << 20
            while size:
                try:
                    f.write(bytes(size))
                except OSError as e:
                    self.assertEqual(e.errno, errno.ENOSPC)
                    size //= 2
        count("full_disks")
        return filler

    def leave_in_log(self, free, name="gnstord.log"):
        """The last 4 KiB of the log, which have their room on the disk, take so many bytes more."""
        log = self.dir / name
        size = log.stat().st_size
        end = -(-(size + free + 1) // 4096) * 4096 - free
        with open(log, "ab") as f:
            f.write(b"x" * (end - size - 1) + b"\n")

    def assert_closed(self):
        for store in sorted(self.dir.glob("*.store")):
            self.cli("ssd", "info", store, says="closed cleanly")

    def begin(self):
        """An array with an object, whose gnstord was killed."""
        self.ask("up", *SMALL)
        data = self.random.randbytes(1 << 20)
        self.ask("put", self.write("data", data), "object")
        self.kill_daemon()
        return data

    def test_an_array_whose_disk_is_full_is_read_after_a_kill_and_written_when_there_is_room(self):
        disk = self.disk(64)
        data = self.begin()
        filler = self.fill(disk)
        self.assertIn("is full", self.ask("up")["read_only"])
        before = self.ask("status")
        self.assertIn("read-only", before["read_only"])
        self.cli("status", says="READ-ONLY")
        self.cli("doctor", code=None, says="the array is read-only")
        self.assertIn("read-only", (self.dir / "gnstord.log").read_text())
        self.assertEqual(self.cli("cat", "object").stdout, data)
        for words in (("put", self.root / "data", "other"), ("rm", "object"), ("volume", "create", "v", "1MiB"), ("client", "add", "zoe")):
            refused = self.ask(*words, code=1)
            self.assertEqual(refused["code"], "no_space", refused)
            self.assertIn("read-only", refused["message"])
        self.assertTrue(self.ask("down")["stopped"])
        self.fill(disk)
        self.assertIn("is full", self.ask("up")["read_only"])
        filler.unlink()
        self.until(lambda: self.ask("status")["read_only"] == "", "gnstord stays read-only although its disk has room again")
        self.assertGreater(self.ask("status")["term"], before["term"])
        self.ask("put", self.root / "data", "other")
        self.assertEqual(self.cli("cat", "other").stdout, data)

    def test_down_closes_an_array_whose_log_has_no_room(self):
        disk = self.disk(60)
        self.ask("up", *SMALL, "--durability", "process")
        self.ask("put", self.write("data", self.random.randbytes(1 << 20)), "object")
        self.leave_in_log(0)
        self.fill(disk)
        self.assertTrue(self.ask("down")["stopped"])
        self.assert_closed()

    def test_gnstord_goes_on_and_closes_where_its_standard_error_takes_nothing(self):
        for name in ("full", "pipe"):
            with self.subTest(name):
                if name == "full":
                    error = os.open("/dev/full", os.O_WRONLY)
                else:
                    reader, error = os.pipe()
                    os.close(reader)
                with os.fdopen(error, "wb") as stream:
                    daemon = subprocess.Popen([GNSTOR, "up", "--foreground", *SMALL], env=self.env, stdout=stream, stderr=stream)
                self.until(lambda: daemon.poll() is not None or self.cli("status", code=None).returncode == 0, "gnstord did not start")
                self.assertIsNone(daemon.returncode, "gnstord ended")
                self.ask("put", self.write("data", self.random.randbytes(1 << 16)), name)
                daemon.terminate()
                self.assertEqual(daemon.wait(DEADLINE_S), 0)
                self.assert_closed()

    def test_commands_and_nodes_go_on_where_standard_error_takes_nothing(self):
        self.ask("up", *SMALL)
        data = self.write("data", self.random.randbytes(1 << 16))
        with open("/dev/full", "wb") as full:
            for words in (("put", str(data), "object"), ("rm", "object")):
                self.assertEqual(subprocess.run([GNSTOR, *words], env=self.env, stdout=subprocess.DEVNULL, stderr=full, check=False).returncode, 0)
            self.assertEqual(subprocess.run([GNSTOR, "rm", "object"], env=self.env, stdout=subprocess.DEVNULL, stderr=full, check=False).returncode, 1)
            folder = self.root / "node"
            address = f"127.{100 + os.getpid() // 250 % 100}.{os.getpid() % 250}.11"
            node = subprocess.Popen([GNSTOR, "node", "--listen", address, "--dir", folder, "--ssds", "1", "--capacity", "64MiB"],
                                    env=self.env, stdout=full, stderr=full)
        self.until(lambda: node.poll() is not None or (folder / "node.json").exists(), "the node did not start")
        node.terminate()
        self.assertEqual(node.wait(DEADLINE_S), 0)
        self.cli("ssd", "info", folder / "ssd-0.store", says="closed cleanly")

    def test_a_gnstord_that_could_not_write_its_pid_file_is_found(self):
        disk = self.disk(60)
        self.ask("up", *SMALL)
        self.ask("down")
        self.leave_in_log(2000)
        filler = self.fill(disk)
        pid = self.ask("up")["pid"]
        self.assertIn("gnstord.pid cannot be written", (self.dir / "gnstord.log").read_text())
        self.assertFalse((self.dir / "gnstord.pid").exists())
        again = self.ask("up")
        self.assertEqual((again["started"], again["pid"]), (False, pid))
        # Without its socket it is found by its lock.
        (self.dir / "gnstord.sock").unlink()
        self.assertEqual(self.ask("down")["pid"], pid)
        filler.unlink()
        self.assertEqual(self.ask("up")["read_only"], "")

    def test_up_says_the_whole_error_of_a_gnstord_whose_log_has_no_room(self):
        disk = self.disk(60)
        self.ask("up", *SMALL)
        self.ask("down")
        (self.dir / "records.db").write_bytes(bytes(8192))
        for free in (0, 30):
            self.leave_in_log(free)
            before = (self.dir / "gnstord.log").stat().st_size
            filler = self.fill(disk)
            self.cli("up", code=1, says="--quarantine-store")
            self.assertEqual((self.dir / "gnstord.log").stat().st_size, before + free)
            filler.unlink()

    def test_nodes_whose_disk_is_full_are_read_after_a_kill(self):
        disk = self.disk(60)
        self.ask("up", "--nodes", "2", "--ssds", "1", "--capacity", "64MiB")
        data = self.random.randbytes(1 << 20)
        self.ask("put", self.write("data", data), "object")
        self.fill(disk)
        folders = [self.dir / f"node-{i}" for i in (0, 1)]
        names = [sorted(path.name for path in folder.iterdir()) for folder in folders]
        for folder in folders:
            self.kill(int((folder / "node.pid").read_text()))
        self.kill_daemon()
        self.fill(disk)
        self.assertIn("is full", self.ask("up")["read_only"])
        self.assertEqual(self.cli("cat", "object").stdout, data)
        self.cli("put", self.root / "data", "other", code=1, says="the array is read-only")
        self.assertEqual([sorted(path.name for path in folder.iterdir()) for folder in folders], names)
        # Without the files that a kill leaves there is no room for theirs: they say which one, and leave none.
        self.ask("down")
        self.leave_in_log(20, "node-0.log")
        self.fill(disk)
        # Whole, though the log takes its first bytes only.
        self.cli("up", code=1, says="node.pid cannot be written: No space left on device; free some disk space")
        self.assertNotIn("free some", (self.dir / "node-0.log").read_text())
        for folder in folders:
            self.assertEqual(sorted(path.name for path in folder.iterdir()), ["node.lock", "ssd-0.store"])

    def test_one_node_without_room_leaves_no_store_of_any_node(self):
        self.disk(80)
        self.dir.mkdir()
        if self.small_disk(self.dir / "node-1", "size=8m") is None:
            self.skipTest("this machine does not allow mounting a tmpfs")
        self.cli("up", "--nodes", "2", "--ssds", "1", "--capacity", "64MiB", code=1, says="need")
        self.assertEqual(list(self.dir.glob("node-*/ssd-*.store")), [])
        count("undone_set_ups")

    def test_down_after_a_kill_fails_where_a_restart_of_the_machine_would_lose_data(self):
        self.dir = self.root / "array"
        self.env["GNSTOR_DIR"] = str(self.dir)
        self.to_stop.append(self.dir)
        for durability, code in (("process", 1), ("power", 0)):
            self.ask("up", *SMALL, "--durability", durability)
            self.kill_daemon()
            said = self.cli("down", code=code)
            self.assertEqual(b"before this machine is restarted" in said.stderr, code == 1, said)
            self.ask("up")
            self.ask("down")
            self.assert_closed()
            for store in self.dir.glob("*.store"):
                store.unlink()
            (self.dir / "records.db").unlink()

    def test_up_on_a_read_only_file_system_names_the_log_and_a_command_that_serves(self):
        disk = self.disk(64)
        data = self.begin()
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        socket = self.root / "sock"
        refused = self.cli("up", "--socket", socket, code=1, says=f"its log {self.dir / 'gnstord.log'} cannot be written: Read-only file system")
        self.assertNotIn(b"GNSTORD", refused.stderr)
        # Without --socket a place is named that this user may write, or the user is asked for one.
        named = re.search(rb"--socket ([^ `]*)`", self.cli("up", code=1).stderr)[1].decode()
        self.assertTrue(named == "PATH" or os.access(os.path.dirname(named), os.W_OK), named)
        advice = re.search(rb"by `gnstor ([^`]*)`", refused.stderr)[1].decode()
        serving = subprocess.Popen([GNSTOR, *shlex.split(advice)], env=self.env)
        try:
            self.until(lambda: serving.poll() is None and self.cli("status", "--socket", socket, code=None).returncode == 0, "gnstord did not start")
            self.assertEqual(self.cli("cat", "object", "--socket", socket).stdout, data)
        finally:
            serving.terminate()
            serving.wait(DEADLINE_S)

    def test_up_says_of_a_log_that_has_no_room_or_another_owner_what_helps(self):
        place = self.small_disk("inodes", "size=1m,nr_inodes=2")  # for itself and the array's folder
        if place is not None:
            full = self.cli("up", "--dir", place / "array", code=1, says="No space left on device; free some disk space")
            self.assertNotIn(b"--foreground", full.stderr)
        self.root.chmod(0o755)
        self.dir.mkdir(0o555)
        nobody = {"user": 65534} if os.geteuid() == 0 else {}
        if nobody and subprocess.run(["test", "-x", GNSTOR], **nobody, check=False).returncode != 0:
            self.skipTest(f"{GNSTOR} is for its owner alone")
        denied = self.cli("up", code=1, says="choose another folder with --dir", **nobody)
        self.assertIn(f"its folder {self.dir} belongs to another user or is not writable".encode(), denied.stderr)
        self.assertNotIn(b"--foreground", denied.stderr)

    def test_a_store_folder_whose_disk_is_full_is_read(self):
        disk = self.disk(64)
        data = self.random.randbytes(1 << 20)
        self.objects("put", self.write("data", data), "object", *SMALL)
        self.fill(disk)
        self.assertEqual(self.fetched("object"), data)
        self.assertEqual(self.names(), {"object": len(data)})

    def test_a_file_system_that_became_read_only_is_read_and_left_as_it_is(self):
        disk = self.disk(64)
        data = self.begin()
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        before = {path.name: path.read_bytes() for path in (self.dir / "records.db", self.dir / "records.db-wal")}
        self.assertTrue(before["records.db-wal"], "the kill must leave a write-ahead log that the next start reads")
        socket = self.root / "sock"
        daemon = subprocess.Popen([GNSTORD, "--dir", str(self.dir), "--socket", str(socket)], env=self.env)
        try:
            self.until(lambda: daemon.poll() is None and self.cli("status", "--socket", socket, code=None).returncode == 0, "gnstord did not start")
            self.assertIn("read-only file system", self.ask("status", "--socket", socket)["read_only"])
            self.assertEqual(self.cli("cat", "object", "--socket", socket).stdout, data)
            for words in (("put", self.root / "data", "other"), ("rm", "object")):
                self.assertEqual(self.ask(*words, "--socket", socket, code=1)["code"], "permission")
        finally:
            daemon.terminate()
            daemon.wait(DEADLINE_S)
        self.store = self.dir
        self.assertEqual(self.fetched("object"), data)
        self.objects("put", self.root / "data", "other", code=1)
        self.objects("rm", "object", code=1)
        self.assertEqual(self.fetched("object"), data)
        self.assertEqual({name: (self.dir / name).read_bytes() for name in before}, before)
        subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
        self.assertEqual(self.ask("up")["read_only"], "")
        self.ask("rm", "object")

    def test_records_of_the_earlier_schema_are_read_on_a_read_only_file_system(self):
        disk = self.disk(64)
        data = self.random.randbytes(1 << 20)
        self.objects("put", self.write("data", data), "object", *SMALL)
        with contextlib.closing(sqlite3.connect(self.store / "records.db")) as records:
            for column in ("generation", "removed"):
                records.execute(f"ALTER TABLE clients DROP COLUMN {column}")
            for table in ("array", "clients", "volumes", "creating", "retired", "ssds"):
                records.execute(f"ALTER TABLE {table} DROP COLUMN crc")
            records.execute("PRAGMA user_version = 4")
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        self.assertEqual(self.fetched("object"), data)
        subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
        self.objects("put", self.root / "data", "other")
        self.assertEqual(set(self.names()), {"object", "other"})

    def test_half_a_set_up_is_undone_and_the_room_that_it_takes_is_named(self):
        self.disk(13)  # two of four SSDs' heads and records have room
        source = self.write("byte", b"x")
        self.objects("put", source, "--capacity", "64MiB", code=1, says="at once")
        self.assertFalse(self.store.exists(), "a store that could not be created left files")
        self.cli("up", "--capacity", "64MiB", code=1, says="at once")
        self.assertFalse(list(self.dir.glob("*.store*")))
        count("undone_set_ups", 2)


if __name__ == "__main__":
    main("cli_full_disk")
