"""A program of ours beside the guest: started, awaited until it says that it is ready, stopped or killed."""
import contextlib
import os
import subprocess

from common import PATIENCE, Deadline, PeerError

START_SECONDS = 60
STOP_SECONDS = 30


def find(folder, name):
    """The program of this name in a build folder."""
    for path in sorted(folder.rglob(name)):
        if path.is_file() and os.access(path, os.X_OK):
            return path
    raise PeerError(f"there is no program {name} in {folder}: cmake --build {folder} --target peer_programs")


class Program:
    """`with Program(command, log) as program`: runs until it is stopped; its output goes to `log`, one file for all its lives."""

    def __init__(self, command, log, ready="ready"):
        self.command, self.log, self.ready = [str(word) for word in command], log, ready
        self.name = os.path.basename(self.command[0])
        self.process = None
        self.lines = []

    def start(self):
        """Until it has said that it is ready; `lines`: what it said before."""
        self.lines = []
        with open(self.log, "ab") as errors:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, start_new_session=True)
        deadline = Deadline(START_SECONDS, f"{self.name} to be ready")
        text = b""
        while True:
            deadline.wait_readable(self.process.stdout)
            data = os.read(self.process.stdout.fileno(), 1 << 16)
            self.keep(data)
            text += data
            self.lines = text.decode(errors="replace").splitlines()
            if self.ready in self.lines:
                return
            if not data:
                raise PeerError(f"{self.name} ended with {self.process.wait(timeout=5)} before it was ready: {self.log_end()}")

    def keep(self, data):
        with open(self.log, "ab") as log:
            log.write(data)

    def log_end(self):
        return self.log.read_text(errors="replace")[-1500:].strip() or "(it said nothing)"

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def kill(self):
        """As a crash does: nobody is told."""
        self.process.kill()
        self.process.wait(timeout=STOP_SECONDS * PATIENCE)
        self.process.stdout.close()

    def stop(self):
        """Asks it to end; PeerError unless it does so in time, with status 0. Returns its last words."""
        if not self.alive():
            raise PeerError(f"{self.name} ended by itself with {self.process.returncode}: {self.log_end()}")
        self.process.terminate()
        try:
            out, _ = self.process.communicate(timeout=STOP_SECONDS * PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()
            raise PeerError(f"{self.name} did not end within {STOP_SECONDS * PATIENCE:.0f} s: {self.log_end()}") from None
        self.keep(out)
        if self.process.returncode != 0:
            raise PeerError(f"{self.name} ended with {self.process.returncode}: {self.log_end()}")
        return out.decode(errors="replace")

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind, error, trace):
        if self.alive():
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                self.kill()
        if kind is not None and issubclass(kind, PeerError):
            print(f"  {self.name}: {self.log_end()}", flush=True)


def run(command, log, seconds):
    """Runs a program to its end; PeerError unless that is in time and good. Returns what it printed."""
    name = os.path.basename(str(command[0]))
    with open(log, "ab") as errors:
        try:
            done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors,
                                  timeout=seconds * PATIENCE, start_new_session=True)
        except subprocess.TimeoutExpired:
            raise PeerError(f"{name}: no end within {seconds * PATIENCE:.0f} s: {log.read_text(errors='replace')[-1500:]}") from None
    if done.returncode != 0:
        raise PeerError(f"{name} ended with {done.returncode}: {done.stdout.decode(errors='replace')[-1500:]}\n"
                        f"{log.read_text(errors='replace')[-1500:]}")
    return done.stdout.decode(errors="replace")
