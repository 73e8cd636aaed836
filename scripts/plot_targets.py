#!/usr/bin/env python3
"""Plots what sessions of `./run bench targets` reached of each target (bench/targets.py), for docs/performance.md.

usage: scripts/plot_targets.py [--check]     (docs/runs/SESSION-*.json to docs/plots/targets-gpu-h200.svg; --check writes nothing and fails where the plot is
                                              not what the results give)

A bar is the share of the target that the median of a session's repeats reached; of a latency, the target over the median. Plain SVG, the same bytes for
the same results.
"""
import sys

import run_tables
from plot_paper import Svg
from run_tables import ROOT, targets

PREFIX, NAME = "path-gpu-h200-", "targets-gpu-h200.svg"
COLOURS = ("#c7e9c0", "#a1d99b", "#74c476", "#31a354", "#006d2c")
LEFT, WIDTH, BAR, GAP, TOP, MOST = 380, 560, 9, 12, 66, 120  # MOST: percent at the right edge


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


def draw(runs):
    sessions = sessions_of(runs)
    colours = COLOURS[-len(sessions):] if sessions else ()
    rows = shares(runs, sessions)
    height = TOP + sum(BAR * max(1, sum(share is not None for share in row)) + GAP for *_, row in rows)
    svg = Svg(LEFT + WIDTH + 60, height + 40)
    svg.text(20, 24, "GPU lanes (H200): share of each target that a session of ./run bench targets reached", 15)
    for i, (session, colour) in enumerate(zip(sessions, colours)):
        svg.rect(20 + 150 * i, 36, 10, 10, colour)
        svg.text(34 + 150 * i, 45, f"{PREFIX}{session}")
    at = WIDTH / MOST
    for percent in range(0, MOST + 1, 20):
        svg.line([(LEFT + at * percent, TOP - 8), (LEFT + at * percent, height)], "#222" if percent == 100 else "#ddd", 1, "4 3" if percent == 100 else "")
        svg.text(LEFT + at * percent, height + 14, f"{percent} %", 10, "middle")
    y = TOP
    for what, target, row in rows:
        known = [(share, colour) for share, colour in zip(row, colours) if share is not None]
        svg.text(LEFT - 8, y + BAR * max(1, len(known)) / 2 + 4, f"{what}: {target}", 11, "end")
        for share, colour in known:
            svg.rect(LEFT, y, at * min(share, MOST), BAR - 1, colour)
            svg.text(LEFT + at * min(share, MOST) + 4, y + BAR - 1, f"{share:.0f}", 8)
            y += BAR
        y += GAP + BAR * (not known)
    return svg.dump()


def plot_docs(check, root=ROOT):
    """Returns 1 where the plot is not what the results give (with `check`)."""
    image, target = draw(run_tables.load_all(root / "docs" / "runs")), root / "docs" / "plots" / NAME
    if target.is_file() and target.read_text() == image:
        return 0
    if check:
        print(f"plot_targets: docs/plots/{NAME} is not what docs/runs/ gives; run scripts/plot_targets.py", file=sys.stderr)
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
