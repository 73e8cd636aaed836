#!/usr/bin/env python3
"""Tables of docs/*.md from the raw results in docs/runs/*.json (schema: docs/runs/README.md).

A document holds, for each table,

    <!-- runs: FILE-PATTERN -->
    ...generated...
    <!-- end runs -->

and gets one table for each result whose name matches, in order of name; between <!-- file: NAME --> and <!-- end file --> it gets
the text of docs/runs/NAME as it is. `--check` writes nothing and fails if a document differs
from what its results say; without it, the documents are rewritten. A result that does not follow the schema is refused by name.
"""
import fnmatch
import json
import pathlib
import re
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"(<!-- runs: (?P<pattern>[^ ]+) -->\n)(?P<body>.*?)(<!-- end runs -->)", re.S)
FILE = re.compile(r"(<!-- file: (?P<name>[\w.-]+) -->\n)(?P<body>.*?)(<!-- end file -->)", re.S)
LATENCIES = (("mean", "mean µs"), ("p50", "p50 µs"), ("p99", "p99 µs"), ("p999", "p99.9 µs"))
EXTRAS = (("bytes_a_block", "bytes a block", 2), ("times_reference", "times the reference", 2),
          ("write_amplification", "write amplification", 2), ("greedy_all_units", "greedy curve, all units", 2),
          ("greedy_data_units", "greedy curve, units for data", 2), ("journal_share", "journal's share of programs", 4), ("stalls", "waits for a sync", 0),
          ("recovery_seconds", "seconds", 2), ("memory_mib_a_gib", "MiB of memory a GiB", 2))
PAUSES = (("p50", "p50 ns"), ("p99", "p99 ns"), ("p999", "p99.9 ns"), ("max", "longest ns"))
BESIDE_PROFILE = (("expected_per_second_least", "expected IOPS, least"), ("expected_per_second_most", "expected IOPS, most"),
                  ("configured_limit_per_second", "profile's limit, IOPS"))
COSTS = (("engine_cpu_seconds", "engine CPU µs/op"), ("lane_cpu_seconds", "lanes CPU µs/op"))


class BadResult(Exception):
    pass


def load(path):
    try:
        run = json.loads(path.read_text())
    except ValueError as wrong:
        raise BadResult(f"{path.name}: not JSON: {wrong}")
    if run.get("schema") != 1:
        raise BadResult(f"{path.name}: schema {run.get('schema')!r}; this renderer knows schema 1")
    for key in ("benchmark", "command", "commit", "machine", "cases"):
        if key not in run:
            raise BadResult(f"{path.name}: no '{key}'")
    for case in run["cases"]:
        if not case.get("repeats"):
            raise BadResult(f"{path.name}: a case without repeats: {case.get('parameters')}")
        for repeat in case["repeats"]:
            if repeat.get("seconds", 0) <= 0 or "operations" not in repeat:
                raise BadResult(f"{path.name}: a repeat needs seconds above 0 and operations")
    return run


def spread(values, unit=1.0, digits=0):
    values = sorted(v / unit for v in values)
    middle = statistics.median(values)
    shown = f"{middle:,.{digits}f}"
    return shown if len(values) == 1 else f"{shown} ({values[0]:,.{digits}f} … {values[-1]:,.{digits}f})"


def cost(case, key):
    """CPU time an operation, or a dash where a repeat did not measure it."""
    if not all(key in r and r["operations"] for r in case["repeats"]):
        return "—"
    return spread([r[key] / r["operations"] for r in case["repeats"]], 1e-6, 2)


def optional(case, key, digits):
    """What only some cases measure, or a dash."""
    return spread([r[key] for r in case["repeats"]], 1, digits) if all(key in r for r in case["repeats"]) else "—"


def cost_table(run):
    """Cases measured for their cost (no latency of single operations): nanoseconds an operation and core, memory a block, times the reference."""
    tables = {}
    for case in run["cases"]:  # one table for all cases that measured the same things
        extras = tuple(e for e in EXTRAS if all(e[0] in r for r in case["repeats"]))
        pauses = all("latency_ns" in r for r in case["repeats"])
        tables.setdefault((extras if pauses or "recovery_seconds" in dict((e[0], e) for e in extras) else None, pauses), []).append(case)
    lines = []
    for (extras, pauses), cases in tables.items():
        lines += ([""] if lines else []) + one_cost_table(cases, extras, pauses)
    return lines


