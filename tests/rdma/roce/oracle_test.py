#!/usr/bin/env python3
"""RoCEv2 packets of ours before judges that we did not write: zlib's CRC-32, scapy and tshark.

    oracle_test.py PACKET_TOOL

zlib with masks written down here a second time judges every packet; scapy (python3-scapy) builds packets for ours to
read, and computes the ICRC of ours on IPv4; tshark must decode a capture of ours without a malformed packet. A judge
that is not installed is named and left out; in continuous integration (CI) that fails. One flipped bit must be reported in each packet that is flipped.
"""
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
import zlib

TOOL = None
COUNT = 3000
SEED = int(os.environ.get("GN_SEED", "20261120"), 0)

try:
    import scapy  # noqa: F401
except ImportError:
    # A Python of one's own does not see the distribution's packages; the distribution's Python does.
    system = "/usr/bin/python3"
    if os.path.realpath(sys.executable) != os.path.realpath(system) and "GN_ORACLE_AGAIN" not in os.environ and os.path.exists(system):
        os.environ["GN_ORACLE_AGAIN"] = "1"
        os.execv(system, [system] + sys.argv)
    scapy = None
if scapy:
    import logging
    logging.getLogger("scapy").setLevel(logging.ERROR)
    from scapy.contrib.roce import AETH, BTH
    from scapy.layers.inet import IP, UDP
    from scapy.packet import Raw


def need(judge, name, package):
    """Skips the test, or in continuous integration fails it, where a judge is not installed."""
    if not judge:
        text = f"{name} is not installed: install {package}"
        if os.environ.get("CI"):
            raise AssertionError(f"this test must not be skipped in CI: {text}")
        raise unittest.SkipTest(text)


def need_scapy():
    need(scapy, "scapy", "python3-scapy")


def need_tshark():
    need(shutil.which("tshark"), "tshark", "tshark")


RETH, AETH_, IETH, IMM, DETH, DATA = 1, 2, 4, 8, 16, 32
CARRIES = {0x00: DATA, 0x01: DATA, 0x02: DATA, 0x03: DATA | IMM, 0x04: DATA, 0x05: DATA | IMM, 0x06: RETH | DATA, 0x07: DATA,
           0x08: DATA, 0x09: DATA | IMM, 0x0A: RETH | DATA, 0x0B: RETH | IMM | DATA, 0x0C: RETH, 0x0D: AETH_ | DATA, 0x0E: DATA,
           0x0F: AETH_ | DATA, 0x10: AETH_ | DATA, 0x11: AETH_, 0x16: IETH | DATA, 0x17: IETH | DATA, 0x64: DETH | DATA}


def icrc(datagram):
    """The ICRC of a whole IP datagram, by zlib and masks."""
    ip = 20 if datagram[0] >> 4 == 4 else 40
    masked = bytearray(datagram[:-4])
    if ip == 20:
        for at in (1, 8, 10, 11):
            masked[at] = 0xFF
    else:
        masked[0] |= 0x0F
        for at in (1, 2, 3, 7):
            masked[at] = 0xFF
    masked[ip + 6] = masked[ip + 7] = 0xFF
    masked[ip + 8 + 4] = 0xFF
    return struct.pack("<I", zlib.crc32(b"\xff" * 8 + bytes(masked)))


def fields(datagram):
    """The fields of the transport headers, as the tool prints them."""
    ip = 20 if datagram[0] >> 4 == 4 else 40
    data = datagram[ip + 8:]
    opcode, flags, pkey, qp, psn = struct.unpack("!BBHII", data[:12])
    assert pkey == 0xFFFF and flags & 0x0F == 0
    found = dict.fromkeys("va rkey len syndrome msn inv imm qkey sqp".split(), 0)
    found.update(opcode=opcode, se=flags >> 7, ack=psn >> 31, qp=qp & 0xFFFFFF, psn=psn & 0xFFFFFF)
    at, has = 12, CARRIES[opcode]
    if has & DETH:
        found["qkey"], found["sqp"] = struct.unpack_from("!II", data, at)
        at += 8
    if has & RETH:
        found["va"], found["rkey"], found["len"] = struct.unpack_from("!QII", data, at)
        at += 16
    if has & AETH_:
        word, = struct.unpack_from("!I", data, at)
        found["syndrome"], found["msn"] = word >> 24, word & 0xFFFFFF
        at += 4
    if has & IETH:
        found["inv"], = struct.unpack_from("!I", data, at)
        at += 4
    if has & IMM:
        found["imm"], = struct.unpack_from("!I", data, at)
        at += 4
    found["bytes"] = len(data) - at - 4 - (flags >> 4 & 3)
    found["icrc"] = int(icrc(datagram) == datagram[-4:])
    return found


