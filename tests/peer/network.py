"""The network of the peer test: a namespace that holds our programs at HOST_ADDRESS and, over a tap device, the guest."""
import json
import shutil

import spaces
from common import HOST_ADDRESS, TAP, PeerError
from spaces import ip

QUEUE_PACKETS = 10000


def isolated(command, environment):
    """spaces.isolated() for scenarios."""
    if not shutil.which("qemu-system-x86_64"):
        raise PeerError("qemu-system-x86_64 is missing: install qemu-system-x86")
    spaces.need_tun()
    return spaces.isolated(command, environment, ["ip", "tuntap", "add", TAP, "mode", "tap"], "a network namespace with a tap device")


def up():
    """Inside the namespace: loopback, the tap device, and our address on it."""
    ip("link", "set", "lo", "up")
    ip("tuntap", "add", TAP, "mode", "tap")
    # A full queue of a tap device drops without a word to the sender, and QEMU reads it slowly.
    ip("link", "set", TAP, "txqueuelen", str(QUEUE_PACKETS))
    ip("address", "add", f"{HOST_ADDRESS}/24", "dev", TAP)
    ip("link", "set", TAP, "up")


def set_mtu(mtu):
    ip("link", "set", TAP, "mtu", str(mtu))


def dropped():
    """Packets that the tap device has dropped, so that the guest and the capture never saw them."""
    return json.loads(ip("-s", "-j", "link", "show", TAP))[0]["stats64"]["tx"]["dropped"]
