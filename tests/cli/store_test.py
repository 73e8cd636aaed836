#!/usr/bin/env python3
"""gnstor put, get, cat, ls, rm on real stores: contents, kills, damage, full disks. Arguments: the gnstor and gnstord programs."""
import itertools
import mmap
import os
import resource
import signal
import subprocess
import time

from programs import DEADLINE_S, GNSTOR, Programs, count, main

SMALL = ("--ssds", "2", "--capacity", "64MiB")
BLOCK = 4096


def limit_files_to(size):
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


class Store(Programs):
    def stores(self):
        return sorted(self.store.glob("ssd-*.store"))

    def flip(self, path, at, value=0xFF):
        with open(path, "r+b") as f:
            f.seek(at)
            byte = f.read(1)[0]
            f.seek(at)
            f.write(bytes([byte ^ value]))
        count("flipped_bytes")

    def places_of(self, data):
        """(store, offset) of each replica of one block's contents."""
        found = []
        for path in self.stores():
            with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as m:
                at = m.find(data)
                if at >= 0:
                    found.append((path, at))
        return found

    def test_files_of_every_size_come_back_byte_for_byte(self):
        self.cli("ls", "--store", self.store, code=1, says="FILE` creates it")
        sizes = (0, 1, 511, 512, 4095, 4096, 4097, 65535, 65536, 65537, (4 << 20) - 1, 4 << 20, (5 << 20) + 1)
        wanted = {}
        for size in sizes:
            name = f"size-{size}"
            wanted[name] = self.random.randbytes(size)
            if size % 2:
                self.objects("put", self.write(name, wanted[name]), "--ssds", "4", "--capacity", "64MiB")
            else:
                self.objects("put", "-", name, "--ssds", "4", "--capacity", "64MiB", stdin=wanted[name])
            count("bytes_stored", size)
        tricky = bytes(range(256)) * 16 + b"\r\n\x00\x1a\xff" + b"\0" * BLOCK
        wanted["tricky"] = tricky
        self.objects("put", self.write("tricky", tricky))
        self.assertEqual(self.names(), {name: len(data) for name, data in wanted.items()})
        for name, data in wanted.items():
            target = self.root / "out"
            self.objects("get", name, target)
            self.assertEqual(target.read_bytes(), data, name)
            self.assertEqual(self.fetched(name), data, name)
            target.unlink()
        self.objects("rm", "tricky")
        self.objects("rm", "tricky", code=1, says="no object")
        self.objects("get", "tricky", self.root / "out", code=1, says="no object")
        self.assertFalse(list(self.root.glob("*out*")))
        self.objects("put", self.write("new", b"other contents"), "tricky")
        self.assertEqual(self.fetched("tricky"), b"other contents")
        self.assertEqual(self.fetched("size-4097"), wanted["size-4097"])

    def test_wrong_input_is_refused_and_changes_nothing(self):
        kept = self.write("kept", b"kept")
        self.objects("put", kept, *SMALL)
        for name in ("a/b", "../up", ".hidden", "x" * 64, "with space"):
            (self.root / "up.putting").write_bytes(b"")  # what the put of another store would leave here
            self.objects("put", kept, name, code=1)
            self.objects("get", name, code=1, says="the name")
            self.assertTrue((self.root / "up.putting").exists())
        self.objects("put", kept, code=1, says="already")
        self.objects("put", self.root / "nothing", code=1, says="cannot be read")
        self.objects("put", self.root, code=1, says="is a folder")
        self.objects("put", "-", code=1, says="needs a name")
        self.objects("get", "kept", self.root / "no" / "folder", code=1, says="there is no folder")
        self.objects("cat", "a/b", code=1)
        self.objects("rm", "", code=1)
        self.cli("put", kept, "--store", kept, code=1)
        self.cli("ls", "--store", self.root / "nothing", code=1, says="no store")
        self.cli("put", kept, "--store", self.root / "s2", "--capacity", "1PiB", code=1)
        self.cli("put", kept, "--store", "/proc/nothing", code=1, says="/proc/nothing")
        self.assertEqual(self.names(), {"kept": 4})
        with open("/dev/full", "wb") as nowhere:
            full = subprocess.run([GNSTOR, "cat", "kept", "--store", str(self.store)], stdout=nowhere, stderr=subprocess.PIPE, env=self.env,
                                  timeout=DEADLINE_S, check=False)
        self.assertEqual(full.returncode, 1)
        self.assertIn(b"output", full.stderr)

    def test_a_store_is_one_commands_at_a_time(self):
        self.objects("put", self.write("kept", b"kept"), *SMALL)
        waiting = subprocess.Popen([GNSTOR, "put", "-", "slow", "--store", str(self.store)], stdin=subprocess.PIPE, env=self.env)
        # It has the store when it reads its input: a pipe takes 64 KiB, so this returns when it does.
        waiting.stdin.write(bytes(1 << 20))
        waiting.stdin.flush()
        self.objects("ls", code=1, says="use")
        waiting.stdin.close()
        self.assertEqual(waiting.wait(DEADLINE_S), 0)
        self.assertEqual(self.names(), {"kept": 4, "slow": 1 << 20})

    def test_a_put_that_was_killed_leaves_no_half_object_and_harms_no_other(self):
        kept = self.random.randbytes(300_000)
        self.objects("put", self.write("kept", kept), "--ssds", "2", "--capacity", "256MiB")
        data = self.random.randbytes(24 << 20)
        source = self.write("victim", data)
        killed = said = 0
        # A machine that lets this process stand still lets puts come to their end: four kills are tried, and more until two were in time.
        end = time.monotonic() + 120
        for number, megabytes in enumerate(itertools.cycle((0, 4, 9, 16))):
            if number >= 4 and (killed > 1 and said > 0 or time.monotonic() > end):
                break
            before = sum(p.stat().st_blocks for p in self.stores())
            put = subprocess.Popen([GNSTOR, "put", str(source), "--store", str(self.store)], env=self.env, stdout=subprocess.DEVNULL)
            # Killed when the stores have grown so far, both replicas counted.
            while put.poll() is None and sum(p.stat().st_blocks for p in self.stores()) - before <= megabytes * 2 * 2048:
                try:
                    put.wait(0.001)
                except subprocess.TimeoutExpired:
                    pass
            put.send_signal(signal.SIGKILL)
            killed += put.wait(DEADLINE_S) == -signal.SIGKILL
            names = self.names()
            if "victim" in names:  # it had come to its end
                self.assertEqual(self.fetched("victim"), data)
                self.objects("rm", "victim")
            self.assertEqual(self.names(), {"kept": len(kept)})
            said += b"interrupted" in self.objects("ls").stderr
            # A put removes what the killed one left; it is not in its way.
            self.assertNotIn(b"not listed", self.objects("put", self.write("next", b"next")).stderr)
            self.assertNotIn(b"interrupted", self.objects("rm", "next").stderr + self.objects("ls").stderr)
            self.assertEqual({p.name for p in self.store.iterdir()}, {"records.db", "ssd-0.store", "ssd-1.store"})
            self.assertEqual(self.fetched("kept"), kept)
        self.assertGreater(killed, 1, "no put was killed during its transfer")
        self.assertGreater(said, 0, "no command reported an interrupted put")
        count("kills", killed)
        self.objects("put", source)
        self.assertEqual(self.fetched("victim"), data)

    def test_a_put_that_was_killed_before_its_first_block_leaves_no_empty_object(self):
        self.objects("put", self.write("object", b"contents"), *SMALL)
        self.objects("put", self.write("empty", b""))
        self.to_stop.append(self.store)
        self.ask("up", "--dir", self.store)
        # As far as such a put comes: its volume is there, and was never opened.
        self.ask("volume", "create", "begun", "1MiB", "--dir", self.store, "--as", "gnstor-objects")
        self.ask("down", "--dir", self.store)
        self.objects("ls", says="'begun' was interrupted")
        self.assertEqual(self.names(), {"object": 8, "empty": 0})

    def test_what_reads_deletes_nothing_and_a_put_only_what_its_intent_names(self):
        self.objects("put", self.write("object", b"contents"), *SMALL)
        self.to_stop.append(self.store)
        # A record without its end: so looks an object that is whole, too, on a drive whose state went back by one change.
        self.ask("up", "--dir", self.store)
        self.ask("volume", "create", "doubtful", "1MiB", "--dir", self.store, "--as", "gnstor-objects")
        there = self.ask("volume", "show", "doubtful", "--dir", self.store)
        self.ask("down", "--dir", self.store)
        for words in (("get", "object", self.root / "out"), ("cat", "object"), ("ls",)):
            self.objects(*words)
        self.objects("get", "doubtful", self.root / "half", code=1, says="is incomplete")
        self.objects("put", self.write("more", b"more"))
        self.objects("put", self.write("doubtful", b"other"), code=1, says="killed")
        self.ask("up", "--dir", self.store)
        self.assertEqual(self.ask("volume", "show", "doubtful", "--dir", self.store), there)
        # The same in an array that others serve; there a put removes nothing, either.
        (self.store / "doubtful.putting").write_bytes(b"")
        for words in (("get", "object", self.root / "out", "--dir", self.store), ("ls", "--dir", self.store),
                      ("put", self.write("third", b"third"), "--dir", self.store), ("rm", "third", "--dir", self.store)):
            self.cli(*words)
        (self.store / "doubtful.putting").unlink()
        self.assertEqual(self.ask("volume", "show", "doubtful", "--dir", self.store), there)
        self.ask("down", "--dir", self.store)
        self.objects("rm", "doubtful")
        self.assertEqual(self.names(), {"object": 8, "more": 4})

    def test_put_and_rm_may_be_repeated_for_ever(self):
        source = self.write("object", b"contents")
        for _ in range(40):
            self.objects("put", source, *SMALL)
            self.objects("rm", "object")
        self.objects("put", source)
        self.to_stop.append(self.store)
        self.ask("up", "--dir", self.store)
        epoch = self.ask("volume", "show", "object", "--dir", self.store)["epoch"]
        self.assertLess(epoch, 41 * 2000, "epochs of successive volumes of one name must grow linearly")

    def test_a_new_drive_in_place_of_another_is_not_taken_for_it(self):
        data = self.random.randbytes(300_000)
        self.objects("put", self.write("object", data), *SMALL)
        store = self.store / "ssd-1.store"
        old = store.read_bytes()
        self.cli("ssd", "format", store, "--capacity", "64MiB", "--force")
        self.assertTrue(self.fetched("object") == data, "the object must be read from its other replica")
        refused = self.objects("put", self.root / "object", "more", code=1, says="'more' was not stored: the SSD of slot 1 is missing")
        self.assertNotIn(b"gnstord", refused.stderr, "the error must not mention gnstord, which serves no store here")
        (self.store / "records.db").rename(self.root / "records.db")
        for words in (("cat", "object"), ("rm", "object"), ("ls",)):
            self.objects(*words, code=1, says="is new")
        (self.root / "records.db").rename(self.store / "records.db")
        store.write_bytes(old)
        self.assertEqual(self.fetched("object"), data, "the commands in between must not change the object")

    def test_a_put_that_an_absent_drive_refuses_removes_nothing_and_reads_nothing(self):
        self.objects("put", self.write("object", b"contents"), *SMALL)
        self.to_stop.append(self.store)
        self.ask("up", "--dir", self.store)
        self.ask("volume", "create", "begun", "1MiB", "--dir", self.store, "--as", "gnstor-objects")
        self.ask("down", "--dir", self.store)
        (self.store / "begun.putting").write_bytes(b"")
        store = self.store / "ssd-1.store"
        old = store.read_bytes()
        self.cli("ssd", "format", store, "--capacity", "64MiB", "--force")
        reader, writer = os.pipe()
        os.write(writer, b"more")
        # The other end stays open: a put that waits for the end of its input would not come to its own.
        put = subprocess.Popen([GNSTOR, "put", "-", "more", "--store", str(self.store)], env=self.env, stdin=reader, stderr=subprocess.PIPE)
        _, said = put.communicate(timeout=DEADLINE_S)
        os.close(writer)
        os.close(reader)
        self.assertEqual(put.returncode, 1, said)
        self.assertIn(b"'more' was not stored: the SSD of slot 1 is missing", said)
        self.assertNotIn(b"is removed", said)
        store.write_bytes(old)
        said = self.objects("put", self.write("next", b"next")).stderr
        self.assertIn(b"an earlier put of 'begun' was interrupted; its incomplete object is removed", said)

    def test_a_drive_under_another_name_is_missing_and_no_new_one_takes_its_place(self):
        self.objects("put", self.write("object", self.random.randbytes(300_000)), *SMALL)
        for name in ("ssd-01.store", "ssd-+0.store", "ssd- 0.store", "ssd-4294967296.store"):
            (self.store / "ssd-0.store").rename(self.store / name)
            self.objects("ls", code=1, says="holds 1 SSD stores (ssd-N.store), numbered up to 1")
            self.objects("put", self.root / "object", "more", code=1, says="some are missing")
            self.assertEqual({path.name for path in self.stores()}, {name, "ssd-1.store"})
            (self.store / name).rename(self.store / "ssd-0.store")
        self.assertEqual(set(self.names()), {"object"})

    def test_objects_and_volumes_of_one_folder_do_not_harm_each_other(self):
        self.objects("put", self.write("object", b"contents"), *SMALL)
        self.to_stop.append(self.store)
        self.ask("up", "--dir", self.store)
        self.ask("volume", "create", "volume", "1MiB", "--dir", self.store)
        mine = self.ask("volume", "show", "volume", "--dir", self.store)
        self.kill_folder(self.store)
        self.assertEqual(self.names(), {"object": 8})
        self.objects("put", self.write("second", b"more"))
        self.ask("up", "--dir", self.store)
        self.assertEqual(self.ask("volume", "show", "volume", "--dir", self.store), mine)
        self.assertEqual({v["name"] for v in self.ask("volume", "list", "--dir", self.store)["volumes"]}, {"object", "volume", "second"})

    def kill_folder(self, folder):
        self.dir, mine = folder, self.dir
        self.kill_daemon()
        self.dir = mine

    def test_a_block_without_a_good_replica_is_an_error_and_not_contents(self):
        data = self.random.randbytes(40 * BLOCK + 17)
        self.objects("put", self.write("blob", data), *SMALL)
        places = self.places_of(data[7 * BLOCK:8 * BLOCK])
        self.assertEqual(len(places), 2)
        at_byte = self.random.randrange(BLOCK)
        for path, at in places:
            self.flip(path, at + at_byte)
        self.objects("get", "blob", self.root / "out", code=1, says="Unrecovered Read Error")
        self.assertFalse(list(self.root.glob("*out*")))

    def test_each_replica_alone_serves_and_the_damaged_first_one_is_reported(self):
        data = self.random.randbytes(12 * BLOCK)
        self.objects("put", self.write("blob", data), *SMALL)
        reported = 0
        for path, at in self.places_of(data[3 * BLOCK:4 * BLOCK]):
            self.flip(path, at + 100)
            done = self.objects("cat", "blob")
            self.assertEqual(done.stdout, data)
            reported += b"checksum" in done.stderr
            self.flip(path, at + 100)
        self.assertEqual(reported, 1, "the damaged replica must be reported exactly once, by the read that uses it")

    def test_an_array_of_which_one_store_is_damaged_is_read_from_the_others(self):
        contents = {"kept": b"kept" * 1000, "other": self.random.randbytes(70_000)}
        for name, data in contents.items():
            self.objects("put", self.write(name, data), *SMALL)
        for path in self.stores():
            whole = path.read_bytes()
            for damage in (self.random.randbytes(20_000), b"", whole[:len(whole) // 2]):
                path.write_bytes(damage)
                for name, data in contents.items():
                    done = self.objects("cat", name, says=f"{path.name}")
                    self.assertIn(b"is left out", done.stderr)
                    self.assertEqual(done.stdout, data)
                    count("blocks_of_the_other_store", -(-len(data) // BLOCK))
                for words in (("put", self.root / "kept", "new"), ("rm", "kept")):
                    self.objects(*words, code=1, says="nothing was changed")
                self.assertEqual(path.read_bytes(), damage, "a damaged store was written to")
                path.write_bytes(whole)
                self.objects("put", self.root / "kept", "new")
                self.objects("rm", "new")
                whole = path.read_bytes()
        (self.store / "records.db").unlink()
        path.write_bytes(b"damaged")
        self.objects("ls", code=1, says=path.name)  # without records.db the other store does not say what it lacks
        path.write_bytes(whole)
        self.objects("put", self.root / "kept", "new")
        for path in self.stores():
            path.write_bytes(b"damaged")
        self.objects("ls", code=1, says="ssd-0.store")
        for path in self.stores():
            path.unlink()
        for words in (("ls",), ("put", self.root / "kept", "new")):
            self.objects(*words, code=1, says="put them back into the folder")
            self.assertEqual(self.stores(), [], "a new store has the file name of a missing one")

    def test_a_damaged_store_file_is_refused_with_its_name(self):
        self.objects("put", self.write("kept", b"kept" * 1000), *SMALL)
        (self.store / "records.db").unlink()  # with them, the other store would answer
        victim = self.stores()[0]
        whole = victim.stat().st_size
        for at in (0, 8, 12, 16, 32, 48, 80, 92, 4092):
            self.flip(victim, at)
            self.objects("ls", code=1, says="ssd-0.store")
            self.flip(victim, at)
        saved = self.root / "saved"
        subprocess.run(["cp", "--sparse=always", str(victim), str(saved)], check=True)
        for size in (0, 1, 4095, 4096, 8192, whole // 2, whole - 1):
            os.truncate(victim, size)
            self.objects("ls", code=1, says="ssd-0.store")
            self.objects("put", self.write("more", b"more"), code=1, says="ssd-0.store")
            (self.store / "records.db").unlink(missing_ok=True)
            subprocess.run(["cp", "--sparse=always", str(saved), str(victim)], check=True)
            count("truncations")
        victim.write_bytes(self.random.randbytes(100_000))
        self.objects("ls", code=1, says="ssd-0.store")
        victim.unlink()
        self.objects("ls", code=1, says="missing")
        victim.mkdir()
        self.objects("ls", code=1)
        victim.rmdir()
        subprocess.run(["cp", "--sparse=always", str(saved), str(victim)], check=True)
        self.assertEqual(self.fetched("kept"), b"kept" * 1000)

    def test_random_damage_is_no_crash_and_gives_no_wrong_contents(self):
        data = self.random.randbytes(30 * BLOCK)
        self.objects("put", self.write("blob", data), *SMALL)
        saved = [(path, self.root / path.name) for path in self.stores()]
        for path, copy in saved:
            subprocess.run(["cp", "--sparse=always", str(path), str(copy)], check=True)
        served = 0
        for _ in range(12):
            victim = self.random.choice(self.stores())
            # The areas that say what is where: superblock, metadata slots, records.
            for _ in range(self.random.randrange(1, 6)):
                at = self.random.choice((self.random.randrange(4096), 8192 + self.random.randrange(4096),
                                         8192 + (1 << 20) + self.random.randrange(4096), 8192 + (2 << 20) + self.random.randrange(64 * 64)))
                self.flip(victim, at, self.random.randrange(1, 256))
            done = self.objects("cat", "blob", code=None)
            if done.returncode == 0:
                self.assertEqual(done.stdout, data)
                served += 1
            for path, copy in saved:
                subprocess.run(["cp", "--sparse=always", str(copy), str(path)], check=True)
            count("damaged_stores")
        print(f"random damage: served {served} of 12")
        self.assertEqual(self.fetched("blob"), data)

    def test_a_store_that_is_full_says_so_and_keeps_what_it_has(self):
        kept = self.random.randbytes(100_000)
        self.objects("put", self.write("kept", kept), "--ssds", "2", "--capacity", "80MiB")
        self.objects("put", "-", "endless", stdin=bytes(200 << 20), code=1, says="does not fit")
        big = self.root / "big"
        with open(big, "wb") as f:
            f.truncate(200 << 20)
        self.objects("put", big, code=1, says="does not fit")
        # Above what is kept in memory: by way of a file without a name.
        data = self.random.randbytes(66 << 20)
        self.objects("put", "-", "piped", stdin=data)
        self.assertEqual(self.fetched("piped"), data)
        self.assertEqual(self.fetched("kept"), kept)
        self.assertEqual({p.name for p in self.store.iterdir()}, {"records.db", "ssd-0.store", "ssd-1.store"})

    def test_a_file_size_limit_is_an_error_and_no_signal(self):
        kept = self.random.randbytes(100_000)
        source = self.write("kept", kept)
        self.objects("put", source, *SMALL, code=1, says="File too large", preexec_fn=limit_files_to(1 << 20))
        self.assertFalse(self.store.exists(), "a store that could not be created left files")
        self.objects("put", source, *SMALL)
        # The limit is the stores' too: opening them writes.
        self.objects("get", "kept", self.root / "out", code=1, says="gnstor:", preexec_fn=limit_files_to(50_000))
        self.assertFalse(list(self.root.glob("*out*")))
        self.ask("up", *SMALL)
        self.ask("down")
        self.cli("up", "--dir", self.root / "limited", code=1, says="too large", preexec_fn=limit_files_to(1 << 20))

    def test_a_full_disk_is_an_error_and_no_signal(self):
        disk = self.small_disk("disk", "size=60m")
        if disk is None:
            return
        self.store = disk / "store"
        kept = self.random.randbytes(100_000)
        self.objects("put", self.write("kept", kept), *SMALL)
        self.objects("put", self.write("big", self.random.randbytes(20 << 20)), code=1)
        self.assertEqual(self.names(), {"kept": len(kept)})
        self.assertEqual(self.fetched("kept"), kept)
        count("full_disks")

    def test_a_store_that_is_an_older_copy_is_not_read_and_its_replica_is(self):
        for ssds in (2, 1):
            self.store = self.root / f"rolled-{ssds}"
            first, second = (self.random.randbytes(1 << 20) for _ in range(2))
            self.objects("put", self.write("first", first), "--ssds", ssds, "--capacity", "64MiB")
            path = self.stores()[0]
            older = path.read_bytes()
            self.objects("put", self.write("second", second))
            newest = path.read_bytes()
            path.write_bytes(older)
            contents = {"first": first, "second": second}
            if ssds == 1:
                self.objects("get", "second", "-", code=1, says="is an older copy of itself")
            else:
                for name, data in contents.items():
                    self.assertTrue(self.fetched(name) == data, f"{name} must be read from its other replica")
            path.write_bytes(newest)
            for name, data in contents.items():
                self.assertTrue(self.fetched(name) == data, name)
            count("older_copies")

    def test_a_place_that_is_read_only_is_named(self):
        place = self.small_disk("readonly", "ro,size=1m")
        if place is None:
            if os.geteuid() == 0:
                return
            place = self.root / "locked"
            place.mkdir(0o555)
        self.cli("put", self.write("f", b"x"), "--store", place / "store", code=1, says=str(place))
        self.cli("up", "--dir", place / "array", code=1, says=str(place))
        self.objects("put", self.root / "f", *SMALL)
        self.objects("get", "f", place / "f", code=1, says=str(place))


if __name__ == "__main__":
    main("cli_store")