def parse(text):
    return {k: int(v) for k, v in (word.split("=") for word in text.split())}


def ours(what="make", count=COUNT):
    out = subprocess.run([TOOL, what, str(count), str(SEED)], check=True, capture_output=True, text=True).stdout
    for line in out.splitlines():
        hexadecimal, said = line.split(" ", 1)
        yield bytes.fromhex(hexadecimal), parse(said)


def tshark(datagrams, columns):
    """These fields of each packet, as tshark decodes a capture of them."""
    with tempfile.TemporaryDirectory() as folder:
        capture = os.path.join(folder, "ours.pcap")
        with open(capture, "wb") as file:
            # LINKTYPE_RAW (101): a packet begins with its IP header.
            file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 101))
            for second, datagram in enumerate(datagrams):
                file.write(struct.pack("<IIII", second, 0, len(datagram), len(datagram)) + datagram)
        # Its guess at RPC over RDMA takes random payloads for headers.
        command = ["tshark", "-n", "--disable-protocol", "rpcordma", "-r", capture, "-T", "fields"]
        for column in columns:
            command += ["-e", column]
        out = subprocess.run(command, capture_output=True, text=True, check=True, timeout=200).stdout
    return [line.split("\t") for line in out.splitlines()]


def read_by_tool(datagrams):
    text = "".join(d.hex() + "\n" for d in datagrams)
    return subprocess.run([TOOL, "read"], input=text, check=True, capture_output=True, text=True).stdout.splitlines()


