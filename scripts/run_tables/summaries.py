"""Small tables out of one result or several: chosen cases and columns, targets beside sessions, counts of verdicts, steps of a single lane."""
import fnmatch
import re
import statistics
import sys

from .cells import COLUMNS, NONE
from .results import ROOT, BadResult, machine_line, name_of, varying
from .table import Table, markdown
from .whole import ratio_rows

sys.path.append(str(ROOT / "bench"))  # behind the library's own: bench/profile.py has the name of a module of it
import targets  # noqa: E402


def stem(name):
    return name.removesuffix(".json")


def link(name):
    return f"[{stem(name)}](runs/{name})"


def measured_by(runs):
    """The head of the first column: the result, its commit and machine; of several results, which the rows link, their commits and machines."""
    kinds = {}
    for run in runs.values():
        machine = machine_line({key: run["machine"].get(key) for key in ("cpu", "gpu", "cores")})
        kinds.setdefault(machine, {})[f"`{run['commit']}`"] = True
    words = "; ".join(f"{', '.join(commits)}, {machine}" for machine, commits in kinds.items())
    return f"{link(next(iter(runs))) if len(runs) == 1 else 'run'} ({words})"


def brief(cell):
    """Without a spread that its digits do not show."""
    match = re.fullmatch(r"(\S+) \((\S+) … (\S+)\)", cell)
    return match[1] if match and match[1] == match[2] == match[3] else cell


def conditions(words):
    """NAME=VALUE[,VALUE] …; values are patterns, in which ? stands for a space, too; - stands for a case that has no such parameter."""
    return [(key, value.split(",")) for key, value in (word.split("=") for word in words)]


def chosen(run, wanted):
    return [case for case in run["cases"]
            if all(any(fnmatch.fnmatchcase(str(case["parameters"].get(key, "-")), v) for v in values) for key, values in wanted)]


def figures_table(runs, words):
    """`words`: show=COLUMN,… (names: COLUMNS) and conditions. A case is named by the parameters in which the chosen ones differ."""
    asked = dict(word.split("=") for word in words)
    names = asked.pop("show", "").split(",")
    for name in names:
        if name not in COLUMNS:
            raise BadResult(f"figures: no column '{name}' (there are {' '.join(COLUMNS)})")
    wanted = conditions(f"{key}={value}" for key, value in asked.items())
    found = [(name, case) for name, run in runs.items() for case in chosen(run, wanted)]
    if not found:
        raise BadResult(f"figures: no case of {' '.join(runs)} with {' '.join(words)}")
    differ = varying([case for _, case in found])
    sources = {name: runs[name] for name, _ in found}
    rows = []
    for name, case in found:
        title = name_of({key: value for key, value in case["parameters"].items() if key in differ or not differ})
        rows.append([link(name)] * (len(sources) > 1) + [title] * (bool(differ) or len(sources) == 1) + [brief(COLUMNS[key].cell(case)) for key in names])
    several = len(sources) > 1
    words_first = [measured_by(sources)] + ["case"] * (several and bool(differ))
    return Table(words_first + [COLUMNS[key].title for key in names], rows, left=tuple(range(len(words_first)))).markdown()


BESIDE = {"array": "GNStor", "fio io_uring": "fio with io_uring", "plain copy": "plain copy"}


def beside_table(runs, words):
    """The array beside what else was measured on such a machine, in GB/s: a row for each operation and size. `words`: with=PATTERN,... (results in
    which only the others count) and conditions. The first result that has a case gives its cell."""
    asked = dict(word.split("=") for word in words)
    others = asked.pop("with", "").split(",")
    wanted = conditions(f"{key}={value}" for key, value in asked.items())
    found = {}  # (machine, operation, bytes): {path: (cell, result)}
    for name, run in runs.items():
        only_others = any(fnmatch.fnmatch(name, pattern) for pattern in others)
        machine = run["machine"].get("gpu") or f"{run['machine']['cores']} cores"
        for case in chosen(run, wanted):
            parameters = case["parameters"]
            if parameters.get("path") in BESIDE and not (only_others and parameters["path"] == "array"):
                row = found.setdefault((machine, parameters["operation"], parameters["bytes"]), {})
                row.setdefault(parameters["path"], (brief(COLUMNS["gbs"].cell(case)), name))
    rows = []
    for (machine, operation, size), cells in found.items():
        if "array" in cells:
            sources = dict.fromkeys(name for _, name in cells.values())
            rows.append([f"{machine}, {size // 1024} KiB {operation}s"] + [cells.get(path, (NONE,))[0] for path in BESIDE]
                        + [", ".join(f"[{at}](runs/{name})" for at, name in enumerate(sources, 1))])
    if not rows:
        raise BadResult(f"beside: no case of the array in {' '.join(runs)} with {' '.join(words)}")
    return Table(["GB/s"] + list(BESIDE.values()) + ["raw results"], rows, left=(0, len(BESIDE) + 1)).markdown()


