"""Namespaces in which we are root, and which end with the process that made them."""
import contextlib
import os
import shutil
import stat
import subprocess

from common import PeerError

SECONDS = 60
PROGRAMS = {"unshare": "util-linux", "setpriv": "util-linux", "ip": "iproute2"}
TUN = "/dev/net/tun"


def need_tun():
    """PeerError where no tap device can be made. Root makes the node where only that is missing."""
    if not os.path.exists(TUN):
        with contextlib.suppress(OSError):
            os.makedirs(os.path.dirname(TUN), exist_ok=True)
            os.mknod(TUN, stat.S_IFCHR | 0o600, os.makedev(10, 200))
    if not os.path.exists(TUN):
        raise PeerError(f"{TUN} is missing, so no tap device can be created: load the kernel module tun (in a container: pass the device to it)")


def isolated(command, environment, probe, what):
    """Runs a command in network, process and mount namespaces of its own and returns its exit status. When it ends, or this
    process does, the kernel ends all processes in there and removes the devices. PeerError where that is not allowed: `probe` is a
    command that has to work in there, `what` says in words what it does."""
    for program, package in PROGRAMS.items():
        if not shutil.which(program):
            raise PeerError(f"{program} is missing: install {package}")
    # Who ends without a chance to say so takes it all along.
    spaces = ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--pid", "--mount-proc", "--fork", "--kill-child"]
    ways = [spaces] if os.getuid() == 0 else [[*spaces, "--user", "--map-root-user"], ["sudo", "-n", *spaces]]
    reasons = []
    for way in ways:
        try:
            done = subprocess.run([*way, *probe], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS)
            if done.returncode == 0:
                break
            reasons.append(done.stderr.strip() or f"{way[0]} ended with exit status {done.returncode}")
        except (OSError, subprocess.TimeoutExpired) as error:
            reasons.append(str(error))
    else:
        raise PeerError(f"{what} cannot be created here ({'; '.join(reasons)}): run as root, or allow users to create user namespaces and to open /dev/net/tun")
    words = [f"{name}={value}" for name, value in {**environment, "HOME": os.path.expanduser("~"), "PATH": os.environ["PATH"]}.items()]
    process = subprocess.Popen([*way, "env", *words, *command])
    try:
        while True:
            try:
                return process.wait()  # those inside bound themselves
            except KeyboardInterrupt:
                continue  # the terminal told those inside as well; they clean up and end
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def ip(*words):
    done = subprocess.run(["ip", *words], capture_output=True, text=True, timeout=SECONDS)
    if done.returncode != 0:
        raise PeerError(f"ip {' '.join(words)} failed: {done.stderr.strip()}")
    return done.stdout
