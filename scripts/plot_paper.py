#!/usr/bin/env python3
"""Plots a figure that `./run bench paper --figure N --json FILE` measured, beside what the paper says of it.

usage: ./run plot FILE.json [OUT.svg]     (default: FILE with .svg)
       ./run plot --docs                  (docs/runs/paper-figure-*.json to docs/plots/)
       scripts/plot_paper.py --docs --check   (writes nothing, needs no matplotlib; fails where a plot in docs/plots/ is not of its result)

`./run plot` installs matplotlib (Debian package python3-matplotlib) where it is missing; this script alone needs it installed.

describe() turns a result into the titles, values and labels that a plot shows; draw() gives these to matplotlib. The SHA-256 of the description is in
the SVG's metadata (dc:identifier), and the SHA-256 of the SVG itself in its last line: `--check` compares both, so it works without matplotlib.
The same matplotlib writes the same bytes for the same result: no date, and identifiers from a fixed salt.

Bars and curves come out of FILE; the claims in the caption are the paper's. Dashed lines are what is ideal (paper_ideals.py); where a value lies above
the scale it stands at the panel's upper edge, with an arrow.
"""
import contextlib
import hashlib
import io
import json
import pathlib
import re
import sys
import textwrap

import paper_ideals

ROOT = pathlib.Path(__file__).resolve().parents[1]
# Raise it when draw() changes, so that plots drawn before are noticed as old.
LOOK = 1
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
# Ideals by what they are: the row above the panel in which a value that is off the scale stands, and which end of its line has its label, so that labels of
# lines that lie close together do not.
PLACES = {"SSDs": (0, "left"), "network": (1, "right"), "PCIe": (2, "center"), "SSD + network": (0, "left")}


class NoMatplotlib(Exception):
    def __str__(self):
        return "matplotlib cannot be imported by this python3; './run plot' installs it (Debian package python3-matplotlib) and draws the plot"


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


def of(run, **wanted):
    return [case for case in run["cases"] if all(case["parameters"][key] == value for key, value in wanted.items())]


# What a plot shows ------------------------------------------------------------------------------------------------------------------------------

def by_key(cases, key, get):
    table = {}
    for case in cases:
        row = table.setdefault(key(case["parameters"]), {})
        if (found := middle(case, get)) is not None:
            row[case["parameters"]["path"]] = [round(value, 6) for value in found]
    return table


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


def top_of(values, columns):
    """Room for all that was measured, and for ideals that do not make it look small."""
    most = max((most for row in values.values() for _, _, most in row.values()), default=0) or 1.0
    return 1.08 * max([most, *(ideal.value for column in columns for ideal in column if ideal.value <= 2 * most)])


def lines_of(columns, top):
    """Dashed lines: over which groups, at which value, with which label; `beyond`: above the scale, so that the label alone is shown."""
    lines = []
    for what in PLACES:
        for first, end, ideal in spans(columns, what):
            beyond = ideal.value > top
            # Another line runs where the label would stand: below the line, then.
            below = any(0 < other.value - ideal.value < 0.055 * top for other in columns[first] if other.value <= top)
            lines.append({"what": what, "first": first, "end": end, "value": round(ideal.value, 6), "beyond": beyond, "below": below,
                          "label": ideal.label() + (" \u2191" if beyond else "")})
    return lines


def panel_of(run, title, cases, key, get, shape):
    """Cases by `key`, all paths beside each other, as `shape` (bars or curves), with what is ideal for each group."""
    values = by_key(cases, key, get)
    groups = sorted(values)
    ideal_of = paper_ideals.throughput if get is rate else paper_ideals.latency
    columns = [ideal_of(run, next(case for case in cases if key(case["parameters"]) == group)) for group in groups]
    top = top_of(values, columns)
    return {"title": title, "unit": "GB/s" if get is rate else "\u00b5s (mean)", "shape": shape, "top": round(top, 6),
            "groups": [str(group) for group in groups], "values": [values[group] for group in groups], "ideals": lines_of(columns, top)}


def by_pattern(run, get):
    return [panel_of(run, size(count), of(run, bytes=count), lambda p: f"{p['pattern']} {p['operation']}", get, "bars") for count in (4096, 65536)]


def by_number(run, what):
    return [panel_of(run, f"{size(count)} {operation}, by {what}", of(run, bytes=count, operation=operation), lambda p: p[what], rate, "curves")
            for operation, count in (("read", 4096), ("write", 4096), ("read", 65536), ("write", 65536))]


