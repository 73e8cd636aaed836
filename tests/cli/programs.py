"""What the tests of the programs share: a folder of their own, commands with their exit codes, JSON answers, and
the counters that floors.json holds them against."""
import json
import os
import pathlib
import random
import select
import signal
import subprocess
import sys
import tempfile
import time
import unittest

GNSTOR, GNSTORD = (os.path.abspath(p) for p in (sys.argv.pop(1), sys.argv.pop(1)))
SEED = int(os.environ.get("GN_SEED", "20260117"))
DEADLINE_S = 300  # of any one command, also under sanitizers
counts = {"commands": 0}

# What a crash leaves in an exit code (signals) or on standard error.
DEFECTS = (b"Sanitizer", b"terminate called", b"Assertion", b"a defect")


def count(name, by=1):
    counts[name] = counts.get(name, 0) + by


class Programs(unittest.TestCase):
    def setUp(self):
        self.temp = tempfile.TemporaryDirectory(prefix="gnstor-")
        self.root = pathlib.Path(self.temp.name)
        self.dir = self.root / "array"
        self.store = self.root / "store"
        self.random = random.Random(SEED)
        self.env = dict(os.environ, GNSTORD=GNSTORD, GNSTOR_DIR=str(self.dir))
        self.env.pop("GNSTOR_CLIENT", None)
        self.mounts = []
        self.to_stop = [self.dir]

    def tearDown(self):
        if (self.dir / "up.json").exists():  # 'gnstor up' started nodes there
            self.cli("down", code=None)
        for folder in self.to_stop:
            # On a full disk gnstord has no pid file.
            if (folder / "gnstord.pid").exists() or (folder / "gnstord.sock").exists():
                self.cli("down", "--dir", str(folder), code=None)
        for mount in reversed(self.mounts):
            subprocess.run(["umount", str(mount)], check=False)
        self.temp.cleanup()

    def states(self):
        """Of the slots: in, out, rebuilding, ..."""
        return {ssd["slot"]: ssd["state"] for ssd in self.ask("ssd", "list")["ssds"] if "slot" in ssd}

    def logs(self):
        """The last lines of every log in the array's folder: what its processes saw of a failure."""
        text = ""
        for log in sorted(self.dir.rglob("*.log")):
            lines = log.read_text(errors="replace").splitlines()[-30:]
            text += f"--- {log.relative_to(self.dir)}\n" + "".join(f"{line[:1000]}\n" for line in lines)
        return text

    def check(self, words, done, code, says):
        shown = (words, done.stdout[-2000:], done.stderr[-2000:])
        self.assertIn(done.returncode, (0, 1, 2), ("ended by a signal", done.returncode, shown))
        for defect in DEFECTS:
            self.assertNotIn(defect, done.stderr, shown)
        if code is not None and done.returncode != code:
            self.fail(f"exit {done.returncode}, not {code}, of {shown}\n{self.logs()}")
        if done.returncode == 1:
            self.assertTrue(done.stderr.strip(), ("a failure without a word", shown))
        if says is not None:
            self.assertIn(says.encode(), done.stdout + done.stderr, shown)
        return done

    def another_host(self, line):
        """A folder that has nothing of the array, and a function that runs gnstor there after `line`."""
        elsewhere = self.root / "elsewhere"
        elsewhere.mkdir()

        def there(*words, line=line, code=0, says=None):
            done = subprocess.run(["sh", "-c", line + '; exec "$0" "$@"', GNSTOR, *words], cwd=elsewhere, capture_output=True,
                                  env={**self.env, "GNSTOR_DIR": str(elsewhere / "none")}, timeout=DEADLINE_S, check=False)
            return self.check(words, done, code, says).stdout

        return elsewhere, there

    def cli(self, *words, code=0, says=None, stdin=b"", **more):
        """Runs gnstor; `code`: what it has to exit with (None: anything but a crash)."""
        count("commands")
        words = [str(word) for word in words]
        done = subprocess.run([GNSTOR, *words], env=self.env, input=stdin, capture_output=True, timeout=DEADLINE_S, **more)
        return self.check(words, done, code, says)

    def ask(self, *words, code=0, **more):
        done = self.cli(*words, "--output", "json", code=code, **more)
        return json.loads(done.stdout) if code == 0 else json.loads(done.stderr[done.stderr.index(b"{"):])["error"]

    def objects(self, *words, **more):
        """Commands on the object store of this test."""
        return self.cli(*words, "--store", self.store, **more)

    def names(self):
        done = json.loads(self.objects("ls", "--output", "json").stdout)
        return {each["name"]: each["bytes"] for each in done["objects"]}

    def write(self, name, data):
        path = self.root / name
        path.write_bytes(data)
        return path

    def fetched(self, name):
        return self.objects("cat", name).stdout

    def pid(self, folder=None):
        return int(((folder or self.dir) / "gnstord.pid").read_text())

    def kill(self, pid):
        """SIGKILL, and until the process has ended (its parent has, so that another process reaps it)."""
        fd = os.pidfd_open(pid)
        try:
            signal.pidfd_send_signal(fd, signal.SIGKILL)
            self.assertTrue(select.select([fd], [], [], DEADLINE_S)[0], f"process {pid} was killed but has not ended")
        finally:
            os.close(fd)

    def kill_daemon(self):
        self.kill(self.pid())

    def until(self, condition, what):
        """Asks again and again; the asking takes its time."""
        end = time.monotonic() + DEADLINE_S
        while not (found := condition()):
            self.assertLess(time.monotonic(), end, what)
        return found

    def small_disk(self, name, options):
        """A tmpfs of this test's; None where it may not mount one."""
        place = self.root / name
        place.mkdir()
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"mode=755,{options}", "tmpfs", str(place)], capture_output=True, check=False)
        if done.returncode != 0:
            # A line of its own: ./run test shows those that begin so.
            print(f"\nskipped: {self.id()}: this machine does not allow mounting a tmpfs ({done.stderr.decode().strip()})", flush=True)
            return None
        self.mounts.append(place)
        return place


def main(prefix):
    result = unittest.main(argv=[sys.argv[0], *sys.argv[1:], "-v"], exit=False).result
    print(f"{prefix}: {result.testsRun} promises, seed {SEED}")
    for name, value in sorted(counts.items()):
        print(f"GN_COUNT {prefix}_{name}={value}")
    sys.exit(0 if result.wasSuccessful() else 1)