class Oracle(unittest.TestCase):
    def test_zlib_and_a_second_reading_of_the_headers_agree(self):
        packets = 0
        for datagram, said in ours():
            self.assertEqual(fields(datagram), said, datagram.hex())
            packets += 1
        self.assertEqual(packets, COUNT)
        print(f"\nGN_COUNT roce_oracle_packets={packets}")

    def test_what_the_tool_made_it_reads_and_one_flipped_bit_it_reports(self):
        dice = random.Random(SEED)
        made = list(ours())
        self.assertEqual([parse(line) for line in read_by_tool(d for d, _ in made)], [said for _, said in made])
        flipped = []
        for datagram, _ in made:
            ip = 20 if datagram[0] >> 4 == 4 else 40
            damaged = bytearray(datagram)
            at = dice.choice([a for a in range(ip + 8, len(datagram)) if a != ip + 12])
            damaged[at] ^= 1 << dice.randrange(8)
            flipped.append(bytes(damaged))
        for datagram, line in zip(flipped, read_by_tool(flipped)):
            self.assertTrue(line.startswith("refused") or parse(line)["icrc"] == 0, f"{datagram.hex()} {line}")

    def test_scapy_computes_the_same_icrc(self):
        need_scapy()
        checked = 0
        for datagram, said in ours():
            if datagram[0] >> 4 != 4:
                continue
            packet = IP(datagram)
            self.assertIn(BTH, packet)
            self.assertEqual((packet[BTH].opcode, packet[BTH].dqpn, packet[BTH].psn), (said["opcode"], said["qp"], said["psn"]))
            packet[BTH].icrc = None
            del packet[IP].chksum, packet[UDP].chksum
            self.assertEqual(bytes(packet)[-4:], datagram[-4:], datagram.hex())
            checked += 1
        print(f"\nGN_COUNT roce_oracle_scapy={checked}")
        self.assertGreater(checked, COUNT // 4)

    def test_packets_of_scapy_are_read(self):
        need_scapy()
        dice = random.Random(SEED)
        built, wanted = [], []
        for _ in range(500):
            size = dice.randrange(0, 64)
            common = dict(dqpn=dice.randrange(1 << 24), psn=dice.randrange(1 << 24), ackreq=dice.randrange(2), solicited=dice.randrange(2))
            network = IP(src=f"10.0.{dice.randrange(256)}.1", dst="10.0.0.2", id=dice.randrange(65536), tos=dice.randrange(256),
                         flags=dice.choice(["DF", 0])) / UDP(sport=dice.randrange(1024, 65536), dport=4791)
            if dice.randrange(2):
                pad = -size % 4
                packet = network / BTH(opcode=0x04, padcount=pad, **common) / Raw(os.urandom(size) + bytes(pad))
                wanted.append({"opcode": 4, "bytes": size, **common})
            else:
                packet = network / BTH(opcode=0x11, **common) / AETH(syndrome=0x60, msn=common["psn"])
                wanted.append({"opcode": 0x11, "syndrome": 0x60, "msn": common["psn"], "bytes": 0, **common})
            built.append(bytes(packet))
        names = {"dqpn": "qp", "ackreq": "ack", "solicited": "se"}
        for want, line in zip(wanted, read_by_tool(built)):
            self.assertFalse(line.startswith("refused"), line)
            said = parse(line)
            self.assertEqual(said["icrc"], 1, line)
            for name, value in want.items():
                self.assertEqual(said[names.get(name, name)], value, line)

    def test_tshark_finds_no_malformed_packet(self):
        need_tshark()
        made = [(datagram, said["opcode"]) for datagram, said in ours() if said["opcode"] != 0x64]  # random bytes are no MAD
        out = tshark([d for d, _ in made], ["infiniband.bth.opcode", "_ws.malformed"])
        self.assertEqual(len(out), len(made))
        for (shown, malformed), (_, opcode) in zip(out, made):
            self.assertEqual((int(shown or "-1", 0), malformed), (opcode, ""))
        print(f"\nGN_COUNT roce_oracle_tshark={len(out)}")

    def test_tshark_reads_the_same_fields_of_connection_management(self):
        need_tshark()
        req, rep = "infiniband.cm.req.", "infiniband.cm.rep."
        shown = {"kind": ["infiniband.mad.attributeid"], "tid": ["infiniband.mad.transactionid"],
                 "qpn": [req + "localqpn", rep + "localqpn"], "psn": [req + "startpsn", rep + "startpsn"],
                 "resources": [req + "responderres", rep + "respres"], "depth": [req + "initdepth", rep + "initdepth"],
                 "rnr": [req + "rnrretrcount", rep + "rnrretrcount"], "service": [req + "serviceid"], "mtu": [req + "pppmtu"],
                 "retry": [req + "retrcount"], "cmretries": [req + "maxcmretr"], "acktimeout": [req + "prim_localacktout"]}
        made = list(ours("cm", 350))
        compared = 0
        columns = [field for fields_of in shown.values() for field in fields_of]
        rows = tshark([d for d, _ in made], ["_ws.malformed"] + columns)
        self.assertEqual(len(rows), len(made))
        for row, (_, said) in zip(rows, made):
            self.assertEqual(row[0], "", "malformed")
            values = dict(zip(columns, row[1:]))
            for name, names in shown.items():
                # Not every kind of message has every field; which does is tshark's opinion, not ours.
                for value in (values[n] for n in names if values[n]):
                    self.assertEqual(int(value, 0), said[name], f"{name} of {said}")
                    compared += 1
        print(f"\nGN_COUNT roce_oracle_cm_fields={compared}")
        self.assertGreaterEqual(compared, 350 * 2 + 50 * 15)


if __name__ == "__main__":
    TOOL = sys.argv.pop(1)
    print(f"seed {SEED}; scapy {'is installed' if scapy else 'is not installed'}")
    unittest.main()
