"""The guest's nvme-rdma as host of a gateway of ours that demands keys: nodes, gnstord and the gateway are the programs themselves."""
import contextlib
import json
import re

import dhchap
import program
import spaces
from common import GUEST_ADDRESS, TAP, Deadline, PeerError
from guest import Guest
from kernel_log import CONNECTION_LOST

from . import host
from .base import Scenario

VOLUME = "disk"
NQN = f"nqn.2026-11.io.gnstor:volume:{VOLUME}"
NODE, GATEWAY = "10.77.1.1", "10.77.1.2"
PORT = 4420
MEGABYTES = 4
OTHER_ID = "22222222-3333-4444-5555-666666666666"
OTHER_NQN = f"nqn.2014-08.org.nvmexpress:uuid:{OTHER_ID}"
HASHES = ("sha256", "sha384", "sha512")
# What a Linux host says of an authentication that fails.
REFUSALS = [r"nvme nvme\d+: qid \d+: .*", r"nvme nvme\d+: failed to connect queue: \d+ ret=-?\d+", r"nvme nvme\d+: .*[Aa]uthentication.*",
            r"nvme nvme\d+: queue_size \d+ > ctrl .*", r"nvme nvme\d+: .*hash.*"]
ENDED = [*CONNECTION_LOST, *REFUSALS, r"nvme nvme\d+: Reconnecting in \d+ seconds.*", r"nvme nvme\d+: Removing controller.*", r"nvme\d\S*: I/O Cmd.*",
         r"(I/O|Buffer I/O) error.*dev nvme\S+.*", r"Buffer I/O error on dev nvme\S+.*", r"block nvme\S+: no available path - failing I/O",
         r"(buffer_io_error|nvme_ns_head_submit_bio|blk_print_req_error): \d+ callbacks suppressed", r"nvme nvme\d+: Failed reconnect attempt.*",
         r"nvme nvme\d+: property .*"]


