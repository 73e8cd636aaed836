#!/usr/bin/env python3
"""Tables of docs/*.md from the raw results in docs/runs/*.json (schema: docs/runs/README.md).

A document holds, for each table,

    <!-- runs: FILE-PATTERN -->
    ...generated...
    <!-- end runs -->

and gets one table for each result whose name matches, in order of name (with `work:` in place of `runs:`: what threads did with their time, of all cases or, with NAME=VALUE behind the pattern, of those
that have this parameter; `ratios:`: ways to initiate beside each other; `claims:`: a figure of the paper beside what the paper says, paper_claims.py); between
<!-- targets: SESSION ... --> and <!-- end targets --> what is aimed at (bench/targets.py) beside the medians of sessions of `./run bench targets`, whose results
are SESSION-*.json; between <!-- file: NAME --> and <!-- end file --> the text of docs/runs/NAME as it is. Plots of the paper's figures (plot_paper.py) are kept in step too. `--check` writes nothing and fails if a document differs
from what its results say; without it, the documents are rewritten. matplotlib is needed only to draw a plot whose result has changed, never by `--check`. A result that does not follow the schema is refused by name, and so are a marker that is not
of this form, a pattern or a session that no result has, and a marker without its end.
"""
import fnmatch
import json
import pathlib
import re
import statistics
import sys

import paper_claims
import paper_ratios
import plot_paper

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "bench"))  # behind the library's own: bench/profile.py has the name of a module of it
import targets  # noqa: E402

BLOCK = re.compile(r"(<!-- runs: (?P<pattern>\S+) -->\n)(?P<body>.*?)(<!-- end runs -->)", re.S)
FILE = re.compile(r"(<!-- file: (?P<name>[\w.-]+) -->\n)(?P<body>.*?)(<!-- end file -->)", re.S)
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
WORK = ("hand-over", "copy", "submit", "poll", "lock", "table", "space", "log", "payload", "agree", "post")
COSTS = (("initiator_cpu_seconds", "initiator CPU µs/op"), ("array_cpu_seconds", "array engine CPU µs/op"), ("engine_cpu_seconds", "engine CPU µs/op"), ("lane_cpu_seconds", "lanes CPU µs/op"))


RATIO_BLOCK = re.compile(r"(<!-- ratios: (?P<pattern>\S+) -->\n)(?P<body>.*?)(<!-- end ratios -->)", re.S)
CLAIMS_BLOCK = re.compile(r"(<!-- claims: (?P<pattern>\S+) -->\n)(?P<body>.*?)(<!-- end claims -->)", re.S)
TARGETS_BLOCK = re.compile(r"(<!-- targets: (?P<sessions>[\w. -]+) -->\n)(?P<body>.*?)(<!-- end targets -->)", re.S)
WORK_BLOCK = re.compile(r"(<!-- work: (?P<pattern>\S+)(?P<only>(?: \w+=[^\s=]+)*) -->\n)(?P<body>.*?)(<!-- end work -->)", re.S)
BLOCKS = (BLOCK, FILE, RATIO_BLOCK, CLAIMS_BLOCK, TARGETS_BLOCK, WORK_BLOCK)
MARKER = re.compile(r"<!--\s*(?:end\s+)?(?:runs|work|ratios|claims|targets|file)\s*(?::[^\n>]*>?|-->)")


BUSY = re.compile(r"busy_gn-(nic|ssd|engine)-\d+")


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


def busy(case):
    """Of the threads of each role, how busy the least and the most busy one was; or a dash."""
    roles = {}
    for key in case["repeats"][0]:
        if match := BUSY.fullmatch(key):
            roles.setdefault(match[1], []).append(100 * statistics.median(r[key] for r in case["repeats"]))
    shown = {"nic": "NIC ", "ssd": "SSD ", "engine": ""}
    return ", ".join(shown[role] + (f"{shares[0]:.0f}" if len(shares) == 1 else f"{min(shares):.0f} … {max(shares):.0f}")
                     for role, shares in roles.items()) or "—"


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
    if "path" in parameters and "pattern" in parameters:  # of `load` and `paper`: who initiates comes first
        parameters = {"path": parameters["path"], **parameters}
    return ", ".join(f"{v}" if isinstance(v, str) else f"{k} {v}" for k, v in parameters.items()) or "—"


def machine_line(machine):
    known = [str(machine[k]) for k in ("cpu", "gpu") if machine.get(k)]
    if machine.get("cores"):
        known.append(f"{machine['cores']} cores")
    known += [str(machine[k]) for k in ("memory", "kernel", "compiler") if machine.get(k)]
    return ", ".join(known)


