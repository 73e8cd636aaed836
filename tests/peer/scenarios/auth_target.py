"""Our initiator on the kernel's target that demands in-band authentication (DH-HMAC-CHAP) of it: every hash, every group, wrong keys."""
import os
import re
import subprocess

import dhchap
import program
from common import GUEST_ADDRESS, HOST_ADDRESS, PATIENCE, PeerError
from guest import Guest

from . import nvmet
from .base import Scenario

HOST_NQN = "nqn.2026-11.io.gnstor:client:1"  # peer_initiator's
QUEUES, MEGABYTES = 2, 1
# The target is told these; the host offers this hash and this group alone, but the NULL group beside ffdhe2048.
# The larger groups are left out: on an emulated processor the kernel's own self-test of ffdhe8192 can take longer than the minute that it
# waits for it, and then it has no such group.
CHOICES = [("sha256", "ffdhe2048"), ("sha384", "ffdhe3072"), ("sha512", "ffdhe4096"), ("sha384", "null")]
HASH_BYTES = {"sha256": 32, "sha384": 48, "sha512": 64}
GROUP_BYTES = {"null": 0, "ffdhe2048": 256, "ffdhe3072": 384, "ffdhe4096": 512}
# Linux ends the connection, mostly before it has sent the message that says so.
REFUSED_BY_TARGET = (r"nqn\S+:client:1 could not authenticate to queue 0 of \S+: (the controller refused; the key of this host is wrong, .*"
                     r"|.*the connection has ended; .*the key of this host may be wrong, rotated or removed)")
UNPROVED = r"nqn\S+:client:1 could not authenticate to queue 0 of \S+: the controller did not prove its key; .*"
UNOFFERED = r"nqn\S+:client:1 could not authenticate to queue 0 of \S+: the controller chose a group that was not offered; .*"
NO_KEY = r"queue 0 of \S+ demands authentication, and nqn\S+:client:1 has no key for it; .*"
UNASKED = r"queue 0 of \S+ does not ask nqn\S+:client:1 to authenticate, although there is a key for it: .*"
# What a target says of a host that it refuses, or that gives up.
REFUSALS = [r"nvmet: ctrl \d+ qid \d+ host response mismatch", r"nvmet: ctrl \d+ fatal error occurred!",
            r"nvmet: ctrl \d+ qid \d+ no ctrl key", r"nvmet: ctrl \d+ qid \d+: success1 status \(\d+\)",
            r"nvmet: (nvmet_\w+: )?ctrl \d+ qid \d+ (failure1|failure2|dhchap authentication failed).*"]
SECONDS = 120


class AuthTarget(Scenario):
    """our initiator on the guest's nvmet that demands authentication: each hash and group with I/O, wrong keys, none, a target that proves nothing"""

    def run(self):
        self.keys = []
        with Guest(self.image, self.folder, self.mtu) as guest:
            self.guest = guest
            nvmet.export(guest)
            # The only witness of what the two ends agreed on is the kernel's.
            guest.run("echo 'module nvmet +p' >/proc/dynamic_debug/control")
            self.host, self.target = self.key(1), self.key(3)
            nvmet.demand_key(guest, HOST_NQN, self.host, self.target)
            self.step("the guest's target listens and demands a key")
            for number, choice in enumerate(CHOICES):
                self.agree(*choice, number % 3 + 1)
            self.refuse_a_group()
            self.refuse()
            guest.check_kernel_log(REFUSALS)
        self.judge_capture(guest)
        return self.finish(guest)

    def key(self, transform):
        self.keys.append(dhchap.make_key(transform))
        return self.keys[-1]

    def initiate(self, keys, choice=(), refused=""):
        """peer_initiator with these keys; `refused`: the whole error that it must end with."""
        words = [program.find(self.programs, "peer_initiator"), HOST_ADDRESS, GUEST_ADDRESS, nvmet.PORT, nvmet.NQN, QUEUES, MEGABYTES,
                 os.environ.get("GN_SEED", "20261122")]
        if keys:
            words += [dhchap.keep(self.folder / "keys", *keys), *choice]
        done = subprocess.run([str(word) for word in words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS * PATIENCE)
        said = done.stdout + done.stderr
        dhchap.check_secret(said, self.keys, "what peer_initiator says")
        if not refused and done.returncode != 0:
            raise PeerError(f"peer_initiator ended with exit status {done.returncode}: {said[-1500:]}")
        if refused and (done.returncode != 1 or not re.search(f"^peer_initiator: {refused}$", done.stderr, re.M)):
            raise PeerError(f"peer_initiator should be refused with '{refused}', but it ended with exit status {done.returncode}: {said[-1500:]}")
        return said

    def agree(self, hash_name, group, transform):
        """One hash and one group, admin and I/O queues, one-way and both ways."""
        self.host, self.target = self.key(transform), self.key(4 - transform)
        nvmet.demand_key(self.guest, HOST_NQN, self.host, self.target, hash_name, group)
        for keys in ((self.host, self.target), (self.host,)):
            text = self.initiate(keys, (hash_name, group))
            done = {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", text)}
            if done["bytes_written"] != QUEUES * MEGABYTES << 20 or done["bytes_read"] < done["bytes_written"]:
                raise PeerError(f"the initiator executed fewer commands than it was told to: {text}")
            self.count("bytes", done["bytes_written"] + done["bytes_read"])
            said = "\n".join(self.guest.check_kernel_log(REFUSALS))
            wanted = rf"hl {HASH_BYTES[hash_name]} dhvlen {GROUP_BYTES[group]}"
            for queue in range(QUEUES + 1):
                if not re.search(rf"nvmet_auth_challenge: ctrl \d+ qid {queue} .* {wanted}$", said, re.M):
                    raise PeerError(f"the guest's target does not challenge queue {queue} with {hash_name} and {group} ({wanted}): {said[-3000:]}")
            self.count("queues", QUEUES + 1)
        self.count("agreements")
        self.step(f"{hash_name} and {group}: all queues authenticated; data compared")

    def refuse_a_group(self):
        """Linux takes the configured group even if the host does not offer it; the NULL group is then the host's to refuse."""
        nvmet.demand_key(self.guest, HOST_NQN, self.host, self.target, "sha256", "null")
        self.initiate((self.host, self.target), ("sha256", "ffdhe2048"), UNOFFERED)
        self.count("refusals")
        self.step("a target that takes the NULL group, which was not offered: refused by the host")

    def refuse(self):
        nvmet.demand_key(self.guest, HOST_NQN, self.host, self.target)
        host, target, other = self.host, self.target, self.key(1)
        for what, keys, error in (("a wrong key", (other,), REFUSED_BY_TARGET), ("a wrong key, and the target's", (other, target), REFUSED_BY_TARGET),
                                  ("a wrong key of the target", (host, other), UNPROVED), ("no key", (), NO_KEY)):
            self.initiate(keys, refused=error)
            self.count("refusals")
            self.step(f"{what}: refused")
        nvmet.demand_key(self.guest, HOST_NQN, host)
        self.initiate((host, target), refused=rf"({UNPROVED}|{REFUSED_BY_TARGET})")
        self.count("refusals")
        self.step("a target that has no key of its own: refused by the host")
        nvmet.allow_any_host(self.guest)
        self.initiate((host,), refused=UNASKED)
        self.count("refusals")
        self.step("a target that asks for no key: refused by the host")
