#!/usr/bin/env python3
"""Every RoCEv2 packet of a capture before judges that we did not write: zlib's CRC-32, scapy, tshark.

    capture_check.py FILE OUR-ADDRESS LOST [spoilt] [whole]

  * each packet's ICRC and transport headers, by zlib and a second reading of the headers (tests/rdma/roce/oracle_test.py);
  * scapy computes the same ICRC: of every packet with "whole", else of those of ours, of SCAPY_MOST evenly chosen ones where there are more;
  * in packets chosen by a seed one bit is flipped, which zlib must report, and in others scapy;
  * each connection's requests are numbered without a gap, from the number that its receiver named when it was made; as many as LOST
    packets of ours (those that the network dropped before the capture saw them) may be missing where they are due and come later;
  * tshark decodes all of them, none malformed.

With "spoilt", packets of the peer were damaged on purpose before the capture saw them: only ours are judged, and at least one of the
peer's must be found to be wrong.

Prints GN_COUNT lines; the first packet that is wrong ends it with status 1.
"""
import collections
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "rdma/roce"))
import oracle_test as oracle  # noqa: E402

SCAPY_MOST = 4000
FLIPS, SCAPY_FLIPS = 500, 200
MISSING_MOST = 4096  # numbers left out at once
SEED = int(os.environ.get("GN_SEED", "20261122"), 0)
ROCE_PORT = 4791
MAD_REQ, MAD_REP = 0x10, 0x13
READ_REQUEST, UD_SEND = 0x0C, 0x64
RESPONSES = set(range(0x0D, 0x12))
NOT_LAST = {0x00, 0x01, 0x06, 0x07, 0x0D, 0x0E}  # FIRST and MIDDLE packets are full
PARTS = NOT_LAST | {0x02, 0x08, 0x0F}
TSHARK_SECONDS = 600


class Wrong(Exception):
    pass


def packets(path):
    """(frame number, source address, IP datagram) of each RoCEv2 packet of an Ethernet capture."""
    with open(path, "rb") as file:
        head = file.read(24)
        if len(head) != 24 or struct.unpack("<I", head[:4])[0] != 0xA1B2C3D4 or struct.unpack("<I", head[20:])[0] != 1:
            raise Wrong(f"{path} is not a capture of Ethernet frames")
        number = 0
        while len(record := file.read(16)) == 16:
            number += 1
            _, _, kept, length = struct.unpack("<IIII", record)
            frame = file.read(kept)
            if len(frame) < kept:
                return  # the machine ended while it wrote this one
            if frame[12:14] != b"\x08\x00" or frame[23] != 17 or (frame[14] & 0x0F) != 5:
                continue
            if struct.unpack_from("!H", frame, 36)[0] != ROCE_PORT:
                continue
            if kept != length:
                raise Wrong(f"the capture holds only {kept} of the {length} bytes of frame {number}")
            total, = struct.unpack_from("!H", frame, 16)
            yield number, ".".join(map(str, frame[26:30])), frame[14:14 + total]


def judge(number, datagram):
    """The fields of one packet; Wrong if it breaks a rule."""
    try:
        found = oracle.fields(datagram)
    except (AssertionError, KeyError, struct.error) as error:
        raise Wrong(f"frame {number}: the headers cannot be decoded ({error!r}): {datagram[:64].hex()}") from None
    if not found["icrc"]:
        raise Wrong(f"frame {number}: the ICRC is {datagram[-4:].hex()}, it should be {oracle.icrc(datagram).hex()}: {datagram[:64].hex()}")
    length, = struct.unpack_from("!H", datagram, 24)
    if length != len(datagram) - 20 or (len(datagram) - 20) % 4:
        raise Wrong(f"frame {number}: the datagram has {len(datagram)} bytes, but its UDP header gives a length of {length}")
    if found["bytes"] < 0:
        raise Wrong(f"frame {number}: the packet is shorter than its headers")
    return found


def is_wrong(number, datagram):
    try:
        judge(number, datagram)
        return False
    except Wrong:
        return True


