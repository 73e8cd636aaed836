"""How ways to initiate I/O compare in a figure of `./run bench paper`, for docs/paper.md: medians of every way side by side, and their ratios.

Nothing is left out or aimed at: every case in which both ways were measured is in the table, and the last rows are geometric means over the cases of
a size.
"""
import math
import statistics

PAIRS = (("gd", "basic"), ("gd-deengine", "gd"), ("gnor", "gd-deengine"), ("gnor", "gd"), ("gnor", "basic"), ("gnor", "strong-cpu"),
         ("ported-locks", "gnor"), ("coordinating", "gnor"))
RATE = ("GB/s", lambda r: r["bytes"] / r["seconds"] / 1e9, 3)
LATENCY = ("mean latency, µs", lambda r: r["latency_ns"]["mean"] / 1e3, 1)


def what_counts(benchmark):
    """Throughput, latency, or both: what the figure of the paper shows."""
    return {"paper-figure-10": (LATENCY,), "paper-figure-13": (RATE, LATENCY)}.get(benchmark, (RATE,))


def ratio_table(run, measure):
    name, get, digits = measure
    rows, paths = {}, []
    for case in run["cases"]:
        parameters = dict(case["parameters"])
        path = parameters.pop("path")
        if path not in paths:
            paths.append(path)
        rows.setdefault(tuple(parameters.items()), {})[path] = statistics.median(get(r) for r in case["repeats"])
    pairs = [pair for pair in PAIRS if any(pair[0] in row and pair[1] in row for row in rows.values())]
    # What all rows share says nothing.
    varying = [key for key in dict(next(iter(rows))) if len({dict(row)[key] for row in rows}) > 1]
    lines = [f"{name[0].upper() + name[1:]}, and ratios:", "",
             "| " + " | ".join(["case", *paths] + [f"{a} / {b}" for a, b in pairs]) + " |", "|---|" + "---:|" * (len(paths) + len(pairs))]
    for key, row in rows.items():
        known = dict(key)
        title = ", ".join(str(known[k]) if isinstance(known[k], str) else f"{k} {known[k]}" for k in varying) or "all"
        cells = [f"{row[p]:.{digits}f}" if p in row else "—" for p in paths]
        cells += [f"{row[a] / row[b]:.2f}" if row.get(b) and a in row else "—" for a, b in pairs]
        lines.append("| " + " | ".join([title] + cells) + " |")
    for size in sorted({dict(key)["bytes"] for key in rows}):
        means = []
        for a, b in pairs:
            logs = [math.log(row[a] / row[b]) for key, row in rows.items() if dict(key)["bytes"] == size and row.get(a) and row.get(b)]
            means.append(f"{math.exp(statistics.fmean(logs)):.2f}" if logs else "—")
        lines.append("| " + " | ".join([f"geometric mean, bytes {size}"] + [""] * len(paths) + means) + " |")
    return "\n".join(lines)


def ratio_tables(run):
    return "\n\n".join(ratio_table(run, measure) for measure in what_counts(run["benchmark"]))
