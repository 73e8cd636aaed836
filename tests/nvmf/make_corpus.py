#!/usr/bin/env python3
"""Writes the seed inputs of fuzz_capsule, fuzz_discovery and fuzz_dhchap (corpus/): commands as a Linux host sends them,
one of them captured, log pages as a target has them, and the messages of a host that authenticates itself."""
import pathlib
import re
import struct

HERE = pathlib.Path(__file__).resolve().parent
ADMIN, IO, CUT = 0, 1, 2  # first byte of a seed of fuzz_capsule; then where it is cut
IP_UDP_BTH, ICRC = 40, 4


def kernel_connect():
    """A Connect as a Linux kernel sent it."""
    text = (HERE.parent / "rdma" / "roce" / "kernel_packets.hpp").read_text()
    body = re.search(r"string_view kKernelSend =\s*((?:\"[0-9a-f]+\"\s*)+);", text).group(1)
    return bytes.fromhex("".join(re.findall(r"[0-9a-f]+", body)))[IP_UDP_BTH:-ICRC]


def keyed(address, length, key):
    return struct.pack("<Q", address) + length.to_bytes(3, "little") + struct.pack("<IB", key, 0x40)


def in_capsule(offset, length):
    return struct.pack("<QI3xB", offset, length, 0x01)


def command(opcode, sgl, namespace=1, words=(0, 0, 0, 0, 0, 0)):
    return struct.pack("<BBHI16x", opcode, 0x40, 7, namespace) + sgl + struct.pack("<6I", *words)


def capsule(kind, data, cut=0):
    return bytes([kind | (CUT if cut else 0)]) + struct.pack("<H", cut) + data


def page(*records):
    head = struct.pack("<QQH1006x", 0, len(records), 0)
    return head + b"".join(records)


def record(nqn, address, service, transport=1, subtype=2):
    text = struct.pack("<BBBBHHHH20x", transport, 1, subtype, 0, 1, 0xFFFF, 32, 0)
    text += service.ljust(32).encode() + bytes(192) + nqn.encode().ljust(256, b"\0") + address.ljust(256).encode()
    return text + bytes([1, 1, 1]) + bytes(253)


SEND, RECEIVE = 8, 16  # what a step of a seed of fuzz_dhchap does


def step(what, message=b""):
    return struct.pack("<BH", what, len(message)) + message


def negotiate(hashes, groups):
    return struct.pack("<BB2xHBBBxBB", 0, 0, 0, 0, 1, 1, len(hashes), len(groups)) + bytes(hashes).ljust(30, b"\0") + bytes(groups).ljust(30, b"\0")


def reply(hash_bytes, public, sequence):
    head = struct.pack("<BB2xHBxBxHI", 1, 2, 0, hash_bytes, 1 if sequence else 0, len(public), sequence)
    return head + bytes(hash_bytes) + (b"\x5a" if sequence else b"\0") * hash_bytes + public


def handshake(first, second):
    return b"\1" + step(SEND | RECEIVE, first) + step(SEND | RECEIVE, second) + step(SEND, struct.pack("<BB2xH10x", 1, 4, 0))


SEEDS = {
    "dhchap": {
        "linux": handshake(negotiate([1, 2, 3], range(6)), reply(64, b"\x05" * 256, 0)),
        "null_group": handshake(negotiate([1], [0]), reply(32, b"", 0)),
        "null_group_both_ways": handshake(negotiate([1], [0]), reply(32, b"", 7)),
        "both_ways": handshake(negotiate([2], [1]), reply(48, b"\x05" * 256, 7)),
        "value_zero": handshake(negotiate([2], [1]), reply(48, bytes(256), 7)),
        "giving_up": b"\1" + step(SEND, negotiate([1], [0])) + step(SEND, struct.pack("<BB2xHBB", 0, 0xF0, 0, 1, 4)) + step(RECEIVE),
    },
    "capsule": {
        "connect": capsule(ADMIN, kernel_connect()),
        "identify": capsule(ADMIN, command(0x06, keyed(0x7F0000001000, 4096, 0x1234), words=(1, 0, 0, 0, 0, 0))),
        "keep_alive": capsule(ADMIN, command(0x18, keyed(0, 0, 0), 0)),
        "read": capsule(IO, command(0x02, keyed(0x7F0000001000, 8192, 0x1234), words=(5, 0, 15, 0, 0, 0))),
        "write_in_capsule": capsule(IO, command(0x01, in_capsule(0, 4096), words=(5, 0, 7, 0, 0, 0)) + bytes(4096)),
        "write_cut": capsule(IO, command(0x01, in_capsule(0, 4096), words=(5, 0, 7, 0, 0, 0)) + bytes(4096), 10),
        "write_keyed": capsule(IO, command(0x01, keyed(0x7F0000001000, 65536, 0x1234), words=(0, 0, 127, 0, 0, 0))),
        "trim": capsule(IO, command(0x09, in_capsule(0, 16), words=(0, 4, 0, 0, 0, 0)) + struct.pack("<IIQ", 0, 8, 8)),
        "flush": capsule(IO, command(0x00, keyed(0, 0, 0))),
    },
    "discovery": {
        "none": page(),
        "one": page(record("nqn.2026-11.io.gnstor:ssd:x", "10.0.0.1", "4420")),
        "others": page(record("nqn.2014-08.org.nvmexpress.discovery", "10.0.0.9", "4420", subtype=1),
                       record("nqn.2026-11.io.gnstor:a", "10.0.0.2", "4420", transport=3),
                       record("nqn.2026-11.io.gnstor:b", "fd00::1", "4421")),
        "cut": page(record("nqn.2026-11.io.gnstor:ssd:x", "10.0.0.1", "4420"))[:-1],
    },
}


def main():
    for fuzzer, seeds in SEEDS.items():
        folder = HERE / "corpus" / fuzzer
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in seeds.items():
            (folder / name).write_bytes(data)


main()
