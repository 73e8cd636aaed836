"""GNStor's own commands as an ordinary host's tools carry them: map, volume record, fields of an I/O command."""
import struct

VOLUME_ADD, VOLUME_LIST, MAP_SET = 0xC1, 0xCE, 0xD1
FLUSH, WRITE, READ, WRITE_ZEROES = 0x00, 0x01, 0x02, 0x08
BLOCK = 4096
ADMIN_HOST = "nqn.2026-11.io.gnstor:admin"

# Status codes (type << 8 | code) as docs/concepts.md and include/gnstor/nvme/status.hpp have them, and those after which the same command
# may be sent again. All others have Do Not Retry beside them.
INVALID_OPCODE, INVALID_FIELD, LBA_OUT_OF_RANGE, CONNECT_INVALID_PARAMETERS, ACCESS_DENIED = 0x001, 0x002, 0x080, 0x182, 0x286
STALE_MAP, NOT_GRANTED, STALE_EPOCH, BUSY, STALE_TERM, VOLUME_EXISTS = 0x7C0, 0x7C1, 0x7C2, 0x7C4, 0x7C5, 0x7C6
RETRIED = {STALE_MAP, NOT_GRANTED, BUSY}
DO_NOT_RETRY = 0x4000


def field(status):
    """The status field of a completion, without its phase."""
    return status | (DO_NOT_RETRY if status and status not in RETRIED else 0)


def client_host(client):
    return f"nqn.2026-11.io.gnstor:client:{client}"


def map_set(uuid, version=1):
    """MAP SET of a map in which this drive (16 bytes of UUID) fills the only slot."""
    slot = struct.pack("<BBHI16s", 1, 0, 0, 1, uuid)
    return struct.pack("<IIII", 0, 0, version, 1) + slot + bytes(24 * 63)


def volume_record(volume, name, owner, blocks, epoch=1):
    """A volume of one replica that its owner writes."""
    geometry = struct.pack("<QQHBBI", 0x1234, blocks, volume, 4, 1, 0)
    record = (struct.pack("<II", 1, epoch) + geometry + struct.pack("<QIHHII", 0, 1, owner, owner, 0, 0)
              + name.encode().ljust(64, b"\0") + b"peer".ljust(64, b"\0") + bytes(128) + struct.pack("<QI", 1, 1) + bytes(60))
    assert len(record) == 384
    return record


def io_words(volume, client, block, blocks, epoch=1, version=1, sequence=0):
    """The words of an I/O command for `nvme io-passthru`."""
    return (f"--cdw2={epoch} --cdw3={version} --cdw10={block} --cdw11={volume << 16 | client} --cdw12={blocks - 1}"
            f" --cdw14={sequence & 0xFFFFFFFF} --cdw15={sequence >> 32}")
