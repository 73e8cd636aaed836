#!/usr/bin/env python3
"""Advice that works: a store is damaged in each way that hides what was acknowledged, the command that the refusal prints is run, and the store
opens; or the refusal says that there is no way, and there is none. Arguments: the gnstor and gnstord programs."""
import itertools
import re
import shlex
import struct
import subprocess

from programs import Programs, count, main

HEADER = 64
SECTOR = 512
NO_WAY = "no copy of it can be read"
# What happens to one slot of the metadata, by name: (place in the slot, bytes, whether they become zeroes or have a bit flipped).
DAMAGES = {
    "nothing": (),
    "first header": (("head", HEADER, "zero"),),
    "first sector": (("head", SECTOR, "zero"),),
    "second header": (("tail", HEADER, "zero"),),
    "both headers gone": (("head", HEADER, "zero"), ("tail", HEADER, "zero")),
    "both headers rotten": (("head", 20, "flip"), ("tail", 20, "flip")),
    "blob": (("blob", 40, "flip"),),
}


class Recover(Programs):
    def begin(self):
        """An object in a store of one SSD, closed: the metadata is in both slots, and the older one knows the object's volume."""
        self.store = self.root / "my store"  # a path that has to be quoted where it is advised
        self.data = self.random.randbytes(3 * 4096 + 17)
        self.cli("put", self.write("data", self.data), "a", "--store", self.store, "--ssds", "1", "--capacity", "64MiB")
        self.cli("get", "a", self.root / "back", "--store", self.store)
        self.path = self.store / "ssd-0.store"
        self.good = self.root / "good"
        self.copy(self.path, self.good)
        head = self.path.read_bytes()[:4096]
        self.slot_bytes, = struct.unpack_from("<I", head, 44)
        self.slots, self.records, self.pages = struct.unpack_from("<3Q", head, 48)

    @staticmethod
    def copy(source, target):
        subprocess.run(["cp", "--sparse=always", str(source), str(target)], check=True)

    def slots_by_age(self):
        """Offsets of the newer slot and of the older."""
        with open(self.good, "rb") as file:
            def generation(slot):
                file.seek(slot)
                magic, number = struct.unpack("<8sQ", file.read(16))
                self.assertEqual(magic, b"GNMETA1\n")
                return number
            return sorted((self.slots, self.slots + self.slot_bytes), key=generation, reverse=True)

    def damage(self, slot, what):
        with open(self.path, "r+b") as file:
            for place, size, how in DAMAGES[what]:
                at = slot + {"head": 0, "tail": self.slot_bytes - size if how == "zero" else self.slot_bytes - HEADER, "blob": HEADER}[place]
                if how == "flip":
                    at += size
                    file.seek(at)
                    size, written = 1, bytes([file.read(1)[0] ^ 1])
                else:
                    written = bytes(size)
                file.seek(at)
                file.write(written)

    def advice(self, done):
        """The command that a refusal prints, without its first word."""
        found = re.findall(rb"`gnstor ([^`]*)`", done.stderr)
        self.assertLessEqual(len(found), 1, done.stderr)
        return shlex.split(found[0].decode()) if found else None

    def read(self, code=None):
        return self.cli("get", "a", self.root / "back", "--store", self.store, code=code)

    def gives_up(self):
        """A recovery that goes on without what was acknowledged says so, with and without --explain."""
        for more in ((), ("--explain",)):
            done = self.cli("ssd", "recover", self.path, "--accept-loss", *more)
            self.assertIn(b"  gave up   ", done.stdout)
            self.assertNotIn(b"nothing was dropped", done.stdout)

    def follow(self, refused):
        """Does what a refusal says; the store must open then."""
        count("refusals")
        advice = self.advice(refused)
        looked = self.cli("ssd", "recover", self.path, code=1)
        self.assertEqual(self.advice(looked), advice, looked.stderr)
        if advice is None:
            count("without_a_way")
            self.assertIn(NO_WAY.encode(), refused.stderr)
            self.assertIn(NO_WAY.encode(), looked.stderr)
            self.cli("ssd", "recover", self.path, "--accept-loss", "--write", code=1, says=NO_WAY)
            return False
        self.assertIn(str(self.path), advice)
        self.assertIn("--write", advice)
        self.gives_up()
        self.assertIn(b"  gave up   ", self.cli(*advice).stdout)
        self.cli("ls", "--store", self.store)
        self.assertNotIn(b"gave up", self.cli("ssd", "recover", self.path).stdout)
        return True

    def test_metadata_is_recovered_as_the_refusal_says_whichever_copy_is_damaged(self):
        self.begin()
        newer, older = self.slots_by_age()
        opened = refused = 0
        for first, second in itertools.product(DAMAGES, repeat=2):
            with self.subTest(newer=first, older=second):
                self.copy(self.good, self.path)
                self.damage(newer, first)
                self.damage(older, second)
                done = self.read()
                if done.returncode != 0:
                    refused += 1
                    readable = {"nothing", "first header", "second header"}
                    self.assertEqual(self.follow(done), bool(readable & {first, second}))
                    if not readable & {first, second}:
                        continue
                    done = self.read(code=0)
                else:
                    opened += 1
                    self.assertIn(first, ("nothing", "first header", "second header"))
                self.assertEqual((self.root / "back").read_bytes(), self.data)
        count("damages", opened + refused)

    def test_records_that_are_gone_are_given_up_as_the_refusal_says(self):
        self.begin()
        with open(self.path, "r+b") as file:
            file.seek(self.records)
            file.write(bytes(self.pages - self.records))
        done = self.read()
        self.assertEqual(done.returncode, 1)
        self.assertTrue(self.follow(done))


if __name__ == "__main__":
    main("cli_recover")
