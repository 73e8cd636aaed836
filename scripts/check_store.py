#!/usr/bin/env python3
"""Checks a store of an emulated SSD from outside: an independent reading of docs/store-format.md, sharing no code with the firmware.

    check_store.py STORE                       everything: head, records, journal, checkpoints, recovery's result, all data
    check_store.py STORE --records             all but the data of pages whose record is enough to recover
    check_store.py STORE --block VID:VBA       and where that block lies, with its order and its checksums
    check_store.py STORE --dump FILE           and one line a block: vid vba sequence epoch page state crc of each sector

Exit 0: what the document promises holds. 1: it does not; each line says what, where. 2: wrong usage, or the store cannot be read.
Python's standard library alone. The store must not be in use; it is not written to.
"""
import argparse
import bisect
import collections
import fcntl
import mmap
import os
import stat
import struct
import sys
import uuid

PAGE, SECTOR, OOB = 4096, 512, 64
SECTORS = PAGE // SECTOR


# ---- CRC-32C (Castagnoli), many messages of one length at once.
# State and input lie in planes: byte j of every message in one bytes object. A step is four table look-ups by bytes.translate and a few
# exclusive-ors of long integers, so that Python's loop runs once for a position, not for a byte.

def _table():
    rows = []
    for n in range(256):
        for _ in range(8):
            n = (n >> 1) ^ (0x82F63B78 if n & 1 else 0)
        rows.append(n)
    return rows


CRC_TABLE = _table()
CRC_PLANES = [bytes((n >> (8 * k)) & 0xFF for n in CRC_TABLE) for k in range(4)]


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ CRC_TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def crc32c_many(data, length, used=None):
    """CRC-32C of bytes 0 .. used-1 of each of the messages of `length` bytes that lie one after the other in `data`."""
    count = len(data) // length
    if count == 0:
        return []
    ones = int.from_bytes(b"\xff" * count, "little")
    state = [ones] * 4
    for at in range(used or length):
        index = (state[0] ^ int.from_bytes(data[at::length], "little")).to_bytes(count, "little")
        state = [rest ^ int.from_bytes(index.translate(table), "little")
                 for rest, table in zip(state[1:] + [0], CRC_PLANES)]
    planes = [(plane ^ ones).to_bytes(count, "little") for plane in state]
    return [a | b << 8 | c << 16 | d << 24 for a, b, c, d in zip(*planes)]


# ---- what is found

class Findings:
    def __init__(self):
        self.damage, self.notes = [], []

    def bad(self, offset, what):
        self.damage.append((offset, what))

    def note(self, offset, what):
        self.notes.append((offset, what))


class Unusable(Exception):
    """The store cannot be read any further."""

    def __init__(self, offset, what):
        super().__init__(what)
        self.offset = offset


Record = collections.namedtuple("Record", "vba vid kind version sequence epoch crcs serial group")
RECORD = struct.Struct("<IHBBQI8I3I")
DATA, SYSTEM, LOST, LOST_BOUND = 1, 3, 4, 5