class Numbers:
    """The numbers of each connection's requests, by the queue pair that they go to."""

    def __init__(self):
        self.expected = {}  # (destination address, queue pair): next number
        self.missing = {}  # the same: numbers that were left out, and the frame that did it
        self.named = {}
        self.connections = self.repeated = self.left_out = self.mtu = 0

    def see_mad(self, source, datagram):
        data = datagram[20 + 8 + 12 + 8:-4]
        kind, = struct.unpack_from("!H", data, 16)
        if kind in (MAD_REQ, MAD_REP):
            body = data[24:]
            at_qp, at_psn = (32, 44) if kind == MAD_REQ else (12, 20)
            key = (source, int.from_bytes(body[at_qp:at_qp + 3], "big"))
            first = int.from_bytes(body[at_psn:at_psn + 3], "big")
            attempt = (first, body[:4])
            if self.named.get(key) != attempt:  # else it is the same message again
                self.named[key] = attempt
                self.expected[key], self.missing[key] = first, {}
                self.connections += kind == MAD_REP

    def see(self, number, destination, found):
        key = (destination, found["qp"])
        if found["opcode"] in RESPONSES or key not in self.expected:
            return
        missing = self.missing[key]
        answers = 1
        if found["opcode"] == READ_REQUEST and self.mtu:
            answers = max(1, -(-found["len"] // self.mtu))
        ahead = (found["psn"] - self.expected[key]) % (1 << 24)
        if ahead >= 1 << 23:
            self.repeated += 1
        else:
            if ahead > MISSING_MOST:
                raise Wrong(f"frame {number}: packet sequence number {found['psn']} to queue pair {found['qp']:#x}, expected {self.expected[key]}")
            for left_out in range(ahead):
                missing[(self.expected[key] + left_out) % (1 << 24)] = number
            self.left_out += ahead
            self.expected[key] = (found["psn"] + answers) % (1 << 24)
        for answer in range(answers if missing else 0):
            missing.pop((found["psn"] + answer) % (1 << 24), None)

    def judge(self, lost):
        for (_, queue_pair), missing in self.missing.items():
            for psn, number in missing.items():
                raise Wrong(f"frame {number}: skips packet sequence number {psn} to queue pair {queue_pair:#x}, which is never sent later")
        if self.left_out and not lost:
            raise Wrong(f"{self.left_out} requests are missing in the sequence of packets, although the network dropped nothing")


def check(path, ours, lost, spoilt):
    held, kinds, from_us, total_bytes = [], collections.Counter(), 0, 0
    numbers = Numbers()
    everything = list(packets(path))
    if spoilt:
        wrong = sum(1 for number, source, datagram in everything if source != ours and is_wrong(number, datagram))
        print(f"  capture: {wrong} packets of the peer arrived damaged")
        if not wrong:
            raise Wrong("no packet of the peer is damaged, although the network was told to damage some")
        print(f"GN_COUNT peer_capture_damaged={wrong}")
        everything = [packet for packet in everything if packet[1] == ours]
    for number, source, datagram in everything:
        found = judge(number, datagram)
        kinds[found["opcode"]] += 1
        from_us += source == ours
        total_bytes += len(datagram)
        held.append(found)
        if found["opcode"] in NOT_LAST:
            numbers.mtu = found["bytes"]
    for (number, source, datagram), found in zip(everything, held):
        if found["opcode"] == UD_SEND:
            numbers.see_mad(source, datagram)
        else:
            numbers.see(number, ".".join(map(str, datagram[16:20])), found)
    numbers.judge(lost)
    if not everything:
        raise Wrong(f"there is no RoCEv2 packet in {path}")
    print(f"  capture: {len(held)} packets, {total_bytes >> 20} MiB, {from_us} from us, {numbers.connections} connections, "
          f"MTU {numbers.mtu}, {numbers.repeated} repeated requests, {lost} dropped by the network, opcodes " + " ".join(f"{k:02x}:{v}" for k, v in sorted(kinds.items())))
    print(f"GN_COUNT peer_capture_packets={len(held)}\nGN_COUNT peer_capture_packets_ours={from_us}")
    return everything


def damaged_ones(everything, how_many, dice):
    """(frame number, byte, datagram) of packets in which one bit of what an ICRC protects, or of the ICRC, is another."""
    for _ in range(how_many):
        number, _, datagram = dice.choice(everything)
        damaged = bytearray(datagram)
        at = dice.choice([a for a in range(28, len(damaged)) if a != 32])  # that byte is masked
        damaged[at] ^= 1 << dice.randrange(8)
        yield number, at, bytes(damaged)


def flip(everything):
    for number, at, damaged in damaged_ones(everything, FLIPS, random.Random(SEED)):
        if not is_wrong(number, damaged):
            raise Wrong(f"frame {number}: the ICRC check did not detect a flipped bit in byte {at}")
    print(f"GN_COUNT peer_capture_flips={FLIPS}")


def icrc_of_scapy(number, datagram):
    packet = oracle.IP(datagram)
    if oracle.BTH not in packet:
        raise Wrong(f"frame {number}: scapy finds no Base Transport Header (BTH)")
    packet[oracle.BTH].icrc = None
    del packet[oracle.IP].chksum, packet[oracle.UDP].chksum
    return bytes(packet)[-4:]


def by_scapy(everything, ours, whole):
    if not oracle.scapy:
        raise Wrong("scapy is not installed (python3-scapy)")
    chosen = everything
    if not whole:
        mine = [packet for packet in everything if packet[1] == ours]
        chosen = mine[::-(-len(mine) // SCAPY_MOST) or 1]
    for number, _, datagram in chosen:
        if (wanted := icrc_of_scapy(number, datagram)) != datagram[-4:]:
            raise Wrong(f"frame {number}: scapy computes the ICRC {wanted.hex()}, the packet has {datagram[-4:].hex()}")
    for number, at, damaged in damaged_ones(chosen, SCAPY_FLIPS, random.Random(SEED + 1)):
        if icrc_of_scapy(number, damaged) == damaged[-4:]:
            raise Wrong(f"frame {number}: scapy did not detect a flipped bit in byte {at}")
    print(f"GN_COUNT peer_capture_scapy={len(chosen)}\nGN_COUNT peer_capture_scapy_flips={SCAPY_FLIPS}")
    if whole:
        print(f"GN_COUNT peer_capture_scapy_whole={len(chosen)}")


def tshark(path, only, *disabled):
    """(frame number, opcode, whether malformed) of each packet that the display filter `only` lets through."""
    command = ["tshark", "-n", "-r", str(path), "-Y", only, "-T", "fields", "-e", "frame.number", "-e", "infiniband.bth.opcode",
               "-e", "_ws.malformed"]
    for protocol in disabled:
        command += ["--disable-protocol", protocol]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TSHARK_SECONDS)
    if done.returncode != 0:
        raise Wrong(f"tshark: {done.stderr.strip()[-300:]}")
    for line in done.stdout.splitlines():
        number, opcode, malformed = line.split("\t")
        yield int(number), int(opcode or "-1", 0), bool(malformed)


def by_tshark(path, everything, more):
    if not shutil.which("tshark"):
        raise Wrong("tshark is not installed")
    only = f"udp.dstport == {ROCE_PORT} && !icmp{more}"
    # Its guess at RPC over RDMA takes random payloads for headers.
    rows = list(tshark(path, only, "rpcordma"))
    wanted = [(number, datagram[28]) for number, _, datagram in everything]
    if [(number, opcode) for number, opcode, _ in rows] != wanted:
        raise Wrong(f"tshark decodes {len(rows)} packets, the capture has {len(wanted)}; or their opcodes differ")
    # It takes each packet of a long message for the beginning of the NVMe data in it. Of those, RoCE alone is judged.
    if any(malformed and opcode in PARTS for _, opcode, malformed in rows):
        alone = {number: malformed for number, _, malformed in tshark(path, only, "rpcordma", "nvme-rdma")}
        rows = [(number, opcode, alone[number] if opcode in PARTS else malformed) for number, opcode, malformed in rows]
    for number, _, malformed in rows:
        if malformed:
            raise Wrong(f"frame {number}: tshark reports that the packet is malformed")
    print(f"GN_COUNT peer_capture_tshark={len(rows)}")


def main():
    path, ours, lost = sys.argv[1:4]
    spoilt, whole = (word in sys.argv[4:] for word in ("spoilt", "whole"))
    try:
        everything = check(path, ours, int(lost), spoilt)
        flip(everything)
        by_scapy(everything, ours, whole)
        by_tshark(path, everything, f" && ip.src == {ours}" if spoilt else "")
    except Wrong as wrong:
        print(f"capture_check: {path}: {wrong}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
