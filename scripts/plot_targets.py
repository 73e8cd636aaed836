#!/usr/bin/env python3
"""Plots what sessions of `./run bench targets` reached of each target (bench/targets.py), for docs/performance.md.

usage: scripts/plot_targets.py [--check]     (docs/runs/SESSION-*.json to docs/plots/targets-gpu-h200.svg; --check writes nothing and fails where the plot is
                                              not what the results give)

A bar is the share of the target that the median of a session's repeats reached; of a latency, the target over the median. Drawn by matplotlib as
scripts/plot_paper.py says: the same bytes for the same results, and `--check` needs no matplotlib.
"""
import sys

import run_tables
from plot_paper import NoMatplotlib, is_of, settings, svg_of
from run_tables import ROOT, targets

PREFIX, NAME = "path-gpu-h200-", "targets-gpu-h200.svg"
COLOURS = ("#c7e9c0", "#a1d99b", "#74c476", "#31a354", "#006d2c")
MOST = 120  # percent at the right edge
LOOK = 1  # raise it when draw() changes


def sessions_of(runs):
    """The numbered sessions that measured a target, oldest first."""
    names = {name for _, name, *_ in targets.TARGETS}
    found = {stem.split("-", 1)[0] for stem in (name.removeprefix(PREFIX).removesuffix(".json") for name in runs if name.startswith(PREFIX))
             if "-" in stem and stem.split("-", 1)[1] in names}
    return sorted((number for number in found if number.isdigit()), key=int)


def shares(runs, sessions):
    """[(what, target as text, [percent of the target or None, one a session])] of the rows that have a target."""
    rows = []
    for what, name, operation, size, path, target, unit in targets.TARGETS:
        if target is None:
            continue
        row = []
        for session in sessions:
            run = runs.get(f"{PREFIX}{session}-{name}.json", {"cases": []})
            measured = targets.measured_of(targets.case_of(run, operation, size, path), unit)
            row.append(None if measured is None else 100 * (target / measured if unit == "ns" else measured / target))
        rows.append((what, targets.said(target, unit, "µs"), row))
    return rows


def describe(runs):
    """Everything that the plot shows, in words and numbers."""
    sessions = sessions_of(runs)
    return {"look": LOOK, "title": "GPU lanes (H200): share of each target that a session of ./run bench targets reached",
            "sessions": [f"{PREFIX}{session}" for session in sessions],
            "rows": [[f"{what}: {target}", [None if share is None else round(share, 3) for share in row]] for what, target, row in shares(runs, sessions)]}


def draw(description):
    """SVG of describe()'s result; raises NoMatplotlib."""
    rows, sessions = description["rows"], description["sessions"]
    colours = COLOURS[-len(sessions):] if sessions else ()
    thick = 0.8 / max(1, len(sessions))
    with settings() as Figure:
        height = 1.0 + 0.1 * sum(1 + max(1, len(sessions)) for _ in rows)
        figure = Figure(figsize=(10.4, height))
        axes = figure.subplots()
        figure.subplots_adjust(left=0.4, right=0.97, top=1 - 0.7 / height, bottom=0.3 / height)
        figure.text(0.02, 1 - 0.28 / height, description["title"], fontsize=13)
        for n, (session, colour) in enumerate(zip(sessions, colours)):
            figure.text(0.02 + 0.17 * n, 1 - 0.52 / height, "\u25a0", fontsize=11, color=colour)
            figure.text(0.036 + 0.17 * n, 1 - 0.51 / height, session, fontsize=8.5)
            found = [(r - 0.4 + thick * (n + 0.5), row[n]) for r, (_, row) in enumerate(rows) if row[n] is not None]
            axes.barh([y for y, _ in found], [min(share, MOST) for _, share in found], 0.92 * thick, color=colour)
            for y, share in found:
                axes.annotate(f"{share:.0f}", (min(share, MOST), y), (3, 0), textcoords="offset points", fontsize=6, verticalalignment="center")
        axes.axvline(100, color="#222222", linewidth=0.8, dashes=(4, 3))
        axes.set_xlim(0, MOST + 4)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_yticks(range(len(rows)), [what for what, _ in rows], fontsize=8)
        axes.set_xticks(range(0, MOST + 1, 20), [f"{percent} %" for percent in range(0, MOST + 1, 20)], fontsize=7.5)
        axes.spines[["top", "right"]].set_visible(False)
        return svg_of(figure, description)


def plot_docs(check, root=ROOT):
    """Returns 1 where the plot is not what the results give (with `check`) or cannot be drawn."""
    description, target = describe(run_tables.load_all(root / "docs" / "runs")), root / "docs" / "plots" / NAME
    if target.is_file() and is_of(target.read_text(), description):
        return 0
    if check:
        print(f"plot_targets: docs/plots/{NAME} was not drawn from docs/runs/ as it is now; './run plot --docs' draws it", file=sys.stderr)
        return 1
    try:
        image = draw(description)
    except NoMatplotlib as reason:
        print(f"plot_targets: cannot draw docs/plots/{NAME}: {reason}", file=sys.stderr)
        return 1
    target.parent.mkdir(exist_ok=True)
    target.write_text(image)
    print(f"plot_targets: wrote docs/plots/{NAME}")
    return 0


def main(arguments):
    if arguments not in ([], ["--check"]):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    return plot_docs(bool(arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
