"""What every scenario has: a guest, a folder, our programs, counters, and the judgement of its capture."""
import re
import subprocess
import sys
import time

import network
from common import HERE, HOST_ADDRESS, PeerError, say

CAPTURE_SECONDS = 900
PATH_MTU = {1500: 1024, 3000: 2048, 9000: 4096}  # what a packet carries, by the MTU of the link


class Scenario:
    name = ""
    mtu = 1500

    def __init__(self, image, folder, programs):
        self.image, self.folder, self.programs = image, folder, programs
        self.counts = {}
        self.since = time.monotonic()
        self.dropped_before = network.dropped()

    def count(self, name, by=1):
        self.counts[name] = self.counts.get(name, 0) + by

    def step(self, text):
        """What was done since the last step, with the time that it took."""
        now = time.monotonic()
        say(f"  {now - self.since:7.1f} s  {text}")
        self.since = now

    def judge_capture(self, guest, *how, ours=HOST_ADDRESS):
        """Only after the guest has ended: its capture is whole then. `how`: words for capture_check.py; `ours`: our address."""
        self.since = time.monotonic()
        lost = network.dropped() - self.dropped_before
        done = subprocess.run([sys.executable, HERE / "capture_check.py", guest.capture, ours, str(lost), *how], capture_output=True, text=True,
                              timeout=CAPTURE_SECONDS)
        say(done.stdout.rstrip())
        if done.returncode != 0:
            raise PeerError(f"the capture of the network traffic failed its check: {done.stderr.strip()[-1500:]}")
        self.count("packets", int(re.search(r"peer_capture_packets=(\d+)", done.stdout)[1]))
        carried = int(re.search(r"connections, MTU (\d+)", done.stdout)[1])
        if carried != PATH_MTU[self.mtu]:
            raise PeerError(f"packets of long messages carry {carried} bytes, expected {PATH_MTU[self.mtu]} on a link with MTU {self.mtu}")
        self.step("checked every packet of the capture with zlib, scapy and tshark")

    def finish(self, guest):
        """Prints the counters; returns them in words."""
        self.count("guest_commands", guest.commands)
        name = self.name.partition("-")[0]  # one at another MTU is counted with it
        for counter, value in self.counts.items():
            say(f"GN_COUNT peer_{name}_{counter}={value}")
        return ", ".join(f"{value:,} {counter.replace('_', ' ')}" for counter, value in self.counts.items())
