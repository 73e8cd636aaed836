"""The kernel's initiator on drives of ours, with GNStor's own commands through nvme-cli."""
import base64
import re
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
LARGEST = 256  # blocks: MDTS
SIZES = [1, 2, 3, 8, 13, 16]  # blocks of one command; a chunk of a volume is 16 blocks
# A host that was told of no volume looks for a partition table in the first blocks of VID 0, which is nobody's, and is refused.
NO_TABLE = [r"nvme0c0n1: I/O Cmd\(0x2\) @ LBA [0-3], 1 blocks, I/O Error \(sct 0x2 / sc 0x86\) DNR ?",
            r"critical medium error, dev nvme0c0n1, sector (0|8|16|24) op 0x0:\(READ\) flags 0x\w+ phys_seg 1 prio class \d",
            r"Buffer I/O error on dev nvme0n1, logical block [0-3], async page read", r"(Dev nvme0n1: | nvme0n1: )?unable to read (RDB block 0|partition table)",
            r"(nvme_log_error|buffer_io_error|blk_print_req_error): \d+ callbacks suppressed"]
RESET = ["nvme nvme0: resetting controller"]  # as it is told to
NOBODY = "nqn.2026-11.io.gnstor:nobody"
# What a kernel says of such a name's refusal: which of the two that it has, and the status field as it came.
REFUSED = [rf'nvme nvme0: Connect Invalid Data Parameter, subsysnqn "{NOBODY}"',
           f"nvme nvme0: failed to connect queue: 0 ret={array.field(array.CONNECT_INVALID_PARAMETERS)}"]


