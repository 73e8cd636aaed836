"""A whole result: all of its cases with all that they measured."""
import statistics

from . import cells
from .cells import COLUMNS
from .results import BadResult, command_of, machine_line, name_of
from .table import Table, markdown

WORK = ("hand-over", "copy", "submit", "poll", "lock", "table", "space", "log", "payload", "agree", "post")


def of_columns(cases, names):
    columns = [COLUMNS[name] for name in names]
    return Table(["case"] + [column.title for column in columns],
                 [[name_of(case.get("parameters", {}))] + [column.cell(case) for column in columns] for case in cases])


def measured(run, key, inside=None):
    """Whether some repeat has it, or whether its `inside` has."""
    return any(key in (repeat.get(inside, {}) if inside else repeat) for case in run["cases"] for repeat in case["repeats"])


def columns_of(run):
    """What cases that move data measured. Results from before there were verdicts and threads have no such columns."""
    wire = run["benchmark"] == "wire"
    # Of wire, sockets beside the wires have no latency of single operations.
    enough = any if wire else all
    names = ["repeats"] + [key for key, _ in cells.BESIDE_PROFILE if run["benchmark"] == "model"] + ["iops", "gbs"]
    names += ["limit"] * any(key.startswith("limit_") for case in run["cases"] for key in case["repeats"][0])
    names += [key for key, _ in cells.LATENCIES if enough(key in r.get("latency_ns", {}) for c in run["cases"] for r in c["repeats"])]
    names += [key.split("_")[0] for key, _ in cells.COSTS if measured(run, key)]
    names += [key for key in ("verdict", "threads") if any(key in case for case in run["cases"])]
    names += ["cpu", "again", "overruns", "lost"] * wire
    return names + ["busy"] * any(cells.BUSY.fullmatch(key) for case in run["cases"] for r in case["repeats"] for key in r)


def cost_tables(run):
    """Cases measured for their cost (no latency of single operations): nanoseconds an operation and core, memory a block, times the reference. One table
    for all cases that measured the same things."""
    found = {}
    for case in run["cases"]:
        extras = tuple(key for key, *_ in cells.EXTRAS if all(key in r for r in case["repeats"]))
        pauses = all("latency_ns" in r for r in case["repeats"])
        found.setdefault((extras if pauses or "recovery_seconds" in extras else None, pauses), []).append(case)
    tables = []
    for (extras, pauses), cases in found.items():
        if extras is None:
            extras = [key for key, *_ in cells.EXTRAS if any(key in r for case in cases for r in case["repeats"])]
        tables.append(of_columns(cases, ["repeats", "ns"] + [f"pause_{key}" for key, _ in cells.PAUSES if pauses] + list(extras)))
    return tables


def ratio_rows(judged, only_aimed=False):
    rows = []
    for ratio in judged["ratios"]:
        if only_aimed and "target" not in ratio:
            continue
        aim = f"{ratio['target']:.2f}: {'met' if ratio['met'] else 'missed'}" if "target" in ratio else cells.NONE
        rows.append([ratio["what"], ratio["beside"], f"{ratio['median']:.2f} ({ratio['least']:.2f} … {ratio['most']:.2f})", aim])
    return Table(["case", "over", "ratio", "aimed at"], rows, left=(0, 1, 3))


def verdicts(run):
    """Of bench wire: how cases stand to each other and to what is aimed at."""
    judged = run.get("verdicts")
    if not judged:
        return []
    return ["GB/s over GB/s of the same repeat; receive overruns of ours: %d (aimed at 0), packets sent again: %d." %
            (judged["receive_overruns"], judged["retransmissions"]), ratio_rows(judged)]


def tables_of(run):
    """Tables, and paragraphs between them."""
    if run["benchmark"] in ("deengine", "pool"):
        return cost_tables(run)
    return [of_columns(run["cases"], columns_of(run)), *verdicts(run)]


def table(name, run):
    head = (f"**{run['benchmark']}** · `{command_of(run)}` · commit `{run['commit']}` · {machine_line(run['machine'])} · "
            f"[raw result](runs/{name})")
    settings = ", ".join(f"{k} {v}" for k, v in run.get("configuration", {}).items())
    explained = [f"Configuration: {settings}. Figures are the median over repeats (least … most)."] if settings else []
    return markdown([head, *explained, *tables_of(run)])


def work_of(cases):
    """Time of threads and warps by what they did with it, µs an I/O, medians: who `client` (threads that initiate), `array` (a central engine's), `lane`;
    then stages of an I/O with all waiting (`stage`). None where no stage was measured."""
    found = {key for case in cases for r in case["repeats"] for key in r if key.startswith("work_") and not key.endswith("_idle_us")}
    if not found:
        return None

    def place(key):
        _, who, what, *_ = key.split("_")
        return who, WORK.index(what) if what in WORK else len(WORK), key
    heads = sorted(found, key=place)
    stages = sorted({key for case in cases for r in case["repeats"] for key in r if key.startswith("stage_")})
    titles = [f"{key.split('_')[1]}: {key.split('_')[2]}" for key in heads] + [f"stage: {key.split('_')[1]}" for key in stages]
    rows = []
    for case in cases:
        shown = [f"{statistics.median([r[key] for r in case['repeats']]):.2f}" if all(key in r for r in case["repeats"]) else cells.NONE
                 for key in heads + stages]
        if any(cell != cells.NONE for cell in shown):
            rows.append([name_of(case["parameters"])] + shown)
    return Table(["case"] + titles, rows)


def work_table(name, run, only=""):
    """What threads did, of the cases whose parameters are as `only` says, one NAME=VALUE or several."""
    wanted = [condition.split("=") for condition in only.split()]
    cases = [case for case in run["cases"] if all(str(case["parameters"].get(key)) == value for key, value in wanted)]
    if not cases:
        raise BadResult(f"{name}: no case with {only.strip() or 'parameters'}")
    head = f"**{run['benchmark']}** · commit `{run['commit']}` · {machine_line(run['machine'])} · [raw result](runs/{name})"
    return markdown([head, work_of(cases) or "No stages were measured."])
