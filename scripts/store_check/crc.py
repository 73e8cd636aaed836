"""CRC-32C, of one message and of many at once."""

# CRC-32C (Castagnoli), many messages of one length at once.
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
