#!/usr/bin/env python3
"""scripts/check_store.py accepts what the firmware leaves behind, block by block, and names what is wrong with stores corrupted by hand.

Each corruption changes one field or area of a good store; where the change would be seen by its checksum alone, a second form sets the
checksums right again, so that what lies behind them is checked too. Arguments: the make_store program.
"""
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import traceback
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "scripts"))
import check_store  # noqa: E402
from store_check import crc, journal, keys, medium, store  # noqa: E402

MAKE = os.path.abspath(sys.argv.pop(1))
SEED = int(os.environ.get("GN_SEED", "20261120"))
counts = {"accepted": 0, "rejected": 0, "judged": 0, "blocks": 0}


def program(path, *more):
    """The checker as a user runs it."""
    return subprocess.run([sys.executable, str(ROOT / "scripts" / "check_store.py"), str(path), *map(str, more)],
                          capture_output=True, text=True, timeout=120, check=False)


def checked(path, *more):
    """The same in a child of this process: its modules are loaded and it remembers checksums, which were most of a run."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if child == 0:
            code = 70
            try:
                for stream, fd in ((out, 1), (err, 2)):
                    os.dup2(stream.fileno(), fd)
                sys.stdout, sys.stderr = (os.fdopen(fd, "w") for fd in (1, 2))
                sys.argv = ["check_store.py", str(path), *map(str, more)]
                code = check_store.main()
            except BaseException:  # pylint: disable=broad-except
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        said = []
        for stream in (out, err):
            stream.seek(0)
            said.append(stream.read().decode())
    return subprocess.CompletedProcess(("check_store.py", path, *more), code, *said)


known = {}


def remembered(data, length, used=None):
    """crc32c_many (it has a test of its own), of messages that were not asked for before: a corrupted store is a good one but for a few."""
    messages = [data[at:at + (length if used is None else used)] for at in range(0, len(data) // length * length, length)]
    fresh = list({message for message in messages if message not in known})
    if fresh:
        known.update(zip(fresh, crc.crc32c_many(b"".join(fresh), len(fresh[0]))))
    return [known[message] for message in messages]


medium.crc32c_many = remembered


def made(path, seed, changes, how, units=1, version=5):
    """A store, and what each block holds: {(vid, vba): sequence}."""
    done = subprocess.run([MAKE, str(path), str(seed), str(changes), how, str(units), str(version)], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return {tuple(map(int, line.split()[:2])): int(line.split()[2]) for line in done.stdout.splitlines()}


class Image:
    """The bytes of a store to be corrupted, with what the checker itself knows of where things lie."""

    def __init__(self, path):
        self.data = bytearray(path.read_bytes())
        self.found = store.Findings()
        self.store = store.Store(path)
        # The file is going to change: its lock and its mapping are given up.
        os.close(self.store.fd)
        self.store.map.close()
        self.store.map = bytes(self.data)
        remembered(self.store.map[self.store.data_at:], store.SECTOR)
        self.shard = journal.Shard(self.store, 0, store.check_metadata(self.store, None, self.found), medium.Sectors(self.store), self.found)
        self.journal = self.shard.read_journal()

    def damage_both(self):
        """What was done to records is done to their second copies, too."""
        size = self.store.pages * store.OOB
        self.data[self.store.record_copy_at(0):self.store.record_copy_at(0) + size] = self.data[self.store.record_at(0):self.store.record_at(0) + size]

    def put(self, at, form, *values):
        struct.pack_into("<" + form, self.data, at, *values)

    def flip(self, at, bits=0xFF):
        self.data[at] ^= bits

    def seal(self, at, length, crc_at, before=b""):
        self.put(crc_at, "I", crc.crc32c(before + bytes(self.data[at:at + length])))

    def seal_record(self, page):
        at = self.store.record_at(page)
        self.put(at + 60, "I", crc.crc32c(self.store.sealed_bytes(page, bytes(self.data[at:at + 64]))))

    def seal_page(self, page):
        """Makes the record of a page agree with its bytes."""
        for i in range(8):
            at = self.store.page_at(page) + 512 * i
            self.seal(at, 512, self.store.record_at(page) + 20 + 4 * i)
        self.seal_record(page)

    def seal_checkpoint(self):
        """Makes the end of the newest checkpoint agree with the records of its parts."""
        end = self.newest(journal.END)
        parts, _ = self.shard.parts_of(self.journal, end)
        crcs = b"".join(bytes(self.data[self.store.record_at(p.page) + 60:self.store.record_at(p.page) + 64]) for p in parts)
        self.put(self.store.page_at(end.page) + 64 + 12, "I", crc.crc32c(crcs))
        self.seal_page(end.page)

    def newest(self, kind):
        of = [p for p in self.journal.values() if p.type == kind and (kind == journal.LOG or p.checkpoint == self.shard.checkpoint)]
        return max(of, key=lambda p: p.number)

    def settled(self, page):
        """Whether a page is older than the checkpoint: nothing that is wrong with it looks as a cut does."""
        young = {u.first + i for u, start in self.shard.young for i in range(start, u.end)}
        return page not in young and self.shard.is_old(self.store.record(page).group)

    def old_block(self):
        """A block whose page is so, and that page."""
        return next((key, page) for key, page in sorted(self.shard.map.items()) if self.settled(page))


# ---- corruptions: a name, what changes, and what the checker has to say

CORRUPTIONS = {}


def corruption(says):
    def add(change):
        CORRUPTIONS[change.__name__] = (change, says)
        return change
    return add


@corruption("magic is not GNSTORE")
def superblock_magic(i):
    i.flip(3)


@corruption("format version 6")
def superblock_version(i):
    i.put(8, "I", 6)
    i.seal(0, 4092, 4092)


@corruption("superblock: its checksum")
def superblock_bit(i):
    i.flip(2000, 1)


@corruption("areas are not where")
def superblock_areas(i):
    i.put(56, "Q", i.store.oob_at + 4096)
    i.seal(0, 4092, 4092)


@corruption("impossible geometry")
def superblock_service_units(i):
    i.put(120, "I", 65)
    i.seal(0, 4092, 4092)


@corruption("its capacity of")
def superblock_promise(i):
    i.put(80, "Q", i.store.pages * 4096 + 4096)
    i.seal(0, 4092, 4092)


@corruption("truncated")
def truncated(i):
    del i.data[-4096:]


@corruption("boot record: both copies")
def boot_record(i):
    i.flip(4096 + 16)
    i.flip(6144 + 16)


@corruption("metadata: the newest copy fails its checksum")
def metadata_blob(i):
    # The newest copy: the one with the higher generation.
    slots = [i.store.metadata_at + n * i.store.metadata_bytes for n in range(2)]
    at = max(slots, key=lambda s: struct.unpack_from("<Q", i.data, s + 8)[0] if i.data[s:s + 8] == b"GNMETA1\n" else 0)
    i.flip(at + 64 + 1600)


@corruption("metadata: the header of copy")
def metadata_header(i):
    for at in (0, i.store.metadata_bytes - 64):
        i.flip(i.store.metadata_at + at + 9)


def put_in_boot_record(i, at, number):
    for copy in (4096, 6144):
        i.put(copy + at, "Q", number)
        i.seal(copy, 2044, copy + 2044, i.store.drive_prefix)


def told_of_metadata(i, generation):
    put_in_boot_record(i, 56, generation)


@corruption("records of pages are missing: the journal had reached page 100000")
def journal_shorter_than_known(i):
    put_in_boot_record(i, 64, 100000)


@corruption("metadata: it had reached generation 100000, but no copy of that generation exists")
def metadata_older_than_known(i):
    told_of_metadata(i, 100000)


@corruption("metadata: a recovery from an older copy was interrupted")
def metadata_given_up(i):
    told_of_metadata(i, (1 << 64) - 1)


@corruption("firmware state: volume 0")
def firmware_volume(i):
    at = i.store.metadata_at
    at = at if i.data[at:at + 8] == b"GNMETA1\n" else at + i.store.metadata_bytes
    length, = struct.unpack_from("<Q", i.data, at + 16)
    total, = struct.unpack_from("<I", i.data, at + 64 + 12)
    i.put(at + 64 + 1584 + 24, "H", 0)
    i.seal(at + 64, total - 4, at + 64 + total - 4)
    i.seal(at + 64, length, at + 24)
    i.seal(at, 60, at + 60, i.store.drive_prefix)


@corruption("fails its checksum: reads fail")
def data_byte(i):
    _, page = i.old_block()
    i.flip(i.store.page_at(page) + 777)


@corruption("has no valid record: reads fail")
def record_of_the_neighbour(i):
    _, page = i.old_block()
    other = page - 1 if page % i.store.per_unit else page + 1
    i.data[i.store.record_at(page):i.store.record_at(page + 1)] = i.data[i.store.record_at(other):i.store.record_at(other + 1)]


@corruption("has no valid record: reads fail")
def record_bit(i):
    _, page = i.old_block()
    i.flip(i.store.record_at(page) + 9, 4)


@corruption("the block is lost")
def record_names_another_block(i):
    _, page = i.old_block()
    i.put(i.store.record_at(page), "I", 95 if i.store.record(page).vba != 95 else 94)
    i.seal_record(page)


@corruption("one of which does not exist")
def record_kind(i):
    _, page = i.old_block()
    i.data[i.store.record_at(page) + 6] = 9
    i.seal_record(page)


@corruption("has no valid record: reads fail")
def erased_unit(i):
    _, page = i.old_block()
    first = page // i.store.per_unit * i.store.per_unit
    i.data[i.store.record_at(first):i.store.record_at(first + i.store.per_unit)] = bytes(64 * i.store.per_unit)


@corruption("have the same serial")
def serial_twice(i):
    used = [u for u in i.shard.units.values() if u.serial]
    for index in range(used[0].end):
        i.put(i.store.record_at(used[0].first + index) + 52, "I", used[1].serial)
        i.seal_record(used[0].first + index)


@corruption("it holds both journal pages and blocks")
def kinds_in_one_unit(i):
    unit = next(u for u in i.shard.units.values() if u.serial and not u.system and u.end > 2)
    i.data[i.store.record_at(unit.first + 1) + 6] = store.SYSTEM
    i.seal_record(unit.first + 1)


@corruption("magic 0x")
def journal_magic(i):
    page = i.newest(journal.MAP).page
    i.flip(i.store.page_at(page))
    i.seal_page(page)


@corruption("its header says journal page")
def journal_number(i):
    page = i.newest(journal.UNITS).page
    i.put(i.store.page_at(page) + 8, "Q", 1 << 40)
    i.seal_page(page)


@corruption("entries, which do not fit")
def journal_count(i):
    page = i.newest(journal.MAP).page
    i.put(i.store.page_at(page) + 28, "I", 64)
    i.seal_page(page)


@corruption("parts")
def checkpoint_part_damaged(i):
    i.flip(i.store.page_at(i.newest(journal.MAP).page) + 70)


@corruption("its checksum over its parts")
def checkpoint_end_crc(i):
    page = i.newest(journal.END).page
    i.flip(i.store.page_at(page) + 64 + 12)
    i.seal_page(page)


@corruption("buckets of")
def checkpoint_dimensions(i):
    page = i.newest(journal.BEGIN).page
    i.put(i.store.page_at(page) + 64 + 12, "I", i.shard.keys.buckets + 1)
    i.seal_page(page)
    i.seal_checkpoint()


def used_slot(i):
    """Byte of a slot of the newest checkpoint's map that still holds in the end, and the page of the journal."""
    for entry in i.journal.values():
        if entry.type == journal.MAP and entry.checkpoint == i.shard.checkpoint:
            at = i.store.page_at(entry.page) + 64
            for n in range(8 * entry.count):
                slot, = struct.unpack_from("<Q", i.data, at + 8 * n)
                if slot:
                    key, page = i.shard.keys.read(entry.first + n // 8, slot)
                    if i.shard.map.get(key) == page and i.settled(page):
                        return at + 8 * n, entry.page
    raise AssertionError("no slot")


@corruption("impossible slot")
def map_slot_remainder(i):
    at, page = used_slot(i)
    i.flip(at + 7, 0x80)
    i.seal_page(page)
    i.seal_checkpoint()


@corruption("the block is lost")
def map_slots_exchanged(i):
    at, page = used_slot(i)
    slot, = struct.unpack_from("<Q", i.data, at)
    mask = ((1 << i.shard.keys.page_bits) - 1) << 4
    other = next(p for k, p in i.shard.map.items() if p != (slot & mask) >> 4 and i.settled(p))
    i.put(at, "Q", slot & ~mask | other << 4)
    i.seal_page(page)
    i.seal_checkpoint()


@corruption("with serial")
def unit_table(i):
    page = i.newest(journal.UNITS).page
    i.data[i.store.page_at(page) + 64 + 12] = 7  # a state that there is not
    i.seal_page(page)
    i.seal_checkpoint()


@corruption("a log record of type 77")
def log_record_type(i):
    entry = max((p for p in i.journal.values() if p.type == journal.LOG and p.number > i.shard.begin_number), key=lambda p: p.number)
    i.data[i.store.page_at(entry.page) + 64] = 77
    i.seal_page(entry.page)


def old_log_pages(i):
    return [p for p in i.journal.values() if p.type == journal.LOG and p.number > i.shard.begin_number and i.shard.is_old(p.group)]


@corruption("is damaged")
def log_page_damaged(i):
    i.flip(i.store.page_at(old_log_pages(i)[0].page) + 100)


@corruption("exists twice, with different contents")
def journal_number_twice(i):
    end = i.newest(journal.END)
    log = max((p for p in i.journal.values() if p.type == journal.LOG), key=lambda p: p.number)
    number = end.number
    i.put(i.store.page_at(log.page) + 8, "Q", number)
    i.put(i.store.page_at(log.page) + 6, "H", journal.END)
    i.put(i.store.page_at(log.page) + 28, "I", 1)
    i.put(i.store.record_at(log.page), "I", number & 0xFFFFFFFF)
    i.put(i.store.record_at(log.page) + 8, "Q", number)
    i.put(i.store.record_at(log.page) + 16, "I", journal.END)
    i.seal_page(log.page)


class Checker(unittest.TestCase):
    def setUp(self):
        self.temp = tempfile.TemporaryDirectory(prefix="gnstor-check-")
        self.addCleanup(self.temp.cleanup)
        self.path = pathlib.Path(self.temp.name, "s")

    def accepts(self, wanted, *more):
        dump = self.path.with_suffix(".dump")
        done = checked(self.path, "--dump", dump, *more)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertTrue(done.stdout.rstrip().split("\n")[-1].startswith("0 damages"), done.stdout)
        found = {}
        for line in dump.read_text().splitlines():
            vid, vba, sequence, _, _, state = line.split()[:6]
            found[int(vid), int(vba)] = int(sequence)
            self.assertEqual(state, "ok")
        self.assertEqual(found, wanted)
        counts["accepted"] += 1
        counts["blocks"] += len(found)

    def test_the_example_of_the_document_holds(self):
        split = keys.Keys(16384, 16384)
        key = 7 << 32 | 12345
        self.assertEqual((split.page_bits, split.buckets, split.shift), (15, 2276, 11))
        self.assertEqual((split.split(key, 0), split.split(key, 1)), ((640, 0x1E15B85F01), (1193, 0x04BB27C14D)))
        self.assertEqual(split.read(640, 0x00F0ADC2F8083E81), (key, 1000))
        self.assertEqual(split.read(1193, 0x0025D93E0A683E89), (key, 1000))

    def test_checksums_of_many_are_those_of_each(self):
        data = random.Random(SEED).randbytes(512 * 33)
        self.assertEqual(crc.crc32c(b"123456789"), 0xE3069283)
        self.assertEqual(crc.crc32c_many(data, 512), [crc.crc32c(data[n:n + 512]) for n in range(0, len(data), 512)])
        for used in (60, 61, 62, 63, 3):
            self.assertEqual(crc.crc32c_many(data, 64, used), [crc.crc32c(data[n:n + used]) for n in range(0, len(data), 64)])
        data = data[:4 * crc.BATCH + 4]  # batches, and a last one of one message
        self.assertEqual(crc.crc32c_many(data, 4), [crc.crc32c(data[n:n + 4]) for n in range(0, len(data), 4)])
        self.assertEqual(crc.crc32c_many(b"", 64), [])

    def test_good_stores_are_accepted_and_each_block_is_the_one_that_was_written(self):
        pick = random.Random(SEED)
        for how in ("closed", "killed"):
            for units in (1, 2):
                # From a few changes to so many that every unit was collected several times.
                for changes in (0, 3, 60, 700, 3000):
                    with self.subTest(how=how, units=units, changes=changes):
                        self.path.unlink(missing_ok=True)
                        self.accepts(made(self.path, pick.getrandbits(32), changes, how, units))

    def test_stores_of_version_4_are_accepted_too(self):
        for how in ("closed", "killed"):
            self.path.unlink(missing_ok=True)
            wanted = made(self.path, SEED, 700, how, version=4)
            self.assertEqual(struct.unpack_from("<I", self.path.read_bytes(), 8), (4,))
            self.accepts(wanted)

    def test_records_alone_find_the_same_blocks(self):
        self.accepts(made(self.path, SEED, 500, "killed"), "--records")

    def test_the_program_says_what_a_child_of_this_test_says(self):
        made(self.path, SEED, 100, "killed")
        for damage in (0, 1):
            image = Image(self.path)
            image.data[image.store.page_at(image.old_block()[1]) + 777] ^= damage
            self.path.write_bytes(image.data)
            first, second = program(self.path), checked(self.path)
            self.assertEqual((first.returncode, first.stdout, first.stderr), (damage, second.stdout, second.stderr))
            self.assertEqual(second.returncode, damage)

    def test_every_corruption_is_rejected_by_name(self):
        # One whose log has a page that no cut explains away.
        for seed in range(SEED, SEED + 50):
            self.path.unlink(missing_ok=True)
            wanted = made(self.path, seed, 900, "killed")
            if old_log_pages(Image(self.path)):
                break
        self.accepts(wanted)
        good = self.path.read_bytes()
        for name, (change, says) in CORRUPTIONS.items():
            with self.subTest(corruption=name):
                self.path.write_bytes(good)
                image = Image(self.path)
                change(image)
                image.damage_both()
                self.assertNotEqual(bytes(image.data), good)
                self.path.write_bytes(image.data)
                done = checked(self.path)
                self.assertEqual((done.returncode, done.stderr), (1, ""), done.stdout)
                damage = [line for line in done.stdout.splitlines() if line.startswith("damage")]
                self.assertTrue(any(says in line for line in damage), f"the checker's output lacks '{says}':\n{done.stdout}")
                counts["rejected"] += 1
        self.path.write_bytes(good)
        self.accepts(wanted)

    def blocks(self, name):
        """The checker's idea of each block that can be read, its exit code and its words."""
        dump = self.path.with_suffix(name)
        dump.unlink(missing_ok=True)
        done = checked(self.path, "--dump", dump)
        self.assertEqual(done.stderr, "")
        lines = [line.split()[:6] for line in dump.read_text().splitlines()] if dump.exists() else []
        return {(int(v), int(b)): int(s) for v, b, s, _, _, state in lines if state == "ok"}, done.returncode, done.stdout

    def test_damaged_stores_are_judged_as_the_firmware_judges_them(self):
        """Two readings of one document, the firmware's and the checker's, must come to the same blocks: before the firmware has
        recovered (the checker does it in its head) and after (it reads the firmware's new checkpoint)."""
        pick = random.Random(SEED)
        refused = 0
        for case in range(24):
            self.path.unlink(missing_ok=True)
            made(self.path, pick.getrandbits(32), pick.choice((20, 150, 600)), "killed")
            image = Image(self.path)
            used = [u.first + i for u in image.shard.units.values() for i in range(u.end)]
            # Younger than the checkpoint, and of the last groups.
            end = max((p.number for p in image.journal.values() if p.type == journal.END), default=0)
            young = [u.first + i for u, start in image.shard.young for i in range(start, u.end)]
            young += [p.page for p in image.journal.values() if p.number > end]
            last = [p for p in young if image.shard.counts_page(p) and not image.shard.is_old(image.store.record(p).group)]
            # A third: only what a cut may tear. Else anywhere.
            changes = []
            for _ in range(pick.randrange(1, 5)):
                if case % 3 == 0 and not last:
                    break
                page = pick.choice(last if case % 3 == 0 else used)
                at = image.store.page_at(page) + pick.randrange(4096) if pick.random() < 0.5 else image.store.record_at(page) + pick.randrange(64)
                image.flip(at, pick.randrange(1, 256))
                changes.append((page, at))
            if case % 4 != 0:
                image.damage_both()
            self.path.write_bytes(image.data)
            with self.subTest(case=case, changes=changes):
                before, code, words = self.blocks(".before")
                if case % 3 == 0:
                    self.assertEqual(code, 0, words)
                done = subprocess.run([MAKE, str(self.path), "1", "0", "closed", "1"], capture_output=True, text=True, timeout=120, check=False)
                if done.returncode != 0:
                    refused += 1
                    self.assertEqual(code, 1, f"the firmware refuses the store, but the checker accepts it: {done.stderr}\n{words}")
                    continue
                after, _, later = self.blocks(".after")
                self.assertEqual(before, after, f"{words}\nthen\n{later}")
                counts["judged"] += 1
                counts["blocks"] += len(after)
        print(f"damaged stores: {counts['judged']} judged alike, {refused} refused by both")

    def test_one_damaged_copy_of_every_record_costs_nothing(self):
        pick = random.Random(SEED)
        for how in ("closed", "killed"):
            with self.subTest(how=how):
                self.path.unlink(missing_ok=True)
                wanted = made(self.path, SEED, 300, how)
                image = Image(self.path)
                used = [u.first + i for u in image.shard.units.values() for i in range(u.end)]
                for page in used:
                    place = pick.choice((image.store.record_at, image.store.record_copy_at))(page)
                    image.flip(place + pick.randrange(64), 1 << pick.randrange(8))
                self.path.write_bytes(image.data)
                before, code, words = self.blocks(".before")
                self.assertEqual((code, before), (0, wanted), words)
                self.assertEqual(words.count("one of the two copies of the record"), len(used))
                done = subprocess.run([MAKE, str(self.path), "1", "0", "closed", "1"], capture_output=True, text=True, timeout=120, check=False)
                self.assertEqual(done.returncode, 0, done.stderr)
                after, code, words = self.blocks(".after")
                self.assertEqual((code, after), (0, wanted), words)
                self.assertNotIn("one of the two copies", words)

    def test_a_block_is_shown_with_its_place(self):
        wanted = made(self.path, SEED, 200, "closed")
        (vid, vba), sequence = sorted(wanted.items())[5]
        done = program(self.path, "--block", f"{vid}:{vba}")
        self.assertIn(f"block {vba} of volume {vid}: page ", done.stdout)
        self.assertIn(f"sequence {sequence},", done.stdout)
        never = next(b for b in range(96) if (vid, b) not in wanted)
        self.assertIn("zeroes", checked(self.path, "--block", f"{vid}:{never}").stdout)

    def test_what_is_no_store_is_said_to_be_none(self):
        self.path.write_bytes(b"")
        self.assertEqual(program(self.path).returncode, 1)
        self.path.write_bytes(b"x" * 10000)
        self.assertEqual(program(self.path).returncode, 1)
        self.path.unlink()
        done = program(self.path)
        self.assertEqual((done.returncode, "Traceback" in done.stderr), (2, False))


if __name__ == "__main__":
    result = unittest.main(exit=False).result
    print(f"store checker: {len(CORRUPTIONS)} corruptions, seed {SEED}")
    for name, value in counts.items():
        print(f"GN_COUNT store_checker_{name}={value}")
    sys.exit(0 if result.wasSuccessful() else 1)
