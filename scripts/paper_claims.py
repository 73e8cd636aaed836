"""What the GNStor paper says of each of its figures 9 to 13, beside what a raw result of `./run bench paper` has: the small tables of docs/paper.md.

A row without a claim of the paper explains the rows above it. Values are medians over the repeats of a case; where a row covers several cases
(patterns, operations) their geometric mean, unless the row says otherwise.
"""
import math
import statistics

import paper_ideals

# The paper's GB/s are 2^30 bytes a second; ours are 10^9.
GB = 2**30 / 1e9
SIZES = {4096: "4 KiB", 65536: "64 KiB"}


def rate(repeat):
    return repeat["bytes"] / repeat["seconds"] / 1e9


def latency(repeat):
    return repeat["latency_ns"]["mean"] / 1e3


def share_of_limit(repeat):
    """Percent of what the profile allows: of its drives or its network, whichever is less."""
    return 100 * repeat["operations"] / repeat["seconds"] / min(repeat["limit_drives_per_second"], repeat["limit_network_per_second"])


def initiator_cores(repeat):
    return repeat["initiator_cpu_seconds"] / repeat["seconds"]


def least_busy_drive(repeat):
    """Percent of its time that the least busy of the threads that serve drives worked."""
    return 100 * min(share for key, share in repeat.items() if key.startswith("busy_gn-ssd-"))


def stage(key):
    return lambda repeat: repeat[key]


class Missing(Exception):
    """No case is what a row asks for, as in a figure that was measured in part."""


class Cases:
    def __init__(self, run):
        self.run = run

    def medians(self, get, path, wanted):
        """By everything but the path."""
        found = {}
        for case in self.run["cases"]:
            parameters = dict(case["parameters"])
            if parameters.pop("path") == path and all(parameters[key] == value for key, value in wanted.items()):
                found[tuple(sorted(parameters.items()))] = statistics.median(get(repeat) for repeat in case["repeats"])
        if not found:
            raise Missing
        return found

    def mean(self, get, path, **wanted):
        return statistics.geometric_mean(self.medians(get, path, wanted).values())

    def most(self, get, path, **wanted):
        return max(self.medians(get, path, wanted).values())

    def least(self, get, path, **wanted):
        return min(self.medians(get, path, wanted).values())

    def over(self, get, path, other, **wanted):
        """path / other, in cases that both have."""
        ours, theirs = self.medians(get, path, wanted), self.medians(get, other, wanted)
        both = [math.log(value / theirs[key]) for key, value in ours.items() if theirs.get(key)]
        if not both:
            raise Missing
        return math.exp(statistics.fmean(both))

    def configured_latency(self, **wanted):
        case = next((c for c in self.run["cases"] if all(c["parameters"][key] == value for key, value in wanted.items())), None)
        ideals = paper_ideals.latency(self.run, case) if case else []
        if not ideals:
            raise Missing
        return ideals[0].value


READ4, WRITE4 = {"bytes": 4096, "operation": "read"}, {"bytes": 4096, "operation": "write"}
READ64, WRITE64 = {"bytes": 65536, "operation": "read"}, {"bytes": 65536, "operation": "write"}

