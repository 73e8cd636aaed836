"""One service unit: its journal, its checkpoints, and what recovery makes of them, by docs/store-format.md."""
import collections
import struct

from store_check.crc import crc32c
from store_check.store import DATA, LOST, LOST_BOUND, PAGE, SECTOR, SYSTEM
from store_check.medium import TRIM_CRC, Unit
from store_check.keys import Keys, Trims, name_of

HEADER = struct.Struct("<IHHQQIIQIIIxxxxQ")
LOG, BEGIN, UNITS, MAP, MOVED, TRIMS, FLOORS, END, RECORDS = range(1, 10)
ENTRY_BYTES = {LOG: 32, BEGIN: 32, UNITS: 16, MAP: 64, MOVED: 16, TRIMS: 32, FLOORS: 24, RECORDS: 32, END: 16}
KIND_NAMES = dict(zip(range(1, 10), ("log", "begin", "units", "map", "moved", "tombstones", "floors", "end", "records")))
LOG_RECORD = struct.Struct("<BxHIIIQ8x")
TRIM, FLOOR, BAD_UNIT, PURGE, TORN, GAP, DOUBT, STAMP, LOST_RECORDS = range(1, 10)
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
                found.bad(store.record_at(twice[0] * store.per_unit), f"erase units {twice} have the same serial {serial}")
        self.find_loss()
        self.recover()

    def find_loss(self):
        """The journal reaches as far as the boot record tells."""
        told = self.store.journal_pages[self.index]
        records = (self.store.record(u.first + i) for u in self.units.values() for i in range(u.end) if u.good[i])
        newest = max((r.sequence for r in records if r.kind == SYSTEM), default=0) if told else 0
        if newest < told:
            self.found.bad(self.store.record_at(self.range[0] * self.store.per_unit),
                           f"service unit {self.index}: records of pages are missing: the journal had reached page {told}, "
                           f"but the newest page that was found is {newest}")

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
                    self.found.bad(store.page_at(page), f"journal page {entry.number} exists twice, with different contents (pages {old.page}, {page})")
                journal[entry.number] = entry
        for number in journal:
            self.bad_journal.pop(number, None)
        return journal

    def read_header(self, page, record):
        store = self.store
        magic, version, kind, number, checkpoint, part, count, first, _, _, _, _ = HEADER.unpack_from(store.map, store.page_at(page))
        at = store.page_at(page)
        if magic != 0x4A534E47 or version != 1 or kind not in KIND_NAMES:
            self.found.bad(at, f"journal page {record.sequence} (page {page}): its header is invalid: magic {magic:#x}, version {version}, type {kind}")
            return None
        if number != record.sequence or kind != record.epoch:
            self.found.bad(at, f"page {page}: its header says journal page {number} of type {kind}, but its record says {record.sequence} of type {record.epoch}")
            return None
        if count > (PAGE - 64) // ENTRY_BYTES[kind] or (kind in (BEGIN, END) and count > 1):
            self.found.bad(at, f"journal page {number}: its header claims {count} entries, which do not fit")
            return None
        crc, = struct.unpack_from("<I", store.raw_record(page), 60)
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
            return None, f"only {len(parts)} of its {count} parts can be read, or they do not belong together"
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
                           f"service unit {self.index}: it has no complete checkpoint, and the first page of its journal is missing: "
                           "it is not known where its blocks are")
            return False
        return True

    def load_parts(self, parts, end):
        store, at = self.store, self.store.page_at(parts[0].page)
        first, units, per, buckets, bits, self.next_serial, self.begin_group, _ = struct.unpack_from("<8I", store.map, at + 64)
        self.begin_number = parts[0].number
        if (first, units, per, buckets, bits) != (self.range[0], len(self.range), store.per_unit, self.keys.buckets, self.keys.page_bits):
            self.found.bad(at + 64, f"checkpoint {end.checkpoint}: it describes {units} units from unit {first} on, of {per} pages, "
                                   f"and {buckets} buckets of {bits} bits, which is not this service unit")
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
                self.found.bad(at + 6, f"checkpoint {end.checkpoint}: part {part.part} has the unexpected type {part.type}")
        if seen != self.keys.buckets or len(table) != len(self.range):
            self.found.bad(store.page_at(end.page), f"checkpoint {end.checkpoint}: it holds only {seen} buckets of {self.keys.buckets} "
                           f"and {len(table)} units of {len(self.range)}")
        self.table = {number: row for number, row in zip(self.range, table)}
        for number, (serial, programmed, _, state, _) in self.table.items():
            if state > 5 or programmed > store.per_unit or serial >= self.next_serial:
                self.found.bad(store.page_at(end.page), f"checkpoint {end.checkpoint}: it lists unit {number} in an impossible state: "
                               f"with serial {serial}, {programmed} pages, state {state}")
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
                if not TRIM <= record[0] <= LOST_RECORDS:
                    self.found.bad(self.store.page_at(entry.page) + 64 + 32 * i,
                                   f"journal page {number}: it holds a log record of type {record[0]}, which does not exist")
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
                self.found.note(self.store.page_at(page), f"journal page {number} (page {page}) is torn, or it is a part of a checkpoint that is not needed")

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
                self.found.bad(store.record_at(page), f"{name_of(key)}: its page {page} has no valid record: reads fail")
            elif record.kind == SYSTEM or record.vid << 32 | record.vba != key:
                what = name_of(record.vid << 32 | record.vba) if record.kind != SYSTEM else f"journal page {record.sequence}"
                self.found.bad(store.record_at(page), f"{name_of(key)}: its page {page} now holds {what}; the block is lost")
            elif record.kind in (LOST, LOST_BOUND):
                self.found.bad(store.record_at(page), f"{name_of(key)}: lost to a media error; reads fail until it is written again")
            if page in named:
                self.found.bad(store.record_at(page), f"two blocks are mapped to page {page}: {name_of(key)} and {name_of(named[page])}")
            named[page] = key
        in_use = collections.defaultdict(set)
        for page in named:
            in_use[page // store.per_unit].add(page)
        empty = {unit.number for unit, _ in self.suspects if in_use[unit.number] <= self.copied_in_their_group(unit)}
        for unit, page in self.suspects:
            say = self.found.note if unit.number in empty else self.found.bad
            say(store.record_at(page), f"page {page}: its record is damaged, and it is not known which block it held")
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
                self.found.note(at, f"page {page}: {sectors} fails its checksum; no block is mapped to the page")

    def state_of(self, page):
        record = self.store.record(page)
        return "lost" if record.kind in (LOST, LOST_BOUND) else "ok" if self.sectors.good(page) else "unreadable"
