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


class Target(Scenario):
    """our initiator on the guest's nvmet-rdma: Identify, queues, random data of many sizes written, read and compared"""

    def run(self):
        initiator = program.find(self.programs, "peer_initiator")
        seed = os.environ.get("GN_SEED", "20261122")
        with Guest(self.image, self.folder, self.mtu) as guest:
            nvmet.export(guest)
            self.step("the guest's target listens")
            text = program.run([initiator, HOST_ADDRESS, GUEST_ADDRESS, nvmet.PORT, nvmet.NQN, QUEUES, MEGABYTES, seed],
                               self.folder / "initiator.txt", 300)
            self.step(text.splitlines()[0])
            done = {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", text)}
            if done["bytes_written"] != QUEUES * MEGABYTES << 20 or done["bytes_read"] < done["bytes_written"]:
                raise PeerError(f"the initiator did less than it was told: {text}")
            self.step(f"{done['writes']} writes ({done['in_capsule']} in the capsule), {done['reads']} reads compared, seed {seed}, "
                      f"{done['retransmissions']} retransmissions")
            self.count("commands", done["writes"] + done["reads"] + done["flushes"])
            self.count("bytes", done["bytes_written"] + done["bytes_read"])
            guest.check_kernel_log()
        self.judge_capture(guest)
        return self.finish(guest)
