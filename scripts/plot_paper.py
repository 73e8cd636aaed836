#!/usr/bin/env python3
"""Plots a figure that `./run bench paper --figure N --json FILE` measured, beside what the paper says of it.

usage: scripts/plot_paper.py FILE.json [OUT.svg]      (default: FILE with .svg)
       scripts/plot_paper.py --docs [--check]         (docs/runs/paper-figure-*.json to docs/plots/; --check writes nothing and fails
                                                       where a plot is not what its result gives)

Bars and curves come out of FILE; the claims in the caption and lines marked so are the paper's. Dashed lines are what is ideal (paper_ideals.py); where one
lies above the scale its value stands at the panel's upper edge. Plain SVG written here: the same bytes for the same results, on every machine.
"""
import json
import pathlib
import re
import sys
import textwrap
from xml.sax.saxutils import escape

import paper_ideals

ROOT = pathlib.Path(__file__).resolve().parents[1]
COLOURS = {"gnor": "#1b7837", "strong-cpu": "#2166ac", "gd-deengine": "#92c5de", "gd": "#f4a582", "basic": "#b2182b",
           "ported-locks": "#999999", "coordinating": "#555555"}
# As the paper prints them: its GB/s are 2^30 bytes a second.
CLAIMS = {
    9: "The paper (A100, 200 Gb/s, modelled SSDs): Basic 0.5 / 0.3 GB/s at 4 KB read / write; GD 1.2x and 1.3x above it; GNStor 3.2x above Basic "
       "and 0.8x above GD on average at 4 KB.",
    10: "The paper: GD's latency 40.7 % and 26.1 % below Basic's at 4 and 64 KB; GNStor's a further 35.7 % (read) and 39.8 % (write) below.",
    11: "The paper: GNStor reaches 11.8 / 5.6 / 9.6 GB/s at 4 KB read, 4 KB write, 64 KB write, and 21.5 GB/s at 64 KB read with two clients; "
        "GD 2.8 / 0.9 GB/s at 4 KB; Basic 4.4 / 4.1 GB/s at 64 KB.",
    12: "The paper: GNStor 13.6 / 6.6 GB/s at 4 KB sequential read / write with five SSDs (3.6x and 4.8x above GD); Basic and GD gain little.",
    13: "The paper: GD+deEngine writes 49.9 % (4 KB) and 24.7 % (64 KB) more than GD; GNStor a further 49.6 % on average, with 31.2 % less latency. "
        "Locks ported from a CPU driver (ported-locks) cost it 86.6 % of throughput, clients that coordinate themselves (coordinating) 72.0 %.",
}
TITLES = {9: "Throughput by pattern (one client, 32 in flight)", 10: "Latency by pattern (one client, one in flight)",
          11: "Throughput by number of clients", 12: "Throughput by number of SSDs (sequential, 8 clients)",
          13: "Ablation: throughput and latency (random, one client)"}
# Ideals by what they are: the row above the panel in which one that is off the scale stands, and which end of its line has its label, so that labels of
# lines that lie close together do not.
PLACES = {"SSDs": (0, "start"), "network": (1, "end"), "PCIe": (2, "middle"), "SSD + network": (0, "start")}
MARGIN, WIDTH, HEIGHT, FIRST_ROW, ROW = 70, 440, 220, 136, 310


def size(count):
    return f"{count // 1024} KiB" if count >= 1024 else f"{count} B"


