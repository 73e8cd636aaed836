#!/usr/bin/env python3
"""The gnstor command from outside: exit codes, JSON, sentences. Arguments: the gnstor and gnstord programs (model drives)."""
import json, os, signal, socket, stat, subprocess, sys, tempfile, unittest

GNSTOR, GNSTORD = sys.argv.pop(1), sys.argv.pop(1)
calls = 0


class Cli(unittest.TestCase):
    def setUp(self):
        self.temp = tempfile.TemporaryDirectory(prefix="gnstor-cli-")
        self.dir = os.path.join(self.temp.name, "array")
        self.env = dict(os.environ, GNSTORD=GNSTORD, GNSTOR_DIR=self.dir)
        self.env.pop("GNSTOR_CLIENT", None)

    def tearDown(self):
        self.run_cli("down", code=None)
        self.temp.cleanup()

    def run_cli(self, *words, code=0, stdin=None, says=None):
        global calls
        calls += 1
        done = subprocess.run([GNSTOR, *words], env=self.env, input=stdin, capture_output=True, timeout=120)
        if code is not None:
            self.assertEqual(done.returncode, code, (words, done.stdout, done.stderr))
        if says is not None:
            self.assertIn(says, (done.stdout + done.stderr).decode())
        return done

    def ask(self, *words, code=0):
        done = self.run_cli(*words, "--output", "json", code=code)
        return json.loads(done.stdout if code == 0 else done.stderr)

    def test_up_and_down_are_idempotent_and_clear(self):
        self.run_cli("down", says="not running")
        up = self.ask("up", "--ssds", "3")
        self.assertEqual((up["state"], up["started"], up["ssds"]), ("up", True, 3))
        self.assertFalse(self.ask("up")["started"])
        self.run_cli("up", says="already up")
        self.assertTrue(self.ask("down")["stopped"])
        self.assertFalse(self.ask("down")["stopped"])
        self.assertFalse(os.path.exists(os.path.join(self.dir, "gnstord.sock")))

    def test_wrong_usage_is_exit_code_2(self):
        for words in ([], ["fly"], ["volume"], ["volume", "create"], ["volume", "create", "v", "many"], ["up", "--ssds", "0"],
                      ["up", "--ssds", "65"], ["status", "--output", "xml"], ["volume", "create", "v", "1M", "--replicas", "9"],
                      ["put"], ["get"], ["status", "--bogus"]):
            self.run_cli(*words, code=2)
        self.run_cli("--help", says="volume")

    def test_without_a_daemon_the_error_says_what_to_do(self):
        for words in (["status"], ["volume", "list"], ["ssd", "list"], ["client", "add", "a"]):
            self.run_cli(*words, code=1, says="gnstor up")
        self.assertEqual(self.ask("status", code=1)["error"]["code"], "io")

    def test_the_life_of_a_volume(self):
        self.run_cli("up")
        made = self.ask("volume", "create", "data", "64MiB", "--replicas", "3", "--chunk", "128KiB", "--as", "alice")
        self.assertEqual((made["capacity_bytes"], made["chunk_bytes"], made["replicas"]), (64 << 20, 128 << 10, 3))
        self.assertEqual(self.ask("volume", "list")["volumes"][0]["name"], "data")
        holds = self.ask("df")
        self.assertEqual([(v["name"], v["capacity_bytes"], v["replicas"]) for v in holds["volumes"]], [("data", 64 << 20, 3)])
        self.assertGreater(holds["usable"][0]["bytes"], 2 * holds["usable"][2]["bytes"])
        self.run_cli("df", says="what each volume takes is unknown")
        happened = self.ask("events")
        self.assertEqual([e["code"] for e in happened["events"]], ["DAEMON_STARTED", "CLIENT_ADDED", "VOLUME_CREATED"])
        self.assertEqual([e["volume"] for e in self.ask("events", "--since", "2")["events"]], ["data"])
        self.run_cli("events", "--since", "2", says="volume 'data' of 'alice' (VID 1) was created")
        self.run_cli("events", "--since", "1000", says="gnstord has restarted since event 1000")
        self.run_cli("events", "--since", "x", code=2)
        self.run_cli("volume", "list", says="data")
        self.run_cli("volume", "show", "data", says="alice")
        self.assertEqual(self.ask("volume", "create", "data", "1M", "--as", "alice", code=1)["error"]["code"], "exists")
        self.assertEqual(self.ask("volume", "create", "huge", "17T", code=1)["error"]["code"], "invalid_argument")
        self.assertEqual(self.ask("volume", "create", "a/b", "1M", code=1)["error"]["code"], "invalid_argument")
        self.run_cli("volume", "share", "data", "--with", "bob", "--as", "carol", code=1, says="only the owner")
        self.assertEqual(len(self.ask("volume", "share", "data", "--with", "bob", "--as", "alice")["readers"]), 1)
        self.assertTrue(self.ask("volume", "share", "data", "--as", "alice")["world_readable"])
        self.run_cli("volume", "unshare", "data", "bob", "--as", "alice", code=1, says="shared with all clients")
        self.run_cli("volume", "unshare", "data", "bob", "--as", "carol", code=1, says="only the owner")
        self.run_cli("volume", "unshare", "data", "--as", "alice", says="no longer shared with everybody; it can be read by its owner and clients ")
        self.assertEqual(self.ask("volume", "unshare", "data", "bob", "--as", "alice")["readers"], [])
        self.run_cli("volume", "unshare", "data", "nobody", "--as", "alice", code=1, says="there is no client 'nobody'")
        self.assertNotIn("nobody", [each["name"] for each in self.ask("client", "list")["clients"]], "a misspelt name is no new client")
        self.ask("volume", "share", "data", "--as", "alice")
        self.run_cli("volume", "release", "data", "--as", "alice", says="was not open for writing")
        self.run_cli("volume", "delete", "data", "--as", "bob", code=1, says="only the owner")
        self.run_cli("volume", "delete", "data", "--as", "alice")
        self.assertEqual(self.ask("volume", "show", "data", code=1)["error"]["code"], "not_found")
        self.assertEqual(len(self.ask("ssd", "list")["ssds"]), 4)
        self.run_cli("ssd", "list", says="MODEL2")
        self.run_cli("client", "list", says="carol")
        self.assertEqual(self.ask("status")["volumes"], 0)
        self.run_cli("status", says="map 1 in force")

    def test_records_survive_a_restart_a_kill_and_the_loss_of_the_store(self):
        self.run_cli("up")
        self.run_cli("volume", "create", "kept", "8M", "--as", "alice")
        before = self.ask("volume", "show", "kept")
        self.run_cli("down")
        self.run_cli("up")
        self.assertEqual(self.ask("volume", "show", "kept"), before)
        self.run_cli("down")
        os.remove(os.path.join(self.dir, "records.db"))
        self.run_cli("up")
        self.assertEqual(self.ask("volume", "show", "kept"), before)
        # Killed: the stale socket is replaced.
        with open(os.path.join(self.dir, "gnstord.pid")) as f:
            os.kill(int(f.read()), signal.SIGKILL)
        self.assertTrue(os.path.exists(os.path.join(self.dir, "gnstord.sock")))
        self.run_cli("up")
        self.assertEqual(self.ask("volume", "show", "kept")["name"], "kept")

    def test_a_damaged_store_is_refused_and_rebuilt_when_asked(self):
        self.run_cli("up")
        self.run_cli("volume", "create", "kept", "8M")
        self.run_cli("down")
        with open(os.path.join(self.dir, "records.db"), "wb") as f:
            f.write(b"not a database" * 1000)
        self.run_cli("up", code=1, says="--quarantine-store")
        self.run_cli("up", "--quarantine-store")
        self.assertEqual(self.ask("volume", "show", "kept")["name"], "kept")

    def test_two_daemons_do_not_share_a_folder_or_a_socket(self):
        self.run_cli("up")
        second = subprocess.run([GNSTORD, "--dir", self.dir], capture_output=True, timeout=60)
        self.assertEqual(second.returncode, 1)
        self.assertIn(b"another gnstord", second.stderr)
        sock = os.path.join(self.dir, "gnstord.sock")
        third = subprocess.run([GNSTORD, "--dir", self.dir + "2", "--socket", sock], capture_output=True, timeout=60)
        self.assertEqual(third.returncode, 1)
        self.assertIn(b"another gnstord answers", third.stderr)
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            busy = subprocess.run([GNSTORD, "--dir", self.dir + "3", "--listen", "127.0.0.1:%d" % taken.getsockname()[1]],
                                  capture_output=True, timeout=60)
            self.assertEqual(busy.returncode, 1)
            self.assertIn(b"cannot listen", busy.stderr)
        with open(self.dir + ".file", "w") as f:
            f.write("precious")
        plain = subprocess.run([GNSTORD, "--dir", self.dir + "4", "--socket", self.dir + ".file"], capture_output=True, timeout=60)
        self.assertIn(b"not a socket", plain.stderr)
        self.assertTrue(os.path.exists(self.dir + ".file"))
        self.run_cli("status")

    def test_files_go_in_and_come_back(self):
        store = ["--store", os.path.join(self.temp.name, "store")]
        self.run_cli("ls", *store, code=1, says="FILE` creates it")
        data = os.urandom(100_001)
        source, target = os.path.join(self.temp.name, "in"), os.path.join(self.temp.name, "out")
        with open(source, "wb") as f:
            f.write(data)
        self.assertEqual(self.ask("put", source, "blob", *store)["bytes"], len(data))
        self.run_cli("put", source, "blob", *store, code=1, says="remove it first")
        self.run_cli("put", source + ".no", *store, code=1, says="cannot be read")
        self.run_cli("put", self.temp.name, *store, code=1, says="is a folder")
        self.run_cli("put", source, "a/b", *store, code=1, says="0x2f")
        self.run_cli("put", "-", *store, code=1, stdin=b"x", says="needs a name")
        self.run_cli("put", "-", "piped", *store, stdin=b"through a pipe")
        self.refused_before_its_input_ends("piped", store)
        self.run_cli("get", "blob", target, *store)
        with open(target, "rb") as f:
            self.assertEqual(f.read(), data)
        self.assertEqual(self.run_cli("cat", "piped", *store).stdout, b"through a pipe")
        self.assertEqual(self.run_cli("get", "piped", "-", *store).stdout, b"through a pipe")
        self.run_cli("get", "nothing", target + "2", *store, code=1, says="not stored")
        self.assertEqual(sorted(os.listdir(self.temp.name)), ["array", "in", "out", "store"] if os.path.exists(self.dir) else ["in", "out", "store"])
        self.assertEqual(len(self.ask("ls", *store)["objects"]), 2)
        self.run_cli("rm", "blob", *store)
        self.run_cli("rm", "blob", *store, code=1)

    def refused_before_its_input_ends(self, name, store):
        """A taken name is refused while the input, a pipe that stays open, has not ended."""
        reading, writing = os.pipe()
        try:
            done = subprocess.run([GNSTOR, "put", "-", name, *store], env=self.env, stdin=reading, capture_output=True, timeout=60)
        finally:
            os.close(reading), os.close(writing)
        self.assertEqual(done.returncode, 1)
        self.assertIn("remove it first", done.stderr.decode())

    def place(self):
        """A store with the object 'blob', a folder to get it into, a function that gets it there."""
        store, place = os.path.join(self.temp.name, "store"), os.path.join(self.temp.name, "place")
        os.mkdir(store), os.mkdir(place)
        self.run_cli("put", "-", "blob", "--store", store, stdin=b"contents")
        return store, place, lambda name, **more: self.run_cli("get", "blob", os.path.join(place, name), "--store", store, **more)

    def start_slow_get(self, store, name, target):
        """A get in its middle: the model reads a FIFO, and has taken all of 1 MiB but what a pipe and a buffer hold."""
        global calls
        calls += 1
        os.mkfifo(os.path.join(store, name))
        get = subprocess.Popen([GNSTOR, "get", name, target, "--store", store], env=self.env, stdout=subprocess.DEVNULL)
        slow = open(os.path.join(store, name), "wb", buffering=0)
        self.assertEqual(slow.write(name[:1].encode() * (1 << 20)), 1 << 20)
        return get, slow

    def test_get_touches_nothing_but_its_target(self):
        store, place, get = self.place()
        inside = lambda name: os.path.join(place, name)
        for name in ("g.part", ".g", "kept"):
            with open(inside(name), "w") as f:
                f.write("mine")
        before = sorted(os.listdir(place))
        self.run_cli("get", "nosuch", inside("g"), "--store", store, code=1, says="not stored")
        self.run_cli("get", "nosuch", inside("kept"), "--store", store, code=1, says="not stored")
        self.run_cli("get", "blob", place, "--store", store, code=1, says="is a folder")
        get("no/folder", code=1, says=f"no folder {inside('no')}")
        get("kept/file", code=1, says="cannot be written")
        os.symlink("circle", inside("circle"))
        get("circle", code=1, says="cannot be written")
        os.unlink(inside("circle"))
        self.assertEqual(sorted(os.listdir(place)), before)
        get("g")
        self.assertEqual(sorted(os.listdir(place)), sorted([*before, "g"]))
        for name, text in (("g.part", "mine"), (".g", "mine"), ("kept", "mine"), ("g", "contents")):
            with open(inside(name)) as f:
                self.assertEqual(f.read(), text, name)

    def test_get_writes_where_links_lead_and_keeps_modes(self):
        _, place, get = self.place()
        inside = lambda name: os.path.join(place, name)
        mode = lambda name: stat.S_IMODE(os.stat(inside(name)).st_mode)
        os.mkdir(inside("far"))
        os.symlink("far/real", inside("hop"))
        os.symlink(inside("hop"), inside("link"))
        before = os.umask(0o027)
        try:
            get("link")  # leads to nothing yet
        finally:
            os.umask(before)
        self.assertEqual(mode("far/real"), 0o640, "the mode of a new file must follow the umask")
        os.chmod(inside("far/real"), 0o751)
        with open(inside("far/real"), "w") as f:
            f.write("old and longer than the new")
        get("link")
        self.assertTrue(os.path.islink(inside("link")) and os.path.islink(inside("hop")))
        with open(inside("far/real")) as f:
            self.assertEqual(f.read(), "contents")
        self.assertEqual(mode("far/real"), 0o751)
        self.assertEqual(os.listdir(inside("far")), ["real"])

    def test_get_writes_into_what_is_no_file(self):
        _, place, get = self.place()
        fifo, device = os.path.join(place, "fifo"), os.path.join(place, "null")
        os.mkfifo(fifo)
        reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
        get("fifo")
        self.assertEqual(os.read(reader, 100), b"contents")
        os.close(reader)
        self.assertTrue(stat.S_ISFIFO(os.stat(fifo).st_mode))
        try:
            os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, 3))
            open(device, "wb").close()
        except OSError:
            return  # only root makes devices, and not everywhere
        get("null")
        self.assertTrue(stat.S_ISCHR(os.stat(device).st_mode), "a device was replaced")
        self.assertEqual(sorted(os.listdir(place)), ["fifo", "null"])

    def test_get_writes_into_descriptors_that_are_open_already(self):
        global calls
        _, place, get = self.place()
        store, out = os.path.join(self.temp.name, "store"), os.path.join(place, "out")
        # A file that others write to as well: in its turn, not instead of them.
        words = [GNSTOR, "get", "blob", "/dev/stdout", "--store", store]
        with open(out, "wb") as f:
            for _ in range(2):
                calls += 1
                f.write(b"before ")
                f.flush()
                subprocess.run(words, env=self.env, stdout=f, check=True, timeout=120)
                f.seek(0, os.SEEK_END)
        with open(out, "rb") as f:
            self.assertEqual(f.read(), b"before contentsbefore contents")
        os.symlink("/dev/fd/1", os.path.join(place, "link"))
        with open(out, "ab") as f:
            subprocess.run([*words[:3], os.path.join(place, "link"), *words[4:]], env=self.env, stdout=f, check=True, timeout=120)
        with open(out, "rb") as f:
            self.assertEqual(f.read(), b"before contentsbefore contentscontents")
        self.assertEqual(get("/dev/stdout").stdout, b"contents", "a pipe must receive only the object's contents")
        self.assertEqual(sorted(os.listdir(place)), ["link", "out"])

    def test_two_gets_to_one_target_do_not_mix(self):
        store, place, _ = self.place()
        target = os.path.join(place, "g")
        gets = [self.start_slow_get(store, name, target) for name in ("a", "b")]
        self.assertFalse(os.path.exists(target))
        for (get, slow), byte in zip(gets, (b"a", b"b")):
            slow.write(byte * 1000)
            slow.close()
            self.assertEqual(get.wait(120), 0)
            with open(target, "rb") as f:
                self.assertEqual(f.read(), byte * ((1 << 20) + 1000))
        self.assertEqual(os.listdir(place), ["g"])

    def test_a_get_that_a_signal_ends_leaves_no_file(self):
        store, place, _ = self.place()
        target = os.path.join(place, "g")
        with open(target, "w") as f:
            f.write("as it was")
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            get, slow = self.start_slow_get(store, number.name, target)
            parts = [name for name in os.listdir(place) if name != "g"]
            self.assertEqual(len(parts), 1, "the command must still be transferring")
            self.assertRegex(parts[0], r"^\.g\.gnstor-[0-9a-f]{16}$")
            get.send_signal(number)
            self.assertEqual(get.wait(120), -number)
            slow.close()
            self.assertEqual(os.listdir(place), ["g"])
            with open(target) as f:
                self.assertEqual(f.read(), "as it was")


if __name__ == "__main__":
    result = unittest.main(argv=[sys.argv[0], "-v"], exit=False).result
    print(f"cli: {result.testsRun} promises, {calls} commands run")
    sys.exit(0 if result.wasSuccessful() and result.testsRun >= 8 and calls >= 60 else 1)
