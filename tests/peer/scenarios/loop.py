"""The harness itself: the guest's kernel as its own target."""
from common import GUEST_ADDRESS
from guest import Guest

from . import host, nvmet
from .base import Scenario


class Loop(Scenario):
    """kernel to kernel in one guest: shows that the harness works, without a line of ours on the wire"""

    def run(self):
        with Guest(self.image, self.folder, self.mtu) as guest:
            nvmet.export(guest)
            controller = host.connect(guest, GUEST_ADDRESS, nvmet.PORT, nvmet.NQN)
            device = host.block_device(guest, controller)
            self.step(f"connected {device}")
            moved, commands = host.verify(guest, device, 8, jobs=2)
            self.count("bytes", moved)
            self.count("commands", commands)
            self.step(f"fio verified {moved >> 20} MiB in {commands} commands")
            host.disconnect(guest, nvmet.NQN)
            guest.check_kernel_log()
            return self.finish(guest)