def targets_rows(sessions, runs):
    """What is aimed at, and the median of the repeats of every session; a dash where a session has no such result."""
    none = {"cases": [], "configuration": {}}
    for session in sessions:
        if not any(f"{session}-{name}.json" in runs for _, name, *_ in targets.TARGETS):
            raise BadResult(f"targets: session {session} has no result in docs/runs/ that a target is measured by")
    rows = []
    for what, name, operation, size, path, target, unit in targets.TARGETS:
        found = [runs.get(f"{session}-{name}.json", none) for session in sessions]
        sizes = list(dict.fromkeys(run["configuration"]["working set"] for run in found if "working set" in run.get("configuration", {})))
        measured = [targets.said(targets.measured_of(targets.case_of(run, operation, size, path), unit), unit, "µs") for run in found]
        rows.append([what, ", ".join(sizes) or "-", targets.said(target, unit, "µs"), *measured])
    return rows


def targets_table(sessions, runs):
    heads = ["measurement", "working set", "target"] + [f"`{session}`" for session in sessions]
    return Table(heads, targets_rows(sessions, runs))


def verdict_counts(runs):
    """Of results that judge each case (`model`): how many cases have which verdict."""
    counts = {}
    for name, run in runs.items():
        for case in run["cases"]:
            if "verdict" in case:
                row = counts.setdefault((link(name), case["parameters"].get("loop", NONE)), {})
                row[case["verdict"]] = row.get(case["verdict"], 0) + 1
    if not counts:
        raise BadResult(f"verdicts: no case of {' '.join(runs)} has one")
    heads = sorted({verdict for row in counts.values() for verdict in row})
    rows = [[name, loop] + [str(row.get(verdict, 0)) for verdict in heads] for (name, loop), row in counts.items()]
    return Table([measured_by(runs), "loop"] + heads, rows, left=(0, 1)).markdown()


def aims_table(runs, words):
    """Ratios that something is aimed at (`wire`), of the cases that some pattern matches."""
    tables = []
    for name, run in runs.items():
        if not run.get("verdicts"):
            raise BadResult(f"aims: {name} judges nothing")
        table = ratio_rows(run["verdicts"], only_aimed=True)
        rows = [row for row in table.rows if not words or any(fnmatch.fnmatchcase(row[0], word) for word in words)]
        tables.append(Table([measured_by({name: run})] + table.heads[1:], rows, table.left))
    return markdown(tables)


def steps_table(runs, words):
    """Mean time of each step of an operation of a single lane (`path --alone`): one column for each chosen case that was taken apart."""
    columns = {}
    for name, run in runs.items():
        for case in chosen(run, conditions(words)):
            keys = sorted(key for key in case["repeats"][0] if key.startswith("step_"))
            if keys:
                title = f"{case['parameters']['operation']}, bytes {case['parameters']['bytes']}"
                columns[f"{stem(name)}: {title}" if len(runs) > 1 else title] = (case, keys)
    if not columns:
        raise BadResult(f"steps: no case of {' '.join(runs)} was taken apart")

    def middle(case, key):
        known = [r[key] for r in case["repeats"] if key in r]
        return f"{statistics.median(known) / 1000:.2f}" if known else NONE
    steps = list(dict.fromkeys(key for _, keys in columns.values() for key in keys))
    rows = [[key.split("_")[2]] + [middle(case, key) for case, _ in columns.values()] for key in steps]
    return Table([f"step, µs: {measured_by(runs)}"] + list(columns), rows).markdown()
