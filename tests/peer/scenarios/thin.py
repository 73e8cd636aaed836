"""A volume that is much larger than the SSDs behind it, as a stock host discards, fills and discards it."""
import re

import program
from common import HOST_ADDRESS, PeerError
from guest import Guest

from . import host
from .base import Scenario

PORT = 4420
VOLUME, MEGABYTES, SSD_MEGABYTES = "thin", 4096, 128
SSDS, REPLICAS = 3, 2
FILE_MEGABYTES = 8
WENT_BACK_MOST = 8  # connections that the guest's own rxe may lose (kernel_log.py, WENT_BACK)
# A block device that has no room says so; nothing else may be said.
WHEN_FULL = [r"critical space allocation error, dev nvme\S+, sector \d+ op 0x1:\(WRITE\).*",
             r"nvme\S+: .*\(0x1\) @ LBA \d+, \d+ blocks, .*\(sct 0x0 / sc 0x81\).*"]


class Thin(Scenario):
    """a volume of 4 GiB on three SSDs of 128 MiB: blkdiscard, mkfs.ext4, mkfs.xfs, fstrim, written until it is full, trimmed and written again"""

    mtu = 9000

    def run(self):
        command = [program.find(self.programs, "peer_gateway"), HOST_ADDRESS, PORT, self.folder / "array", VOLUME, MEGABYTES, SSD_MEGABYTES]
        with Guest(self.image, self.folder, self.mtu) as guest, program.Program(command, self.folder / "gateway.txt") as ours:
            self.guest = guest
            self.nqn, = ours.said(r"volume (\S+)$")
            self.disk = host.block_device(guest, host.connect(guest, HOST_ADDRESS, PORT, self.nqn))
            self.step(f"guest and gateway are up, connected {self.disk}")
            self.discard("a fresh volume")
            self.file_system("ext4", f"mkfs.ext4 -q -F {self.disk}", f"e2fsck -f -n {self.disk}")
            self.discard("a volume that held a file system")
            self.file_system("xfs", f"mkfs.xfs -q -f {self.disk}", f"xfs_repair -n {self.disk}")
            self.check_kernel_log()
            self.fill()
            self.check_kernel_log(WHEN_FULL)
            self.discard("a full volume")
            moved, _ = host.verify(guest, self.disk, FILE_MEGABYTES)
            self.count("bytes", moved)
            self.step(f"fio wrote and verified {moved >> 20} MiB")
            self.file_system("ext4", f"mkfs.ext4 -q -F {self.disk}", f"e2fsck -f -n {self.disk}")
            host.disconnect(guest, self.nqn)
            self.check_kernel_log()
            for line in ours.stop():
                self.step(line)
        self.judge_capture(guest)
        return self.finish(guest)

    def check_kernel_log(self, expected=()):
        """A connection that the host's own defect lost is no failure; that it loses many is."""
        before = self.guest.went_back
        self.guest.check_kernel_log(expected, may_go_back=True)
        if lost := self.guest.went_back - before:
            self.count("went_back", lost)
            self.step(f"the guest's rxe driver lost connections because of a known defect of its own, and reconnected: {lost}")
        if self.guest.went_back > WENT_BACK_MOST:
            raise PeerError(f"the guest lost {self.guest.went_back} connections; the known defect of its rxe driver explains at most {WENT_BACK_MOST}")

    def discard(self, what):
        self.guest.run(f"blkdiscard {self.disk}", 240)
        self.count("discards")
        # Of all of it nothing is left.
        for at in (0, MEGABYTES // 2, MEGABYTES - 1):
            self.guest.run(f"dd if={self.disk} bs=1M skip={at} count=1 iflag=direct 2>/dev/null | cmp -n 1048576 - /dev/zero", 60)
        self.step(f"blkdiscard of {what}, {MEGABYTES >> 10} GiB")

    def file_system(self, kind, make, check):
        self.guest.run(f"modprobe {kind}; {make}", 240)
        self.step(make.split()[0])
        for round_number in range(2):
            self.guest.run(f"mount -t {kind} {self.disk} /mnt && dd if=/dev/urandom of=/mnt/file bs=1M count={FILE_MEGABYTES} 2>/dev/null"
                           " && sha256sum /mnt/file >/run/sum && sync", 180)
            self.guest.run(f"umount /mnt && mount -t {kind} {self.disk} /mnt && sha256sum -c /run/sum >/dev/null && rm /mnt/file && sync", 180)
            said = self.guest.text("fstrim -v /mnt", 240)
            trimmed = re.search(r"(\d+) bytes\)? trimmed", said)
            if not trimmed or int(trimmed[1]) < FILE_MEGABYTES << 20:
                raise PeerError(f"fstrim of {kind} trimmed less than expected: {said}")
            self.guest.run("umount /mnt", 60)
            self.count("trims")
        self.guest.run(check, 180)
        self.count("bytes", 4 * FILE_MEGABYTES << 20)
        self.step(f"{kind}: written, read, removed and trimmed twice; its checker finds no error")

    def fill(self):
        """Until the host is told that there is no room: not at once, and not with another error."""
        done = self.guest.run(f"dd if=/dev/zero of={self.disk} bs=64k oflag=direct", 600, None)
        wrote = re.search(r"^(\d+)\+\d+ records out", done.text, re.M)
        if done.status == 0 or "No space left on device" not in done.text or not wrote:
            raise PeerError(f"a volume of {MEGABYTES} MiB on {SSDS} SSDs of {SSD_MEGABYTES} MiB should run out of space before it is full: {done.text[-500:]}")
        megabytes = int(wrote[1]) >> 4
        most = SSDS * SSD_MEGABYTES // REPLICAS
        if not most // 2 <= megabytes <= most:
            raise PeerError(f"{megabytes} MiB were written to SSDs that have room for only {most} MiB")
        self.count("full")
        self.step(f"no space left on device after {megabytes} MiB")
