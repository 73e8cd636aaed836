#!/usr/bin/env python3
"""Traffic of the udp wire before judges that we did not write: zlib's CRC-32, scapy and tshark.

    capture_test.py CAPTURE_TOOL

The tool runs two drivers on loopback and prints every packet that it sends, with the IP header that it takes the
kernel to write. Where this process may (CAP_NET_RAW), the same packets are captured from the interface (AF_PACKET): what
is judged then is what was on the wire, IP header included, and the two must agree. One flipped bit must be reported in
each packet, by zlib and by scapy. A judge that is not installed is named and left out; in continuous integration (CI) that fails.
"""
import ctypes
import os
import pathlib
import random
import socket
import struct
import subprocess
import sys
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "roce"))
import oracle_test as oracle  # noqa: E402

TOOL = None
SEED = int(os.environ.get("GN_SEED", "20261122"), 0)
TRIES = 5
PACKET_OUTGOING, ETH_P_IP = 4, 0x0800
SO_ATTACH_FILTER, SO_RCVBUFFORCE, SOL_PACKET, PACKET_STATISTICS = 26, 33, 263, 6
KINDS = {0x00: "SEND first", 0x01: "SEND middle", 0x02: "SEND last", 0x04: "SEND only", 0x06: "WRITE first", 0x07: "WRITE middle",
         0x08: "WRITE last", 0x0A: "WRITE only", 0x0C: "READ request", 0x0D: "READ response first", 0x0F: "READ response last",
         0x10: "READ response only", 0x11: "acknowledge", 0x16: "SEND last with invalidate", 0x17: "SEND only with invalidate",
         0x64: "UD SEND only"}


def port_of(datagram):
    return struct.unpack_from("!HH", datagram, 20)


def without_checksums(datagram):
    """As a sender knows it: the kernel fills in two checksums (and loopback leaves the UDP one half done)."""
    plain = bytearray(datagram)
    plain[10:12] = plain[26:28] = b"\0\0"
    return bytes(plain)


def filter_for(port):
    """For the kernel (classic BPF): whole UDP datagrams from the port to the port, as they arrive."""
    refuse = 11
    steps = []

    def take_if(load, where, value, when_equal=True):
        steps.append((load, 0, 0, where))
        to_refuse = refuse - len(steps) - 1
        steps.append((0x15, 0, to_refuse, value) if when_equal else (0x15, to_refuse, 0, value))  # jump if equal

    byte, half = 0x30, 0x28  # loads
    take_if(half, 0xFFFFF000 + 4, PACKET_OUTGOING, when_equal=False)  # the kernel's word on the kind of packet
    take_if(byte, 0, 0x45)
    take_if(byte, 9, socket.IPPROTO_UDP)
    take_if(half, 20, port)
    take_if(half, 22, port)
    steps.append((0x06, 0, 0, 0xFFFFFFFF))
    assert len(steps) == refuse
    steps.append((0x06, 0, 0, 0))
    return steps


class Sniffer:
    """What passes loopback for a port, until it is stopped; None where that is not allowed."""

    def __init__(self, port):
        self.packets, self.dropped = [], 0
        # It takes nothing before it is bound, and then nothing but what the filter lets pass: other traffic does not fill its room.
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)
        try:
            program = b"".join(struct.pack("=HBBI", *step) for step in filter_for(port))
            self.filter = ctypes.create_string_buffer(program)
            self.socket.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("@HP", len(program) // 8, ctypes.addressof(self.filter)))
            try:
                self.socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 256 << 20)
            except PermissionError:
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 256 << 20)
            self.socket.bind(("lo", ETH_P_IP))
        except BaseException:
            self.socket.close()
            raise
        self.socket.settimeout(0.2)
        self.enough, self.until = None, None  # of stop()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while True:
            try:
                self.packets.append(self.socket.recvfrom(65536)[0])
            except socket.timeout:
                if self.until and (len(self.packets) >= self.enough or time.monotonic() > self.until):
                    return

    def stop(self, enough=0):
        """What it took, once it is quiet and there are so many, or after a time; `dropped`: what it had no room for."""
        self.enough, self.until = enough, time.monotonic() + 10
        self.thread.join()
        self.dropped = struct.unpack("=II", self.socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))[1]
        self.socket.close()
        return self.packets


