"""The kernel's initiator on drives of ours, with GNStor's own commands through nvme-cli."""
import base64
import uuid

import program
from common import HOST_ADDRESS, PeerError
from guest import Guest

from . import array, host
from .base import Scenario

PORT = 4420
DRIVES, MEGABYTES = 2, 256
TERM = 3
VOLUME, OWNER, STRANGER = 7, 9, 10
BLOCKS = 4096
SIZES = [1, 2, 3, 8, 13, 16]  # blocks of one command; a chunk of a volume is 16 blocks
# A host that was told of no volume reads its partition table from VID 0, which is nobody's, and is refused; a subsystem that is not
# there is refused when it is connected to.
EXPECTED = [r"nvme\d+n1: .*Access Denied|I/O error, dev nvme\d+n1|Buffer I/O error on dev nvme\d+n1|unable to read partition table",
            r"nvme nvme\d+: (Connect Invalid .*(subsysnqn|SUBNQN)|failed to connect queue: 0 ret=)", r"unable to read RDB block"]


class Initiator(Scenario):
    """the guest's nvme-rdma on our drives: discovery, logs, GNStor's commands by passthru, refusals with their status"""

    def run(self):
        target = [program.find(self.programs, "peer_target"), HOST_ADDRESS, PORT, DRIVES, MEGABYTES]
        with Guest(self.image, self.folder, self.mtu) as guest, program.Program(target, self.folder / "target.txt") as ours:
            self.guest = guest
            self.nqns = [line.split()[2] for line in ours.lines if line.startswith("drive ")]
            self.step(f"guest and target are up: {ours.lines[-2]}")
            self.discover()
            self.administer()
            self.refuse_connects()
            self.write_and_read()
            self.refuse_a_stranger()
            guest.check_kernel_log(EXPECTED)
            for line in ours.stop().splitlines():
                self.step(line)
        self.judge_capture(guest)
        return self.finish(guest)

    def connect(self, host_nqn, number, nqn=None):
        return host.connect(self.guest, HOST_ADDRESS, PORT, nqn or self.nqns[0], host_nqn, f"11111111-2222-3333-4444-{number:012}")

    def nvme(self, words, wanted=0):
        self.count("commands")
        self.count("refusals", wanted != 0)
        return host.command(self.guest, words, wanted)

    def put(self, path, data):
        self.guest.run(f"echo {base64.b64encode(data).decode()} | base64 -d >{path}")

    def discover(self):
        self.guest.run("modprobe nvme_rdma")
        found = host.json_of(self.guest, f"discover -t rdma -a {HOST_ADDRESS} -s {PORT} --hostnqn={host.HOST_NQN} --hostid={host.HOST_ID}")["records"]
        shown = sorted((r["trtype"], r["traddr"], r["trsvcid"].strip(), r["subnqn"]) for r in found if "discovery" not in r["subnqn"])
        wanted = sorted(("rdma", HOST_ADDRESS, str(PORT), nqn) for nqn in self.nqns)
        if shown != wanted:
            raise PeerError(f"nvme discover shows {shown} in place of {wanted}")
        self.count("commands", 2)
        self.step(f"nvme discover shows {len(shown)} subsystems")

    def administer(self):
        """Identify, logs, the map and a volume, as the array's admin host."""
        device = self.connect(array.ADMIN_HOST, 1)
        namespace = host.block_device(self.guest, device)
        about = host.json_of(self.guest, f"id-ctrl /dev/{device}")
        space = host.json_of(self.guest, f"id-ns {namespace}")
        health = host.json_of(self.guest, f"smart-log /dev/{device}")
        listed = host.json_of(self.guest, f"list-ns /dev/{device}")
        errors = host.json_of(self.guest, f"error-log /dev/{device}")
        self.count("commands", 5)
        if about["subnqn"] != self.nqns[0] or about["cntrltype"] != 1 or about["ioccsz"] * 16 < 64 + array.BLOCK:
            raise PeerError(f"id-ctrl: {about}")
        if 1 << space["lbafs"][space["flbas"] & 15]["ds"] != array.BLOCK or space["nsze"] * array.BLOCK != MEGABYTES << 20:
            raise PeerError(f"id-ns: {space}")
        if health["critical_warning"] or [n["nsid"] for n in listed["nsid_list"]] != [1] or not errors["errors"]:
            raise PeerError(f"smart-log {health}, list-ns {listed}, error-log {errors}")
        drive = uuid.UUID(self.nqns[0][-36:]).bytes
        self.put("/tmp/map", array.map_set(drive))
        self.record = array.volume_record(VOLUME, "peer", OWNER, BLOCKS)
        self.put("/tmp/volume", self.record)
        send = f"admin-passthru /dev/{device} --cdw14={{}} -w"
        self.nvme(f"{send.format(TERM)} --opcode={array.MAP_SET:#x} --data-len={len(array.map_set(drive))} -i /tmp/map")
        add = f"--opcode={array.VOLUME_ADD:#x} --data-len={len(self.record)} -i /tmp/volume"
        self.nvme(f"{send.format(TERM)} {add}")
        self.nvme(f"{send.format(TERM)} {add}", array.VOLUME_EXISTS)
        self.nvme(f"{send.format(TERM - 1)} {add}", array.STALE_TERM)
        self.nvme(f"admin-passthru /dev/{device} --opcode=0xfe --data-len=4096 -r", array.INVALID_OPCODE)
        size = 16 + 384
        self.nvme(f"admin-passthru /dev/{device} --opcode={array.VOLUME_LIST:#x} --cdw11={size} --cdw14={TERM} -r --data-len={size}"
                  " --raw-binary >/tmp/list")
        held = self.guest.run("cat /tmp/list").output
        if held[16:] != self.record:
            raise PeerError(f"VOLUME LIST gives {held.hex()} in place of a header and {self.record.hex()}")
        host.disconnect(self.guest, self.nqns[0])
        self.step("id-ctrl, id-ns, list-ns, smart-log, error-log, MAP SET, VOLUME ADD, VOLUME LIST")

    def refuse_connects(self):
        """A subsystem that is not there."""
        words = (f"connect -t rdma -a {HOST_ADDRESS} -s {PORT} -n nqn.2026-11.io.gnstor:nobody --hostnqn={host.HOST_NQN}"
                 f" --hostid={host.HOST_ID}")
        if self.guest.run(f"nvme {words}", 60, None).status == 0:
            raise PeerError("nvme connect to a subsystem that is not there succeeds")
        self.count("refusals")
        self.step("a subsystem that is not there is refused")

    def io(self, device, opcode, words, blocks, file, wanted=0):
        way = {array.WRITE: f"-w -i {file}", array.READ: f"-r --raw-binary >{file}", array.FLUSH: ""}[opcode]
        size = f"--data-len={blocks * array.BLOCK}" if opcode != array.FLUSH else ""
        self.nvme(f"io-passthru {device} --namespace-id=1 --opcode={opcode} {words} {size} {way}", wanted)
        if not wanted and opcode != array.FLUSH:
            self.count("bytes", blocks * array.BLOCK)

    def write_and_read(self):
        """As the volume's owner."""
        device = self.connect(array.client_host(OWNER), OWNER)
        disk = host.block_device(self.guest, device)
        block, sequence = 0, 0
        for blocks in SIZES * 2:
            self.guest.run(f"head -c {blocks * array.BLOCK} /dev/urandom >/tmp/data{block}")
            sequence += 1
            # No command may cross a chunk.
            self.io(disk, array.WRITE, array.io_words(VOLUME, OWNER, block, blocks, sequence=sequence), blocks, f"/tmp/data{block}")
            block += 16
        self.io(disk, array.FLUSH, array.io_words(VOLUME, OWNER, 0, 1), 0, "")
        self.step(f"{2 * len(SIZES)} writes, a flush")
        self.guest.run(f"nvme reset /dev/{device}", 60)
        self.guest.wait_for(f"[ $(cat /sys/class/nvme/{device}/state) = live ]", 30, "the controller live again after its reset")
        self.step("nvme reset")
        block = 0
        for blocks in SIZES * 2:
            self.io(disk, array.READ, array.io_words(VOLUME, OWNER, block, blocks), blocks, "/tmp/read")
            self.guest.run(f"cmp /tmp/data{block} /tmp/read")
            block += 16
        # Three sectors of one block, from the second on.
        self.nvme(f"io-passthru {disk} --namespace-id=1 --opcode={array.READ} {array.io_words(VOLUME, OWNER, 0, 1)} --cdw13={3 << 8 | 2}"
                  " --data-len=1536 -r --raw-binary >/tmp/read")
        self.guest.run("dd if=/tmp/data0 bs=512 skip=2 count=3 2>/dev/null | cmp - /tmp/read")
        self.step(f"{2 * len(SIZES)} reads and one of three sectors, compared")
        words, write, read = array.io_words, array.WRITE, array.READ
        for opcode, given, wanted in (
                (write, words(VOLUME, STRANGER, 0, 1, sequence=90), array.ACCESS_DENIED),
                (read, words(VOLUME + 1, OWNER, 0, 1), array.ACCESS_DENIED),
                (read, words(0, 0, 0, 1), array.ACCESS_DENIED),
                (read, words(VOLUME, OWNER, BLOCKS, 1), array.LBA_OUT_OF_RANGE),
                (write, words(VOLUME, OWNER, BLOCKS - 1, 2, sequence=91), array.LBA_OUT_OF_RANGE),
                (write, words(VOLUME, OWNER, 0, 1, epoch=0, sequence=92), array.STALE_EPOCH),
                (read, words(VOLUME, OWNER, 0, 1, version=0), array.STALE_MAP)):
            blocks = 2 if "--cdw12=1" in given.split() else 1
            self.io(disk, opcode, given, blocks, "/tmp/data16" if opcode == write else "/tmp/read", wanted)
        self.nvme(f"io-passthru {disk} --namespace-id=1 --opcode=0x7d {words(VOLUME, OWNER, 0, 1)}", array.INVALID_OPCODE)
        self.nvme(f"admin-passthru /dev/{device} --opcode={array.VOLUME_ADD:#x} --cdw14={TERM} -w --data-len=384 -i /tmp/volume",
                  array.ACCESS_DENIED)
        health = host.json_of(self.guest, f"smart-log /dev/{device}")
        if min(int(health["host_write_commands"]), int(health["host_read_commands"])) < 2 * len(SIZES):
            raise PeerError(f"smart-log has counted less than was done: {health}")
        noted = host.json_of(self.guest, f"error-log /dev/{device}")["errors"]
        if not any(int(entry["error_count"]) for entry in noted):
            raise PeerError(f"the error log knows nothing of the refusals: {noted}")
        host.disconnect(self.guest, self.nqns[0])
        self.step("9 refusals, each with its status, and the error log knows")

    def refuse_a_stranger(self):
        """A client that has no right to the volume, under its own name."""
        device = self.connect(array.client_host(STRANGER), STRANGER)
        disk = host.block_device(self.guest, device)
        words = array.io_words(VOLUME, STRANGER, 0, 1, sequence=95)
        self.io(disk, array.WRITE, words, 1, "/tmp/data0", array.ACCESS_DENIED)
        self.io(disk, array.READ, words, 1, "/tmp/read", array.ACCESS_DENIED)
        host.disconnect(self.guest, self.nqns[0])
        self.step("a stranger is refused")
