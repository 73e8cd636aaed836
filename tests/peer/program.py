"""A program of ours beside the guest: started, awaited until it says that it is ready, stopped or killed."""
import contextlib
import os
import re
import subprocess
import threading

from common import PATIENCE, PeerError

START_SECONDS = 60
STOP_SECONDS = 30


def find(folder, name):
    """The program of this name in a build folder."""
    for path in sorted(folder.rglob(name)):
        if path.is_file() and os.access(path, os.X_OK):
            return path.absolute()
    raise PeerError(f"there is no program {name} in {folder}: build it with cmake --build {folder} --target peer_programs (gnstor and gnstord need a build configured with GN_DAEMON=ON)")


def own_message(name, lines):
    """What the program `name` says went wrong, from the first of the lines that begins with its name; None if there is none. Its log says why
    a connection ended, if that happened first."""
    own = next((line.removeprefix(f"{name}: ") for line in lines if line.startswith(f"{name}: ")), None)
    ended = next((line for line in lines if "its connection ended" in line), None)
    return f"{own} (log: {ended})" if own and ended else own


def place(home):
    return {"cwd": home, "env": {**os.environ, "HOME": str(home.absolute())}} if home else {}


class Program:
    """`with Program(command, log) as program`: runs until it is stopped; all that it says goes to `log`, one file for all its lives.
    `ready`: a pattern that the line fits which says that it is ready; `home`: where it runs and what is its home, if it has one of its own."""

    def __init__(self, command, log, ready="ready$", home=None):
        self.command, self.log, self.ready, self.home = [str(word) for word in command], log, re.compile(ready), home
        self.name = os.path.basename(self.command[0])
        self.process, self.listener = None, None
        self.lines, self.is_ready = [], 0

    def start(self):
        """Until it has said that it is ready: the first `is_ready` of its `lines`."""
        self.lines, self.is_ready = [], 0
        heard = threading.Event()
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
                                        **place(self.home))
        self.listener = threading.Thread(target=self.listen, args=(heard,), daemon=True)
        self.listener.start()
        seconds = START_SECONDS * PATIENCE
        if not heard.wait(seconds):
            raise PeerError(f"{self.name} was not ready within {seconds:.0f} s; its log ends with: {self.log_end()}")
        if not self.is_ready:
            raise PeerError(f"{self.name} ended with exit status {self.process.wait(timeout=seconds)} before it was ready: {self.why()}")

    def listen(self, heard):
        """Takes whatever it says, so that it never waits for its reader."""
        with open(self.log, "ab", buffering=0) as log:
            for line in self.process.stdout:
                log.write(line)
                self.lines.append(line.decode(errors="replace").rstrip())
                if not self.is_ready and self.ready.match(self.lines[-1]):
                    self.is_ready = len(self.lines)
                    heard.set()
        heard.set()

    def said(self, pattern):
        """What the parentheses of a pattern stand for, in each line before it was ready that fits it."""
        return [found[1] for found in (re.match(pattern, line) for line in self.lines[:self.is_ready]) if found]

    def why(self):
        """Of a program that ended: what it says went wrong, in one line; below it the end of its log."""
        said = own_message(self.name, self.lines) or next((line for line in reversed(self.lines) if line.strip()), "it said nothing")
        return f"{said}\n  its log ends with: {self.log_end()}"

    def log_end(self):
        return self.log.read_text(errors="replace")[-1500:].strip() or "(the log is empty)"

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def kill(self):
        """As a crash does: nobody is told."""
        self.process.kill()
        self.reap()

    def reap(self):
        self.process.wait(timeout=STOP_SECONDS * PATIENCE)
        self.listener.join(STOP_SECONDS * PATIENCE)
        self.process.stdout.close()

    def stop(self):
        """Asks it to end; PeerError unless it does so in time, with status 0. Returns the lines that it said after it was ready."""
        if not self.alive():
            raise PeerError(f"{self.name} ended before it was told to, with exit status {self.process.returncode}: {self.why()}")
        self.process.terminate()
        try:
            self.reap()
        except subprocess.TimeoutExpired:
            self.kill()
            raise PeerError(f"{self.name} did not end within {STOP_SECONDS * PATIENCE:.0f} s; its log ends with: {self.log_end()}") from None
        if self.process.returncode != 0:
            raise PeerError(f"{self.name} ended with exit status {self.process.returncode}: {self.why()}")
        return self.lines[self.is_ready:]

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


def run(command, log, seconds, home=None, more_environment=None):
    """Runs a program to its end; PeerError unless that is in time and good: its first line is what the program says went wrong. Returns what
    the program printed. `log` gets what it wrote to its standard error."""
    name = os.path.basename(str(command[0]))
    placed = place(home)
    if more_environment:
        placed["env"] = {**placed.get("env", os.environ), **more_environment}
    with open(log, "ab") as errors:
        before = errors.tell()  # of earlier runs
        try:
            done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors,
                                  timeout=seconds * PATIENCE, start_new_session=True, **placed)
            printed, how = done.stdout, f"ended with exit status {done.returncode}"
        except subprocess.TimeoutExpired as late:
            done, printed, how = None, late.stdout or b"", f"did not end within {seconds * PATIENCE:.0f} s"
    printed = printed.decode(errors="replace")
    if done is None or done.returncode != 0:
        said = log.read_bytes()[before:].decode(errors="replace").strip()
        why = own_message(name, said.splitlines()) or said.partition("\n")[0] or "it wrote nothing to its standard error"
        raise PeerError(f"{name} {how}: {why}\n  its standard error ends with: {said[-1500:]}\n  it printed: {printed[-1500:].strip()}")
    return printed
