"""What a guest's kernel says, judged: which of its lines say that something is wrong with it, or with its NVMe host or target."""
import re

# Words of a warning, at whatever level.
WARNINGS = re.compile(r"\bBUG\b|WARNING|Call Trace|Oops|blocked for more than|soft lockup|detected stall|I/O error|EXT4-fs (error|warning)"
                      r"|nvme nvme\d+: .*(timeout|timed out|[Ff]ailed|error)|nvmet(_rdma)?: .*(failed|error|fatal)"
                      r"|rxe.*([Ff]ail|error|[Ii]nvalid)")
LINE = re.compile(r"<(\d+)>\[ *\d+\.\d+\] (.*)")
WARNING = 4  # this level and those below it (errors, alerts)
# What it says where nothing is wrong: a virtual device has no speed, and an emulated processor was not given a real one for a while.
ALWAYS = ["eth0 speed is unknown, defaulting to 1000",
          r"hrtimer: interrupt took \d+ ns", r"clocksource: .*", r"TSC found unstable after boot, most likely due to broken BIOS\. Use 'tsc=unstable'\.",
          "sched: RT throttling activated", r"workqueue: \w+( \[\w+\])? hogged CPU for >\d+us \d+ times, consider switching to WQ_UNBOUND",
          r"nvme nvme\d: long keepalive RTT \(\d+ ms\)", r"nvme nvme\d: Shutdown timeout set to \d+ seconds",
          "sched: DL replenish lagged too much", r"NOHZ tick-stop error: local softirq work is pending, handler #\w+!!!"]
# A disconnect ends the keep-alive that is under way, and the host calls that one failed: after the first, until there is another
# controller of the name, the second says nothing.
REMOVED = re.compile(r"nvme (nvme\d+): Removing ctrl: .*")
CREATED = re.compile(r"nvme (nvme\d+): (creating \d+ I/O queues\.|new ctrl: .*)")
ENDED = re.compile(r"nvme (nvme\d+): failed nvme_keep_alive_end_io error=4")  # BLK_STS_TRANSPORT

# A host that goes back to a lost packet executes memory registrations a second time, and its queue pair fails for good. That is a defect of the
# host, on 6.1 and 6.12, with every target (scenarios/lossy.py).
WENT_BACK = [r"rdma_rxe: rxe_reg_fast_mr: mr->lkey = 0x\w+ not free",
             r"rdma_rxe: rxe_invalidate_mr: wr key \(0x\w+\) doesn't match mr key \(0x\w+\)"]
# What a host says whose connection is lost, until it has connected again; nothing of it is an error of the block device or the file system.
CONNECTION_LOST = [r"nvme nvme\d: I/O (tag )?\d+ .*QID \d+ timeout", r"nvme nvme\d: starting error recovery", r"nvme nvme\d: failed nvme_keep_alive_end_io error=-?\d+",
                   r"nvme nvme\d: (RECV|SEND|MEMREG|LOCAL_INV) for CQE 0x\w+ failed with status .*",
                   r"nvme nvme\d: keep-alive failed: -?\d+", r"nvme nvme\d: Property Set error: -?\d+, offset 0x\w+",
                   r"nvme nvme\d: Connect command failed, .*", r"nvme nvme\d: Identify Controller failed \(-?\d+\)",
                   r"nvme nvme\d: Failed reconnect attempt \d+(/\d+)?", r"nvme nvme\d: rdma connection establishment failed \(-\d+\)",
                   r"nvme nvme\d: failed to connect queue: \d+ ret=-?\d+", r"nvme nvme\d: Property Get error: -?\d+, offset 0x\w+",
                   r"nvme nvme\d: Connect rejected: status -?\d+ \(.*\)\.?", r"block nvme\dn1: no usable path - requeuing I/O",
                   r"nvme_ns_head_submit_bio: \d+ callbacks suppressed",
                   *WENT_BACK]


def went_back(text):
    """How often the host's own defect cost it a connection in `text`: 0 where the defect is not in it."""
    if not any(re.search(pattern, line) for line in text.splitlines() for pattern in WENT_BACK):
        return 0
    return max(1, len(re.findall(r"nvme nvme\d: starting error recovery", text)))


def judge(text, expected=()):
    """(what was said, the lines of `text` that are wrong): those that are a warning by their level or their words, and none of `expected`
    (patterns of whole lines). `text` is what dmesg -r prints."""
    said, wrong, removed = [], [], set()
    for line in text.splitlines():
        match = LINE.fullmatch(line.rstrip())
        words = match[2] if match else line
        said.append(words)
        if created := CREATED.fullmatch(words):
            removed.discard(created[1])
        if gone := REMOVED.fullmatch(words):
            removed.add(gone[1])
        grave = not match or int(match[1]) & 7 <= WARNING or WARNINGS.search(words)
        ended = ENDED.fullmatch(words)
        allowed = any(re.fullmatch(pattern, words) for pattern in (*ALWAYS, *expected)) or (ended and ended[1] in removed)
        if grave and not allowed:
            wrong.append(line)
    return said, wrong
