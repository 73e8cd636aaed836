"""The block map's keys and how they are split into buckets; trims as disjoint intervals of keys."""
import bisect

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