def by_operation(run):
    return [panel_of(run, f"{size(count)}, {'throughput' if get is rate else 'latency'}", of(run, bytes=count), lambda p: p["operation"], get, "bars")
            for get, count in ((rate, 4096), (rate, 65536), (latency, 4096), (latency, 65536))]


def describe(run):
    """Everything that the plot of this result shows, in words and numbers."""
    figure = int(re.fullmatch(r"paper-figure-(\d+)", run["benchmark"]).group(1))
    config = run["configuration"]
    if figure in (9, 10):
        panels = by_pattern(run, rate if figure == 9 else latency)
    elif figure in (11, 12):
        panels = by_number(run, "clients" if figure == 11 else "SSDs")
    else:
        panels = by_operation(run)
    caption = f"{CLAIMS[figure]} The paper's GB/s are 2^30 bytes a second. {paper_ideals.explained(run, figure != 10, figure in (10, 13))}"
    machine = run["machine"].get("gpu") or run["machine"]["cpu"]
    return {"look": LOOK, "title": f"Figure {figure}: {TITLES[figure]}",
            "subtitle": f"{config['lanes']} lanes on {machine}; {config['replicas']} replicas; {config['engine threads']} engine threads for NICs and SSDs "
                        f"on every path; profile {config['profile']}; commit {run['commit']}",
            "paths": [path for path in COLOURS if of(run, path=path)], "panels": panels,
            "caption": textwrap.wrap(caption, 150, break_on_hyphens=False)}


def words_of(description):
    """Every text of a plot that is not a number on an axis."""
    panels = description["panels"]
    return [description["title"], description["subtitle"], *description["paths"], *description["caption"],
            *(panel["title"] for panel in panels), *(line["label"] for panel in panels for line in panel["ideals"])]


def digest(description):
    return "sha256:" + hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()


# How it is drawn --------------------------------------------------------------------------------------------------------------------------------

@contextlib.contextmanager
def settings():
    """matplotlib's class Figure, with settings under which a figure is the same bytes each time; it asks for no window system. Raises NoMatplotlib."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as missing:
        raise NoMatplotlib from missing
    with matplotlib.rc_context({**matplotlib.rcParamsDefault, "backend": "svg", "svg.hashsalt": "gnstor", "svg.fonttype": "none", "font.family": "sans-serif"}):
        yield Figure


def svg_of(figure, description):
    """The SVG of a matplotlib figure, made within settings(), with the digest of what it shows."""
    image = io.StringIO()
    figure.savefig(image, format="svg", metadata={"Date": None, "Identifier": digest(description)})
    return sealed(image.getvalue())


def draw_bars(axes, panel, paths):
    width = 0.8 / max(1, len(paths))
    for p, path in enumerate(paths):
        found = [(g, row[path]) for g, row in enumerate(panel["values"]) if path in row]
        if found:
            x = [g - 0.4 + width * (p + 0.5) for g, _ in found]
            middles = [value[0] for _, value in found]
            errors = [[value[0] - value[1] for _, value in found], [value[2] - value[0] for _, value in found]]
            axes.bar(x, middles, 0.92 * width, color=COLOURS[path], yerr=errors, error_kw={"elinewidth": 0.8})


def draw_curves(axes, panel, paths):
    for path in paths:
        found = [(g, row[path]) for g, row in enumerate(panel["values"]) if path in row]
        if found:
            axes.plot([g for g, _ in found], [value[0] for _, value in found], color=COLOURS[path], linewidth=1.6, marker="s", markersize=3.2)


def draw_ideal(axes, panel, line):
    row, side = PLACES[line["what"]]
    left, right = line["first"] - 0.46, line["end"] - 0.54
    if line["beyond"]:
        axes.annotate(line["label"], ((left + right) / 2, 1.0), (0, 3 + 8 * row), xycoords=("data", "axes fraction"), textcoords="offset points",
                      fontsize=6.5, color="#444444", horizontalalignment="center", verticalalignment="bottom")
        return
    axes.plot([left, right], [line["value"]] * 2, color="#222222", linewidth=0.8, dashes=(4, 3))
    axes.annotate(line["label"], ({"left": left, "center": (left + right) / 2, "right": right}[side], line["value"]), (0, -2 if line["below"] else 2),
                  textcoords="offset points", fontsize=6.5, color="#222222", horizontalalignment=side, verticalalignment="top" if line["below"] else "bottom",
                  bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.6, "pad": 0.3})


def draw_panel(axes, panel, paths):
    (draw_bars if panel["shape"] == "bars" else draw_curves)(axes, panel, paths)
    axes.set_ylim(0, panel["top"])
    axes.set_xlim(-0.5, max(1, len(panel["groups"])) - 0.5)
    axes.set_xticks(range(len(panel["groups"])), panel["groups"], fontsize=7.5)
    axes.tick_params(axis="y", labelsize=7.5)
    axes.set_ylabel(panel["unit"], fontsize=8)
    above = [PLACES[line["what"]][0] for line in panel["ideals"] if line["beyond"]]
    axes.set_title(panel["title"], fontsize=9.5, pad=6 + 8 * (max(above) + 1) if above else 6)
    axes.spines[["top", "right"]].set_visible(False)
    for line in panel["ideals"]:
        draw_ideal(axes, panel, line)


def draw(description):
    """SVG of describe()'s result; raises NoMatplotlib."""
    rows, caption = (len(description["panels"]) + 1) // 2, description["caption"]
    head, foot, row = 0.85, 0.35 + 0.16 * len(caption), 3.0  # inches
    height = head + foot + rows * row
    with settings() as Figure:
        figure = Figure(figsize=(10.4, height))
        axes = figure.subplots(rows, 2, squeeze=False)
        figure.subplots_adjust(left=0.06, right=0.985, top=1 - (head + 0.5) / height, bottom=(foot + 0.3) / height, hspace=0.36, wspace=0.14)
        figure.text(0.02, 1 - 0.28 / height, description["title"], fontsize=13)
        figure.text(0.02, 1 - 0.46 / height, description["subtitle"], fontsize=7.5, color="#555555")
        for n, path in enumerate(description["paths"]):
            figure.text(0.02 + 0.115 * n, 1 - 0.68 / height, "\u25a0", fontsize=11, color=COLOURS[path])
            figure.text(0.036 + 0.115 * n, 1 - 0.67 / height, path, fontsize=8.5)
        for panel, place in zip(description["panels"], axes.flat):
            draw_panel(place, panel, description["paths"])
        for n, words in enumerate(caption):
            figure.text(0.02, (foot - 0.2 - 0.16 * n) / height, words, fontsize=8, color="#444444")
        return svg_of(figure, description)