def table(name, run):
    command = run["command"] if isinstance(run["command"], str) else " ".join(run["command"])
    lines = [f"**{run['benchmark']}** · `{command}` · commit `{run['commit']}` · {machine_line(run['machine'])} · "
             f"[raw result](runs/{name})", ""]
    if run.get("configuration"):
        settings = ", ".join(f"{k} {v}" for k, v in run["configuration"].items())
        lines += [f"Configuration: {settings}. Figures are the median over repeats (least … most).", ""]
    if run["benchmark"] in ("deengine", "pool"):
        return "\n".join(lines + cost_table(run))
    enough = any if run["benchmark"] == "wire" else all  # sockets beside the wires have no latency of single operations
    latencies = [l for l in LATENCIES if enough(l[0] in r.get("latency_ns", {}) for c in run["cases"] for r in c["repeats"])]
    costs = [c for c in COSTS if any(c[0] in r for case in run["cases"] for r in case["repeats"])]
    beside = BESIDE_PROFILE if run["benchmark"] == "model" else ()
    bounded = any(key.startswith("limit_") for case in run["cases"] for key in case["repeats"][0])
    with_busy = any(BUSY.fullmatch(key) for case in run["cases"] for r in case["repeats"] for key in r)
    heads = ["case", "repeats"] + [title for _, title in beside] + ["IOPS", "GB/s"] + ["of the limit"] * bounded + [title for _, title in latencies + costs]
    judged = any("verdict" in case for case in run["cases"])  # results before there were verdicts have none
    heads += ["verdict"] * judged
    shared_out = any("threads" in case for case in run["cases"])
    heads += ["threads"] * shared_out
    heads += ["CPU s/GB", "sent again", "overruns", "lost, %"] * (run["benchmark"] == "wire") + ["engine threads busy, %"] * with_busy
    lines += ["| " + " | ".join(heads) + " |", "|---|" + "---:|" * (len(heads) - 1)]
    for case in run["cases"]:
        repeats = case["repeats"]
        cells = [name_of(case.get("parameters", {})), str(len(repeats))] + [optional(case, key, 0) for key, _ in beside]
        cells += [spread([r["operations"] / r["seconds"] for r in repeats]),
                 spread([r.get("bytes", 0) / r["seconds"] for r in repeats], 1e9, 3)] + [of_limit(case)] * bounded
        cells += [spread([r["latency_ns"][key] for r in repeats], 1e3, 1) if all(key in r.get("latency_ns", {}) for r in repeats) else "—"
                  for key, _ in latencies]
        cells += [cost(case, key) for key, _ in costs]
        cells += [case.get("verdict", "—")] * judged
        cells += [", ".join(f"{kind} {count}" for kind, count in case.get("threads", {}).items()) or "—"] * shared_out
        cells += [cpu_per_gigabyte(case)] + lost_packets(case) if run["benchmark"] == "wire" else []
        cells += [busy(case)] if with_busy else []
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines + verdicts(run))


def verdicts(run):
    """Of bench wire: how cases stand to each other and to what is aimed at."""
    judged = run.get("verdicts")
    if not judged:
        return []
    lines = ["", "GB/s over GB/s of the same repeat; receive overruns of ours: %d (aimed at 0), packets sent again: %d." %
             (judged["receive_overruns"], judged["retransmissions"]), "", "| case | over | ratio | aimed at |", "|---|---|---:|---|"]
    for ratio in judged["ratios"]:
        aim = f"{ratio['target']:.2f}: {'met' if ratio['met'] else 'missed'}" if "target" in ratio else "—"
        lines.append(f"| {ratio['what']} | {ratio['beside']} | {ratio['median']:.2f} ({ratio['least']:.2f} … {ratio['most']:.2f}) | {aim} |")
    return lines


def lost_packets(case):
    """Packets of all repeats; of sockets the share that did not arrive."""
    counts = [f"{sum(r[key] for r in case['repeats']):,.0f}" if all(key in r for r in case["repeats"]) else "—" for key in ("retransmissions", "receive_overruns")]
    shares = [100 * r["lost_share"] for r in case["repeats"] if "lost_share" in r]
    return counts + [spread(shares, 1, 1) if len(shares) == len(case["repeats"]) else "—"]


def cpu_per_gigabyte(case):
    """CPU time of all threads, waiting by polling included, by what they moved."""
    if not all(r["bytes"] for r in case["repeats"]):
        return "—"
    return spread([(r["engine_cpu_seconds"] + r.get("lane_cpu_seconds", 0)) / r["bytes"] for r in case["repeats"]], 1e-9, 2)


def of_limit(case):
    """Achieved over what the profile allows: of drives or network, whichever is less."""
    first = case["repeats"][0]
    known = [(first[key], word) for key, word in (("limit_drives_per_second", "drives"), ("limit_network_per_second", "network")) if key in first]
    if not known:
        return "—"
    limit, word = min(known)
    return f"{spread([100 * r['operations'] / r['seconds'] / limit for r in case['repeats']], 1, 1)} % of {word}"