# Of each figure (what, the paper's value or word or None, ours). "1.2 times above" is read as 2.2 times as much: see docs/paper.md.
ROWS = {
    9: (
        ("`basic`, 4 KiB reads, GB/s", 0.5 * GB, lambda c: c.mean(rate, "basic", **READ4)),
        ("`basic`, 4 KiB writes, GB/s", 0.3 * GB, lambda c: c.mean(rate, "basic", **WRITE4)),
        ("`gd` / `basic`, 4 KiB reads", 1 + 1.2, lambda c: c.over(rate, "gd", "basic", **READ4)),
        ("`gd` / `basic`, 4 KiB writes", 1 + 1.3, lambda c: c.over(rate, "gd", "basic", **WRITE4)),
        ("`gnor` / `basic`, 4 KiB", 1 + 3.2, lambda c: c.over(rate, "gnor", "basic", bytes=4096)),
        ("`gnor` / `gd`, 4 KiB", 1 + 0.8, lambda c: c.over(rate, "gnor", "gd", bytes=4096)),
        ("`gnor` / `strong-cpu`, 4 KiB", None, lambda c: c.over(rate, "gnor", "strong-cpu", bytes=4096)),
        ("`gnor` / `strong-cpu`, 64 KiB reads", None, lambda c: c.over(rate, "gnor", "strong-cpu", **READ64)),
        ("`gnor` / `strong-cpu`, 64 KiB writes", None, lambda c: c.over(rate, "gnor", "strong-cpu", **WRITE64)),
        ("`gnor`: a warp's time to submit a 4 KiB request, µs", None, lambda c: c.mean(stage("work_lane_submit_us"), "gnor", bytes=4096)),
        ("`strong-cpu`: a thread's time to submit one, µs", None, lambda c: c.mean(stage("work_client_submit_us"), "strong-cpu", bytes=4096)),
    ),
    10: (
        ("`gd` / `basic`, 4 KiB", 1 - 0.407, lambda c: c.over(latency, "gd", "basic", bytes=4096)),
        ("`gd` / `basic`, 64 KiB", 1 - 0.261, lambda c: c.over(latency, "gd", "basic", bytes=65536)),
        ("`gnor` / `gd`, reads", 1 - 0.357, lambda c: c.over(latency, "gnor", "gd", operation="read")),
        ("`gnor` / `gd`, writes", 1 - 0.398, lambda c: c.over(latency, "gnor", "gd", operation="write")),
        ("`gd-deengine` / `gd`, writes", None, lambda c: c.over(latency, "gd-deengine", "gd", operation="write")),
        ("`gnor`, 4 KiB reads, µs", None, lambda c: c.mean(latency, "gnor", **READ4)),
        ("`strong-cpu`, 4 KiB reads, µs", None, lambda c: c.mean(latency, "strong-cpu", **READ4)),
        ("of these the modelled SSD and network, µs", None, lambda c: c.configured_latency(**READ4)),
        ("`gnor`, 4 KiB writes, µs", None, lambda c: c.mean(latency, "gnor", **WRITE4)),
        ("`strong-cpu`, 4 KiB writes, µs", None, lambda c: c.mean(latency, "strong-cpu", **WRITE4)),
    ),
    11: (
        ("`gnor`, 4 KiB reads, most, GB/s", 11.8 * GB, lambda c: c.most(rate, "gnor", **READ4)),
        ("`gnor`, 4 KiB writes, most, GB/s", 5.6 * GB, lambda c: c.most(rate, "gnor", **WRITE4)),
        ("`gnor`, 64 KiB writes, most, GB/s", 9.6 * GB, lambda c: c.most(rate, "gnor", **WRITE64)),
        ("`gnor`, 64 KiB reads, two clients, GB/s", 21.5 * GB, lambda c: c.mean(rate, "gnor", clients=2, **READ64)),
        ("`gd`, 4 KiB reads, most, GB/s", 2.8 * GB, lambda c: c.most(rate, "gd", **READ4)),
        ("`gd`, 4 KiB writes, most, GB/s", 0.9 * GB, lambda c: c.most(rate, "gd", **WRITE4)),
        ("`basic`, 64 KiB reads, most, GB/s", 4.4 * GB, lambda c: c.most(rate, "basic", **READ64)),
        ("`basic`, 64 KiB writes, most, GB/s", 4.1 * GB, lambda c: c.most(rate, "basic", **WRITE64)),
        ("`gnor` / `gd-deengine`, 4 KiB reads, one client", None, lambda c: c.over(rate, "gnor", "gd-deengine", clients=1, **READ4)),
        ("`gnor` / `gd-deengine`, 4 KiB writes, one client", None, lambda c: c.over(rate, "gnor", "gd-deengine", clients=1, **WRITE4)),
        ("`gnor`, 32 clients: share of the limit, least of the four panels, %", None, lambda c: c.least(share_of_limit, "gnor", clients=32)),
        ("`gd`, the same, %", None, lambda c: c.least(share_of_limit, "gd", clients=32)),
        ("`basic`, 4 KiB reads, 32 clients: share of the limit, %", None, lambda c: c.mean(share_of_limit, "basic", clients=32, **READ4)),
        ("`gnor`: cores that its host process keeps busy, most", None, lambda c: c.most(initiator_cores, "gnor")),
        ("`strong-cpu`: cores that initiators keep busy, most", None, lambda c: c.most(initiator_cores, "strong-cpu")),
    ),
    12: (
        ("`gnor`, five SSDs, 4 KiB reads, GB/s", 13.6 * GB, lambda c: c.mean(rate, "gnor", SSDs=5, **READ4)),
        ("`gnor`, five SSDs, 4 KiB writes, GB/s", 6.6 * GB, lambda c: c.mean(rate, "gnor", SSDs=5, **WRITE4)),
        ("`gnor` / `gd`, five SSDs, 4 KiB reads", 1 + 3.6, lambda c: c.over(rate, "gnor", "gd", SSDs=5, **READ4)),
        ("`gnor` / `gd`, five SSDs, 4 KiB writes", 1 + 4.8, lambda c: c.over(rate, "gnor", "gd", SSDs=5, **WRITE4)),
        ("`gd`, eight SSDs / two, 4 KiB reads", "little", lambda c: c.mean(rate, "gd", SSDs=8, **READ4) / c.mean(rate, "gd", SSDs=2, **READ4)),
        ("`gd`, eight SSDs / two, 4 KiB writes", "little", lambda c: c.mean(rate, "gd", SSDs=8, **WRITE4) / c.mean(rate, "gd", SSDs=2, **WRITE4)),
        ("`basic`, eight SSDs / two, 4 KiB reads", "little", lambda c: c.mean(rate, "basic", SSDs=8, **READ4) / c.mean(rate, "basic", SSDs=2, **READ4)),
        ("`gnor`, two SSDs: share of the limit, least of the four panels, %", None, lambda c: c.least(share_of_limit, "gnor", SSDs=2)),
        ("`gnor`, eight SSDs, 4 KiB reads: share of the limit, %", None, lambda c: c.mean(share_of_limit, "gnor", SSDs=8, **READ4)),
        ("the least busy thread that emulates drives, same case, %", None, lambda c: c.mean(least_busy_drive, "gnor", SSDs=8, **READ4)),
        ("`gnor` / `strong-cpu`, four SSDs, 4 KiB reads", None, lambda c: c.over(rate, "gnor", "strong-cpu", SSDs=4, **READ4)),
    ),
    13: (
        ("`gd-deengine` / `gd`, 4 KiB writes, throughput", 1.499, lambda c: c.over(rate, "gd-deengine", "gd", **WRITE4)),
        ("`gd-deengine` / `gd`, 64 KiB writes, throughput", 1.247, lambda c: c.over(rate, "gd-deengine", "gd", **WRITE64)),
        ("`gnor` / `gd-deengine`, throughput", 1.496, lambda c: c.over(rate, "gnor", "gd-deengine")),
        ("`gnor` / `gd-deengine`, latency", 1 - 0.312, lambda c: c.over(latency, "gnor", "gd-deengine")),
        ("`ported-locks` / `gnor`, throughput", 1 - 0.866, lambda c: c.over(rate, "ported-locks", "gnor")),
        ("`coordinating` / `gnor`, throughput", 1 - 0.720, lambda c: c.over(rate, "coordinating", "gnor")),
        ("`gnor` / `gd-deengine`, 4 KiB writes, throughput", None, lambda c: c.over(rate, "gnor", "gd-deengine", **WRITE4)),
        ("`gnor` / `gd-deengine`, 64 KiB writes, throughput", None, lambda c: c.over(rate, "gnor", "gd-deengine", **WRITE64)),
        ("`ported-locks`: a warp's wait for the lock, 4 KiB reads, µs", None, lambda c: c.mean(stage("work_lane_lock_us"), "ported-locks", **READ4)),
        ("`gd`: a 4 KiB write's wait for the durable record, µs", None, lambda c: c.mean(stage("stage_log_us"), "gd", **WRITE4)),
    ),
}


