"""What one cell of a table says of a case: the median over its repeats (least … most), or a dash where a repeat did not measure it."""
import re
import statistics
from typing import Callable, NamedTuple

LATENCIES = (("mean", "mean µs"), ("p50", "p50 µs"), ("p99", "p99 µs"), ("p999", "p99.9 µs"))
EXTRAS = (("bytes_a_block", "bytes a block", 2), ("times_reference", "times the reference", 2),
          ("write_amplification", "write amplification", 2), ("greedy_all_units", "greedy curve, all units", 2),
          ("greedy_data_units", "greedy curve, units for data", 2), ("journal_share", "journal's share of programs", 4), ("stalls", "waits for a sync", 0),
          ("recovery_seconds", "seconds", 2), ("memory_mib_a_gib", "MiB of memory a GiB", 2),
          ("fragments_while_running", "pieces a MiB, meanwhile", 2), ("fragments_after", "pieces a MiB, at the end", 2),
          ("alloc_ns", "ns an allocation", 1), ("free_ns", "ns a free", 1), ("failed_share", "share that failed", 4))
PAUSES = (("p50", "p50 ns"), ("p99", "p99 ns"), ("p999", "p99.9 ns"), ("max", "longest ns"))
BESIDE_PROFILE = (("expected_per_second_least", "expected IOPS, least"), ("expected_per_second_most", "expected IOPS, most"),
                  ("configured_limit_per_second", "profile's limit, IOPS"))
COSTS = (("initiator_cpu_seconds", "initiator CPU µs/op"), ("array_cpu_seconds", "array engine CPU µs/op"),
         ("engine_cpu_seconds", "engine CPU µs/op"), ("lane_cpu_seconds", "lanes CPU µs/op"))
BUSY = re.compile(r"busy_gn-(nic|ssd|engine)-\d+")
NONE = "—"


def spread(values, unit=1.0, digits=0):
    values = sorted(v / unit for v in values)
    middle = statistics.median(values)
    shown = f"{middle:,.{digits}f}"
    return shown if len(values) == 1 else f"{shown} ({values[0]:,.{digits}f} … {values[-1]:,.{digits}f})"


def cost(case, key):
    """CPU time an operation."""
    if not all(key in r and r["operations"] for r in case["repeats"]):
        return NONE
    return spread([r[key] / r["operations"] for r in case["repeats"]], 1e-6, 2)


def optional(case, key, digits):
    """What only some cases measure."""
    return spread([r[key] for r in case["repeats"]], 1, digits) if all(key in r for r in case["repeats"]) else NONE


def latency(case, key, unit=1e3, digits=1):
    known = all(key in r.get("latency_ns", {}) for r in case["repeats"])
    return spread([r["latency_ns"][key] for r in case["repeats"]], unit, digits) if known else NONE


def iops(case):
    return spread([r["operations"] / r["seconds"] for r in case["repeats"]])


def gigabytes(case):
    return spread([r.get("bytes", 0) / r["seconds"] for r in case["repeats"]], 1e9, 3)


def nanoseconds(case):
    """Time of a core an operation."""
    cores = case.get("parameters", {}).get("cores", 1)
    return spread([r["seconds"] * cores / r["operations"] for r in case["repeats"]], 1e-9, 1)


def busy(case):
    """Of the threads of each role, how busy the least and the most busy one was."""
    roles = {}
    for key in case["repeats"][0]:
        if match := BUSY.fullmatch(key):
            roles.setdefault(match[1], []).append(100 * statistics.median(r[key] for r in case["repeats"]))
    shown = {"nic": "NIC ", "ssd": "SSD ", "engine": ""}
    return ", ".join(shown[role] + (f"{shares[0]:.0f}" if len(shares) == 1 else f"{min(shares):.0f} … {max(shares):.0f}")
                     for role, shares in roles.items()) or NONE


def threads(case):
    return ", ".join(f"{kind} {count}" for kind, count in case.get("threads", {}).items()) or NONE


def sent_again(case, key):
    """Packets of all repeats."""
    return f"{sum(r[key] for r in case['repeats']):,.0f}" if all(key in r for r in case["repeats"]) else NONE


def lost(case):
    """Of sockets: the share that did not arrive."""
    shares = [100 * r["lost_share"] for r in case["repeats"] if "lost_share" in r]
    return spread(shares, 1, 1) if len(shares) == len(case["repeats"]) else NONE


def cpu_per_gigabyte(case):
    """CPU time of all threads, waiting by polling included, by what they moved."""
    if not all(r.get("bytes") and "engine_cpu_seconds" in r for r in case["repeats"]):
        return NONE
    return spread([(r["engine_cpu_seconds"] + r.get("lane_cpu_seconds", 0)) / r["bytes"] for r in case["repeats"]], 1e-9, 2)


def of_limit(case):
    """Achieved over what the profile allows: of drives or network, whichever is less."""
    first = case["repeats"][0]
    known = [(first[key], word) for key, word in (("limit_drives_per_second", "drives"), ("limit_network_per_second", "network")) if key in first]
    if not known:
        return NONE
    limit, word = min(known)
    return f"{spread([100 * r['operations'] / r['seconds'] / limit for r in case['repeats']], 1, 1)} % of {word}"


class Column(NamedTuple):
    title: str
    cell: Callable


def of(function, *more):
    return lambda case: function(case, *more)


# Every column that a table may have, by the name by which a document asks for it (`figures:`, render_docs.py).
COLUMNS = {
    "repeats": Column("repeats", lambda case: str(len(case["repeats"]))),
    **{key: Column(title, of(optional, key, 0)) for key, title in BESIDE_PROFILE},
    "iops": Column("IOPS", iops),
    "gbs": Column("GB/s", gigabytes),
    "limit": Column("of the limit", of_limit),
    **{key: Column(title, of(latency, key)) for key, title in LATENCIES},
    **{key.split("_")[0]: Column(title, of(cost, key)) for key, title in COSTS},
    "verdict": Column("verdict", lambda case: case.get("verdict", NONE)),
    "threads": Column("threads", threads),
    "cpu": Column("CPU s/GB", cpu_per_gigabyte),
    "again": Column("sent again", of(sent_again, "retransmissions")),
    "overruns": Column("overruns", of(sent_again, "receive_overruns")),
    "lost": Column("lost, %", lost),
    "busy": Column("engine threads busy, %", busy),
    "ns": Column("ns", nanoseconds),
    **{f"pause_{key}": Column(title, of(latency, key, 1, 0)) for key, title in PAUSES},
    **{key: Column(title, of(optional, key, digits)) for key, title, digits in EXTRAS},
}