def middle(case, get):
    """Median, least and most of the repeats that have a value; None where none has."""
    values = sorted(value for value in map(get, case["repeats"]) if value is not None)
    return (values[len(values) // 2], values[0], values[-1]) if values else None


def rate(repeat):
    return repeat["bytes"] / repeat["seconds"] / 1e9


def latency(repeat):
    """None: no request ended in that time, as in a very short repeat on a crowded machine."""
    return repeat["latency_ns"]["mean"] / 1e3 if repeat["operations"] else None


class Svg:
    def __init__(self, width, height):
        self.width, self.height, self.parts = width, height, []

    def rect(self, x, y, w, h, colour):
        self.parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" fill="{colour}"/>')

    def line(self, points, colour, width=1.5, dash=""):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"{dashed}/>')

    def text(self, x, y, words, size_=11, anchor="start", colour="#222", turn=0):
        turned = f' transform="rotate({turn} {x:.1f} {y:.1f})"' if turn else ""
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size_}" text-anchor="{anchor}" fill="{colour}"{turned}>{escape(words)}</text>')

    def text_on_bars(self, x, y, words, size_, anchor):
        """Twice, the first time as a white rim: not every program that shows SVG knows paint-order."""
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size_}" text-anchor="{anchor}" fill="white" stroke="white" stroke-width="2.5" '
                          f'stroke-linejoin="round" aria-hidden="true">{escape(words)}</text>')
        self.text(x, y, words, size_, anchor, "#222")

    def dump(self):
        return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{self.height}" viewBox="0 0 {self.width} {self.height}" '
                f'font-family="sans-serif"><rect width="100%" height="100%" fill="white"/>\n' + "\n".join(self.parts) + "\n</svg>\n")


