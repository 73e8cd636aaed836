"""What all parts of the harness share: its error, its deadlines, its messages."""
import os
import pathlib
import select
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]

GUEST_ADDRESS = "10.77.0.2"
HOST_ADDRESS = "10.77.0.1"
TAP = "tap0"


# Every wait names the seconds that it may take on a machine that has nothing else to do, and gets so many times as many.
PATIENCE = float(os.environ.get("GN_PEER_PATIENCE", "4"))


class PeerError(Exception):
    """Something that was tried and did not work; the text says what, on what, and what to do."""


def say(text):
    print(text, flush=True)


class Deadline:
    """A point in time that waits end at."""

    def __init__(self, seconds, what):
        self.seconds, self.what = seconds * PATIENCE, what
        self.end = time.monotonic() + self.seconds

    def left(self):
        """Seconds left; PeerError when there are none."""
        left = self.end - time.monotonic()
        if left <= 0:
            raise PeerError(f"{self.what}: did not succeed within {self.seconds:.0f} s")
        return left

    def wait_a_moment(self):
        """Between two looks at a condition that nothing announces."""
        select.select([], [], [], min(self.left(), 0.1))

    def wait_readable(self, *files):
        """Those of the files that can be read; waits for one."""
        while True:
            ready, _, _ = select.select(files, [], [], self.left())
            if ready:
                return ready
