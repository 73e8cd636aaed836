"""Two nodes, gnstord and a gateway as processes of their own, by the commands of docs/operations.md, up to the file system on a host."""
import contextlib
import os
import re

import program
import spaces
from common import GUEST_ADDRESS, TAP, Deadline, PeerError
from guest import Guest
from kernel_log import CONNECTION_LOST

from . import by_hand, host
from .base import Scenario
from .tree import Tree

TREE = "/usr/bin/busybox /usr/bin/ip"
DISK, CONTROLLER = "/dev/nvme0n1", "nvme0"
FILE_BYTES = 3_000_001
LATE_FILES, LATE_BYTES = 20, 100_000
COPIED = ("gnstord.token", "gnstord.crt")  # from gnstord's folder to its clients
# What a guest adds that is stopped for longer than a host, and that is not to wait for its gateway longer than it must.
PATIENT = "--keep-alive-tmo=15 --reconnect-delay=1 --ctrl-loss-tmo=900"


class Nodes(Scenario):
    """docs/operations.md by hand: two nodes, gnstord, put and get, a gateway; the guest's mkfs.ext4 and a file tree; the gateway killed and started again"""

    def run(self):
        self.commands = by_hand.commands()
        self.address = by_hand.address(self.commands["gateway"][1])
        with contextlib.ExitStack() as stack:
            guest = self.guest = stack.enter_context(Guest(self.image, self.folder, self.mtu))
            self.join_network(stack)
            self.step("guest is up")
            array = [self.begin(stack, name, *self.commands[name], ready) for name, ready in (
                ("storage1", "gnstor node: serving 2 SSDs at "), ("storage2", "gnstor node: serving 2 SSDs at "), ("manager", r"gnstord: serving \S+ on (?!http)"))]
            self.step("two nodes and gnstord serve")
            self.put_and_get()
            self.tell("gateway", self.commands["gateway"][0])
            gateway = self.begin_gateway(stack)
            self.step(gateway.lines[gateway.is_ready - 1])
            self.make_tree()
            guest.check_kernel_log()
            self.kill_and_restart(gateway)
            for each in (gateway, *reversed(array)):
                each.stop()
            self.step("all stopped")
        self.judge_capture(guest, ours=self.address)
        return self.finish(guest)

    def join_network(self, stack):
        """All addresses of the page are in this namespace; the guest has a way to the gateway's alone."""
        places = [by_hand.address(self.commands[name][0]) for name in ("storage1", "storage2", "manager")]
        for address, device in (*((place, "lo") for place in places), (self.address, TAP)):
            spaces.ip("address", "add", f"{address}/32", "dev", device)
            stack.callback(spaces.ip, "address", "del", f"{address}/32", "dev", device)
        self.guest.run(f"ip route add {self.address} dev eth0 src {GUEST_ADDRESS}")
        # As the installation of nvme-cli leaves them.
        self.guest.run(f"mkdir -p /etc/nvme; echo {host.HOST_NQN} >/etc/nvme/hostnqn; echo {host.HOST_ID} >/etc/nvme/hostid")

    def home(self, name):
        """A host's folder, in which its commands run. It has copies of what the page says to copy there, once that is made."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        copies = {file: self.folder / "manager/gnstor" / file for file in COPIED} if name in ("client", "gateway") else {}
        if name == "manager":
            copies = {f"{node}.key": self.folder / node / "gnstor/node.key" for node in ("storage1", "storage2")}
        for copied, file in copies.items():
            if not file.exists():
                continue
            with contextlib.suppress(FileExistsError), open(folder / copied, "xb", opener=lambda path, flags: os.open(path, flags, 0o600)) as copy:
                copy.write(file.read_bytes())
        return folder

    def line(self, command):
        words = by_hand.words(command)
        self.count("commands")
        return [program.find(self.programs, words[0]), *words[1:]]

    def begin(self, stack, name, command, ready):
        return stack.enter_context(program.Program(self.line(command), self.folder / f"{name}.txt", ready, self.home(name)))

    def tell(self, name, command):
        return program.run(self.line(command), self.folder / f"{name}.txt", 60, self.home(name))

    def begin_gateway(self, stack):
        """With keys, where the guest's kernel has in-band authentication: Debian's 6.1 is built without."""
        _, serve, let_in = self.commands["gateway"]
        ready = "gnstor node: serving 1 volume at "
        if self.image.kernel == "6.1":
            self.keys = ""
            return self.begin(stack, "gateway", f"{serve} --allow-any-host", ready)
        gateway = self.begin(stack, "gateway", serve, ready)
        self.keys, = re.findall(r" --dhchap-secret=\S+ --dhchap-ctrl-secret=\S+$", self.tell("gateway", let_in), re.M)
        end = Deadline(10, "the gateway reads its list of hosts")
        while not any("may use the gateway from now on" in line for line in list(gateway.lines)):
            end.wait_a_moment()
        return gateway

    def put_and_get(self):
        file = self.home("client") / "FILE"
        data = os.urandom(FILE_BYTES)
        file.write_bytes(data)
        put, get = self.commands["client"]
        self.tell("client", put)
        file.unlink()
        self.tell("client", get)
        if file.read_bytes() != data:
            raise PeerError("gnstor get returns other contents than were stored with put")
        self.count("bytes", 2 * FILE_BYTES)
        self.step(f"put and get of {FILE_BYTES} bytes")

    def connect(self):
        """The page's discover and connect."""
        discover, connect, _ = self.commands["host"]
        nqn = by_hand.words(connect)[by_hand.words(connect).index("-n") + 1]
        if nqn not in self.guest.text(discover, 60):
            raise PeerError(f"'{discover}' does not show {nqn}")
        connect = re.sub(r" --dhchap-secret=\S+ --dhchap-ctrl-secret=\S+", lambda _: self.keys, connect)
        self.guest.run(f"{connect} {PATIENT}", 60)
        host.block_device(self.guest, CONTROLLER)
        self.count("commands", 2)
        return nqn

    def make_tree(self):
        self.nqn = self.connect()
        self.guest.run("modprobe ext4")
        self.guest.run(self.commands["host"][2], 180)
        self.count("commands")
        self.step("discover, connect, mkfs.ext4, mount")
        self.tree = tree = Tree(self.guest, DISK, TREE)
        tree.write()
        tree.unmount()
        tree.check()
        tree.mount()
        self.count("files", tree.compare("after a remount"))
        self.count("bytes", 2 * tree.bytes)
        tree.unmount()
        host.disconnect(self.guest, self.nqn)
        self.step(f"a tree of {tree.files} files, {tree.bytes >> 20} MiB, written, and compared after a remount; disconnect")

    def kill_and_restart(self, gateway):
        """With writes that were answered and not flushed: the host waits, and its sync succeeds; then everything is compared on a connection anew."""
        self.connect()
        self.tree.mount()
        self.guest.run(f"""set -e
            mkdir /mnt/late
            for i in $(seq {LATE_FILES}); do head -c {LATE_BYTES} /dev/urandom >/mnt/late/$i; done
            cd /mnt
            sha256sum late/* >/run/late
            dd if=/dev/urandom of=/mnt/late/direct bs=64k count=16 oflag=direct 2>/dev/null
            sha256sum late/direct >>/run/late""", 60)
        gateway.kill()
        state = f"cat /sys/class/nvme/{CONTROLLER}/state"
        self.guest.wait_for(f"[ $({state}) = connecting ]", 150, "the host detects that its gateway has ended")
        gateway.start()
        self.count("deaths")
        self.guest.wait_for(f"[ $({state}) = live ]", 120, "the host has reconnected")
        self.guest.run(f"sync -f /mnt && cat /run/late >>{self.tree.sums}", 120)
        self.tree.files += LATE_FILES + 1
        self.step("killed the gateway while it had answered writes that were not flushed, and started it again; the host has reconnected, and its sync succeeds")
        self.tree.compare("after the gateway was killed")
        self.tree.unmount()
        self.tree.check()
        host.disconnect(self.guest, self.nqn)
        self.connect()
        self.tree.mount()
        self.count("files", self.tree.compare("after the gateway was killed, and on a new connection"))
        self.count("bytes", 2 * self.tree.bytes)
        self.tree.unmount()
        host.disconnect(self.guest, self.nqn)
        self.guest.check_kernel_log(CONNECTION_LOST)
        self.step(f"{self.tree.files} files compared, e2fsck finds no error; compared again after disconnect and connect")