class Panel:
    """One set of axes; values from 0 to `top`."""

    def __init__(self, svg, place, title, unit, top):
        self.svg, self.w, self.h, self.top = svg, WIDTH, HEIGHT, top or 1.0
        self.x, self.y = MARGIN + 500 * (place % 2), FIRST_ROW + ROW * (place // 2)
        x, y, w, h = self.x, self.y, self.w, self.h
        svg.text(x + w / 2, y - 42, title, 12, "middle")
        svg.line([(x, y), (x, y + h), (x + w, y + h)], "#444", 1)
        for i in range(5):
            value = self.top * i / 4
            svg.line([(x - 3, self.at(value)), (x, self.at(value))], "#444", 1)
            svg.text(x - 5, self.at(value) + 4, f"{value:.3g}" if value < 1000 else f"{value:.0f}", 9, "end")
        svg.text(x - 34, y + h / 2, unit, 10, "middle", turn=-90)

    def at(self, value):
        return self.y + self.h - self.h * min(value, self.top) / self.top

    def ideals(self, columns):
        """What is ideal for each group, from left to right."""
        step = self.w / max(1, len(columns))
        for what in PLACES:
            for first, end, ideal in spans(columns, what):
                close = any(0 < self.at(ideal.value) - self.at(other.value) < 12 for other in columns[first] if other.value <= self.top)
                self.ideal(ideal, self.x + step * (first + 0.04), self.x + step * (end - 0.04), close)

    def ideal(self, ideal, left, right, below):
        """`below`: another line runs where the label would stand."""
        row, anchor = PLACES[ideal.what]
        if ideal.value > self.top:
            self.svg.text((left + right) / 2, self.y - 6 - 11 * row, f"{ideal.label()} \u2191", 8, "middle", "#444")
            return
        y = self.at(ideal.value)
        self.svg.line([(left, y), (right, y)], "#222", 1, "4 3")
        self.svg.text_on_bars({"start": left, "middle": (left + right) / 2, "end": right}[anchor], y + (9 if below else -3), ideal.label(), 8, anchor)


def spans(columns, what):
    """(first, end, ideal) of neighbouring groups that have the same ideal: one line and one label for them."""
    found = []
    for n, column in enumerate(columns):
        for ideal in (i for i in column if i.what == what):
            if found and found[-1][1] == n and found[-1][2] == ideal:
                found[-1] = (found[-1][0], n + 1, ideal)
            else:
                found.append((n, n + 1, ideal))
    return found


def bars(panel, groups, paths, values):
    """values[group][path] = (median, least, most)."""
    step = panel.w / max(1, len(groups))
    width = step * 0.8 / max(1, len(paths))
    for g, group in enumerate(groups):
        panel.svg.text(panel.x + step * (g + 0.5), panel.y + panel.h + 13, group, 9, "middle")
        for p, path in enumerate(paths):
            if path not in values[group]:
                continue
            median, least, most = values[group][path]
            x = panel.x + step * (g + 0.1) + width * p
            panel.svg.rect(x, panel.at(median), width * 0.92, panel.y + panel.h - panel.at(median), COLOURS[path])
            panel.svg.line([(x + width / 2, panel.at(least)), (x + width / 2, panel.at(most))], "#000", 0.8)


def curves(panel, numbers, paths, values):
    """values[number][path]; numbers are evenly spaced."""
    step = panel.w / max(1, len(numbers))
    for n, number in enumerate(numbers):
        panel.svg.text(panel.x + step * (n + 0.5), panel.y + panel.h + 13, str(number), 9, "middle")
    for path in paths:
        points = [(panel.x + step * (n + 0.5), panel.at(values[number][path][0])) for n, number in enumerate(numbers) if path in values[number]]
        panel.svg.line(points, COLOURS[path], 2)
        for x, y in points:
            panel.svg.rect(x - 2, y - 2, 4, 4, COLOURS[path])


def top_of(values, columns):
    """Room for all that was measured, and for ideals that do not make it look small."""
    most = max((most for row in values.values() for _, _, most in row.values()), default=0) or 1.0
    return 1.08 * max([most, *(ideal.value for column in columns for ideal in column if ideal.value <= 2 * most)])


def by_key(cases, key, get):
    table = {}
    for case in cases:
        row = table.setdefault(key(case["parameters"]), {})
        if (found := middle(case, get)) is not None:
            row[case["parameters"]["path"]] = found
    return table


def panel_of(svg, place, run, paths, title, cases, key, get, shape):
    """Cases by `key`, all paths beside each other, as `shape` draws them, with what is ideal for each group."""
    values = by_key(cases, key, get)
    groups = sorted(values)
    ideal_of = paper_ideals.throughput if get is rate else paper_ideals.latency
    columns = [ideal_of(run, next(case for case in cases if key(case["parameters"]) == group)) for group in groups]
    panel = Panel(svg, place, title, "GB/s" if get is rate else "us (mean)", top_of(values, columns))
    shape(panel, groups, paths, values)
    panel.ideals(columns)


def of(run, **wanted):
    return [case for case in run["cases"] if all(case["parameters"][key] == value for key, value in wanted.items())]


def by_pattern(svg, run, paths, get):
    for place, count in enumerate((4096, 65536)):
        panel_of(svg, place, run, paths, size(count), of(run, bytes=count), lambda p: f"{p['pattern']} {p['operation']}", get, bars)


def by_number(svg, run, paths, what):
    for place, (operation, count) in enumerate((("read", 4096), ("write", 4096), ("read", 65536), ("write", 65536))):
        panel_of(svg, place, run, paths, f"{size(count)} {operation}, by {what}", of(run, bytes=count, operation=operation), lambda p: p[what], rate, curves)


def by_operation(svg, run, paths):
    for place, (get, count) in enumerate(((rate, 4096), (rate, 65536), (latency, 4096), (latency, 65536))):
        title = f"{size(count)}, {'throughput' if get is rate else 'latency'}"
        panel_of(svg, place, run, paths, title, of(run, bytes=count), lambda p: p["operation"], get, bars)


def head(svg, run, figure, paths):
    config = run["configuration"]
    svg.text(20, 24, f"Figure {figure}: {TITLES[figure]}", 16)
    machine = run["machine"].get("gpu") or run["machine"]["cpu"]
    svg.text(20, 42, f"{config['lanes']} lanes on {machine}; {config['replicas']} replicas; {config['engine threads']} engine threads for NICs and SSDs "
             f"on every path; profile {config['profile']}; commit {run['commit']}", 10, colour="#555")
    for i, path in enumerate(paths):
        svg.rect(20 + 120 * i, 52, 10, 10, COLOURS[path])
        svg.text(34 + 120 * i, 61, path, 11)


def caption(svg, words, y):
    for line in textwrap.wrap(words, 165, break_on_hyphens=False):
        svg.text(20, y, line, 11, colour="#444")
        y += 15


def draw(run):
    figure = int(re.fullmatch(r"paper-figure-(\d+)", run["benchmark"]).group(1))
    paths = [path for path in COLOURS if of(run, path=path)]
    rows = 2 if figure in (11, 12, 13) else 1
    bottom = FIRST_ROW + ROW * (rows - 1) + HEIGHT
    svg = Svg(1040, bottom + 115)
    head(svg, run, figure, paths)
    if figure in (9, 10):
        by_pattern(svg, run, paths, rate if figure == 9 else latency)
    elif figure in (11, 12):
        by_number(svg, run, paths, "clients" if figure == 11 else "SSDs")
    else:
        by_operation(svg, run, paths)
    caption(svg, f"{CLAIMS[figure]} The paper's GB/s are 2^30 bytes a second. {paper_ideals.explained(run, figure != 10, figure in (10, 13))}", bottom + 40)
    return svg.dump()


def load(source):
    """A figure that has at least one case; ValueError says what else it is."""
    run = json.loads(source.read_text())
    if not isinstance(run, dict) or run.get("schema") != 1 or not re.fullmatch(r"paper-figure-(9|1[0-3])", str(run.get("benchmark"))):
        raise ValueError("it is no figure; measure one with './run bench paper --figure N --json FILE'")
    if not run.get("cases"):
        raise ValueError("it holds no case yet; give the same bench command again")
    return run


def image_of(source):
    run = load(source)
    try:
        return draw(run)
    except (KeyError, IndexError, TypeError, AttributeError, ZeroDivisionError) as wrong:
        raise ValueError(f"it is damaged ({type(wrong).__name__}: {wrong}); measure the figure again") from wrong


def plot_docs(check, root=ROOT):
    """Every figure of docs/runs as docs/plots/NAME.svg. Returns how many plots are not what their result gives (with `check`) or cannot be made."""
    wrong = 0
    wanted = set()
    for source in sorted((root / "docs" / "runs").glob("paper-figure-*.json")):
        target = root / "docs" / "plots" / (source.stem + ".svg")
        wanted.add(target.name)
        try:
            image = image_of(source)
        except (OSError, ValueError) as reason:
            print(f"plot_paper: cannot plot {source}: {reason}", file=sys.stderr)
            wrong += 1
            continue
        if target.is_file() and target.read_text() == image:
            continue
        if check:
            print(f"plot_paper: docs/plots/{target.name} is not what docs/runs/{source.name} gives; run scripts/plot_paper.py --docs", file=sys.stderr)
            wrong += 1
            continue
        target.parent.mkdir(exist_ok=True)
        target.write_text(image)
        print(f"plot_paper: wrote docs/plots/{target.name}")
    for plot in sorted((root / "docs" / "plots").glob("paper-figure-*.svg")):
        if plot.name not in wanted:
            print(f"plot_paper: docs/plots/{plot.name} has no result in docs/runs/", file=sys.stderr)
            wrong += 1
    return wrong


def main(arguments):
    if arguments in (["--docs"], ["--docs", "--check"]):
        return 1 if plot_docs("--check" in arguments) else 0
    if len(arguments) not in (1, 2) or arguments[0].startswith("-"):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    source = pathlib.Path(arguments[0])
    try:
        image = image_of(source)
    except (OSError, ValueError) as wrong:
        print(f"plot_paper: cannot plot {source}: {wrong}", file=sys.stderr)
        return 1
    target = pathlib.Path(arguments[1]) if len(arguments) == 2 else source.with_suffix(".svg")
    try:
        target.write_text(image)
    except OSError as wrong:
        print(f"plot_paper: cannot write {target}: {wrong}", file=sys.stderr)
        return 1
    print(target)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
