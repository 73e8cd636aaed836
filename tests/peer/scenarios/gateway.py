"""A volume of ours as an ordinary namespace: a stock host's tools, a file system, and a target that is killed."""
import program
from common import HOST_ADDRESS, PeerError
from guest import Guest

from . import host
from .base import Scenario

PORT = 4420
VOLUME, MEGABYTES = "disk", 512
JOBS, JOB_MEGABYTES = 4, 8
SMALL_FILES = 200
TREE = "/usr/lib/modules /usr/bin/busybox /usr/bin/ip"
# While its target is dead, a host says so; nothing of it may be an error of the block device or the file system.
WHILE_DEAD = [r"nvme nvme\d+: (I/O (tag )?\d+ .*timeout|failed nvme_keep_alive_end_io|starting error recovery|Reconnecting in|Failed reconnect attempt"
              r"|rdma connection establishment failed|failed to connect queue|Property Get error|reconnect|Connect rejected"
              r"|RECV for CQE .* failed|SEND for CQE .* failed|MEMREG for CQE .* failed|LOCAL_INV for CQE .* failed|.* timed out)"]


class Gateway(Scenario):
    """a volume of ours as the guest's disk: fio, mkfs, a file tree, reconnection, our target killed under load and started again"""

    mtu = 9000

    def run(self):
        command = [program.find(self.programs, "peer_gateway"), HOST_ADDRESS, PORT, self.folder / "array", VOLUME, MEGABYTES]
        with Guest(self.image, self.folder, self.mtu) as guest, program.Program(command, self.folder / "gateway.txt") as ours:
            self.guest, self.ours = guest, ours
            self.nqn = ours.lines[-3].split()[1]
            self.step(f"guest and gateway are up: {ours.lines[-2]}")
            self.connect()
            self.load()
            self.make_tree()
            guest.check_kernel_log()
            self.kill_under_load()
            host.disconnect(guest, self.nqn)
            guest.check_kernel_log()
            for line in ours.stop().splitlines():
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
            raise PeerError(f"the namespace has not the volume's {MEGABYTES} MiB: {space}")
        host.json_of(self.guest, f"id-ctrl /dev/{self.controller}")
        host.json_of(self.guest, f"smart-log /dev/{self.controller}")
        self.step(f"connected {self.disk}")

    def load(self):
        moved, commands = host.verify(self.guest, self.disk, JOB_MEGABYTES, JOBS, least=4096, most=262144)
        self.count("bytes", moved)
        self.count("commands", commands)
        self.step(f"fio: {JOBS} jobs wrote and verified {moved >> 20} MiB in {commands} commands of 4 to 256 KiB")

    def mount(self):
        self.guest.run(f"mount -t ext4 {self.disk} /mnt", 60)

    def unmount(self):
        self.guest.run("umount /mnt", 120)

    def compare(self):
        """The tree as it is on the medium, file by file."""
        self.guest.run("echo 3 >/proc/sys/vm/drop_caches; cd /mnt && sha256sum -c /run/tree >/run/compared", 300)
        return int(self.guest.text("grep -c ': OK$' /run/compared"))

    def make_tree(self):
        self.guest.run("modprobe ext4", 60)
        self.guest.run(f"mkfs.ext4 -q -F {self.disk}", 180)
        self.step("mkfs.ext4")
        self.mount()
        self.guest.run(f"""set -e
            mkdir /mnt/tree
            cp -a {TREE} /mnt/tree
            for i in $(seq {SMALL_FILES}); do
                mkdir -p /mnt/tree/$((i % 7))/$((i % 11))
                head -c $((i * i * 13 % 70000)) /dev/urandom >/mnt/tree/$((i % 7))/$((i % 11))/$i
            done
            cd /mnt
            find . -type f -exec sha256sum {{}} + >/run/tree
            sync""", 300)
        files, size = int(self.guest.text("wc -l </run/tree")), int(self.guest.text("du -s /mnt/tree | cut -f1")) << 10
        self.step(f"a tree of {files} files, {size >> 20} MiB, written")
        self.unmount()
        self.guest.run(f"e2fsck -f -n {self.disk}", 120)
        self.mount()
        good = self.compare()
        self.unmount()
        if good != files or files < SMALL_FILES:
            raise PeerError(f"{good} of {files} files are as they were written")
        host.disconnect(self.guest, self.nqn)
        self.connect()
        self.mount()
        good = self.compare()
        if good != files:
            raise PeerError(f"{good} of {files} files are as they were written, after a reconnection")
        self.files = files
        self.count("files", 2 * good)
        self.count("bytes", 3 * size)
        self.step(f"e2fsck finds nothing; all {files} files compared after a remount, and after disconnect and connect")

    def kill_under_load(self):
        """The file system is mounted and written to while our process dies; its host waits, and nothing is lost."""
        self.guest.run("fio --thread --name=load --filename=/mnt/load --size=24m --rw=randwrite --bsrange=4k-64k --ioengine=libaio --direct=1"
                       " --iodepth=8 --rate=2m --verify=crc32c --verify_fatal=1 --output=/run/load.txt >/run/load.err 2>&1 &\n"
                       "echo $! >/run/load.pid")
        self.guest.wait_for("awk '/^write_bytes/ { exit !($2 > 4000000) }' /proc/$(cat /run/load.pid)/io", 60, "a load")
        self.ours.kill()
        state = f"cat /sys/class/nvme/{self.controller}/state"
        self.guest.wait_for(f"[ $({state}) = connecting ]", 60, "the host notices that its target is dead")
        self.step("our process killed under load; the host has noticed")
        self.ours.start()
        self.guest.wait_for(f"[ $({state}) = live ]", 120, "the host has reconnected")
        self.step("started again; the host has reconnected by itself")
        self.guest.wait_for("! kill -0 $(cat /run/load.pid)", 200, "the end of the load")
        report = self.guest.text("cat /run/load.txt /run/load.err")
        if "err= 0" not in report or "verify" in self.guest.text("cat /run/load.err"):
            raise PeerError(f"fio across the death of its target: {report}")
        good = self.compare()
        self.unmount()
        self.guest.run(f"e2fsck -f -n {self.disk}", 120)
        if good != self.files:
            raise PeerError(f"{good} of {self.files} files are as they were written, after our target was killed")
        self.guest.check_kernel_log(WHILE_DEAD)
        self.count("files", good)
        self.count("bytes", 48 << 20)
        self.count("deaths")
        self.step("fio verified what it wrote across it, all files compared, e2fsck finds nothing")