def work_table(name, run, only=""):
    """Time of threads and warps by what they did with it, µs an I/O, medians: who `client` (threads that initiate), `array` (a central engine's), `lane`;
    then stages of an I/O with all waiting (`stage`). Of the cases whose parameters are as `only` says, one NAME=VALUE or several."""
    wanted = [condition.split("=") for condition in only.split()]
    cases = [case for case in run["cases"] if all(str(case["parameters"].get(key)) == value for key, value in wanted)]
    if not cases:
        raise BadResult(f"{name}: no case with {only.strip() or 'parameters'}")
    lines = [f"**{run['benchmark']}** · commit `{run['commit']}` · {machine_line(run['machine'])} · [raw result](runs/{name})", ""]
    found = {key for case in cases for r in case["repeats"] for key in r if key.startswith("work_") and not key.endswith("_idle_us")}
    heads = sorted(found, key=lambda key: (key.split("_")[1], WORK.index(key.split("_")[2]) if key.split("_")[2] in WORK else len(WORK), key))
    stages = sorted({key for case in cases for r in case["repeats"] for key in r if key.startswith("stage_")}) if heads else []
    if not heads:
        return "\n".join(lines + ["No stages were measured."])
    titles = [f"{key.split('_')[1]}: {key.split('_')[2]}" for key in heads] + [f"stage: {key.split('_')[1]}" for key in stages]
    lines += ["| case | " + " | ".join(titles) + " |", "|---|" + "---:|" * len(titles)]
    for case in cases:
        cells = [f"{statistics.median([r[key] for r in case['repeats']]):.2f}" if all(key in r for r in case["repeats"]) else "—" for key in heads + stages]
        if any(cell != "—" for cell in cells):
            lines.append("| " + " | ".join([name_of(case["parameters"])] + cells) + " |")
    return "\n".join(lines)


def targets_table(sessions, runs):
    """What is aimed at, and the median of the repeats of every session; a dash where a session has no such result."""
    none = {"cases": [], "configuration": {}}
    for session in sessions:
        if not any(f"{session}-{name}.json" in runs for _, name, *_ in targets.TARGETS):
            raise BadResult(f"targets: session {session} has no result in docs/runs/ that a target is measured by")
    lines = ["| measurement | working set | target | " + " | ".join(f"`{session}`" for session in sessions) + " |", "|---|---:|---:|" + "---:|" * len(sessions)]
    for what, name, operation, size, path, target, unit in targets.TARGETS:
        found = [runs.get(f"{session}-{name}.json", none) for session in sessions]
        sizes = list(dict.fromkeys(run["configuration"]["working set"] for run in found if "working set" in run.get("configuration", {})))
        measured = [targets.said(targets.measured_of(targets.case_of(run, operation, size, path), unit), unit, "µs") for run in found]
        lines.append("| " + " | ".join([what, ", ".join(sizes) or "-", targets.said(target, unit, "µs"), *measured]) + " |")
    return "\n".join(lines)


def check_markers(text):
    """Raises BadResult for a marker that no block begins or ends with: nothing would be generated there, or what follows would be lost."""
    used = set()
    for block in BLOCKS:
        for match in block.finditer(text):
            used |= {match.start(), match.start(match.re.groups)}
    for marker in MARKER.finditer(text):
        if marker.start() not in used:
            line = text.count("\n", 0, marker.start()) + 1
            raise BadResult(f"line {line}: '{marker[0]}' belongs to no block: it is mistyped, or the other end of its block is missing")


def render(text, runs):
    """The document with every block generated; raises BadResult for a marker that makes no block, and for one that names no result."""
    check_markers(text)

    def copy(match):
        path = ROOT / "docs" / "runs" / match["name"]
        if not path.is_file():
            raise BadResult(f"docs/runs/{match['name']}: a document shows it and it is not there")
        return f"{match[1]}\n```text\n{path.read_text().rstrip()}\n```\n\n{match[4]}"

    def of_all(make):
        def replace(match):
            names = sorted(n for n in runs if fnmatch.fnmatch(n, match["pattern"]))
            if not names:
                raise BadResult(f"{match[1].strip()}: no result in docs/runs/ has such a name")
            only = [match["only"]] if "only" in match.re.groupindex else []
            body = "\n\n".join(make(n, runs[n], *only) for n in names)
            return f"{match[1]}\n{body}\n\n{match[match.re.groups]}"
        return replace
    text = WORK_BLOCK.sub(of_all(work_table), BLOCK.sub(of_all(table), text))
    text = RATIO_BLOCK.sub(of_all(lambda _, run: paper_ratios.ratio_tables(run)), text)
    text = CLAIMS_BLOCK.sub(of_all(paper_claims.table), text)
    text = TARGETS_BLOCK.sub(lambda match: f"{match[1]}\n{targets_table(match['sessions'].split(), runs)}\n\n{match[4]}", text)
    return FILE.sub(copy, text)


def main(arguments):
    if arguments not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        runs = {p.name: load(p) for p in sorted((ROOT / "docs" / "runs").glob("*.json"))}
    except BadResult as wrong:
        print(f"render_docs: {wrong}", file=sys.stderr)
        return 1
    stale = plot_paper.plot_docs(bool(arguments))
    for path in sorted((ROOT / "docs").glob("*.md")):
        before = path.read_text()
        try:
            after = render(before, runs)
        except BadResult as wrong:
            print(f"render_docs: docs/{path.name}: {wrong}", file=sys.stderr)
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
