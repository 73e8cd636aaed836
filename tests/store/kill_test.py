#!/usr/bin/env python3
"""A real process that serves a drive under load is killed (SIGKILL) again and again, at random moments, also while it recovers.

After each kill the drive is mounted by a new process and every block is read: it must hold the newest acknowledged write, trim or
zeroing of that block, or a later one that was under way, whole; and what was seen once never goes back. After every third kill the store is
also checked from outside by scripts/check_store.py, whose idea of each block is compared with the same.
Arguments: the kill_writer program, the name of the counters, kills, and combinations BACKBONE:DURABILITY; of the backbone `either` each
process uses mapped or direct, so that one judges what the other left.
"""
import os
import pathlib
import random
import select
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHECKER = ROOT / "scripts" / "check_store.py"
SEED = int(os.environ.get("GN_SEED", "20261120"))
DEADLINE_S = 120
BLOCK, VOLUME = 4096, 3
BLOCKS = 1400
SAID = struct.Struct("<QIIII")
MASK = (1 << 64) - 1


WORDS = struct.Struct(f"<{BLOCK // 8}Q")


def contents(sequence, block):
    """What kill_writer's fill() makes."""
    words, first = [sequence, block, 0, 0] * (BLOCK // 32), sequence * 0x9E3779B97F4A7C15 + block * 64
    words[2::4] = range(BLOCK // 32)
    words[3::4] = [(first + i) & MASK for i in range(BLOCK // 32)]
    return WORDS.pack(*words)


class Failure(Exception):
    pass


class Model:
    """What each block may hold: `sure` is the newest thing that must not be lost (sequence, zeroes?), `open` what was begun since."""

    def __init__(self):
        self.sure = [(0, True)] * BLOCKS
        self.open = [[] for _ in range(BLOCKS)]
        self.begun = {}
        self.acknowledged = 0
        self.seen = [b""] * BLOCKS  # what was found to be right last; most blocks are as they were

    def hear(self, sequence, kind, first, blocks):
        if kind in b"WTZ":
            self.begun[sequence] = kind != ord("W")
            for block in range(first, first + blocks):
                self.open[block].append(sequence)
        elif kind == ord("A"):
            self.acknowledged += 1
            zero = self.begun[sequence]
            for block in range(first, first + blocks):
                if sequence > self.sure[block][0]:
                    self.sure[block] = (sequence, zero)

    def possible(self, block):
        """Every (sequence, zeroes?) that the block may hold now."""
        sure = self.sure[block]
        return [sure] + [(s, self.begun[s]) for s in self.open[block] if s > sure[0]]

    def see(self, block, data, where):
        """What a mount shows of a block; from now on it must stay or be overtaken."""
        options = self.possible(block)
        if not any(data):
            fitting = [o for o in options if o[1]]
        else:
            sequence, = struct.unpack_from("<Q", data)
            fitting = [o for o in options if o == (sequence, False)]
            if fitting and data != self.seen[block]:
                if data != contents(sequence, block):
                    raise Failure(f"{where}: block {block} is torn: it begins with the contents of sequence {sequence}, but the rest is not of that write")
                self.seen[block] = data
        if not fitting:
            begins = struct.unpack_from("<QQQ", data)
            raise Failure(f"{where}: block {block} holds (sequence, block, place) {begins}, allowed are {options}")
        # Zeroes do not say which of several trims they are of: the oldest is what is certain.
        self.sure[block] = min(fitting)
        return self.sure[block]

    def settle(self):
        """All blocks were seen: what was under way has happened or never will."""
        self.open = [[] for _ in range(BLOCKS)]
        self.begun.clear()


class Run:
    def __init__(self, writer, folder, backbone, durability, rng):
        self.writer, self.backbone, self.durability, self.random = writer, backbone, durability, rng
        self.store = pathlib.Path(folder, "kill.store")
        self.model = Model()
        self.sequence = 0
        self.begun = False  # the volume is there
        self.kills = self.early = self.checked = self.outside = 0

    def command(self, mode, *more):
        backbone = self.random.choice(("mapped", "direct")) if self.backbone == "either" else self.backbone
        # Records of 64 pages lie in a line, which one write takes to the medium: units of half a line and of two.
        pages = 128 if self.backbone == "either" else 32
        return [self.writer, mode, str(self.store), backbone, self.durability, *map(str, (pages, *more))]

    def one_life(self):
        """Starts the writer, kills it, and takes in everything that it had said."""
        early = self.begun and self.random.random() < 0.25
        process = subprocess.Popen(self.command("run", self.random.getrandbits(60), self.sequence, BLOCKS), stdout=subprocess.PIPE)
        out = process.stdout.fileno()
        os.set_blocking(out, False)
        # Early: anywhere in opening and recovery. Else some time after it has begun to work.
        until = time.monotonic() + (2 ** self.random.uniform(-10, -4) if early else DEADLINE_S)
        wanted = None if early else int(2 ** self.random.uniform(3, 13))
        heard, rest, mounted = 0, b"", False

        def take():
            nonlocal rest, heard, mounted
            data = os.read(out, 1 << 20)
            rest += data
            whole = len(rest) - len(rest) % SAID.size
            for sequence, kind, first, blocks, _ in SAID.iter_unpack(rest[:whole]):
                if kind == ord("M"):
                    mounted = True
                else:
                    self.model.hear(sequence, kind, first, blocks)
                    self.sequence = max(self.sequence, sequence)
                heard += 1
            rest = rest[whole:]
            return bool(data)

        alive = True
        while alive and (wanted is None or heard < wanted) and time.monotonic() < until:
            if select.select([out], [], [], max(0, until - time.monotonic()))[0]:
                alive = take()
        process.kill()
        os.set_blocking(out, True)
        while take():
            pass
        process.stdout.close()
        code = process.wait(DEADLINE_S)
        if code != -9:
            raise Failure(f"kill_writer ended before it was killed, with exit status {code}")
        if rest:
            raise Failure("kill_writer wrote an incomplete record")
        self.kills += 1
        self.early += not mounted
        self.begun = self.begun or mounted
        self.sequence += 1

    def read_back(self):
        done = subprocess.run(self.command("read", BLOCKS), stdout=subprocess.PIPE, timeout=DEADLINE_S, check=False)
        if done.returncode != 0 or len(done.stdout) != BLOCKS * BLOCK:
            raise Failure(f"'kill_writer read' ended with exit status {done.returncode} after {len(done.stdout)} bytes")
        view = memoryview(done.stdout)
        for block in range(BLOCKS):
            self.model.see(block, bytes(view[block * BLOCK:(block + 1) * BLOCK]), "read")
            self.checked += 1

    def look_from_outside(self):
        """The independent checker on the store as the kill left it, then block by block against what was acknowledged."""
        dump = self.store.with_suffix(".dump")
        done = subprocess.run([sys.executable, str(CHECKER), str(self.store), "--dump", str(dump)],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=DEADLINE_S, check=False)
        if done.returncode != 0:
            raise Failure(f"check_store.py ended with exit status {done.returncode}:\n{done.stdout[-4000:]}")
        found = {}
        for line in dump.read_text().splitlines():
            vid, vba, sequence = line.split()[:3]
            if int(vid) == VOLUME:
                found[int(vba)] = int(sequence)
        for block in range(BLOCKS):
            options = self.model.possible(block)
            fits = [o for o in options if not o[1] and o[0] == found.get(block)] if block in found else [o for o in options if o[1]]
            if not fits:
                raise Failure(f"check_store.py: block {block} has sequence {found.get(block)}, allowed are {options}")
        self.outside += 1


def run(writer, folder, combination, kills, rng):
    backbone, durability = combination.split(":")
    test = Run(writer, folder, backbone, durability, rng)
    while test.kills < kills:
        test.one_life()
        # Sometimes several lives end before anybody looks: a cut during recovery is just another cut.
        if test.random.random() < 0.3:
            continue
        if not test.store.exists():
            continue
        if CHECKER.exists() and test.kills % 3 == 0:
            test.look_from_outside()
        test.read_back()
        test.model.settle()
    test.read_back()
    return test


def main():
    writer, prefix, kills, *combinations = sys.argv[1:]
    counts = {"kills": 0, "early_kills": 0, "acknowledged": 0, "blocks_checked": 0, "outside_checks": 0}
    place = "/dev/shm" if os.environ.get("GN_KILL_SHM") else None
    for combination in combinations:
        with tempfile.TemporaryDirectory(prefix="gnstor-kill-", dir=place) as folder:
            try:
                test = run(writer, folder, combination, int(kills), random.Random(f"{SEED} {combination}"))
            except Failure as failure:
                print(f"{combination}: {failure}\nreplay with GN_SEED={SEED}")
                return 1
        print(f"{combination}: {test.kills} kills, {test.early} of them before the drive was mounted; {test.model.acknowledged} commands "
              f"acknowledged; {test.checked} blocks checked; {test.outside} checks from outside; seed {SEED}")
        for name, value in (("kills", test.kills), ("early_kills", test.early), ("acknowledged", test.model.acknowledged),
                            ("blocks_checked", test.checked), ("outside_checks", test.outside)):
            counts[name] += value
    for name, value in counts.items():
        print(f"GN_COUNT {prefix}_{name}={value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
