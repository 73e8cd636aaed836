"""A volume of ours as an ordinary namespace: a stock host's tools, a file system, and a target that is killed."""
import program
from common import HOST_ADDRESS, PeerError
from guest import Guest
from kernel_log import CONNECTION_LOST

from . import host
from .base import Scenario
from .tree import Tree

PORT = 4420
VOLUME, MEGABYTES = "disk", 512
JOBS, JOB_MEGABYTES = 4, 8
TREE = "/usr/lib/modules /usr/bin/busybox /usr/bin/ip"


class Gateway(Scenario):
    """a volume of ours as the guest's disk: fio, mkfs, a file tree, reconnection, our target killed under load and started again"""

    mtu = 9000

    def run(self):
        command = [program.find(self.programs, "peer_gateway"), HOST_ADDRESS, PORT, self.folder / "array", VOLUME, MEGABYTES]
        with Guest(self.image, self.folder, self.mtu) as guest, program.Program(command, self.folder / "gateway.txt") as ours:
            self.guest, self.ours = guest, ours
            self.nqn, = ours.said(r"volume (\S+)$")
            self.step(f"guest and gateway are up: {ours.lines[ours.is_ready - 2]}")
            self.connect()
            self.load()
            self.make_tree()
            guest.check_kernel_log()
            self.kill_under_load()
            host.disconnect(guest, self.nqn)
            guest.check_kernel_log()
            for line in ours.stop():
                self.step(line)
        self.judge_capture(guest)
        return self.finish(guest)

    def connect(self):
        self.guest.run("modprobe nvme_rdma")
        found = host.json_of(self.guest, f"discover -t rdma -a {HOST_ADDRESS} -s {PORT} --hostnqn={host.HOST_NQN} --hostid={host.HOST_ID}")
        if self.nqn not in [record["subnqn"] for record in found["records"]]:
            raise PeerError(f"nvme discover does not show {self.nqn}: {found}")
        self.controller = host.connect(self.guest, HOST_ADDRESS, PORT, self.nqn,
                                       more="--reconnect-delay=1 --ctrl-loss-tmo=900")
        self.disk = host.block_device(self.guest, self.controller)
        space = host.json_of(self.guest, f"id-ns {self.disk}")
        if space["nsze"] << space["lbafs"][space["flbas"] & 15]["ds"] != MEGABYTES << 20:
            raise PeerError(f"the namespace does not have the volume's size of {MEGABYTES} MiB: {space}")
        host.json_of(self.guest, f"id-ctrl /dev/{self.controller}")
        host.json_of(self.guest, f"smart-log /dev/{self.controller}")
        self.step(f"connected {self.disk}")

    def load(self):
        moved, commands = host.verify(self.guest, self.disk, JOB_MEGABYTES, JOBS, least=4096, most=262144)
        self.count("bytes", moved)
        self.count("commands", commands)
        self.step(f"fio: {JOBS} jobs wrote and verified {moved >> 20} MiB in {commands} commands of 4 to 256 KiB")

    def make_tree(self):
        self.tree = tree = Tree(self.guest, self.disk, TREE)
        self.guest.run(f"modprobe ext4; mkfs.ext4 -q -F {self.disk}", 180)
        self.step("mkfs.ext4")
        tree.mount()
        tree.write()
        self.step(f"a tree of {tree.files} files, {tree.bytes >> 20} MiB, written")
        tree.unmount()
        tree.check()
        tree.mount()
        self.count("files", tree.compare("after a remount"))
        tree.unmount()
        host.disconnect(self.guest, self.nqn)
        self.connect()
        tree.mount()
        self.count("files", tree.compare("after disconnect and connect"))
        self.count("bytes", 3 * tree.bytes)
        self.step(f"e2fsck finds no error; all {tree.files} files compared after a remount, and after disconnect and connect")

    def kill_under_load(self):
        """The file system is mounted and written to while our process dies; its host waits, and nothing is lost."""
        self.guest.run("fio --thread --name=load --filename=/mnt/load --size=24m --rw=randwrite --bsrange=4k-64k --ioengine=libaio --direct=1"
                       " --iodepth=8 --rate=2m --verify=crc32c --verify_fatal=1 --output=/run/load.txt >/run/load.err 2>&1 &\n"
                       "echo $! >/run/load.pid")
        self.guest.wait_for("awk '/^write_bytes/ { exit !($2 > 4000000) }' /proc/$(cat /run/load.pid)/io", 60, "fio has written 4 MB")
        self.ours.kill()
        state = f"cat /sys/class/nvme/{self.controller}/state"
        self.guest.wait_for(f"[ $({state}) = connecting ]", 60, "the host detects that its target has ended")
        self.step("killed the gateway under load; the host has detected the lost connection")
        self.ours.start()
        self.guest.wait_for(f"[ $({state}) = live ]", 120, "the host has reconnected")
        self.step("started the gateway again; the host has reconnected by itself")
        self.guest.wait_for("! kill -0 $(cat /run/load.pid)", 200, "fio ends")
        report = self.guest.text("cat /run/load.txt /run/load.err")
        if "err= 0" not in report or "verify" in self.guest.text("cat /run/load.err"):
            raise PeerError(f"fio, running while its target was killed, reports an error: {report}")
        self.count("files", self.tree.compare("after the target was killed"))
        self.tree.unmount()
        self.tree.check()
        self.guest.check_kernel_log(CONNECTION_LOST)
        self.count("bytes", 48 << 20)
        self.count("deaths")
        self.step("fio verified what it wrote before and after the kill, all files compared, e2fsck finds no error")