class Store:
    """The bytes, and where the superblock says that everything lies."""

    def __init__(self, path):
        self.fd = os.open(path, os.O_RDONLY)
        try:
            fcntl.flock(self.fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            raise OSError("a drive has it open") from None
        status = os.fstat(self.fd)
        self.bytes = status.st_size if stat.S_ISREG(status.st_mode) else os.lseek(self.fd, 0, os.SEEK_END)
        if self.bytes < PAGE:
            raise Unusable(0, f"{self.bytes} bytes are less than a superblock")
        self.map = mmap.mmap(self.fd, self.bytes, access=mmap.ACCESS_READ)
        self.read_superblock(self.map[:PAGE])

    def read_superblock(self, page):
        if page[:8] != b"GNSTORE\n":
            raise Unusable(0, "superblock: the magic is not GNSTORE")
        self.version, = struct.unpack_from("<I", page, 8)
        if self.version != 2:
            raise Unusable(8, f"superblock: format version {self.version}, not 2")
        if struct.unpack_from("<I", page, PAGE - 4)[0] != crc32c(page[:PAGE - 4]):
            raise Unusable(PAGE - 4, "superblock: its checksum does not match")
        page_bytes, = struct.unpack_from("<I", page, 12)
        self.drive = uuid.UUID(bytes=page[16:32])
        self.units, self.per_unit, oob_bytes, self.metadata_bytes = struct.unpack_from("<4I", page, 32)
        self.metadata_at, self.oob_at, self.data_at, self.store_bytes = struct.unpack_from("<4Q", page, 48)
        self.capacity, self.over_provisioning = struct.unpack_from("<QI", page, 80)
        self.serial = page[92:112].decode("latin-1").rstrip(" ")
        self.channels, self.dies, self.service_units = struct.unpack_from("<3I", page, 112)
        self.pages = self.units * self.per_unit
        if page_bytes != PAGE or oob_bytes != OOB:
            raise Unusable(12, f"superblock: pages of {page_bytes} bytes with records of {oob_bytes}, not {PAGE} and {OOB}")
        if not 0 < self.pages < 0xFFFFFFFF or not 1 <= self.service_units <= min(64, self.units) or not 1 <= self.channels * self.dies <= 65536:
            raise Unusable(32, f"superblock: an impossible geometry ({self.units} units of {self.per_unit} pages, {self.service_units} service "
                               f"units, {self.channels} channels of {self.dies} dies)")
        up = lambda n: -(-n // PAGE) * PAGE
        if (self.metadata_bytes < PAGE or self.metadata_bytes % PAGE or self.metadata_at != 2 * PAGE
                or self.oob_at != self.metadata_at + 2 * self.metadata_bytes or self.data_at != up(self.oob_at + self.pages * OOB)
                or self.store_bytes != self.data_at + self.pages * PAGE):
            raise Unusable(48, "superblock: its areas are not where its geometry puts them")
        if self.capacity > self.pages * PAGE:
            raise Unusable(80, f"superblock: a promise of {self.capacity} bytes over {self.pages} pages")
        if self.bytes < self.store_bytes:
            raise Unusable(56, f"the store is truncated: {self.bytes} bytes of {self.store_bytes}")

    def record_at(self, page):
        return self.oob_at + page * OOB

    def page_at(self, page):
        return self.data_at + page * PAGE

    def record(self, page):
        fields = RECORD.unpack_from(self.map, self.record_at(page))
        return Record(*fields[:6], fields[6:14], fields[14], fields[15])

    def order_of(self, page):
        """Order of the version that a page holds or, lost, stands for: of such a one the page says which contents it had."""
        record = self.record(page)
        crcs = struct.pack("<8I", *record.crcs)
        content = crc32c(crcs) if record.kind == DATA else 0
        if record.kind == LOST and b"".join(struct.pack("<I", crc32c(self.page(page)[i:i + SECTOR])) for i in range(0, PAGE, SECTOR)) == crcs:
            content, = struct.unpack_from("<I", self.map, self.page_at(page))
        return (record.epoch, record.sequence, content)

    def page(self, page):
        return self.map[self.page_at(page):self.page_at(page) + PAGE]

    def unit_range(self, index):
        return range(index * self.units // self.service_units, (index + 1) * self.units // self.service_units)


# ---- head

def check_boot(store, found):
    copies = []
    for i in range(2):
        at = PAGE + i * 2048
        raw = store.map[at:at + 2048]
        generation, = struct.unpack_from("<Q", raw, 8)
        mode, state = raw[48], raw[49]
        if raw[:8] == b"GNBOOT2\n" and generation and struct.unpack_from("<I", raw, 2044)[0] == crc32c(raw[:2044]) and mode in (1, 2) and state in (1, 2, 3):
            copies.append((generation, i, uuid.UUID(bytes=raw[16:32]), mode, state))
        else:
            # A change is on the medium in one copy before it is begun in the other, so one may be torn.
            found.note(at, f"boot record: copy {i} is damaged or torn")
    if not copies:
        found.bad(PAGE, "boot record: both copies are damaged")
        return None
    generation, _, incarnation, mode, state = max(copies)
    return {"generation": generation, "incarnation": str(incarnation), "mode": {1: "process", 2: "power"}[mode],
            "state": {1: "clean", 2: "open", 3: "emptying"}[state]}


Volume = collections.namedtuple("Volume", "vid epoch birth capacity name floor")


def check_metadata(store, found):
    """The firmware's state in force, as {vid: Volume}; None if there is none."""
    copies = []
    for i in range(2):
        at = store.metadata_at + i * store.metadata_bytes
        head = store.map[at:at + 64]
        generation, length, blob_crc = struct.unpack_from("<QQI", head, 8)
        if (head[:8] == b"GNMETA1\n" and generation and length <= store.metadata_bytes - 64
                and struct.unpack_from("<I", head, 60)[0] == crc32c(head[:60])):
            copies.append((generation, at, length, blob_crc))
        elif any(head[60:]):
            found.bad(at, f"metadata: the header of copy {i} has rotted; it may have been the newest")
        elif any(head):
            found.note(at, f"metadata: the header of copy {i} is torn")
    if not copies:
        return None
    generation, at, length, blob_crc = max(copies)
    blob = store.map[at + 64:at + 64 + length]
    if crc32c(blob) != blob_crc:
        found.bad(at, "metadata: the newest copy fails its checksum")
        return {}
    return read_state(blob, at + 64, found)


def read_state(blob, at, found):
    """Of the firmware's state, the volumes."""
    volumes = {}
    if len(blob) < 1588 or blob[:8] != b"DEESTAT1":
        found.bad(at, "firmware state: no magic")
        return volumes
    version, total, _term, _slot, count, deleted, retired = struct.unpack_from("<IIQIIII", blob, 8)
    if version != 1 or total != 1584 + 392 * count + 8 * deleted + 4 * retired + 4 or total > len(blob):
        found.bad(at + 8, f"firmware state: version {version} and {total} bytes do not fit {count} volumes, {deleted} deleted, {retired} retired")
        return volumes
    if struct.unpack_from("<I", blob, total - 4)[0] != crc32c(blob[:total - 4]):
        found.bad(at + total - 4, "firmware state: its checksum does not match")
        return volumes
    last = 0
    for i in range(count):
        base = 1584 + 392 * i
        epoch, = struct.unpack_from("<I", blob, base + 4)
        capacity, vid = struct.unpack_from("<QH", blob, base + 16)
        length, birth = struct.unpack_from("<QI", blob, base + 32)
        floor, = struct.unpack_from("<Q", blob, base + 384)
        name = blob[base + 56:base + 120].split(b"\0")[0].decode("utf-8", "replace")
        if vid <= last or not 1 <= capacity <= 1 << 32 or not 1 <= birth <= epoch or length > capacity * PAGE:
            found.bad(at + base, f"firmware state: volume {vid} ('{name}') is impossible")
        volumes[vid] = Volume(vid, epoch, birth, capacity, name, floor)
        last = vid
    return volumes


# ---- the medium

TRIM_CRC = crc32c(bytes(32))


class Unit:
    """An erase unit: which of its pages have a good record, and the serial of its opening."""

    def __init__(self, store, number, found):
        self.number, self.first = number, number * store.per_unit
        raw = store.map[store.record_at(self.first):store.record_at(self.first + store.per_unit)]
        self.end = -(-len(raw.rstrip(b"\0")) // OOB)  # the write pointer
        raw = raw[:self.end * OOB]
        self.good = [crc == stored for crc, (stored,) in zip(crc32c_many(raw, OOB, OOB - 4), struct.iter_unpack("<60xI", raw))]
        self.serial, self.system, self.leftover = 0, False, set()
        records = {index: store.record(self.first + index) for index, good in enumerate(self.good) if good}
        for index, record in records.items():
            at = store.record_at(self.first + index)
            if record.version != 2 or record.kind not in (DATA, SYSTEM, LOST, LOST_BOUND):
                found.bad(at, f"page {self.first + index}: a record of version {record.version}, kind {record.kind}, which there is not")
            if record.serial == 0:
                found.bad(at, f"page {self.first + index}: unit serial 0; serials count from 1")
        if records:
            self.serial = max(r.serial for r in records.values())
            self.leftover = {index for index, r in records.items() if r.serial != self.serial}
            kinds = {r.kind == SYSTEM for r in records.values() if r.serial == self.serial}
            self.system = True in kinds
            if len(kinds) > 1:
                found.bad(store.record_at(self.first), f"unit {number}: journal pages and blocks in one unit")
                self.system = False
        if self.leftover:
            found.note(store.record_at(self.first), f"unit {number}: {len(self.leftover)} leftovers of an erasure that a cut undid")

    def counts(self, index):
        return index < self.end and self.good[index] and index not in self.leftover


class Sectors:
    """Which pages' data holds against their records. Looked at once, many at a time."""

    def __init__(self, store):
        self.store, self.wrong, self.seen = store, {}, set()

    def look(self, pages):
        pages = sorted(set(pages) - self.seen)
        for start in range(0, len(pages), 2048):
            some = pages[start:start + 2048]
            crcs = crc32c_many(b"".join(self.store.page(p) for p in some), SECTOR)
            for i, page in enumerate(some):
                stored = self.store.record(page).crcs
                bad = [s for s in range(SECTORS) if stored[s] != crcs[i * SECTORS + s]]
                if bad:
                    self.wrong[page] = bad
        self.seen.update(pages)

    def good(self, page):
        if page not in self.seen:
            self.look([page])
        return page not in self.wrong


# ---- the block map's keys

M48, U64 = 1 << 48, (1 << 64) - 1


def mix64(x):
    x = (x + 0x9E3779B97F4A7C15) & U64
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & U64
    x = (x ^ x >> 27) * 0x94D049BB133111EB & U64
    return x ^ x >> 31


class Keys:
    """Splits a key into bucket and remainder, and puts it together again."""

    def __init__(self, pages_all, pages_here):
        self.page_bits = pages_all.bit_length()
        self.buckets = 10 * pages_here // 72 + 1
        self.shift = self.buckets.bit_length() - 1
        self.rules = []
        for w in range(2):
            seed = 0x676E73746F726D30 + w
            factors = [(mix64(seed + 1 + i) | 1) % M48 for i in range(3)]
            self.rules.append((mix64(seed) % M48, factors, [pow(f, -1, M48) for f in factors]))

    def split(self, key, w):
        offset, factors, _ = self.rules[w]
        x = (key + offset) % M48
        for f in factors:
            x = x * f % M48
            x ^= x >> 24
        return x * self.buckets // M48, x * self.buckets % M48 >> self.shift

    def join(self, bucket, w, remainder):
        offset, _, inverses = self.rules[w]
        x = -(-(bucket * M48 + (remainder << self.shift)) // self.buckets)
        for f in reversed(inverses):
            x ^= x >> 24
            x = x * f % M48
        return (x - offset) % M48

    def read(self, bucket, slot):
        """(key, page) of a used slot; None for the page if the slot is impossible."""
        w = slot >> 3 & 1
        remainder = slot >> 4 + self.page_bits
        key = self.join(bucket, w, remainder)
        fine = slot & 7 == 1 and self.split(key, w) == (bucket, remainder)
        return key, slot >> 4 & (1 << self.page_bits) - 1 if fine else None


def name_of(key):
    return f"block {key & 0xFFFFFFFF} of volume {key >> 32}"


# ---- trims: disjoint intervals of keys

class Trims:
    def __init__(self):
        self.starts, self.items = [], []  # (first, end, order), disjoint, ascending

    def _overlapping(self, first, end):
        low = bisect.bisect_right(self.starts, first)
        if low and self.items[low - 1][1] > first:
            low -= 1
        high = bisect.bisect_left(self.starts, end)
        return low, max(low, high)

    def _replace(self, low, high, items):
        self.items[low:high] = items
        self.starts[low:high] = [i[0] for i in items]

    def add(self, first, end, order):
        """Where it is newer than what is there."""
        low, high = self._overlapping(first, end)
        pieces, at = [], first
        for start, stop, old in self.items[low:high]:
            if start < first:
                pieces.append((start, first, old))
            if at < max(start, first):
                pieces.append((at, max(start, first), order))
            inner = (max(start, first), min(stop, end))
            pieces.append((*inner, max(order, old)))
            if stop > end:
                pieces.append((end, stop, old))
            at = inner[1]
        if at < end:
            pieces.append((at, end, order))
        self._replace(low, high, sorted(pieces))

    def cut(self, first, end):
        low, high = self._overlapping(first, end)
        pieces = []
        for start, stop, old in self.items[low:high]:
            if start < first:
                pieces.append((start, first, old))
            if stop > end:
                pieces.append((end, stop, old))
        self._replace(low, high, pieces)

    def find(self, key):
        low, high = self._overlapping(key, key + 1)
        return self.items[low][2] if high > low else None


# ---- the journal

HEADER = struct.Struct("<IHHQQIIQIIIxxxxQ")
LOG, BEGIN, UNITS, MAP, MOVED, TRIMS, FLOORS, END, RECORDS = range(1, 10)
ENTRY_BYTES = {LOG: 32, BEGIN: 32, UNITS: 16, MAP: 64, MOVED: 16, TRIMS: 32, FLOORS: 24, RECORDS: 32, END: 16}
KIND_NAMES = dict(zip(range(1, 10), ("log", "begin", "units", "map", "moved", "tombstones", "floors", "end", "records")))
LOG_RECORD = struct.Struct("<BxHIIIQ8x")
TRIM, FLOOR, BAD_UNIT, PURGE, TORN, GAP = range(1, 7)
JournalPage = collections.namedtuple("JournalPage", "number type checkpoint part count first page group crc")


class Shard:
    """One service unit: what its units hold, by docs/store-format.md, "Recovery"."""

    def __init__(self, store, index, volumes, sectors, found):
        self.store, self.index, self.volumes, self.sectors, self.found = store, index, volumes, sectors, found
        self.range = store.unit_range(index)
        self.pages_here = len(self.range) * store.per_unit
        self.keys = Keys(store.pages, self.pages_here)
        self.map, self.trims, self.checkpoint = {}, Trims(), None
        self.torn = set()
        self.counts = collections.Counter()
        self.units = {number: Unit(store, number, found) for number in self.range}
        serials = collections.Counter(u.serial for u in self.units.values() if u.serial)
        for serial, times in serials.items():
            if times > 1:
                twice = [n for n, u in self.units.items() if u.serial == serial]
                found.bad(store.record_at(twice[0] * store.per_unit), f"units {twice} say the same serial {serial}")
        self.recover()

    def unit_of(self, page):
        return self.units[page // self.store.per_unit]

    def counts_page(self, page):
        """Whether the record of a page can be believed."""
        return page // self.store.per_unit in self.range and self.unit_of(page).counts(page % self.store.per_unit)

    # -- steps

    def recover(self):
        pages = self.read_journal()
        if not self.load(pages):
            return
        self.find_young(pages)
        records = self.read_log(pages)
        self.judge(pages, records)
        self.replay(records)
        self.apply_young()
        self.drop_and_verify()

    def read_journal(self):
        """Every system page whose record counts, by number: {number: JournalPage}."""
        journal, store = {}, self.store
        system = sorted((u for u in self.units.values() if u.serial and u.system), key=lambda u: u.serial)
        places = [u.first + i for u in system for i in range(u.end) if u.counts(i)]
        self.sectors.look(places)
        self.bad_journal = {}
        for page in places:
            record = store.record(page)
            at = store.record_at(page)
            if record.kind != SYSTEM:
                continue
            self.counts["journal pages"] += 1
            if record.vid != 0 or record.vba != record.sequence & 0xFFFFFFFF or record.epoch not in KIND_NAMES or record.sequence == 0:
                self.found.bad(at, f"page {page}: the record of journal page {record.sequence} contradicts itself")
                continue
            if not self.sectors.good(page):
                # A later repetition may be good; what is missing then is judged with the gaps.
                self.bad_journal.setdefault(record.sequence, (page, record))
                continue
            entry = self.read_header(page, record)
            if entry:
                old = journal.get(entry.number)
                if old and store.page(old.page) != store.page(page):
                    self.found.bad(store.page_at(page), f"journal page {entry.number} is there twice, with different contents (pages {old.page}, {page})")
                journal[entry.number] = entry
        for number in journal:
            self.bad_journal.pop(number, None)
        return journal

    def read_header(self, page, record):
        store = self.store
        magic, version, kind, number, checkpoint, part, count, first, _, _, _, _ = HEADER.unpack_from(store.map, store.page_at(page))
        at = store.page_at(page)
        if magic != 0x4A534E47 or version != 1 or kind not in KIND_NAMES:
            self.found.bad(at, f"journal page {record.sequence} (page {page}): magic {magic:#x}, version {version}, type {kind}")
            return None
        if number != record.sequence or kind != record.epoch:
            self.found.bad(at, f"page {page}: its header says journal page {number} of type {kind}, its record {record.sequence} of type {record.epoch}")
            return None
        if count > (PAGE - 64) // ENTRY_BYTES[kind] or (kind in (BEGIN, END) and count > 1):
            self.found.bad(at, f"journal page {number}: {count} entries do not fit")
            return None
        crc, = struct.unpack_from("<I", store.map, store.record_at(page) + 60)
        return JournalPage(number, kind, checkpoint, part, count, first, page, record.group, crc)

    def entries(self, entry, form):
        at = self.store.page_at(entry.page) + 64
        return struct.iter_unpack(form, self.store.map[at:at + entry.count * struct.calcsize(form)])

    def parts_of(self, pages, end):
        """The pages of a complete checkpoint, or a sentence why it is not."""
        begin, count, crc = struct.unpack_from("<QII", self.store.map, self.store.page_at(end.page) + 64)
        parts = sorted((p for p in pages.values() if p.checkpoint == end.checkpoint and p.type != LOG and begin <= p.number < end.number),
                       key=lambda p: p.part)
        if [p.part for p in parts] != list(range(count)) or end.part != count or not parts or parts[0].type != BEGIN or parts[0].number != begin:
            return None, f"of its {count} parts {len(parts)} can be read"
        if crc32c(b"".join(struct.pack("<I", p.crc) for p in parts)) != crc:
            return None, "its checksum over its parts does not match"
        if any(a.number >= b.number for a, b in zip(parts, parts[1:])):
            return None, "its parts are not in order"
        return parts, None

    def load(self, pages):
        """The newest complete checkpoint, or nothing for a journal that is all there. False: nothing can be recovered."""
        ends = sorted((p for p in pages.values() if p.type == END), key=lambda p: -p.number)
        for rank, end in enumerate(ends[:2]):
            parts, why = self.parts_of(pages, end)
            if parts is None:
                self.found.bad(self.store.page_at(end.page), f"checkpoint {end.checkpoint}: {why}")
            elif self.checkpoint is None:
                self.checkpoint = end.checkpoint
                if rank:
                    self.counts["fallbacks"] += 1
                self.load_parts(parts, end)
        self.begin_number = getattr(self, "begin_number", 1)
        if self.checkpoint is not None:
            return True
        self.table, self.begin_group = {}, 0
        used = [u for u in self.units.values() if u.serial]
        if 1 not in pages and any(not u.system for u in used):
            self.found.bad(self.store.record_at(self.range[0] * self.store.per_unit),
                           f"service unit {self.index}: no complete checkpoint, and no journal from its first page")
            return False
        return True

    def load_parts(self, parts, end):
        store, at = self.store, self.store.page_at(parts[0].page)
        first, units, per, buckets, bits, self.next_serial, self.begin_group, _ = struct.unpack_from("<8I", store.map, at + 64)
        self.begin_number = parts[0].number
        if (first, units, per, buckets, bits) != (self.range[0], len(self.range), store.per_unit, self.keys.buckets, self.keys.page_bits):
            self.found.bad(at + 64, f"checkpoint {end.checkpoint}: it is of units {first} + {units} of {per} pages, {buckets} buckets of {bits} bits")
        table, places, moved, seen = [], {}, [], 0
        for part in parts[1:]:
            at = store.page_at(part.page)
            if part.type == UNITS:
                table += self.entries(part, "<IIIBB2x")
            elif part.type == MAP:
                if part.first != seen:
                    self.found.bad(at + 32, f"checkpoint {end.checkpoint}: map part {part.part} begins at bucket {part.first}, not {seen}")
                seen = part.first + part.count
                self.load_buckets(part, places)
            elif part.type == MOVED:
                moved += self.entries(part, "<QII")
            elif part.type == TRIMS:
                for key, blocks, epoch, sequence, _ in self.entries(part, "<QIIQQ"):
                    self.trims.add(key, key + blocks, (epoch, sequence, TRIM_CRC))
            elif part.type not in (FLOORS, RECORDS):
                self.found.bad(at + 6, f"checkpoint {end.checkpoint}: part {part.part} is of type {part.type}")
        if seen != self.keys.buckets or len(table) != len(self.range):
            self.found.bad(store.page_at(end.page), f"checkpoint {end.checkpoint}: {seen} buckets of {self.keys.buckets}, {len(table)} units of {len(self.range)}")
        self.table = {number: row for number, row in zip(self.range, table)}
        for number, (serial, programmed, _, state, _) in self.table.items():
            if state > 5 or programmed > store.per_unit or serial >= self.next_serial:
                self.found.bad(store.page_at(end.page), f"checkpoint {end.checkpoint}: unit {number} with serial {serial}, {programmed} pages, state {state}")
        self.map = {key: where[max(where)] for key, where in places.items()}
        self.map.update((key, page) for key, page, _ in moved)
        self.counts["entries loaded"] = len(self.map)

    def load_buckets(self, part, places):
        for i, bucket in enumerate(self.entries(part, "<8Q")):
            for slot in bucket:
                if slot == 0:
                    continue
                key, page = self.keys.read(part.first + i, slot)
                if page is None or page // self.store.per_unit not in self.range:
                    self.found.bad(self.store.page_at(part.page) + 64 + 64 * i, f"bucket {part.first + i}: an impossible slot {slot:#018x}")
                else:
                    places.setdefault(key, {})[part.first + i] = page

    def find_young(self, pages):
        """Young pages, in order of serials; and the newest group."""
        self.young = []  # (unit, from index)
        self.young_from = {}  # the same by number of unit
        for unit in sorted(self.units.values(), key=lambda u: u.serial):
            serial, programmed, _, state, _ = self.table.get(unit.number, (0, 0, 0, 0, 0))
            if unit.end == 0 or unit.system:
                continue
            if unit.serial > serial:
                self.young.append((unit, 0))
            elif unit.serial == serial and state == 1:
                self.young.append((unit, programmed))
        self.young_from = {unit.number: start for unit, start in self.young}
        self.newest = 0
        since = self.since
        for unit, start in self.young:
            for i in range(start, unit.end):
                if unit.counts(i):
                    self.newest = max(self.newest, since(self.store.record(unit.first + i).group))
        for entry in pages.values():
            if entry.number >= self.begin_number:
                self.newest = max(self.newest, since(entry.group))
        for page, record in self.bad_journal.values():
            if record.sequence >= self.begin_number:
                self.newest = max(self.newest, since(record.group))

    def since(self, group):
        """Groups since the checkpoint's begin, as a signed number."""
        return ((group - self.begin_group + 0x80000000) & 0xFFFFFFFF) - 0x80000000

    def is_old(self, group):
        return self.since(group) <= self.newest - 2

    def read_log(self, pages):
        """Log records from the begin page on, in order of numbers."""
        records = []
        for number in sorted(pages):
            entry = pages[number]
            if number < self.begin_number or entry.type not in (LOG, RECORDS):
                continue
            for i, record in enumerate(self.entries(entry, LOG_RECORD.format)):
                if not TRIM <= record[0] <= GAP:
                    self.found.bad(self.store.page_at(entry.page) + 64 + 32 * i, f"journal page {number}: a log record of type {record[0]}")
                records.append(record)
        self.counts["log records"] = len(records)
        return records

    # -- what a cut may have taken

    def judge(self, pages, records):
        store, gaps = self.store, set()
        for kind, _, first, blocks, _, sequence in records:
            if kind == BAD_UNIT and first in self.units and self.units[first].serial == sequence:
                start = first * store.per_unit
                self.torn.update(range(start + blocks, start + store.per_unit))
            elif kind == TORN and first // store.per_unit in self.units and self.unit_of(first).serial == sequence:
                self.torn.update(range(first, first + blocks))
            elif kind == GAP:
                gaps.update(range(sequence, sequence + blocks))
        self.sectors.look(unit.first + i for unit, start in self.young for i in range(start, unit.end)
                          if unit.counts(i) and not self.is_old(store.record(unit.first + i).group))
        self.suspects = []
        for unit, start in self.young:
            behind = None  # group of the next good page
            for i in reversed(range(start, unit.end)):
                page = unit.first + i
                if not unit.counts(i):
                    if behind is not None and self.is_old(behind) and page not in self.torn:
                        self.suspects.append((unit, page))
                    self.torn.add(page)
                    continue
                behind = store.record(page).group
                if not self.is_old(behind) and not self.sectors.good(page):
                    self.torn.add(page)
        self.counts["torn pages"] = len([p for p in self.torn if p % store.per_unit < self.unit_of(p).end])
        self.judge_gaps(pages, gaps)

    def judge_gaps(self, pages, known):
        """Journal pages that are not there, from the begin page on."""
        there = sorted(n for n in pages if n >= self.begin_number)
        absent = {}  # number: group of the next page that is there
        for before, after in zip([self.begin_number - 1] + there, there):
            absent.update((n, pages[after].group) for n in range(before + 1, after) if n not in self.bad_journal)
        missing = {n for n, group in absent.items() if n not in known and self.is_old(group)}
        # A part of another checkpoint, damaged or given up, holds nothing that this recovery needs. Its number lies between those of
        # the other parts, and what a cut took of them explains no other page.
        others = collections.defaultdict(dict)
        for entry in pages.values():
            if entry.number >= self.begin_number and entry.type != LOG and entry.checkpoint != self.checkpoint:
                others[entry.checkpoint][entry.part] = entry.number
        low = self.begin_number + 1
        for parts in sorted(others.values(), key=lambda parts: min(parts.values())):
            low, high = parts.get(0, low), max(parts.values())
            inside = sorted(n for n in absent if low <= n < high)
            spare = max(parts) + 1 - len(parts) - sum(low <= n < high for n in self.bad_journal)
            spare -= sum(n not in missing for n in inside)
            missing.difference_update([n for n in inside if n in missing][:max(0, spare)])
            low = high + 1
        # With a good record over bad data its type and group are known: an old log page was there, whole, and has rotted since.
        rotten = {n: page for n, (page, record) in self.bad_journal.items()
                  if n >= self.begin_number and n not in known and record.epoch in (LOG, RECORDS) and self.is_old(record.group)}
        for number, page in rotten.items():
            self.found.bad(self.store.page_at(page), f"journal page {number} (page {page}) is damaged")
        for number in sorted(missing):
            self.found.bad(self.store.oob_at, f"journal page {number} is missing")
        for number, (page, record) in self.bad_journal.items():
            if number not in rotten:
                self.found.note(self.store.page_at(page), f"journal page {number} (page {page}) is torn, or a part of a checkpoint that is not needed")

    # -- the map

    def lives(self, key, epoch):
        volume = self.volumes.get(key >> 32)
        return volume is not None and epoch >= volume.birth and key & 0xFFFFFFFF < volume.capacity

    def when(self, record, page):
        """Of two pages of one version the one programmed later counts: a young one, of the later group."""
        start = self.young_from.get(self.unit_of(page).number, self.store.per_unit)
        young = page % self.store.per_unit >= start
        return (self.since(record.group) if young else -1, record.serial, page)

    def order_in_map(self, key, page):
        """Order of the version that the map names, or None: older than anything."""
        if page in self.torn or not self.counts_page(page):
            return None
        record = self.store.record(page)
        if record.kind == SYSTEM or record.vid << 32 | record.vba != key:
            return None
        return (*self.store.order_of(page), *self.when(record, page))

    def holds_contents(self, page):
        return self.store.record(page).kind == DATA and self.sectors.good(page)

    def replay(self, records):
        young = {unit.first + i for unit, start in self.young for i in range(start, unit.end)}
        for kind, vid, first, blocks, epoch, sequence in records:
            if kind == PURGE:
                for key in [k for k in self.map if k >> 32 == vid]:
                    del self.map[key]
                self.trims.cut(vid << 32, vid + 1 << 32)
            elif kind == TRIM:
                start, order = vid << 32 | first, (epoch, sequence, TRIM_CRC)
                self.trims.add(start, start + blocks, order)
                keys = range(start, start + blocks) if blocks < len(self.map) else [k for k in self.map if start <= k < start + blocks]
                for key in keys:
                    page = self.map.get(key)
                    if page is None:
                        continue
                    held = self.order_in_map(key, page) if page in young else None
                    if held is None or held[:3] < order:
                        del self.map[key]

    def apply_young(self):
        store = self.store
        for unit, start in self.young:
            for i in range(start, unit.end):
                page = unit.first + i
                if page in self.torn or not unit.counts(i):
                    continue
                record = store.record(page)
                key = record.vid << 32 | record.vba
                if record.kind == SYSTEM or not self.lives(key, record.epoch):
                    self.counts["outdated pages"] += 1
                    continue
                order = (*store.order_of(page), *self.when(record, page))
                trim = self.trims.find(key)
                held = self.order_in_map(key, self.map[key]) if key in self.map else None
                newer = held is None or order >= held
                if held is not None and order[:3] == held[:3]:  # one version twice: that which can be read
                    mine, theirs = self.holds_contents(page), self.holds_contents(self.map[key])
                    newer = mine if mine != theirs else newer
                if (trim is None or order[:3] > trim) and newer:
                    self.map[key] = page
                    self.trims.cut(key, key + 1)
                else:
                    self.counts["outdated pages"] += 1

    def drop_and_verify(self):
        store, named = self.store, {}
        for key, page in list(self.map.items()):
            believed = self.counts_page(page) and page not in self.torn
            record = store.record(page) if believed else None
            if not self.lives(key, record.epoch if record else 0xFFFFFFFF):
                del self.map[key]
                continue
            if record is None:
                self.found.bad(store.record_at(page), f"{name_of(key)}: its page {page} has no good record: reads fail")
            elif record.kind == SYSTEM or record.vid << 32 | record.vba != key:
                what = name_of(record.vid << 32 | record.vba) if record.kind != SYSTEM else f"journal page {record.sequence}"
                self.found.bad(store.record_at(page), f"{name_of(key)}: its page {page} is now {what}; it is lost")
            elif record.kind in (LOST, LOST_BOUND):
                self.found.bad(store.record_at(page), f"{name_of(key)}: lost to a media error; reads fail until it is written again")
            if page in named:
                self.found.bad(store.record_at(page), f"page {page} is named by {name_of(key)} and by {name_of(named[page])}")
            named[page] = key
        in_use = collections.defaultdict(set)
        for page in named:
            in_use[page // store.per_unit].add(page)
        empty = {unit.number for unit, _ in self.suspects if in_use[unit.number] <= self.copied_in_their_group(unit)}
        for unit, page in self.suspects:
            say = self.found.note if unit.number in empty else self.found.bad
            say(store.record_at(page), f"page {page}: its record is damaged, and what block it held is not known")
        self.named = named

    def copied_in_their_group(self, unit):
        """Pages of a young unit that are there again in another one, of the same group: it cannot be told which is the copy."""
        def which(page):
            record = self.store.record(page)
            return (record.vid, record.vba, record.kind, self.store.order_of(page), record.group)

        good = [(u, u.first + i) for u, start in self.young for i in range(start, u.end) if u.counts(i) and u.first + i not in self.torn]
        others = {which(page) for u, page in good if u is not unit}
        return {page for u, page in good if u is unit and which(page) in others}

    def check_data(self, everything):
        """Sectors of the pages that blocks read from; with `everything`, of all pages."""
        store = self.store
        pages = [p for p, key in self.named.items() if self.order_in_map(key, p) and store.record(p).kind == DATA]
        if everything:
            pages += [u.first + i for u in self.units.values() for i in range(u.end)
                      if u.counts(i) and store.record(u.first + i).kind == DATA]
        self.sectors.look(pages)
        for page, bad in sorted(self.sectors.wrong.items()):
            if page // store.per_unit not in self.range or store.record(page).kind != DATA:
                continue
            at = store.page_at(page) + bad[0] * SECTOR
            sectors = "sector " + ", ".join(map(str, bad))
            if page in self.named and page not in self.torn:
                self.found.bad(at, f"{name_of(self.named[page])}: {sectors} of its page {page} fails its checksum: reads fail")
            else:
                self.found.note(at, f"page {page}: {sectors} fails its checksum; no block reads from it")

    def state_of(self, page):
        record = self.store.record(page)
        return "lost" if record.kind in (LOST, LOST_BOUND) else "ok" if self.sectors.good(page) else "unreadable"


# ---- the whole

def block_line(store, shard, key):
    page = shard.map[key]
    r = store.record(page)
    return f"{key >> 32} {key & 0xFFFFFFFF} {r.sequence} {r.epoch} {page} {shard.state_of(page)} " + " ".join(f"{c:08x}" for c in r.crcs)


def show_block(store, shards, text):
    vid, _, vba = text.partition(":")
    key = int(vid) << 32 | int(vba)
    shard = shards[((key & 0xFFFFFFFF) // 256 + int(vid) * 0x9E37) % store.service_units]
    if key in shard.map:
        page = shard.map[key]
        r = store.record(page)
        print(f"{name_of(key)}: page {page} (byte {store.page_at(page)}, record at {store.record_at(page)}), unit {page // store.per_unit} "
              f"of serial {r.serial}, epoch {r.epoch}, sequence {r.sequence}, group {r.group}: {shard.state_of(page)}")
        print("  sectors " + " ".join(f"{c:08x}" for c in r.crcs))
    else:
        trim = shard.trims.find(key)
        print(f"{name_of(key)}: zeroes" + (f", trimmed in epoch {trim[0]} by sequence {trim[1]}" if trim else ", never written"))


def check(options):
    found, counts = Findings(), collections.Counter()
    store = Store(options.store)
    boot = check_boot(store, found)
    volumes = check_metadata(store, found)
    sectors, shards = Sectors(store), []
    if boot and boot["state"] == "emptying":
        found.note(PAGE, "the store was being emptied; its contents count no more")
    else:
        for index in range(store.service_units):
            shards.append(Shard(store, index, volumes or {}, sectors, found))
            if not hasattr(shards[-1], "named"):
                continue
            shards[-1].check_data(not options.records)
            counts += shards[-1].counts
            counts["blocks"] += len(shards[-1].map)
    if options.dump:
        with open(options.dump, "w", encoding="ascii") as out:
            for shard in shards:
                for key in sorted(shard.map):
                    out.write(block_line(store, shard, key) + "\n")
    if options.block and len(shards) == store.service_units:
        show_block(store, shards, options.block)
    return store, boot, volumes, found, counts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store")
    parser.add_argument("--records", action="store_true")
    parser.add_argument("--dump", metavar="FILE")
    parser.add_argument("--block", metavar="VID:VBA")
    parser.add_argument("--quiet", action="store_true", help="no notes")
    options = parser.parse_args()
    try:
        store, boot, volumes, found, counts = check(options)
    except Unusable as e:
        print(f"damage at byte {e.offset}: {e}")
        return 1
    except (OSError, ValueError) as e:
        print(f"check_store: {options.store}: {e}", file=sys.stderr)
        return 2
    for at, what in sorted(found.damage):
        print(f"damage at byte {at}: {what}")
    for at, what in [] if options.quiet else sorted(found.notes):
        print(f"note at byte {at}: {what}")
    print(f"{options.store}: drive {store.drive}, serial {store.serial}, {boot['state'] + ' with durability ' + boot['mode'] if boot else 'no boot record'}, "
          f"{len(volumes or {})} volumes; " + ", ".join(f"{n} {what}" for what, n in sorted(counts.items())))
    print(f"{len(found.damage)} damages, {len(found.notes)} notes")
    return 1 if found.damage else 0


if __name__ == "__main__":
    sys.exit(main())
