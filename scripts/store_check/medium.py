"""Erase units and their records; sectors against their checksums."""
import struct

from store_check.crc import crc32c, crc32c_many
from store_check.store import DATA, LOST, LOST_BOUND, OOB, SECTOR, SECTORS, SYSTEM

TRIM_CRC = crc32c(bytes(32))


class Unit:
    """An erase unit: which of its pages have a good record, and the serial of its opening."""

    def __init__(self, store, number, found):
        self.number, self.first = number, number * store.per_unit
        raw = store.unite_records(self.first, found)
        self.end = -(-len(raw.rstrip(b"\0")) // OOB)  # the write pointer
        raw = raw[:self.end * OOB]
        sealed = b"".join(store.sealed_bytes(self.first + i, raw[i * OOB:(i + 1) * OOB]) for i in range(self.end))
        self.good = [crc == stored for crc, (stored,) in zip(crc32c_many(sealed, len(store.drive_prefix) + OOB), struct.iter_unpack("<60xI", raw))]
        self.serial, self.system, self.leftover = 0, False, set()
        records = {index: store.record(self.first + index) for index, good in enumerate(self.good) if good}
        for index, record in records.items():
            at = store.record_at(self.first + index)
            if record.version != 2 or record.kind not in (DATA, SYSTEM, LOST, LOST_BOUND):
                found.bad(at, f"page {self.first + index}: its record has version {record.version} and kind {record.kind}, one of which does not exist")
            if record.serial == 0:
                found.bad(at, f"page {self.first + index}: its record has unit serial 0, but serials begin at 1")
        if records:
            self.serial = max(r.serial for r in records.values())
            self.leftover = {index for index, r in records.items() if r.serial != self.serial}
            kinds = {r.kind == SYSTEM for r in records.values() if r.serial == self.serial}
            self.system = True in kinds
            if len(kinds) > 1:
                found.bad(store.record_at(self.first), f"unit {number}: it holds both journal pages and blocks; it may hold only one kind")
                self.system = False
        if self.leftover:
            found.note(store.record_at(self.first), f"unit {number}: {len(self.leftover)} pages of an earlier opening are left, "
                       "because a power cut undid their erasure; they are ignored")

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
