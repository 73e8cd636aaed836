"""Our initiator on the kernel's target."""
import os
import re

import program
from common import GUEST_ADDRESS, HOST_ADDRESS, PeerError
from guest import Guest

from . import nvmet
from .base import Scenario

QUEUES = 4
MEGABYTES = 4  # a queue


def initiate(scenario, queues, megabytes):
    """Runs our initiator on the guest's target; returns what it counted. PeerError if it did less than it was told."""
    seed = os.environ.get("GN_SEED", "20261122")
    text = program.run([program.find(scenario.programs, "peer_initiator"), HOST_ADDRESS, GUEST_ADDRESS, nvmet.PORT, nvmet.NQN, queues,
                        megabytes, seed], scenario.folder / "initiator.txt", 300,
                       more_environment={"GNSTOR_LOG": "info"})  # why a queue pair failed
    done = {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", text)}
    if done["bytes_written"] != queues * megabytes << 20 or done["bytes_read"] < done["bytes_written"]:
        raise PeerError(f"the initiator executed fewer commands than it was told to: {text}")
    scenario.step(text.splitlines()[0])
    scenario.step(f"{done['writes']} writes ({done['in_capsule']} in the capsule), {done['reads']} reads compared, seed {seed}, "
                  f"{done['retransmissions']} retransmissions, {done['bad_icrc']} with a bad ICRC")
    scenario.count("commands", done["writes"] + done["reads"] + done["flushes"])
    scenario.count("bytes", done["bytes_written"] + done["bytes_read"])
    return done


class Target(Scenario):
    """our initiator on the guest's nvmet-rdma: Identify, queues, random data of many sizes written, read and compared"""

    def run(self):
        with Guest(self.image, self.folder, self.mtu) as guest:
            nvmet.export(guest)
            self.step("the guest's target listens")
            initiate(self, QUEUES, MEGABYTES)
            guest.check_kernel_log()
        self.judge_capture(guest)
        return self.finish(guest)


class TargetAt9000(Target):
    """target where packets carry 4096 bytes"""

    mtu = 9000