def said(value):
    return value if isinstance(value, str) else f"{value:,.0f}" if value >= 1000 else f"{value:.1f}" if value >= 20 else f"{value:.2f}"


def source(name, run):
    """What a table was measured with, in a line of less than 120 characters."""
    repeats = sorted({len(case["repeats"]) for case in run["cases"]})
    machine = run["machine"].get("gpu") or run["machine"].get("cpu", "")
    return f"[Raw result](runs/{name}): {len(run['cases'])} cases of {' or '.join(map(str, repeats))} repeats, commit `{run['commit']}`, {machine}."


def claims_table(name, run):
    """Of one of the paper's figures."""
    number = int(run["benchmark"].removeprefix("paper-figure-"))
    lines, cases = ["| | the paper | here | here / paper |", "|---|---:|---:|---:|"], Cases(run)
    for what, claim, ours in ROWS[number]:
        try:
            value = ours(cases)
        except (Missing, KeyError):
            value = None
        cells = ["—" if claim is None else said(claim), "—" if value is None else said(value)]
        cells.append(f"{value / claim:.2f}" if value is not None and isinstance(claim, float) else "—")
        lines.append(f"| {what} | " + " | ".join(cells) + " |")
    return "\n".join(lines + ["", source(name, run)])


def limit_table(name, run):
    """Of `bench load`: the throughput of every path as a share of what the profile allows."""
    paths = list(dict.fromkeys(case["parameters"]["path"] for case in run["cases"]))
    rows = {}
    for case in run["cases"]:
        p, first = case["parameters"], case["repeats"][0]
        limit, word = min((first["limit_drives_per_second"], "SSDs"), (first["limit_network_per_second"], "network"))
        shares = sorted(share_of_limit(repeat) for repeat in case["repeats"])
        row = rows.setdefault(f"{SIZES[p['bytes']]} {p['operation']}, {p['clients']} clients, {p['depth']} in flight", {"limit": f"{limit:,.0f}, {word}"})
        row[p["path"]] = f"{statistics.median(shares):.1f} ({shares[0]:.1f} … {shares[-1]:.1f})"
    lines = ["| case | limit, operations/s | " + " | ".join(f"`{path}`, % of it" for path in paths) + " |", "|---|---:|" + "---:|" * len(paths)]
    for what, row in rows.items():
        lines.append(f"| {what} | {row['limit']} | " + " | ".join(row.get(path, "—") for path in paths) + " |")
    return "\n".join(lines + ["", source(name, run)])


def table(name, run):
    return (limit_table if run["benchmark"] == "load" else claims_table)(name, run)
