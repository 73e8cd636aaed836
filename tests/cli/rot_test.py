#!/usr/bin/env python3
"""Bits that rot in young pages of one drive of a running array, around a kill: no acknowledged block may read as anything else while the
other replica has it. Arguments: the gnstor and gnstord programs."""
import json
import os
import pathlib
import struct
import sys

from programs import Programs, count, main

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
from store_check.crc import crc32c  # noqa: E402
from store_check.store import DATA, RECORD as RECORD_FIELDS, Store  # noqa: E402

BLOCK = 4096
BLOCKS = 98
RECORD = 64
TRIES = 20
BOOT_COPIES, BOOT_BYTES, BOOT_ID = (4096, 6144), 2048, slice(32, 48)


class Rot(Programs):
    def begin(self):
        """An array of two drives, and an object of which each has a replica."""
        self.ask("up", "--ssds", "2", "--capacity", "64MiB", "--durability", "power")
        self.data = self.random.randbytes(BLOCKS * BLOCK)
        self.cli("put", self.write("data", self.data), "data")

    def rot(self, slot, blocks):
        """One bit in each of these blocks' pages on one drive."""
        path = self.dir / f"ssd-{slot}.store"
        held = path.read_bytes()
        with open(path, "r+b") as store:
            for block in blocks:
                at = held.find(self.data[block * BLOCK:(block + 1) * BLOCK])
                self.assertGreater(at, 0, f"block {block} on slot {slot}")
                place = at + self.random.randrange(BLOCK)
                store.seek(place)
                store.write(bytes([held[place] ^ (1 << self.random.randrange(8))]))
        count("rotten_pages", len(blocks))

    def pages(self, slot):
        """(page, record) of each page of that drive that holds a block, and the newest group."""
        store = Store(self.dir / f"ssd-{slot}.store")
        found, newest = [], 0
        for page in range(store.pages):
            if any(store.raw_record(page)):
                record = store.record(page)
                newest = max(newest, record.group)
                if record.kind == DATA:
                    found.append((page, record))
        os.close(store.fd)  # and its lock; where things lie it knows without
        return store, found, newest

    def young(self, slot):
        """Blocks whose pages on that drive are of the last two groups: as far as its records say, a power cut may have torn them."""
        _, found, newest = self.pages(slot)
        return sorted({record.vba for _, record in found if record.group >= newest - 1})

    def overwrite_and_cut(self, slot, blocks):
        """As a power cut leaves an overwrite that nobody acknowledged: behind the last page of a block, of the newest group, records whose pages
        came to the medium in part, or not at all."""
        store, found, newest = self.pages(slot)
        last, youngest = max(found, key=lambda each: (each[1].serial, each[0]))
        sequence = max(record.sequence for _, record in found)
        self.assertLess(last % store.per_unit + len(blocks), store.per_unit, "the last unit must have free pages")
        with open(self.dir / f"ssd-{slot}.store", "r+b") as file:
            for number, block in enumerate(blocks, 1):
                page, data = last + number, self.random.randbytes(BLOCK)
                crcs = [crc32c(data[at:at + 512]) for at in range(0, BLOCK, 512)]
                record = RECORD_FIELDS.pack(block, youngest.vid, DATA, 2, sequence + number, youngest.epoch, *crcs, youngest.serial, newest, 0)
                record = record[:-4] + struct.pack("<I", crc32c(store.sealed_bytes(page, record)))
                for at in (store.record_at(page), store.record_copy_at(page)):
                    file.seek(at)
                    file.write(record)
                file.seek(store.page_at(page))
                file.write(data[:number % 8 * 512])
        count("cut_overwrites", len(blocks))

    def rot_records(self, slot):
        """One bit in one of the two copies of every record on that drive."""
        path = self.dir / f"ssd-{slot}.store"
        held = path.read_bytes()
        records, pages = struct.unpack_from("<QQ", held, 56)
        copies = (pages - records) // 2
        rotten = 0
        with open(path, "r+b") as store:
            for at in range(records, records + copies, RECORD):
                if any(held[at:at + RECORD]):
                    place = at + self.random.choice((0, copies)) + self.random.randrange(RECORD)
                    store.seek(place)
                    store.write(bytes([held[place] ^ (1 << self.random.randrange(8))]))
                    rotten += 1
        self.assertGreaterEqual(rotten, BLOCKS)
        count("rotten_records", rotten)

    def lose_power(self, slot):
        """As if the host had been booted anew since: the store says that it was open in another boot."""
        with open(self.dir / f"ssd-{slot}.store", "r+b") as store:
            store.seek(16)
            drive = store.read(16)
            for at in BOOT_COPIES:
                store.seek(at)
                record = bytearray(store.read(BOOT_BYTES))
                record[BOOT_ID] = bytes(16)
                record[-4:] = struct.pack("<I", crc32c(drive + bytes(record[:-4])))
                store.seek(at)
                store.write(record)

    def counters(self, slot):
        return self.ask("ssd", "list")["ssds"][slot]["counters"]

    def whole_again(self, slot):
        """The array is up again, and everything that was acknowledged reads; returns what that drive said of its pages."""
        self.ask("up")
        self.assertEqual(self.cli("cat", "data").stdout, self.data)
        return self.counters(slot)

    def forget_array(self):
        for path in self.dir.iterdir():
            path.unlink()

    def test_bits_that_rot_before_a_kill_and_the_next_start_are_media_errors(self):
        # The last block that was stored, too: nothing lies behind its page.
        for blocks in (range(40, 42), range(1, BLOCKS), (BLOCKS - 1,)):
            with self.subTest(rotten=len(blocks)):
                self.begin()
                self.kill_daemon()
                self.rot(0, blocks)
                said = self.whole_again(0)
                self.assertGreater(said["media_errors"], 0)
                self.assertEqual([said[name] for name in ("doubtful_reads", "older_reads")], [0] * 2)
                self.ask("down")
                self.cli("ssd", "check", self.dir / "ssd-0.store", code=1, says="fail")
                self.cli("ssd", "check", self.dir / "ssd-1.store")
                self.forget_array()

    def test_what_rots_on_every_replica_before_a_kill_is_an_error_and_never_zeroes(self):
        self.begin()
        self.kill_daemon()
        for slot in (0, 1):
            self.rot(slot, (BLOCKS - 1,))
        self.ask("up")
        self.cli("get", "data", self.root / "back", code=1, says="Unrecovered Read Error")
        self.assertFalse((self.root / "back").exists())

    def scrub(self):
        """What a whole pass of the scrub has found."""
        before = self.ask("scrub", "--start")["passes"]
        return self.until(lambda: (said := self.ask("scrub"))["passes"] > before and said, "a pass of the scrub must end")

    def test_the_scrub_puts_rotten_blocks_again_and_names_what_no_replica_has(self):
        self.begin()
        self.ask("down")
        for slot, blocks in ((0, range(3, 9)), (1, (20, 21))):
            self.rot(slot, blocks)
        self.ask("up")
        said = self.scrub()
        self.assertEqual((said["pass"]["blocks_mended"], said["findings"]), (8, []))
        self.assertGreaterEqual(said["pass"]["blocks_compared"], BLOCKS)
        before = sum(self.counters(slot)["media_errors"] for slot in (0, 1))
        self.assertEqual(self.cli("cat", "data").stdout, self.data)
        self.assertEqual(self.scrub()["pass"]["blocks_mended"], 0)
        self.assertEqual(sum(self.counters(slot)["media_errors"] for slot in (0, 1)), before, "every page that is read is good again")
        self.cli("events", says="SCRUB_ENDED")
        self.ask("down")
        for slot in (0, 1):
            self.cli("ssd", "check", self.dir / f"ssd-{slot}.store")
            self.rot(slot, (40,))
        self.ask("up")
        said = self.scrub()
        self.assertEqual((said["pass"]["blocks_unreadable"], [each["volume"] for each in said["findings"]]), (1, ["data"]))
        self.cli("health", code=1, says="GNS_BLOCKS_UNREADABLE")
        self.cli("scrub", says="volume 'data': 1 block that no replica can read")
        self.cli("rm", "data")
        self.cli("put", self.write("data", self.data), "data")
        self.assertEqual(self.ask("scrub")["findings"], [])

    def test_what_is_in_doubt_on_every_replica_is_said_to_be_older(self):
        # Drives that were left alone for a second know that their pages are whole: then it is a media error.
        for _ in range(5):
            self.begin()
            self.kill_daemon()
            for slot in (0, 1):
                self.lose_power(slot)
                self.rot(slot, (BLOCKS - 1,))
            self.ask("up")
            if all(self.counters(slot)["doubtful_blocks"] == 1 for slot in (0, 1)):
                break
            self.ask("down")
            self.forget_array()
        else:
            self.fail("no drive reports a doubtful block")
        there = self.data[:-BLOCK] + bytes(BLOCK)  # it was stored once
        back = self.write("back", b"as it was")
        self.cli("get", "data", back, code=1, says="'data': the newest version of 1 of its blocks is torn")
        self.assertEqual(back.read_bytes(), b"as it was")
        self.cli("cat", "data", code=1, says="--older")
        said = self.cli("get", "data", back, "--older", "--output", "json", says="'data': 1 of its blocks were read in an older version")
        self.assertEqual(json.loads(said.stdout)["older_blocks"], 1)
        self.assertEqual(back.read_bytes(), there)
        self.assertEqual(self.cli("cat", "data", "--older").stdout, there)
        self.assertEqual(sum(self.counters(slot)["older_reads"] for slot in (0, 1)), 4)
        self.cli("rm", "data")
        self.cli("put", self.write("data", self.data), "data")
        self.assertEqual(self.cli("cat", "data").stdout, self.data)

    def test_bits_that_rot_before_a_power_cut_leave_blocks_in_doubt_and_the_other_replica_answers(self):
        # Drives that were left alone for a second have closed their groups, and of what a drive holds placement says which blocks it is
        # asked for first: another array, then.
        for _ in range(TRIES):
            self.begin()
            self.kill_daemon()
            young = self.young(0)
            for slot in (0, 1):
                self.lose_power(slot)
            self.rot(0, young)
            self.ask("up")
            self.assertEqual(self.counters(0)["doubtful_blocks"], len(young))
            self.assertEqual(self.cli("cat", "data").stdout, self.data)
            said = self.counters(0)
            self.assertEqual((said["media_errors"], said["older_reads"]), (0, 0))
            if said["doubtful_reads"] > 0:
                return
            self.ask("down")
            self.forget_array()
        self.fail(f"no drive of {TRIES} answered that a block is in doubt")

    def test_an_overwrite_that_was_cut_on_all_replicas_leaves_the_older_data(self):
        self.begin()
        self.kill_daemon()
        blocks = range(0, BLOCKS, 7)
        for slot in (0, 1):
            self.overwrite_and_cut(slot, blocks)
            self.lose_power(slot)
        self.ask("up")
        self.cli("cat", "data", code=1, says="--older")
        before = sum(self.counters(slot)["older_reads"] for slot in (0, 1))
        self.assertEqual(self.cli("cat", "data", "--older").stdout, self.data)
        said = [self.counters(slot) for slot in (0, 1)]
        self.assertEqual([each["media_errors"] for each in said], [0, 0])
        # Both doubt all of them, and each block is then read as its older version, by one of the drives.
        for each in said:
            self.assertGreater(each["doubtful_reads"], 0)
        self.assertEqual(sum(each["older_reads"] for each in said) - before, len(blocks))
        self.ask("down")
        for slot in (0, 1):
            self.cli("ssd", "check", self.dir / f"ssd-{slot}.store")

    def test_bits_that_rot_in_young_records_are_corrected_from_their_second_copies(self):
        self.begin()
        self.kill_daemon()
        for slot in (0, 1):
            self.lose_power(slot)
            self.rot_records(slot)
        said = self.whole_again(0)
        self.assertEqual([said[name] for name in ("media_errors", "doubtful_reads", "doubtful_blocks", "older_reads")], [0] * 4)

    def test_an_idle_array_leaves_nothing_in_doubt(self):
        self.begin()
        # Each service unit programs a page that closes its groups; nobody asks for it.
        self.until(lambda: all(self.counters(slot)["young_units"] == 0 for slot in (0, 1)), "an idle drive did not make its last groups of writes durable")
        self.kill_daemon()
        for slot in (0, 1):
            self.lose_power(slot)
        self.rot(0, range(BLOCKS))
        said = self.whole_again(0)
        self.assertEqual(said["doubtful_blocks"], 0)
        self.assertGreater(said["media_errors"], 0)


if __name__ == "__main__":
    main("cli_rot")
