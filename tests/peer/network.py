"""The network of the peer test: a namespace that holds our programs at HOST_ADDRESS and, over a tap device, the guest."""
import json
import os
import shutil
import subprocess

from common import HOST_ADDRESS, TAP, PeerError

SECONDS = 20
QUEUE_PACKETS = 10000


def isolated(command, environment):
    """Runs a command in network, process and mount namespaces of its own and returns its exit status. When it ends, or this
    process does, the kernel ends all processes in there and removes the devices."""
    for program, package in (("unshare", "util-linux"), ("ip", "iproute2"), ("qemu-system-x86_64", "qemu-system-x86")):
        if not shutil.which(program):
            raise PeerError(f"{program} is missing: install {package}")
    if not os.path.exists("/dev/net/tun"):
        raise PeerError("/dev/net/tun is missing, so no tap device can be made: load the module tun (in a container: pass the device on)")
    spaces = ["unshare", "--net", "--pid", "--mount-proc", "--fork", "--kill-child"]
    ways = [spaces] if os.getuid() == 0 else [[*spaces, "--user", "--map-root-user"], ["sudo", "-n", *spaces]]
    reasons = []
    for way in ways:
        try:
            probe = subprocess.run([*way, "ip", "tuntap", "add", TAP, "mode", "tap"], capture_output=True, text=True, timeout=SECONDS)
            if probe.returncode == 0:
                break
            reasons.append(probe.stderr.strip())
        except OSError as error:
            reasons.append(str(error))
    else:
        raise PeerError(f"no network namespace with a tap device can be made here ({'; '.join(reasons)}): run as root, or allow user "
                        "namespaces to use /dev/net/tun")
    words = [f"{name}={value}" for name, value in {**environment, "HOME": os.path.expanduser("~"), "PATH": os.environ["PATH"]}.items()]
    command = [*way, "env", *words, *command]
    process = subprocess.Popen(command)
    while True:
        try:
            return process.wait()  # the scenarios inside bound themselves
        except KeyboardInterrupt:
            continue  # the terminal told those inside as well; they clean up and end


def ip(*words):
    done = subprocess.run(["ip", *words], capture_output=True, text=True, timeout=SECONDS)
    if done.returncode != 0:
        raise PeerError(f"ip {' '.join(words)} failed: {done.stderr.strip()}")
    return done.stdout


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