class Capture(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        for attempt in range(TRIES):
            # Others may have a port.
            port = 31000 + (os.getpid() + 37 * attempt) % 1000
            try:
                sniffer = Sniffer(port)
            except PermissionError:
                sniffer = None
                print("no CAP_NET_RAW: packets are checked as the driver reports them, not as captured on the wire")
            said = ""
            try:
                done = subprocess.run([TOOL, str(port), str(SEED)], capture_output=True, text=True, timeout=200)
                said = done.stdout if done.returncode == 0 else ""
            finally:
                cls.wire = sniffer.stop(len(said.split())) if sniffer else None
            if done.returncode == 0 and not (sniffer and sniffer.dropped):
                break
            if done.returncode != 0 and "cannot open" not in done.stderr:
                break
        if done.returncode != 0:
            raise RuntimeError(f"{TOOL} failed: {done.stderr}")
        if sniffer and sniffer.dropped:
            raise RuntimeError(f"in {TRIES} tries the capture was never complete: {sniffer.dropped} packets were dropped")
        cls.told = [bytes.fromhex(line) for line in done.stdout.split()]
        cls.packets = cls.wire if cls.wire is not None else cls.told

    def test_every_packet_has_a_good_icrc_and_readable_headers(self):
        seen = {}
        for datagram in self.packets:
            found = oracle.fields(datagram)
            self.assertEqual(found["icrc"], 1, datagram.hex())
            seen[found["opcode"]] = seen.get(found["opcode"], 0) + 1
        self.assertEqual({name for code, name in KINDS.items() if code not in seen}, set(), "packet kinds that did not occur")
        self.assertEqual(set(seen) - set(KINDS) - {0x0E}, set(), "unexpected packet kinds")
        print(f"\nGN_COUNT udp_capture_packets={len(self.packets)}")

    def test_the_kernel_sent_what_the_driver_said(self):
        if self.wire is None:
            self.skipTest("no CAP_NET_RAW")
        self.assertEqual(sorted(map(without_checksums, self.wire)), sorted(map(without_checksums, self.told)))

    def damaged(self, *spared):
        """(byte, datagram) of each packet with one bit changed, elsewhere than in these bytes."""
        dice = random.Random(SEED)
        for datagram in self.packets:
            damaged = bytearray(datagram)
            # Nor what routers may change (type of service, time to live, checksums, FECN and BECN), nor the length of the IP header, which
            # says where everything else lies.
            at = dice.choice([a for a in range(len(datagram)) if a not in (0, 1, 8, 10, 11, 26, 27, 32, *spared)])
            damaged[at] ^= 1 << dice.randrange(8)
            yield at, bytes(damaged)

    def test_one_flipped_bit_is_reported_in_each_packet(self):
        for at, damaged in self.damaged():
            self.assertNotEqual(oracle.icrc(damaged), damaged[-4:], f"byte {at} of {damaged.hex()}")

    def test_scapy_reports_one_flipped_bit_in_each_packet(self):
        oracle.need_scapy()
        reported = 0
        # It is given neither lengths, fragment nor protocol.
        for at, damaged in self.damaged(2, 3, 6, 7, 9, 24, 25):
            self.assertNotEqual(self.icrc_of_scapy(damaged), damaged[-4:], f"byte {at} of {damaged.hex()}")
            reported += 1
        print(f"\nGN_COUNT udp_capture_scapy_flips={reported}")

    @staticmethod
    def icrc_of_scapy(datagram):
        packet = oracle.IP(datagram)
        judged = oracle.IP(src=packet.src, dst=packet.dst, id=packet.id, flags=packet.flags, ttl=packet.ttl, tos=packet.tos) / \
            oracle.UDP(sport=port_of(datagram)[0], dport=port_of(datagram)[1]) / oracle.BTH(datagram[28:])
        judged[oracle.BTH].icrc = None
        return bytes(judged)[-4:]

    def test_requests_are_numbered_without_gaps(self):
        last = {}
        for datagram in self.packets:
            found = oracle.fields(datagram)
            if found["opcode"] in (0x0C, 0x11, 0x64) or 0x0D <= found["opcode"] <= 0x10:
                continue
            key = datagram[12:20], found["qp"]
            # A READ takes the numbers of its responses: 9 at most here. None, or a step back: sent again, as a busy machine's peer was silent.
            step = (found["psn"] - last.get(key, found["psn"] - 1)) & 0xFFFFFF
            self.assertTrue(0 <= step <= 10 or step > 0x800000, f"psn {found['psn']} after {last.get(key)}")
            last[key] = found["psn"]
        self.assertEqual(len(last), 3, "two connections, one of them with requests both ways")

    def test_scapy_computes_the_same_icrc(self):
        oracle.need_scapy()
        for datagram in self.packets:
            self.assertEqual(bytes(oracle.BTH(datagram[28:])).hex()[:24], datagram[28:40].hex())
            self.assertEqual(self.icrc_of_scapy(datagram), datagram[-4:], datagram.hex())
        print(f"\nGN_COUNT udp_capture_scapy={len(self.packets)}")

    def test_tshark_finds_no_malformed_packet(self):
        oracle.need_tshark()
        # tshark knows RoCE by its port; the ICRC is not its business, so the port may be put in.
        at_home = [d[:22] + struct.pack("!H", 4791) + d[24:] for d in self.packets]
        out = oracle.tshark(at_home, ["infiniband.bth.opcode", "infiniband.mad.attributeid", "_ws.malformed"])
        self.assertEqual(len(out), len(self.packets))
        messages = set()
        for (opcode, attribute, malformed), datagram in zip(out, self.packets):
            self.assertEqual((int(opcode or "-1", 0), malformed), (datagram[28], ""), datagram.hex())
            messages.add(int(attribute, 0) if attribute else 0)
        self.assertLessEqual({0x10, 0x12, 0x13, 0x14, 0x15, 0x16}, messages, "REQ, REJ, REP, RTU, DREQ, DREP")
        print(f"\nGN_COUNT udp_capture_tshark={len(out)}")


if __name__ == "__main__":
    TOOL = sys.argv.pop(1)
    print(f"seed {SEED}; scapy {'is installed' if oracle.scapy else 'is not installed'}")
    unittest.main()
