"""Keys of NVMe in-band authentication (DH-HMAC-CHAP), made here and not by the programs that are tested."""
import base64
import os
import struct
import zlib

from common import PeerError

BYTES = {0: 32, 1: 32, 2: 48, 3: 64}  # of a key, by the hash that transforms it: none, SHA-256, SHA-384, SHA-512


def make_key(transform=1):
    """A new key in its text form; `transform`: the number of the hash in it."""
    data = os.urandom(BYTES[transform])
    return f"DHHC-1:{transform:02}:{base64.b64encode(data + struct.pack('<I', zlib.crc32(data))).decode()}:"


def keep(path, *keys):
    """A file for the owner alone, one key a line."""
    with open(path, "w", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write("\n".join(keys) + "\n")
    return path


def check_secret(text, keys, where):
    """PeerError if a part of a key is in a text that others may read."""
    for key in keys:
        if key.split(":")[2][:16] in text:
            raise PeerError(f"{where} contains a key")