def sealed(image):
    """The SVG without blanks at the end of lines, and with its own SHA-256 in a comment behind it."""
    image = re.sub(r"[ \t]+$", "", image, flags=re.M)
    return f"{image}<!-- {hashlib.sha256(image.encode()).hexdigest()} -->\n"


def is_of(image, description):
    """Whether an SVG was drawn from this description, and is as it was written."""
    body, _, _ = image.rpartition("<!-- ")
    return f"<dc:identifier>{digest(description)}</dc:identifier>" in image and sealed(body) == image


# Files ------------------------------------------------------------------------------------------------------------------------------------------

def load(source):
    """A figure that has at least one case; ValueError says what else it is."""
    run = json.loads(source.read_text())
    if not isinstance(run, dict) or run.get("schema") != 1 or not re.fullmatch(r"paper-figure-(9|1[0-3])", str(run.get("benchmark"))):
        raise ValueError("it is no figure; measure one with './run bench paper --figure N --json FILE'")
    if not run.get("cases"):
        raise ValueError("it holds no case yet; give the same bench command again")
    return run


def description_of(source):
    run = load(source)
    try:
        return describe(run)
    except (KeyError, IndexError, TypeError, AttributeError, ZeroDivisionError) as wrong:
        raise ValueError(f"it is damaged ({type(wrong).__name__}: {wrong}); measure the figure again") from wrong


def plot_docs(check, root=ROOT):
    """Every figure of docs/runs as docs/plots/NAME.svg. Returns how many plots are not of their result (with `check`) or cannot be made."""
    wrong = 0
    wanted = set()
    for source in sorted((root / "docs" / "runs").glob("paper-figure-*.json")):
        target = root / "docs" / "plots" / (source.stem + ".svg")
        wanted.add(target.name)
        try:
            description = description_of(source)
            if target.is_file() and is_of(target.read_text(), description):
                continue
            if check:
                print(f"plot_paper: docs/plots/{target.name} was not drawn from docs/runs/{source.name} as it is now; './run plot --docs' draws it",
                      file=sys.stderr)
                wrong += 1
                continue
            image = draw(description)
        except (OSError, ValueError, NoMatplotlib) as reason:
            print(f"plot_paper: cannot plot {source}: {reason}", file=sys.stderr)
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
        image = draw(description_of(source))
    except (OSError, ValueError, NoMatplotlib) as wrong:
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
