#!/usr/bin/env python3
"""Plots a figure that `./run bench paper --figure N --json FILE` measured, beside what the paper says of it.

usage: scripts/plot_paper.py FILE.json [OUT.svg]      (default: FILE with .svg)
       scripts/plot_paper.py --docs [--check]         (docs/runs/paper-figure-*.json to docs/plots/; --check writes nothing and fails
                                                       where a plot is not what its result gives)

Everything drawn comes out of FILE; the claims in the caption and lines marked so are the paper's. Dashed lines: what the modelled SSDs and network of the
run allow (the paper's where it had no model). Plain SVG written here: the same bytes for the same result, on every machine.
"""
import json
import pathlib
import re
import sys
from xml.sax.saxutils import escape

ROOT = pathlib.Path(__file__).resolve().parents[1]
COLOURS = {"gnor": "#1b7837", "strong-cpu": "#2166ac", "gd-deengine": "#92c5de", "gd": "#f4a582", "basic": "#b2182b",
           "ported-locks": "#999999", "coordinating": "#555555"}
# The paper's limits, of one SSD by (operation, bytes) and of the links, in the unit of the axes: 10^9 bytes a second. The paper's own GB/s are
# 1024 MB/s (its network: 21.6 GB/s = 22,118 MB/s) and its MB taken as 2^20 bytes, as share/profiles/gnstor-paper.json has them; its claims below
# are quoted as it prints them.
PAPER_MB, PAPER_GB = 2**20 / 1e9, 2**30 / 1e9
PAPER_SSD = {("read", 4096): 3250 * PAPER_MB, ("write", 4096): 2980 * PAPER_MB, ("read", 65536): 6988 * PAPER_MB, ("write", 65536): 4950 * PAPER_MB}
PAPER_NETWORK, PAPER_PCIE = 21.6 * PAPER_GB, 25.1 * PAPER_GB
CLAIMS = {
    9: "The paper (A100, 200 Gb/s, modelled SSDs): Basic 0.5 / 0.3 GB/s at 4 KB read / write; GD 1.2x and 1.3x above it; GNStor 3.2x above Basic "
       "and 0.8x above GD on average at 4 KB.",
    10: "The paper: GD's latency 40.7 % and 26.1 % below Basic's at 4 and 64 KB; GNStor's a further 35.7 % (read) and 39.8 % (write) below.",
    11: "The paper: GNStor reaches 11.8 / 5.6 / 9.6 GB/s at 4 KB read, 4 KB write, 64 KB write, and 21.5 GB/s at 64 KB read with two clients; "
        "GD 2.8 / 0.9 GB/s at 4 KB; Basic 4.4 / 4.1 GB/s at 64 KB.",
    12: "The paper: GNStor 13.6 / 6.6 GB/s at 4 KB sequential read / write with five SSDs (3.6x and 4.8x above GD); Basic and GD gain little.",
    13: "The paper: GD+deEngine writes 49.9 % (4 KB) and 24.7 % (64 KB) more than GD; GNStor a further 49.6 % on average, with 31.2 % less latency.",
}
TITLES = {9: "Throughput by pattern (one client, 32 in flight)", 10: "Latency by pattern (one client, one in flight)",
          11: "Throughput by number of clients", 12: "Throughput by number of SSDs (sequential, 8 clients)",
          13: "Ablation: throughput and latency (random, one client)"}


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

    def dump(self):
        return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{self.height}" viewBox="0 0 {self.width} {self.height}" '
                f'font-family="sans-serif"><rect width="100%" height="100%" fill="white"/>\n' + "\n".join(self.parts) + "\n</svg>\n")


class Panel:
    """One set of axes; values from 0 to `top`."""

    def __init__(self, svg, x, y, w, h, title, unit, top):
        self.svg, self.x, self.y, self.w, self.h, self.top = svg, x, y, w, h, top or 1.0
        svg.text(x + w / 2, y - 6, title, 12, "middle")
        svg.line([(x, y), (x, y + h), (x + w, y + h)], "#444", 1)
        for i in range(5):
            value = self.top * i / 4
            svg.line([(x - 3, self.at(value)), (x, self.at(value))], "#444", 1)
            svg.text(x - 5, self.at(value) + 4, f"{value:.3g}", 9, "end")
        svg.text(x - 34, y + h / 2, unit, 10, "middle", turn=-90)

    def at(self, value):
        return self.y + self.h - self.h * min(value, self.top) / self.top

    def limit(self, value, words):
        """A line of the paper's hardware; left out where it lies far above everything that was measured."""
        if value > self.top:
            return
        self.svg.line([(self.x, self.at(value)), (self.x + self.w, self.at(value))], "#888", 1, "4 3")
        self.svg.text(self.x + self.w, self.at(value) - 3, words, 8, "end", "#666")


    def limit_of_group(self, index, groups, value):
        if value <= self.top:
            step = self.w / max(1, groups)
            self.svg.line([(self.x + step * (index + 0.04), self.at(value)), (self.x + step * (index + 0.96), self.at(value))], "#888", 1, "4 3")


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


def allowed(cases, operation, count, ssds, replicas):
    """GB/s that SSDs and network allow: of the run's profile, or the paper's; with the words that say which."""
    for case in cases:
        parameters, first = case["parameters"], case["repeats"][0]
        if (parameters["operation"], parameters["bytes"], parameters["SSDs"]) == (operation, count, ssds) and "limit_drives_per_second" in first:
            return (first["limit_drives_per_second"] * count / 1e9, first.get("limit_network_per_second", 0) * count / 1e9, "")
    copies = replicas if operation == "write" else 1
    return PAPER_SSD[(operation, count)] * ssds / copies, PAPER_NETWORK / copies, " (paper)"


