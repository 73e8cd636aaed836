"""CRC-32C, of one message and of many at once."""

# CRC-32C (Castagnoli), many messages of one length at once.
# State and input lie in planes: byte j of every message side by side, the planes one after the other in one bytes object. A step takes
# four bytes of each message by 16 table look-ups (bytes.translate) and exclusive-ors of long integers, so that Python's loop runs once for
# four positions, not for a byte.

def _table():
    rows = []
    for n in range(256):
        for _ in range(8):
            n = (n >> 1) ^ (0x82F63B78 if n & 1 else 0)
        rows.append(n)
    return rows


CRC_TABLE = _table()


def _planes(rows):
    return [bytes((n >> (8 * k)) & 0xFF for n in rows) for k in range(4)]


def _steps():
    """Of a byte with 3, 2, 1 and 0 bytes behind it, what it makes of each byte of the state."""
    rows = [CRC_TABLE]
    for _ in range(3):
        rows.append([(n >> 8) ^ CRC_TABLE[n & 0xFF] for n in rows[-1]])
    return [_planes(row) for row in reversed(rows)]


STEPS = _steps()
INVERTED = bytes(range(255, -1, -1))
BATCH = 1024  # messages of 512 bytes, half a MiB, which the processor's caches hold


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ CRC_TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def crc32c_many(data, length, used=None):
    """CRC-32C of bytes 0 .. used-1 of each of the messages of `length` bytes that lie one after the other in `data`."""
    count, crcs = len(data) // length, []
    for first in range(0, count, BATCH):
        crcs += _batch(data[first * length:min(first + BATCH, count) * length], length, length if used is None else used)
    return crcs


def _batch(data, length, used):
    count, number = len(data) // length, int.from_bytes
    state = (1 << 32 * count) - 1
    for at in range(0, used - 3, 4):
        four = b"".join(data[at + n::length] for n in range(4))
        index = (state ^ number(four, "little")).to_bytes(4 * count, "little")
        state = 0
        for n, tables in enumerate(STEPS):
            part = index[n * count:(n + 1) * count]
            state ^= number(b"".join(part.translate(table) for table in tables), "little")
    low = (1 << 8 * count) - 1
    for at in range(used - used % 4, used):
        index = ((state & low) ^ number(data[at::length], "little")).to_bytes(count, "little")
        state = state >> 8 * count ^ number(b"".join(index.translate(table) for table in STEPS[3]), "little")
    planes = state.to_bytes(4 * count, "little").translate(INVERTED)
    return [a | b << 8 | c << 16 | d << 24 for a, b, c, d in zip(*(planes[n * count:(n + 1) * count] for n in range(4)))]