class AuthHost(Scenario):
    """the guest's nvme-rdma on a gateway that demands keys: fio with the right ones, refusals with a line each, a key that is removed under load"""

    mtu = 9000

    def run(self):
        self.keys, self.listed = [], 0
        with contextlib.ExitStack() as stack:
            guest = self.guest = stack.enter_context(Guest(self.image, self.folder, self.mtu))
            for address, device in ((NODE, "lo"), (GATEWAY, TAP)):
                spaces.ip("address", "add", f"{address}/32", "dev", device)
                stack.callback(spaces.ip, "address", "del", f"{address}/32", "dev", device)
            guest.run(f"modprobe nvme_rdma; ip route add {GATEWAY} dev eth0 src {GUEST_ADDRESS}")
            self.begin(stack)
            self.step(f"guest, node, gnstord and gateway are up: {self.gateway.lines[-1]}")
            self.let_in()
            self.refuse()
            guest.check_kernel_log(REFUSALS)
            self.rotate()
            self.remove_under_load()
            self.log_holds_no_key()
        self.judge_capture(guest, ours=GATEWAY)
        return self.finish(guest)

    def begin(self, stack):
        gnstor = program.find(self.programs, "gnstor")
        self.gnstor = lambda *words: [gnstor, *words, "--dir", self.folder / "array"]
        stack.enter_context(program.Program([gnstor, "node", "--dir", self.folder / "node", "--ssds", 2, "--capacity", "256MiB", "--listen", NODE],
                                            self.folder / "node.txt", "gnstor node: serving 2 SSDs at "))
        stack.enter_context(program.Program([program.find(self.programs, "gnstord"), "--dir", self.folder / "array", "--nodes", NODE,
                                             "--node-key", self.folder / "node/node.key"], self.folder / "gnstord.txt",
                                            r"gnstord: serving \S+ on "))
        self.tell("volume", "create", VOLUME, "64MiB", "--replicas", 2)
        self.gateway = stack.enter_context(program.Program(self.gnstor("node", "--gateway", VOLUME, "--listen", GATEWAY), self.folder / "gateway.txt",
                                                           "gnstor node: no host may use it yet"))

    def tell(self, *words):
        return program.run(self.gnstor(*words), self.folder / "commands.txt", 60)

    def shown(self, *words):
        """What a command that makes keys shows: its words for nvme connect, and the keys."""
        made = json.loads(self.tell("gateway", "host", *words, "--output", "json"))
        self.keys += [made["key"], made["controller_key"]]
        return made

    def connect(self, line, more="--keep-alive-tmo=15 --nr-write-queues=1", seconds=60):
        """nvme connect as the command shows it; returns its result."""
        return self.guest.run(f"{line} --hostid={OTHER_ID if OTHER_NQN in line else host.HOST_ID} {more} -o json", seconds, None)

    def connected(self, line, more="--keep-alive-tmo=15 --nr-write-queues=1"):
        done = self.connect(line, more)
        if done.status != 0:
            raise PeerError(f"nvme connect with the right keys exits with {done.status}: {done.text[-800:]}; dmesg: {self.guest.text('dmesg | tail -n 20')}")
        device = json.loads(done.text)["device"]
        self.guest.wait_for(f"[ $(cat /sys/class/nvme/{device}/state) = live ]", 20, f"the controller {device} is live")
        return device

    def load(self, device):
        disk = host.block_device(self.guest, device)
        moved, commands = host.verify(self.guest, disk, MEGABYTES)
        self.count("bytes", moved)
        self.count("commands", commands)
        return disk

    def let_in(self):
        """With the keys of each length; both ways, and the host's alone."""
        for number, hash_name in enumerate(HASHES):
            made = self.shown(*(("add", VOLUME, host.HOST_NQN) if number == 0 else ("rotate", VOLUME, host.HOST_NQN)), "--hash", hash_name)
            self.made = made
            if GATEWAY not in made["connect"] or NQN not in made["connect"]:
                raise PeerError("gnstor gateway host add shows a command without the address or the name of the gateway")
            self.wait_until_listed(hash_name)
            one_way = re.sub(r" --dhchap-ctrl-secret=\S+", "", made["connect"])
            for line in (made["connect"], one_way):
                self.load(self.connected(line))
                host.disconnect(self.guest, NQN)
                self.count("admissions")
            self.step(f"keys of {hash_name}: connected with both and with the host's alone; data verified")

    def wait_until_listed(self, what):
        """The gateway reads its list twice a second; it says so."""
        self.listed += 1
        end = Deadline(10, f"the gateway takes the list with the keys of {what}")
        while self.gateway_lines("may use the gateway from now on") < self.listed:
            end.wait_a_moment()

    def gateway_lines(self, text):
        return sum(text in line for line in list(self.gateway.lines))

    def refuse(self):
        """Each ends with an error of nvme connect, and with one line of the gateway's log that names the host and its address."""
        other = self.shown("add", VOLUME, OTHER_NQN)
        self.wait_until_listed("another host")
        right = self.made["connect"]
        wrong = dhchap.make_key(3)
        self.keys.append(wrong)
        bare = re.sub(r" --dhchap-\S+", "", right)
        for what, line, who in (("a wrong key", f"{bare} --dhchap-secret={wrong}", host.HOST_NQN),
                                ("a wrong key of the gateway", f"{bare} --dhchap-secret={self.made['key']} --dhchap-ctrl-secret={wrong}", host.HOST_NQN),
                                ("another host's key", f"{bare} --dhchap-secret={other['key']}", host.HOST_NQN),
                                ("no key", bare, host.HOST_NQN),
                                ("a host that is not listed", right.replace(host.HOST_NQN, OTHER_NQN + "0"), OTHER_NQN + "0")):
            before = list(self.gateway.lines)
            if self.connect(line).status == 0:
                raise PeerError(f"nvme connect with {what} succeeds")
            said = self.lines_after(before, who, what)
            if len(said) != 1 or GUEST_ADDRESS not in said[0]:
                raise PeerError(f"for {what} the gateway should log one line with the host's name and address, but it logs {said}")
            self.count("refusals")
            self.step(f"{what}: refused; {said[0][-150:]}")
        self.guest.wait_for("! ls /sys/class/nvme | grep -q .", 20, "no controller is left")

    def lines_after(self, before, who, what):
        end = Deadline(20, f"the gateway logs a line about {who}, {what}")
        while not (said := [line for line in self.gateway.lines[len(before):] if who in line]):
            end.wait_a_moment()
        return said

    def rotate(self):
        """The old key is worth nothing; the new one is."""
        old = self.made["connect"]
        self.made = self.shown("rotate", VOLUME, host.HOST_NQN)
        self.wait_until_listed("a rotation")
        if self.connect(old).status == 0:
            raise PeerError("nvme connect with a key that was rotated succeeds")
        self.count("refusals")
        self.device = self.connected(self.made["connect"], "--keep-alive-tmo=15 --nr-write-queues=1 --reconnect-delay=1 --ctrl-loss-tmo=5")
        self.disk = self.load(self.device)
        self.step("a rotated key: the old one is refused, with the new one data is verified")

    def remove_under_load(self):
        self.guest.run(f"fio --thread --name=load --filename={self.disk} --size=32m --rw=randwrite --bs=16k --ioengine=libaio --direct=1 --iodepth=8 --rate=2m"
                       " --time_based --runtime=600 --output=/run/load.txt >/run/load.err 2>&1 &\necho $! >/run/load.pid")
        self.guest.wait_for("awk '/^write_bytes/ { exit !($2 > 2000000) }' /proc/$(cat /run/load.pid)/io", 60, "fio has written 2 MB")
        before = list(self.gateway.lines)
        self.tell("gateway", "host", "remove", VOLUME, host.HOST_NQN)
        said = self.lines_after(before, host.HOST_NQN, "its key is removed")
        if not any("its key was removed" in line for line in said):
            raise PeerError(f"the gateway does not say that the host's key was removed: {said}")
        self.guest.wait_for("! kill -0 $(cat /run/load.pid)", 120, "the I/O of a host whose key was removed ends")
        report = self.guest.text("cat /run/load.txt /run/load.err")
        if "err= 0" in report or "error" not in report.lower():
            raise PeerError(f"fio, whose host lost its key, reports no error: {report}")
        self.guest.wait_for("! ls /sys/class/nvme | grep -q .", 60, "the host has given its controller up")
        if self.connect(self.made["connect"]).status == 0:
            raise PeerError("nvme connect with a key that was removed succeeds")
        self.count("refusals")
        self.count("removals")
        self.guest.check_kernel_log(ENDED)
        self.step("a key removed under load: I/O ends with an error, and the host is not let in again")

    def log_holds_no_key(self):
        for file in ("gateway.txt", "gnstord.txt", "node.txt"):
            dhchap.check_secret((self.folder / file).read_text(errors="replace"), self.keys, file)
        dhchap.check_secret(self.tell("gateway", "host", "list", VOLUME), self.keys, "gnstor gateway host list")
        dhchap.check_secret(json.dumps(json.loads(self.tell("status", "--output", "json"))), self.keys, "gnstor status")
        self.gateway.stop()