class Initiator(Scenario):
    """the guest's nvme-rdma on our drives: discovery, logs, GNStor's commands by passthru, refusals with their status"""

    def run(self):
        target = [program.find(self.programs, "peer_target"), HOST_ADDRESS, PORT, DRIVES, MEGABYTES]
        with Guest(self.image, self.folder, self.mtu) as guest, program.Program(target, self.folder / "target.txt") as ours:
            self.guest = guest
            self.nqns = ours.said(r"drive \d+ (\S+)$")
            self.step(f"guest and target are up: {ours.lines[ours.is_ready - 2]}")
            self.discover()
            self.administer()
            self.refuse_connects()
            self.write_and_read()
            self.refuse_commands()
            self.move_the_most()
            host.disconnect(guest, self.nqns[0])
            self.refuse_a_stranger()
            guest.check_kernel_log([*NO_TABLE, *RESET])
            for line in ours.stop():
                self.step(line)
        self.judge_capture(guest, "whole")
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
            raise PeerError(f"nvme discover shows {shown}, expected {wanted}")
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
        if about["subnqn"] != self.nqns[0] or about["cntrltype"] != 1 or about["ioccsz"] * 16 < 64 + array.BLOCK or 1 << about["mdts"] != LARGEST:
            raise PeerError(f"id-ctrl: {about}")
        if 1 << space["lbafs"][space["flbas"] & 15]["ds"] != array.BLOCK or space["nsze"] * array.BLOCK != MEGABYTES << 20:
            raise PeerError(f"id-ns: {space}")
        if health["critical_warning"] or [n["nsid"] for n in listed["nsid_list"]] != [1] or not errors["errors"]:
            raise PeerError(f"an unexpected log or list: smart-log {health}, list-ns {listed}, error-log {errors}")
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
            raise PeerError(f"VOLUME LIST returns {held.hex()}, expected a header and the record {self.record.hex()}")
        host.disconnect(self.guest, self.nqns[0])
        self.step("id-ctrl, id-ns, list-ns, smart-log, error-log, MAP SET, VOLUME ADD, VOLUME LIST")

    def refuse_connects(self):
        """A subsystem that is not there."""
        self.guest.check_kernel_log(NO_TABLE)
        words = f"connect -t rdma -a {HOST_ADDRESS} -s {PORT} -n {NOBODY} --hostnqn={host.HOST_NQN} --hostid={host.HOST_ID}"
        if self.guest.run(f"nvme {words}", 60, None).status == 0:
            raise PeerError("nvme connect to a subsystem that does not exist succeeds")
        said = self.guest.check_kernel_log(REFUSED)
        if missing := [pattern for pattern in REFUSED if not any(re.fullmatch(pattern, line) for line in said)]:
            raise PeerError(f"for a subsystem that does not exist the guest's kernel should log {missing}, but it logs {said}")
        self.count("refusals")
        self.step("connecting to a subsystem that does not exist is refused with the right status")

    def io(self, device, opcode, words, blocks, file, wanted=0):
        way = {array.WRITE: f"-w -i {file}", array.READ: f"-r --raw-binary >{file}", array.FLUSH: ""}[opcode]
        size = f"--data-len={blocks * array.BLOCK}" if opcode != array.FLUSH else ""
        self.nvme(f"io-passthru {device} --namespace-id=1 --opcode={opcode} {words} {size} {way}", wanted)
        if not wanted and opcode != array.FLUSH:
            self.count("bytes", blocks * array.BLOCK)

    def write_and_read(self):
        """As the volume's owner."""
        device = self.device = self.connect(array.client_host(OWNER), OWNER)
        disk = self.disk = host.block_device(self.guest, device)
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
        self.guest.wait_for(f"[ $(cat /sys/class/nvme/{device}/state) = live ]", 30, "the controller is live again after its reset")
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

    def refuse_commands(self):
        disk, device = self.disk, self.device
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
            raise PeerError(f"smart-log counts fewer commands than were executed: {health}")
        noted = host.json_of(self.guest, f"error-log /dev/{device}")["errors"]
        if not any(int(entry["error_count"]) for entry in noted):
            raise PeerError(f"the error log does not contain the refused commands: {noted}")
        self.step("9 commands refused, each with the right status, and listed in the error log")

    def move_the_most(self):
        """The largest command that the controller takes (MDTS), and what is one block too much for a host and for the target."""
        first, size = BLOCKS // 2, LARGEST * array.BLOCK
        self.guest.run(f"head -c {size + array.BLOCK} /dev/urandom >/tmp/most; head -c {size} /tmp/most >/tmp/largest")
        self.io(self.disk, array.WRITE, array.io_words(VOLUME, OWNER, first, LARGEST, sequence=80), LARGEST, "/tmp/largest")
        self.io(self.disk, array.READ, array.io_words(VOLUME, OWNER, first, LARGEST), LARGEST, "/tmp/read")
        self.guest.run("cmp /tmp/largest /tmp/read")
        # The kernel knows the limit; were it not to, its target does.
        more = array.io_words(VOLUME, OWNER, first, LARGEST + 1)
        done = self.guest.run(f"nvme io-passthru {self.disk} --namespace-id=1 --opcode={array.READ} {more} --data-len={size + array.BLOCK} -r", 60, None)
        if done.status == 0 or "Invalid argument" not in done.text:
            raise PeerError(f"the guest's kernel should refuse a command of {size + array.BLOCK} bytes with 'Invalid argument', but it exits with {done.status}, {done.text[-300:]}")
        self.count("refusals")
        for opcode, file in ((array.READ, "/tmp/read"), (array.WRITE, "/tmp/largest")):
            way = f"-w -i {file}" if opcode == array.WRITE else "-r"
            self.nvme(f"io-passthru {self.disk} --namespace-id=1 --opcode={opcode} {more} --data-len={size} {way}", array.INVALID_FIELD)
        self.io(self.disk, array.READ, array.io_words(VOLUME, OWNER, first, LARGEST), LARGEST, "/tmp/read")
        self.guest.run("cmp /tmp/largest /tmp/read")
        self.step(f"{LARGEST * array.BLOCK >> 20} MiB in one command, written, read and compared; a command of one more block refused by the kernel and by the target")

    def refuse_a_stranger(self):
        """A client that has no right to the volume, under its own name."""
        device = self.connect(array.client_host(STRANGER), STRANGER)
        disk = host.block_device(self.guest, device)
        words = array.io_words(VOLUME, STRANGER, 0, 1, sequence=95)
        self.io(disk, array.WRITE, words, 1, "/tmp/data0", array.ACCESS_DENIED)
        self.io(disk, array.READ, words, 1, "/tmp/read", array.ACCESS_DENIED)
        host.disconnect(self.guest, self.nqns[0])
        self.step("a client without rights to the volume is refused")


class InitiatorAt3000(Initiator):
    """initiator where packets carry 2048 bytes"""

    mtu = 3000