def limits(panel, cases, operation, count, ssds, replicas, measured):
    """Ideal lines, where they are in reach of what was measured."""
    drives, network, whose = allowed(cases, operation, count, ssds, replicas)
    for value, words in ((drives, f"SSDs {drives:.1f}{whose}"), (network, f"network {network:.1f}{whose}"), (PAPER_PCIE, f"PCIe {PAPER_PCIE:.1f} (paper)")):
        if 0 < value <= 2.5 * measured:
            panel.limit(value, words)


def limits_by_number(panel, cases, operation, count, numbers, replicas):
    """The line of the SSDs rises with their number; network and PCIe do not."""
    if not numbers:
        return
    step = panel.w / len(numbers)
    found = [allowed(cases, operation, count, number, replicas) for number in numbers]
    points = [(panel.x + step * (n + 0.5), panel.at(drives)) for n, (drives, _, _) in enumerate(found) if drives <= panel.top]
    if points:
        panel.svg.line(points, "#888", 1, "4 3")
        panel.svg.text(points[-1][0], points[-1][1] - 4, f"SSDs{found[0][2]}", 8, "end", "#666")
    network = found[-1][1]
    for value, words in ((network, f"network {network:.1f}{found[-1][2]}"), (PAPER_PCIE, f"PCIe {PAPER_PCIE:.1f} (paper)")):
        if value > 0:
            panel.limit(value, words)


def top_of(values, extra=()):
    most = max((most for row in values.values() for _, _, most in row.values()), default=0) or 1.0
    return 1.08 * max([most, *(value for value in extra if value <= 2.5 * most)])


def by_key(cases, key, get):
    table = {}
    for case in cases:
        row = table.setdefault(key(case["parameters"]), {})
        if (found := middle(case, get)) is not None:
            row[case["parameters"]["path"]] = found
    return table


def draw(run):
    figure = int(re.fullmatch(r"paper-figure-(\d+)", run["benchmark"]).group(1))
    cases, config = run["cases"], run["configuration"]
    paths = [path for path in COLOURS if any(case["parameters"]["path"] == path for case in cases)]
    kinds = [("read", 4096), ("write", 4096), ("read", 65536), ("write", 65536)]
    svg = Svg(1040, 700 if figure in (11, 12, 13) else 450)
    svg.text(20, 24, f"Figure {figure}: {TITLES[figure]}", 16)
    machine = run["machine"].get("gpu") or run["machine"]["cpu"]
    svg.text(20, 42, f"{config['lanes']} lanes on {machine}; {config['replicas']} replicas; {config['engine threads']} engine threads for NICs and SSDs "
             f"on every path; profile {config['profile']}; commit {run['commit']}", 10, colour="#555")
    for i, path in enumerate(paths):
        svg.rect(20 + 120 * i, 52, 10, 10, COLOURS[path])
        svg.text(34 + 120 * i, 61, path, 11)
    if figure in (9, 10):
        get, unit = (rate, "GB/s") if figure == 9 else (latency, "us (mean)")
        for i, count in enumerate((4096, 65536)):
            mine = [case for case in cases if case["parameters"]["bytes"] == count]
            values = by_key(mine, lambda p: f"{p['pattern']} {p['operation']}", get)
            panel = Panel(svg, 70 + 500 * i, 100, 440, 250, size(count), unit, top_of(values))
            bars(panel, sorted(values), paths, values)
            for g, group in enumerate(sorted(values)):
                if figure == 9:
                    panel.limit_of_group(g, len(values), min(v for v in allowed(cases, group.split()[1], count, 4, config["replicas"])[:2] if v > 0))
    elif figure in (11, 12):
        what = "clients" if figure == 11 else "SSDs"
        for i, (operation, count) in enumerate(kinds):
            mine = [case for case in cases if case["parameters"]["bytes"] == count and case["parameters"]["operation"] == operation]
            values = by_key(mine, lambda p: p[what], rate)
            numbers = sorted(values)
            most = 4 if figure == 11 else max(numbers, default=4)
            top = top_of(values, (*allowed(cases, operation, count, most, config["replicas"])[:2], PAPER_PCIE))
            panel = Panel(svg, 70 + 500 * (i % 2), 100 + 280 * (i // 2), 440, 210, f"{size(count)} {operation}, by {what}", "GB/s", top)
            curves(panel, numbers, paths, values)
            if figure == 11:
                limits(panel, cases, operation, count, 4, config["replicas"], top_of(values) / 1.08)
            else:
                limits_by_number(panel, cases, operation, count, numbers, config["replicas"])
    else:
        for i, (get, unit, count) in enumerate(((rate, "GB/s", 4096), (rate, "GB/s", 65536), (latency, "us (mean)", 4096), (latency, "us (mean)", 65536))):
            mine = [case for case in cases if case["parameters"]["bytes"] == count]
            values = by_key(mine, lambda p: p["operation"], get)
            panel = Panel(svg, 70 + 500 * (i % 2), 100 + 280 * (i // 2), 440, 210, f"{size(count)}, {'throughput' if get is rate else 'latency'}", unit,
                          top_of(values))
            bars(panel, sorted(values), paths, values)
    words, line, y = (CLAIMS[figure] + " The paper's GB/s are 2^30 bytes a second.").split(), "", svg.height - 34
    for word in words:
        if len(line) + len(word) > 165:
            svg.text(20, y, line, 11, colour="#444")
            line, y = "", y + 15
        line += (" " if line else "") + word
    svg.text(20, y, line, 11, colour="#444")
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