def one_cost_table(cases, extras, pauses):
    if extras is None:
        extras = [e for e in EXTRAS if any(e[0] in r for c in cases for r in c["repeats"])]
    more = [title for _, title in PAUSES] if pauses else []
    lines = ["| " + " | ".join(["case", "repeats", "ns"] + more + [title for _, title, _ in extras]) + " |", "|---|" + "---:|" * (2 + len(more) + len(extras))]
    for case in cases:
        cores = case.get("parameters", {}).get("cores", 1)
        cells = [name_of(case.get("parameters", {})), str(len(case["repeats"])),
                 spread([r["seconds"] * cores / r["operations"] for r in case["repeats"]], 1e-9, 1)]
        cells += [spread([r["latency_ns"][key] for r in case["repeats"]]) for key, _ in PAUSES] if pauses else []
        lines.append("| " + " | ".join(cells + [optional(case, key, digits) for key, _, digits in extras]) + " |")
    return lines


def name_of(parameters):
    return ", ".join(f"{v}" if isinstance(v, str) else f"{k} {v}" for k, v in parameters.items()) or "—"


def machine_line(machine):
    known = [str(machine[k]) for k in ("cpu", "gpu") if machine.get(k)]
    if machine.get("cores"):
        known.append(f"{machine['cores']} cores")
    known += [str(machine[k]) for k in ("memory", "kernel") if machine.get(k)]
    return ", ".join(known)


def table(name, run):
    command = run["command"] if isinstance(run["command"], str) else " ".join(run["command"])
    lines = [f"**{run['benchmark']}** · `{command}` · commit `{run['commit']}` · {machine_line(run['machine'])} · "
             f"[raw result](runs/{name})", ""]
    if run.get("configuration"):
        settings = ", ".join(f"{k} {v}" for k, v in run["configuration"].items())
        lines += [f"Configuration: {settings}. Figures are the median over repeats (least … most).", ""]
    if run["benchmark"] == "deengine":
        return "\n".join(lines + cost_table(run))
    latencies = [l for l in LATENCIES if all(l[0] in r.get("latency_ns", {}) for c in run["cases"] for r in c["repeats"])]
    costs = [c for c in COSTS if any(c[0] in r for case in run["cases"] for r in case["repeats"])]
    beside = BESIDE_PROFILE if run["benchmark"] == "model" else ()
    heads = ["case", "repeats"] + [title for _, title in beside] + ["IOPS", "GB/s"] + [title for _, title in latencies + costs]
    lines += ["| " + " | ".join(heads) + " |", "|---|" + "---:|" * (len(heads) - 1)]
    for case in run["cases"]:
        repeats = case["repeats"]
        cells = [name_of(case.get("parameters", {})), str(len(repeats))] + [optional(case, key, 0) for key, _ in beside]
        cells += [spread([r["operations"] / r["seconds"] for r in repeats]),
                 spread([r.get("bytes", 0) / r["seconds"] for r in repeats], 1e9, 3)]
        cells += [spread([r["latency_ns"][key] for r in repeats], 1e3, 1) for key, _ in latencies]
        cells += [cost(case, key) for key, _ in costs]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def render(text, runs):
    """The document with every block generated; raises BadResult for a pattern that no result matches."""
    def block(match):
        names = sorted(n for n in runs if fnmatch.fnmatch(n, match["pattern"]))
        body = "\n\n".join(table(n, runs[n]) for n in names)
        return f"{match[1]}\n{body or 'No results yet.'}\n\n{match[4]}"

    def copy(match):
        path = ROOT / "docs" / "runs" / match["name"]
        if not path.is_file():
            raise BadResult(f"docs/runs/{match['name']}: a document shows it and it is not there")
        return f"{match[1]}\n```text\n{path.read_text().rstrip()}\n```\n\n{match[4]}"
    return FILE.sub(copy, BLOCK.sub(block, text))


def main(arguments):
    if arguments not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        runs = {p.name: load(p) for p in sorted((ROOT / "docs" / "runs").glob("*.json"))}
    except BadResult as wrong:
        print(f"render_docs: {wrong}", file=sys.stderr)
        return 1
    stale = 0
    for path in sorted((ROOT / "docs").glob("*.md")):
        before = path.read_text()
        try:
            after = render(before, runs)
        except BadResult as wrong:
            print(f"render_docs: {wrong}", file=sys.stderr)
            return 1
        if after == before:
            continue
        if arguments:
            stale += 1
            print(f"render_docs: docs/{path.name} differs from what docs/runs/ says; run scripts/render_docs.py", file=sys.stderr)
        else:
            path.write_text(after)
            print(f"render_docs: wrote docs/{path.name}")
    print(f"render_docs: {len(runs)} results")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
