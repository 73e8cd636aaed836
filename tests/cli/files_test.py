#!/usr/bin/env python3
"""What gnstor put reads, what get, cat and ls write, and what they never write. Arguments: the gnstor and gnstord programs."""
import os
import socket
import subprocess
import threading

from programs import DEADLINE_S, GNSTOR, Programs, count, main

SMALL = ("--ssds", "1", "--capacity", "64MiB")


class Files(Programs):
    def begin(self):
        data = self.random.randbytes(300_000)
        self.objects("put", self.write("object", data), *SMALL)
        return data

    def shell(self, line, code=0, says=None, at=None):
        """A command line, as only a shell redirects it."""
        count("commands")
        done = subprocess.run(["bash", "-c", line], env=dict(self.env, G=GNSTOR, S=str(self.store)), stdin=subprocess.DEVNULL,
                              capture_output=True, timeout=DEADLINE_S, cwd=at or self.root, check=False)
        return self.check(line, done, code, says)

    def contents(self, folder):
        return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}

    # Targets of get.

    def test_get_writes_no_file_of_an_array(self):
        data = self.begin()
        self.objects("put", self.root / "object", "ssd-0.store")
        store = self.store / "ssd-0.store"
        before = self.contents(self.store)
        (self.root / "link").symlink_to(store)
        os.link(store, self.root / "hard")
        moved = self.root / "moved"
        moved.symlink_to(self.store)
        for words in (("object", store), ("object", self.root / "link"), ("object", self.root / "hard"), ("object", moved / "ssd-0.store"),
                      ("object", self.store / "ssd-1.store"), ("object", self.store / "object"), ("object", self.store / "object.putting")):
            self.objects("get", *words, code=1, says="is not written")
            self.assertEqual(self.contents(self.store), before, words)
        for line in ("$G get ssd-0.store --store .", "$G get object ssd-0.store --store .", "$G get object --store ."):
            self.shell(line, code=1, says="is not written", at=self.store)
            self.assertEqual(self.contents(self.store), before, line)
        # A store of nobody's array, under a name that says nothing.
        self.cli("ssd", "format", self.root / "spare", "--capacity", "64MiB")
        self.objects("get", "object", self.root / "spare", code=1, says="the store of an SSD")
        # Under the name of a descriptor.
        for line in ("$G get object /dev/stdout --store $S 1<> $S/ssd-0.store", "$G cat object --store $S 1<> $S/ssd-0.store",
                     "$G cat object --store $S >> hard"):
            self.shell(line, code=1, says="is not written")
            self.assertEqual(self.contents(self.store), before, line)
        self.assertEqual(self.fetched("object"), data)
        self.objects("get", "object", self.root / "copy")
        self.assertEqual((self.root / "copy").read_bytes(), data)

    def test_get_writes_nothing_that_a_daemon_works_with(self):
        data = self.begin()
        self.ask("up", *SMALL, "--listen", "127.0.0.1:0")
        token = self.dir / "gnstord.token"
        (self.root / "records").symlink_to(self.dir / "records.db")
        os.link(token, self.root / "token")
        os.link(self.dir / "gnstord.log", self.root / "log")
        os.link(self.dir / "records.db", self.root / "database")
        self.cli("put", self.root / "object")
        secret = token.read_bytes()
        for target in (self.dir / "records.db", self.dir / "gnstord.sock", token, self.dir / "gnstord.pid", self.dir / "new", self.root / "records",
                       self.root / "token", self.root / "log", self.root / "database"):
            self.cli("get", "object", target, code=1, says="is not written")
        self.assertEqual(token.read_bytes(), secret)
        # Of another array, so that only what they are speaks against them.
        self.objects("get", "object", self.root / "database", code=1, says="is not written")
        self.objects("get", "object", self.root / "token", "--token-file", token, code=1, says="is not written")
        self.assertEqual(self.cli("cat", "object").stdout, data)

    def test_get_writes_no_file_that_is_locked_and_no_socket(self):
        import fcntl
        self.begin()
        for lock in (fcntl.flock, fcntl.lockf):
            with open(self.root / "locked", "wb") as locked:
                locked.write(b"theirs")
                locked.flush()
                lock(locked, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self.objects("get", "object", self.root / "locked", code=1, says="locked")
                self.assertEqual((self.root / "locked").read_bytes(), b"theirs")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(self.root / "sock"))
            self.objects("get", "object", self.root / "sock", code=1, says="is a socket")
        self.objects("get", "object", self.root / "locked")

    def test_get_leaves_nothing_half_written(self):
        data = self.begin()
        self.objects("get", "object", "", code=1, says="is empty")
        self.objects("get", "object", self.root, code=1, says="is a folder")
        self.objects("get", "object", "/dev/full", code=1, says="No space left")
        disk = self.small_disk("disk", "size=128k")
        if disk is not None:
            (disk / "old").write_bytes(b"old")
            for name in ("old", "new"):
                self.objects("get", "object", disk / name, code=1, says="No space left")
            self.assertEqual(self.contents(disk), {disk / "old": b"old"})
            subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
            for name in ("old", "new"):
                self.objects("get", "object", disk / name, code=1, says="Read-only file system")
            self.assertEqual(self.contents(disk), {disk / "old": b"old"})
        self.assertEqual(self.fetched("object"), data)

    # Standard descriptors.

    def test_a_closed_standard_descriptor_does_not_become_a_stores(self):
        data = self.begin()
        for closed in ("<&-", ">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"):
            for words in ("ls", "cat object", "get object copy", "put object other", "rm other", "rm nothing"):
                count("commands")
                subprocess.run(["bash", "-c", f"$G {words} --store $S {closed}"], env=dict(self.env, G=GNSTOR, S=str(self.store)), cwd=self.root,
                               stdin=subprocess.DEVNULL, capture_output=True, timeout=DEADLINE_S, check=False)
                self.assertEqual(self.fetched("object"), data, (words, closed))
            self.assertIn((self.root / "copy").read_bytes(), (data,), closed)
        self.shell("$G put - name --store $S <&-", code=1, says="standard input cannot be read")
        for words in ("ls", "cat object", "ls --output json"):
            self.shell(f"$G {words} --store $S >&-", code=1, says="standard output")
        self.assertEqual(self.names(), {"object": len(data)})

    def test_output_that_nobody_takes_is_an_error(self):
        self.objects("put", self.write("object", self.random.randbytes(2 << 20)), *SMALL)
        for words in ("ls", "cat object", "ls --output json", "--help", "get object copy"):
            where = "" if words == "--help" else "--store $S"
            self.shell(f"$G {words} {where} > /dev/full", code=1, says="No space left")
        for words in ("cat object", "get object /dev/stdout"):
            self.shell(f"$G {words} --store $S | true; exit ${{PIPESTATUS[0]}}", code=1, says="Broken pipe")

    # Sources of put.

    def test_what_has_no_size_is_read_to_its_end(self):
        files = ["/proc/cpuinfo", "/proc/self/mounts", "/sys/kernel/mm/transparent_hugepage/enabled"]
        for number, path in enumerate(files):
            if not os.path.exists(path):
                continue
            self.objects("put", path, f"f{number}", *SMALL)
            self.assertTrue(self.fetched(f"f{number}"), path)
        with open("/proc/version", "rb") as f:
            version = f.read()
        self.objects("put", "/proc/version", "version")
        self.assertEqual(self.fetched("version"), version)
        fifo = self.root / "fifo"
        os.mkfifo(fifo)
        data = self.random.randbytes(3 << 20)
        writer = threading.Thread(target=lambda: fifo.write_bytes(data))
        writer.start()
        self.objects("put", fifo, "piped")
        writer.join()
        self.assertEqual(self.fetched("piped"), data)
        self.objects("put", self.write("empty", b""))
        self.assertEqual(self.fetched("empty"), b"")

    def put_while(self, change):
        """A put of 32 MiB; the file is changed when the first of it has been stored, by which its size is known."""
        source = self.write("source", self.random.randbytes(32 << 20))
        before = sum(p.stat().st_blocks for p in self.store.glob("*.store"))
        put = subprocess.Popen([GNSTOR, "put", str(source), "--store", str(self.store)], env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.until(lambda: put.poll() is not None or sum(p.stat().st_blocks for p in self.store.glob("*.store")) > before,
                   "nothing is stored")
        change(source)
        said = put.communicate(timeout=DEADLINE_S)[1]
        return put.returncode, said

    def test_a_file_that_grows_or_shrinks_while_it_is_put_is_not_stored(self):
        self.objects("put", self.write("kept", b"kept"), "--ssds", "1", "--capacity", "128MiB")

        def grow(path):
            with open(path, "ab") as f:
                f.write(b"more")
        for change, says in ((grow, b"grew"), (lambda path: os.truncate(path, 4096), b"shorter")):
            for _ in range(5):  # a put may be over before the change
                code, said = self.put_while(change)
                if code != 0:
                    break
                self.objects("rm", "source")
            self.assertEqual(code, 1, said)
            self.assertIn(says, said)
            self.assertEqual(self.names(), {"kept": 4})
            self.assertFalse(list(self.store.glob("*.putting")))
        self.objects("put", self.root / "source")

    def test_standard_input_that_cannot_be_read_is_an_error(self):
        self.begin()
        self.shell("$G put - name --store $S < .", code=1, says="standard input cannot be read")
        self.assertEqual(set(self.names()), {"object"})

    # A store that is begun, names.

    def test_a_first_put_that_is_refused_leaves_nothing(self):
        source = self.write("object", self.random.randbytes(1 << 20))
        big = self.root / "big"
        with open(big, "wb") as f:
            f.truncate(100 << 20)
        store = self.root / "new" / "store"
        for words in ((source, "--capacity", "0"), (source, "--capacity", "1PiB"), (source, "a/b"), (source, ""), (big, *SMALL),
                      (self.root / "nothing",)):
            self.cli("put", *words, "--store", store, code=1)
            self.assertFalse((self.root / "new").exists(), words)
        self.cli("put", "-", "name", "--store", store, *SMALL, stdin=bytes(70 << 20), code=1, says="does not fit")
        self.assertFalse((self.root / "new").exists())
        (self.root / "new").mkdir()
        (self.root / "new" / "mine").write_bytes(b"mine")
        self.cli("put", big, "--store", self.root / "new", *SMALL, code=1)
        self.assertEqual(self.contents(self.root / "new"), {self.root / "new" / "mine": b"mine"})
        self.cli("put", source, "--store", store, "--ssds", "1", "--capacity", "256MiB")
        self.cli("put", big, "--store", store)

    def test_first_puts_at_the_same_time_lose_nothing(self):
        """A put that is refused removes what it made, and nothing that another put into the same folder has made or makes."""
        data = self.random.randbytes(200_000)
        source = self.write("object", data)
        big = self.root / "big"
        with open(big, "wb") as f:
            f.truncate(100 << 20)
        stored = 0
        for i in range(12):
            self.store = self.root / f"new-{i}" / "store"
            puts = [subprocess.Popen([GNSTOR, "put", str(path), "object", "--store", str(self.store), *SMALL], env=self.env,
                                     stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
                    for path in ((source, big, source) if i % 2 else (big, source, big))]
            count("commands", len(puts))
            good = False
            for put in puts:
                said = put.communicate(timeout=DEADLINE_S)[1]
                fits = put.args[2] == str(source)
                good = good or put.returncode == 0
                if put.returncode != 0:
                    self.assertEqual(put.returncode, 1, said)
                    self.assertTrue(b"in use" in said or not fits and b"does not fit" in said, said)
                else:
                    self.assertTrue(fits)
            if not good:
                self.objects("put", source, *SMALL)
            stored += good
            self.assertEqual(self.names(), {"object": len(data)})
            self.assertEqual(self.fetched("object"), data)
        self.assertGreater(stored, 0)

    def test_names_are_those_that_the_documents_say(self):
        data = self.begin()
        for name in ("", ".", "..", ".x", "a/b", "a\nb", "a\x01", "a b", "x" * 64, "x" * 5000, "\u00e4", "%"):
            self.objects("put", self.root / "object", name, code=1, says="name")
        for name in ("x" * 63, "A", "a", "a.putting", "1_2-3."):
            self.objects("put", self.root / "object", name)
            self.assertEqual(self.fetched(name), data)
            self.objects("rm", name)
        self.assertEqual(set(self.names()), {"object"})

    def test_what_a_read_only_store_refuses_is_said_to_be_undone(self):
        disk = self.small_disk("disk", "size=200m")
        if disk is None:
            self.skipTest("this machine does not allow mounting a tmpfs")
        self.store = disk / "store"
        data = self.begin()
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        for words, says in ((("rm", "object"), "was not removed"), (("put", self.root / "object", "other"), "was not stored")):
            done = self.objects(*words, code=1, says=says)
            self.assertIn(b"nothing was changed", done.stderr)
            self.assertNotIn(b"recorded", done.stderr)
        self.assertEqual(self.fetched("object"), data)

    def test_an_up_that_fails_says_why_first_and_last(self):
        self.ask("up", *SMALL)
        self.ask("down")
        (self.dir / "ssd-0.store").write_bytes(b"damaged")
        done = self.cli("up", code=1, says="gnstord did not start: gnstord: ")
        lines = done.stderr.decode().strip().splitlines()
        self.assertIn("ssd-0.store", lines[0], lines)
        self.assertIn("ssd-0.store", lines[-1], lines)
        self.assertFalse([line for line in lines if "stopping" in line], "the log contains lines of an earlier start")


if __name__ == "__main__":
    main("cli_files")
