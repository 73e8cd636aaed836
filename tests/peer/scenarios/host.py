"""The guest's NVMe host: connecting, disconnecting, and loads on a block device of its."""
import json
import re

from common import PeerError

from . import array

HOST_ID = "11111111-2222-3333-4444-555555555555"
HOST_NQN = f"nqn.2014-08.org.nvmexpress:uuid:{HOST_ID}"


def connect(guest, address, port, nqn, host_nqn=HOST_NQN, host_id=HOST_ID, seconds=60, more=""):
    """`nvme connect -t rdma`; returns the name of the controller ("nvme0"), which is live. Kept alive for longer than the usual 5 s,
    so that a guest which was not given a processor for a while does not lose it."""
    guest.run("modprobe nvme_rdma")
    text = guest.text(f"nvme connect -t rdma -a {address} -s {port} -n {nqn} --hostnqn={host_nqn} --hostid={host_id} --keep-alive-tmo=15 --nr-write-queues=1 {more} -o json",
                      seconds)
    device = json.loads(text)["device"]
    guest.wait_for(f"[ $(cat /sys/class/nvme/{device}/state) = live ]", 10, f"the controller {device} is live")
    return device


def block_device(guest, controller, namespace=1):
    device = f"/dev/{controller}n{namespace}"
    guest.wait_for(f"[ -b {device} ]", 20, f"the block device {device} appears")
    return device


def disconnect(guest, nqn):
    guest.run(f"nvme disconnect -n {nqn}", 60)
    guest.wait_for("! ls /sys/class/nvme | grep -q .", 20, "all controllers are removed")


def verify(guest, device, megabytes, jobs=1, seconds=300, least=4096, most=131072):
    """fio writes blocks of random sizes at random places and reads all back by their CRC-32C; returns (bytes, commands)."""
    text = guest.text(f"""fio --name=verify --filename={device} --ioengine=libaio --direct=1 --rw=randwrite --bsrange={least}-{most}
        --blockalign={least} --iodepth=8 --size={megabytes}m --numjobs={jobs} --offset_increment={megabytes}m --verify=crc32c --verify_fatal=1
        --do_verify=1 --group_reporting --output-format=json""".replace("\n", " "), seconds)
    job = json.loads(text[text.index("{"):])["jobs"][0]
    wrote, read = job["write"], job["read"]
    total = megabytes * jobs << 20
    if job["error"] or wrote["io_bytes"] != total or read["io_bytes"] != total:
        raise PeerError(f"fio on {device} ended with error {job['error']}, wrote {wrote['io_bytes']} and verified {read['io_bytes']} of {total} bytes")
    return wrote["io_bytes"] + read["io_bytes"], wrote["total_ios"] + read["total_ios"]


def status(done):
    """The NVMe status that nvme-cli reports: type and code, and whether Do Not Retry is set; PeerError where it reports none."""
    if done.status == 0:
        return 0
    said = re.search(rb"NVMe status: .*\((0x[0-9a-f]+)\)", done.output, re.I)
    if not said:
        raise PeerError(f"nvme-cli exited with status {done.status} and printed no NVMe status: {done.text[-500:]}")
    return int(said[1], 16) & (array.DO_NOT_RETRY | 0x7FF)  # without More and the retry delay


def command(guest, words, wanted=0, seconds=60):
    """`nvme WORDS`, which must end with the NVMe status `wanted`, to be retried or not as that status is."""
    done = guest.run(f"nvme {words}", seconds, None)
    got, wanted = status(done), array.field(wanted)
    if got != wanted:
        raise PeerError(f"nvme {words}: NVMe status {got:#06x}, expected {wanted:#06x}: {done.text[-500:]}")
    return done


def json_of(guest, words):
    text = guest.text(f"nvme {words} -o json")
    return json.loads(text[text.index("{"):])
