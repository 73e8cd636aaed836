"""What the tests of the demo share: its input, whose answers are known without it."""
import random

PATTERN = b"needle-in-flash"
BLOCK, CHUNK = 4096, 65536


def haystack(size, places):
    """Random bytes that do not hold the pattern but at `places`."""
    data = bytearray(random.Random(size).randbytes(size).replace(PATTERN[:4], b"----"))
    for place in places:
        data[place:place + len(PATTERN)] = PATTERN
    return bytes(data)
