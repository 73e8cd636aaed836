"""The bytes of a store, where its superblock says that everything lies, what is found; boot record and metadata."""
import collections
import fcntl
import mmap
import os
import stat
import struct
import uuid

from store_check.crc import crc32c

PAGE, SECTOR, OOB = 4096, 512, 64
SECTORS = PAGE // SECTOR
GIVEN_UP = (1 << 64) - 1  # a generation of metadata: none is new enough


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
            raise OSError("it is in use: a drive has it open; stop the process that serves it") from None
        status = os.fstat(self.fd)
        self.bytes = status.st_size if stat.S_ISREG(status.st_mode) else os.lseek(self.fd, 0, os.SEEK_END)
        if self.bytes < PAGE:
            raise Unusable(0, f"the store has {self.bytes} bytes, less than a superblock")
        self.map = mmap.mmap(self.fd, self.bytes, access=mmap.ACCESS_READ)
        self.journal_pages = [0] * 64  # of each service unit, what the boot record tells of its journal
        self.records = {}  # of pages whose first copy is not the one that counts
        self.read_superblock(self.map[:PAGE])

    def read_superblock(self, page):
        if page[:8] != b"GNSTORE\n":
            raise Unusable(0, "superblock: the magic is not GNSTORE")
        self.version, = struct.unpack_from("<I", page, 8)
        if self.version not in (4, 5):
            raise Unusable(8, f"superblock: it has format version {self.version}, but this program reads only versions 4 and 5")
        if struct.unpack_from("<I", page, PAGE - 4)[0] != crc32c(page[:PAGE - 4]):
            raise Unusable(PAGE - 4, "superblock: its checksum does not match")
        page_bytes, = struct.unpack_from("<I", page, 12)
        self.drive = uuid.UUID(bytes=page[16:32])
        self.drive_prefix = page[16:32] if self.version >= 5 else b""
        self.units, self.per_unit, oob_bytes, self.metadata_bytes = struct.unpack_from("<4I", page, 32)
        self.metadata_at, self.oob_at, self.data_at, self.store_bytes = struct.unpack_from("<4Q", page, 48)
        self.capacity, self.over_provisioning = struct.unpack_from("<QI", page, 80)
        self.serial = page[92:112].decode("latin-1").rstrip(" ")
        self.channels, self.dies, self.service_units = struct.unpack_from("<3I", page, 112)
        self.pages = self.units * self.per_unit
        if page_bytes != PAGE or oob_bytes != OOB:
            raise Unusable(12, f"superblock: it says pages of {page_bytes} bytes with records of {oob_bytes} bytes, but only {PAGE} and {OOB} exist")
        if not 0 < self.pages < 0xFFFFFFFF or not 1 <= self.service_units <= min(64, self.units) or not 1 <= self.channels * self.dies <= 65536:
            raise Unusable(32, f"superblock: it describes an impossible geometry ({self.units} units of {self.per_unit} pages, {self.service_units} service "
                               f"units, {self.channels} channels of {self.dies} dies)")
        up = lambda n: -(-n // PAGE) * PAGE
        if (self.metadata_bytes < PAGE or self.metadata_bytes % PAGE or self.metadata_at != 2 * PAGE
                or self.oob_at != self.metadata_at + 2 * self.metadata_bytes or self.data_at != self.oob_at + 2 * up(self.pages * OOB)
                or self.store_bytes != self.data_at + self.pages * PAGE):
            raise Unusable(48, "superblock: its areas are not where its geometry puts them")
        if self.capacity > self.pages * PAGE:
            raise Unusable(80, f"superblock: its capacity of {self.capacity} bytes is larger than its {self.pages} pages")
        if self.bytes < self.store_bytes:
            raise Unusable(56, f"the store is truncated: it has only {self.bytes} of its {self.store_bytes} bytes")

    def record_at(self, page):
        return self.oob_at + page * OOB

    def record_copy_at(self, page):
        return self.oob_at + (self.data_at - self.oob_at) // 2 + page * OOB

    def sealed_bytes(self, page, record):
        """What the checksum of a record covers: the drive's UUID (not in version 4), the number of its page, and the bytes before the checksum."""
        return self.drive_prefix + struct.pack("<I", page) + record[:OOB - 4]

    def unite_records(self, first, found):
        """The records of an erase unit: of two copies that differ, those that count. They are remembered for record()."""
        size = self.per_unit * OOB
        one = self.map[self.record_at(first):self.record_at(first) + size]
        two = self.map[self.record_copy_at(first):self.record_copy_at(first) + size]
        if one == two:
            return one
        united = bytearray(one)
        for index in range(self.per_unit):
            a, b = one[index * OOB:(index + 1) * OOB], two[index * OOB:(index + 1) * OOB]
            if a == b:
                continue
            whole = [struct.unpack_from("<I", raw, OOB - 4)[0] == crc32c(self.sealed_bytes(first + index, raw)) for raw in (a, b)]
            serials = [struct.unpack_from("<I", raw, 52)[0] for raw in (a, b)]
            if all(whole) and serials[0] == serials[1]:  # neither can be proved: the record is a damaged one
                found.bad(self.record_at(first + index), f"the two copies of the record of page {first + index} contradict each other")
                chosen = a[:OOB - 4] + bytes(byte ^ 0xFF for byte in a[OOB - 4:])
            elif all(whole):  # the later opening of the unit
                chosen = b if serials[1] > serials[0] else a
            elif any(whole):
                chosen, other = (a, b) if whole[0] else (b, a)
                if any(other):
                    found.note(self.record_at(first + index), f"one of the two copies of the record of page {first + index} is damaged; the other copy is used")
            else:
                chosen = a if any(a) else b
            united[index * OOB:(index + 1) * OOB] = self.records[first + index] = chosen
        return bytes(united)

    def raw_record(self, page):
        at = self.record_at(page)
        return self.records.get(page) or self.map[at:at + OOB]

    def page_at(self, page):
        return self.data_at + page * PAGE

    def record(self, page):
        fields = RECORD.unpack_from(self.raw_record(page))
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


BACKBONES = {0: "not told", 1: "mapped", 2: "direct"}


def check_boot(store, found):
    copies = []
    for i in range(2):
        at = PAGE + i * 2048
        raw = store.map[at:at + 2048]
        generation, = struct.unpack_from("<Q", raw, 8)
        mode, state = raw[48], raw[49]
        if raw[:8] == b"GNBOOT2\n" and generation and struct.unpack_from("<I", raw, 2044)[0] == crc32c(store.drive_prefix + raw[:2044]) and mode in (1, 2) and state in (1, 2, 3) and raw[51] in BACKBONES:
            copies.append((generation, i, uuid.UUID(bytes=raw[16:32]), mode, state, raw[51], *struct.unpack_from("<Q64Q", raw, 56)))
        else:
            # A change is on the medium in one copy before it is begun in the other, so one may be torn.
            found.note(at, f"boot record: copy {i} is damaged or torn")
    if not copies:
        found.bad(PAGE, "boot record: both copies are damaged")
        return None
    generation, _, incarnation, mode, state, backbone, metadata_generation, *store.journal_pages = max(copies)
    return {"generation": generation, "incarnation": str(incarnation), "mode": {1: "process", 2: "power"}[mode],
            "state": {1: "clean", 2: "open", 3: "emptying"}[state], "backbone": BACKBONES[backbone], "metadata_generation": metadata_generation}


Volume = collections.namedtuple("Volume", "vid epoch birth capacity name floor")


def check_metadata(store, boot, found):
    """The firmware's state in force, as {vid: Volume}; None if there is none."""
    copies = []
    for i in range(2):
        at = store.metadata_at + i * store.metadata_bytes
        heads = [store.map[place:place + 64] for place in (at, at + store.metadata_bytes - 64)]
        whole = []
        for head in heads:
            generation, length, blob_crc = struct.unpack_from("<QQI", head, 8)
            if (head[:8] == b"GNMETA1\n" and generation and length <= store.metadata_bytes - 128
                    and struct.unpack_from("<I", head, 60)[0] == crc32c(store.drive_prefix + head[:60])):
                whole.append((generation, at, length, blob_crc))
        if whole:
            copies.append(max(whole, key=lambda header: header[0]))
            if len(whole) == 1 and any(any(head) for head in heads[1:]):
                found.note(at, f"metadata: one of the two headers of copy {i} is damaged; the other is used")
        elif any(any(head[60:]) for head in heads):
            found.bad(at, f"metadata: the header of copy {i} was damaged after it was written; this copy may have been the newest")
        elif any(any(head) for head in heads):
            found.note(at, f"metadata: the header of copy {i} is torn")
    told = boot["metadata_generation"] if boot and boot["state"] != "emptying" else 0
    if told == GIVEN_UP:
        found.bad(store.metadata_at, "metadata: a recovery from an older copy was interrupted")
    elif told > max((copy[0] for copy in copies), default=0):
        found.bad(store.metadata_at, f"metadata: it had reached generation {told}, but no copy of that generation exists")
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
        found.bad(at, "firmware state: it does not begin with its magic")
        return volumes
    version, total, _term, _slot, count, deleted, retired = struct.unpack_from("<IIQIIII", blob, 8)
    if version != 1 or total != 1584 + 392 * count + 8 * deleted + 4 * retired + 4 or total > len(blob):
        found.bad(at + 8, f"firmware state: version {version} and {total} bytes do not match its {count} volumes, "
                          f"{deleted} deleted volumes and {retired} retired units")
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
            found.bad(at + base, f"firmware state: volume {vid} ('{name}') has impossible values")
        volumes[vid] = Volume(vid, epoch, birth, capacity, name, floor)
        last = vid
    return volumes
