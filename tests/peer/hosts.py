"""Hosts on one machine: network namespaces with an address each, joined by a bridge over veth links, one over a cable that can be spoilt.

enter() puts the whole program into namespaces of its own first (spaces.py); all hosts, links and processes end with it.
"""
import json
import os
import select
import subprocess
import sys

import spaces
from common import HERE, Deadline, PeerError
from spaces import ip

INSIDE = "GN_HOSTS_INSIDE"
SECONDS = 60
SKIPPED = 77  # of ctest (SKIP_RETURN_CODE)
# A bridge, a veth pair and a tap device, the second namespace with its own /sys that `ip netns exec` makes.
PROBE = ("mount -t tmpfs tmpfs /run && ip netns add probe && ip link add probe type bridge && ip link add probe0 type veth peer name eth0 netns probe"
         " && ip tuntap add probe1 mode tap && ip netns exec probe true")


def enter():
    """Returns inside the namespaces. Where they cannot be had, ends the program: with SKIPPED and `skipped: ...`, or in CI with 1."""
    os.environ["PATH"] += ":/usr/sbin:/sbin"  # a user's path need not have them
    if INSIDE in os.environ:
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True, timeout=SECONDS)
        return
    try:
        spaces.need_tun()
        status = spaces.isolated([sys.executable, *sys.argv], {INSIDE: "1"}, ["sh", "-c", PROBE], "network namespaces with bridge, veth and tap devices")
    except PeerError as error:
        if os.environ.get("CI"):
            print(f"failed: this test must not be skipped in CI: {error}")
            sys.exit(1)
        print(f"skipped: {error}")
        sys.exit(SKIPPED)
    sys.exit(status)


class Cable:
    """cable.py between two devices that it makes."""

    def __init__(self, first, second, seed):
        self.process = subprocess.Popen([sys.executable, HERE / "cable.py", first, second, str(seed)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE)
        self.said = b""
        self.await_line("ready")

    def await_line(self, wanted, seconds=SECONDS):
        """Lines before the one that is waited for."""
        before = []
        deadline = Deadline(seconds, f"waiting for the cable program to print '{wanted}'")
        while True:
            while b"\n" in self.said:
                line, self.said = self.said.split(b"\n", 1)
                if line.decode() == wanted:
                    return before
                before.append(line.decode())
            deadline.wait_readable(self.process.stdout)
            data = os.read(self.process.stdout.fileno(), 4096)
            if not data:
                raise PeerError("the cable program (cable.py) ended")
            self.said += data

    def tell(self, *words):
        """Lines that it answers with."""
        self.process.stdin.write((" ".join(map(str, words)) + "\n").encode())
        self.process.stdin.flush()
        return self.await_line("ok")

    def counts(self):
        return {name: int(value) for name, value in (word.split("=") for word in " ".join(self.tell("count")).split())}

    def close(self):
        self.process.stdin.close()
        self.process.wait(SECONDS)
        self.process.stdout.close()


class Hosts:
    """`addresses`: {host: address}. The link of the host `spoilt` goes over a cable. Devices: eth0 in a host, NAME at the bridge."""

    def __init__(self, addresses, spoilt, seed):
        self.addresses = addresses
        ip("link", "set", "lo", "up")
        ip("link", "add", "switch", "type", "bridge")
        ip("link", "set", "switch", "up")
        self.cable = None
        for name, address in addresses.items():
            ip("netns", "add", name)
            if name == spoilt:
                self.cable = Cable(name, "far", seed)
                for device in (name, "far"):
                    ip("link", "set", device, "txqueuelen", "10000")
                ip("link", "set", "far", "netns", name)
                ip("-n", name, "link", "set", "far", "name", "eth0")
            else:
                ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("link", "set", name, "master", "switch", "up")
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "address", "add", f"{address}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")

    def set_mtu(self, mtu, *hosts):
        """Both ends of the links of these hosts (of all, without any)."""
        for name in hosts or self.addresses:
            ip("link", "set", name, "mtu", str(mtu))
            ip("-n", name, "link", "set", "eth0", "mtu", str(mtu))

    def set_link(self, host, state):
        ip("-n", host, "link", "set", "eth0", state)

    def moved(self, host):
        """(packets, bytes) that the host has sent and received."""
        stats = json.loads(ip("-n", host, "-s", "-j", "link", "show", "eth0"))[0]["stats64"]
        return tuple(stats["rx"][what] + stats["tx"][what] for what in ("packets", "bytes"))

    @staticmethod
    def on(host, *words):
        """The words that run a command on a host."""
        return ["ip", "netns", "exec", host, *map(str, words)]

    def close(self):
        if self.cable:
            self.cable.close()
