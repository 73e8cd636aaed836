"""Our initiator on the kernel's target, over a network that loses, doubles, delays and changes packets.

Not the kernel's initiator: its rxe (6.1, 6.12) executes memory registrations once more when it goes back to a lost packet,
finds the region in use ("rxe_reg_fast_mr: ... not free") and fails the queue pair, whoever its target is.
"""
import re

from common import PeerError
from guest import Guest

from . import nvmet
from .base import Scenario
from .target import initiate

QUEUES, MEGABYTES = 2, 1
FROM_GUEST = "loss 2% duplicate 1% reorder 2% delay 1ms corrupt 1%"
TO_GUEST = "loss 2% duplicate 1% reorder 2% delay 1ms"


class Lossy(Scenario):
    """the same as target where both directions lose, double and reorder packets, and bits of the kernel's packets change"""

    def run(self):
        with Guest(self.image, self.folder, self.mtu) as guest:
            nvmet.export(guest)
            self.spoil(guest)
            self.step(f"the guest's target listens; from the guest: {FROM_GUEST}")
            done = initiate(self, QUEUES, MEGABYTES)
            dropped = sum(map(int, re.findall(r"dropped (\d+)", guest.text("/usr/bin/tc -s qdisc show"))))
            if not dropped or not done["bad_icrc"]:
                raise PeerError(f"the network was configured to lose and damage packets, but it dropped {dropped}, and our wire counts {done}")
            self.count("dropped", dropped)
            guest.check_kernel_log()
        self.judge_capture(guest, "spoilt")
        return self.finish(guest)

    def spoil(self, guest):
        """netem on what leaves the guest and, through an ifb device, on what reaches it."""
        guest.run(f"""set -e
            modprobe -a sch_netem sch_ingress ifb cls_matchall act_mirred
            [ -e /sys/class/net/ifb0 ] || ip link add ifb0 type ifb
            ip link set ifb0 mtu {self.mtu} up
            /usr/bin/tc qdisc add dev eth0 root netem limit 100000 {FROM_GUEST}
            /usr/bin/tc qdisc add dev ifb0 root netem limit 100000 {TO_GUEST}
            /usr/bin/tc qdisc add dev eth0 ingress
            /usr/bin/tc filter add dev eth0 ingress protocol ip matchall action mirred egress redirect dev ifb0""", 60)
