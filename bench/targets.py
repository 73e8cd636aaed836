#!/usr/bin/env python3
"""Targets of GPU lanes beside the medians of one session of targets.sh, and the steps of a single lane's operation.
usage: targets.py LANES FOLDER. Ends with 1 where a raw result is missing. docs/performance.md gets its table of targets from TARGETS, too
(scripts/render_docs.py)."""
import json
import pathlib
import statistics
import sys

# what, run, operation, bytes, path, target, unit: measured figure from a repeat
TARGETS = (
    ("random 4 KiB reads", "blocks", "read", 4096, "array", 11.5e6, "IOPS"),
    ("random 4 KiB reads, 5 threads for NICs, 9 for SSDs", "blocks-few-large", "read", 4096, "array", 11.5e6, "IOPS"),
    ("random 512 B reads", "blocks", "read", 512, "array", 40e6, "IOPS"),
    ("random 4 KiB writes, 2 replicas", "writes", "write", 4096, "array", 6e6, "IOPS"),
    ("64 KiB reads", "pieces", "read", 65536, "array", 49e9, "B/s"),
    ("64 KiB reads, 5 threads for NICs, 9 for SSDs", "blocks-few-large", "read", 65536, "array", 49e9, "B/s"),
    ("one lane, 4 KiB read, median", "alone", "read", 4096, "array", 7000, "ns"),
    ("one lane, 4 KiB read, NIC and SSDs on one thread", "alone-one-thread", "read", 4096, "array", 7000, "ns"),
    ("one lane, 4 KiB read, channel of the grid", "alone", "read", 4096, "array, channel of the grid", None, "ns"),
    ("one lane, 4 KiB read, step by step", "alone", "read", 4096, "array, step by step", None, "ns"),
    ("4 KiB reads, 8 warps on one channel", "blocks-one-channel-8", "read", 4096, "array", None, "IOPS"),
    ("4 KiB reads, 32 warps on one channel", "blocks-one-channel-32", "read", 4096, "array", None, "IOPS"),
    ("4 KiB reads, 128 warps on one channel", "blocks-one-channel-128", "read", 4096, "array", None, "IOPS"),
    ("4 KiB reads, all warps on one channel", "blocks-one-channel", "read", 4096, "array", None, "IOPS"),
    ("4 KiB reads, a warp on each channel", "blocks-a-warp-each", "read", 4096, "array", None, "IOPS"),
)


def figure(repeat, unit):
    if unit == "IOPS":
        return repeat["operations"] / repeat["seconds"]
    if unit == "B/s":
        return repeat["bytes"] / repeat["seconds"]
    return repeat["latency_ns"]["p50"]


def case_of(run, operation, size, path):
    for case in run["cases"]:
        p = case["parameters"]
        if (p["operation"], p["bytes"], p["path"]) == (operation, size, path):
            return case
    return None


def measured_of(case, unit):
    """Median of the repeats; None where nothing was measured."""
    return statistics.median(figure(r, unit) for r in case["repeats"]) if case and case.get("repeats") else None


def said(value, unit, micro="us"):
    if value is None:
        return "-"
    if unit == "IOPS":
        return f"{value / 1e6:.2f} M/s"
    return f"{value / 1e9:.1f} GB/s" if unit == "B/s" else f"{value / 1000:.1f} {micro}"


def main():
    lanes, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    missing = 0
    print(f"{'measurement':44} {'target':>12} {'measured':>12}")
    for what, name, operation, size, path, target, unit in TARGETS:
        file = folder / f"path-{lanes}-{name}.json"
        case = case_of(json.loads(file.read_text()), operation, size, path) if file.exists() else None
        measured = measured_of(case, unit)
        if measured is None:
            missing += 1
            print(f"{what:44} {said(target, unit):>12} {'MISSING':>12}")
            continue
        print(f"{what:44} {said(target, unit):>12} {said(measured, unit):>12}")
        steps = sorted({k for r in case["repeats"] for k in r if k.startswith("step_")})
        for step in steps:  # a repeat in which no operation stayed on the straight path has none
            print(f"    {step[5:-3]:40} {'':>12} {statistics.median(r[step] for r in case['repeats'] if step in r):>9.0f} ns")
        trips = [r["completion_queue_trips"] for r in case["repeats"] if "completion_queue_trips" in r]
        if trips:
            print(f"    {'trips to the completion queue':40} {'':>12} {statistics.median(trips):>9.1f}")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
