#!/usr/bin/env python3
"""A cable between two tap devices that is as bad as it is told to be: it loses, doubles, delays and damages packets, by a seed.

    cable.py DEVICE DEVICE SEED        makes both devices, says "ready", then does what it is told on standard input

Lines on standard input, each answered by "ok":

    spoil LOST DOUBLED LATE DAMAGED    parts in a thousand, of the RoCEv2 packets both ways
    cut AFTER                          drops everything once so many more RoCEv2 packets have passed; says "cut" then
    mend                               as at the beginning
    count                              before its "ok": one line of counters; back_at_ms/FROM/TO: when the first RoCEv2 packet passed since it was mended

Other packets (ARP, TCP) pass unharmed unless it is cut. Ends with its standard input. (The kernel's own netem is not everywhere.)
"""
import collections
import fcntl
import os
import random
import select
import socket
import struct
import sys
import time

TUNSETIFF = 0x400454CA
IFF_TAP, IFF_NO_PI = 0x0002, 0x1000
LATE_BY = 4  # packets that overtake a late one
LATE_SECONDS = 0.005  # it does not wait longer for them
ROCE_PORT = 4791
HEADERS = 14 + 20 + 8  # nothing before the UDP payload is damaged: a router would notice
BATCH = 64


def tap(name):
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TAP | IFF_NO_PI))
    return device


def is_roce(frame):
    return (len(frame) > HEADERS and frame[12:14] == b"\x08\x00" and frame[23] == 17
            and struct.unpack_from("!H", frame, 36)[0] == ROCE_PORT)


class Cable:
    def __init__(self, first, second, seed):
        self.ends = {first: second, second: first}
        self.dice = random.Random(seed)
        self.counts = collections.Counter()
        self.late = []  # [packets to wait for, where to, frame]
        self.mend()

    def mend(self):
        self.back = {}  # address pairs whose RoCEv2 packets have passed since then: when the first did
        self.lost = self.doubled = self.damaged = self.delayed = 0
        self.left = None  # packets until the cut; 0: cut
        self.flush()

    def spoil(self, lost, doubled, late, damaged):
        self.lost, self.doubled, self.delayed, self.damaged = lost, doubled, late, damaged

    def chance(self, thousandths):
        return thousandths and self.dice.randrange(1000) < thousandths

    def pass_on(self, frame, to):
        if self.left == 0:
            self.counts["dropped"] += 1
            return
        if not is_roce(frame):
            self.put(frame, to)
            return
        self.counts["packets"] += 1
        pair = frame[26:34]
        if pair not in self.back:
            self.back[pair] = now_ms()
        if self.left is not None:
            self.left -= 1
            if self.left == 0:
                self.counts["cut_at_ms"] = now_ms()
                say("cut")
        if self.chance(self.lost):
            self.counts["lost"] += 1
            return
        if self.chance(self.damaged):
            self.counts["damaged"] += 1
            at = self.dice.randrange(HEADERS, len(frame))
            frame = frame[:at] + bytes([frame[at] ^ 1 << self.dice.randrange(8)]) + frame[at + 1:]
        if self.chance(self.doubled):
            self.counts["doubled"] += 1
            self.put(frame, to)
        if self.chance(self.delayed):
            self.counts["late"] += 1
            self.late.append([LATE_BY, to, frame])
            return
        self.put(frame, to)
        for held in self.late:
            held[0] -= held[1] == to
        self.flush(lambda held: held[0] <= 0)

    def flush(self, due=lambda held: True):
        for held in [held for held in self.late if due(held)]:
            self.late.remove(held)
            self.put(held[2], held[1])

    def put(self, frame, to):
        try:
            os.write(to, frame)
        except (BlockingIOError, OSError):  # a full queue, or a device that is down
            self.counts["dropped"] += 1


def now_ms():
    return int(time.monotonic() * 1000)  # the same clock for all processes


def say(text):
    print(text, flush=True)


def obey(cable, line):
    words = line.split()
    if words[0] == "spoil":
        cable.spoil(*map(int, words[1:]))
    elif words[0] == "cut":
        cable.left = int(words[1])
    elif words[0] == "mend":
        cable.mend()
    elif words[0] == "count":
        back = {f"back_at_ms/{socket.inet_ntoa(pair[:4])}/{socket.inet_ntoa(pair[4:])}": at for pair, at in cable.back.items()}
        say(" ".join(f"{name}={value}" for name, value in sorted((cable.counts | back).items())))
    say("ok")


def main():
    first, second = tap(sys.argv[1]), tap(sys.argv[2])
    cable = Cable(first, second, int(sys.argv[3]))
    say("ready")
    orders = b""
    while True:
        ready, _, _ = select.select([0, first, second], [], [], LATE_SECONDS if cable.late else None)
        if not ready:
            cable.flush()
        if 0 in ready:
            read = os.read(0, 4096)
            if not read:
                return
            *lines, orders = (orders + read).split(b"\n")
            for line in lines:
                obey(cable, line.decode())
        for end in (first, second):
            if end not in ready:
                continue
            for _ in range(BATCH):
                try:
                    frame = os.read(end, 1 << 16)
                except OSError:  # none left, or a device that is down
                    break
                cable.pass_on(frame, cable.ends[end])


if __name__ == "__main__":
    main()
