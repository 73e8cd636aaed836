"""Plots of one raw result for report.py, drawn by matplotlib: bars by case beside each other, or what was measured beside what was expected."""
import io
import statistics

import run_tables
from plot_paper import settings

COLOURS = ("#1b7837", "#2166ac", "#b2182b", "#f4a582", "#92c5de", "#762a83", "#999999", "#dfc27d", "#35978f", "#555555")
GROUPS = ("path", "through", "profile", "allocator", "structure", "variant", "way", "over-provisioning %")  # the parameter that tells bars of one case apart
WIDTH, PANEL_HEIGHT = 13, 4.4  # inches


def rate(repeat):
    return repeat.get("bytes", 0) / repeat["seconds"] / 1e9


def millions(repeat):
    return repeat["operations"] / repeat["seconds"] / 1e6


def percentile(name):
    return lambda repeat: repeat.get("latency_ns", {}).get(name, 0) / 1e3


def measures_of(run):
    """(title, value of a repeat, logarithmic) of the panels."""
    repeats = [repeat for case in run["cases"] for repeat in case["repeats"]]
    if run["benchmark"] in ("deengine", "pool"):
        return [("ns of a core an operation", None, True)]
    found = [("GB/s", rate, False)] if any(repeat.get("bytes") for repeat in repeats) else []
    found.append(("million operations/s", millions, False))
    if any("p50" in repeat.get("latency_ns", {}) for repeat in repeats):
        found += [("p50, µs", percentile("p50"), True), ("p99, µs", percentile("p99"), True)]
    return found


def middle(case, value):
    """Median, least, most; None where nothing above 0 was measured."""
    if value is None:
        cores = case["parameters"].get("cores", 1)
        values = sorted(r["seconds"] * cores / r["operations"] * 1e9 for r in case["repeats"] if r["operations"])
    else:
        values = sorted(value(repeat) for repeat in case["repeats"])
    if not values or values[-1] <= 0:
        return None
    return statistics.median(values), values[0], values[-1]


def svg_of(figure):
    """The element <svg> of a figure, without XML header, to be put into a page."""
    image = io.StringIO()
    figure.savefig(image, format="svg", bbox_inches="tight", metadata={"Date": None})
    return image.getvalue()[image.getvalue().index("<svg"):]


def draw_measure(axes, cases, value, groups, group, names):
    """Bars of one measure: the cases that differ in other parameters along the axis, those of `groups` beside each other."""
    width = 0.8 / len(groups)
    for number, name in enumerate(groups):
        found = [(names.index(run_tables.name_of(differing)), middle(case, value)) for case, differing in cases
                 if str(case["parameters"].get(group, "")) == name]
        found = [(place, values) for place, values in found if values]
        if found:
            axes.bar([place - 0.4 + width * (number + 0.5) for place, _ in found], [middle_value for _, (middle_value, *_) in found], width,
                     color=COLOURS[number % len(COLOURS)], label=name, error_kw={"linewidth": 0.8},
                     yerr=[[mid - least for _, (mid, least, _) in found], [most - mid for _, (mid, _, most) in found]])
    axes.set_xticks(range(len(names)), names, fontsize=6, rotation=60, ha="right")
    axes.tick_params(axis="y", labelsize=7)


def bars(Figure, run):
    differ = run_tables.varying(run["cases"])
    group = next((key for key in GROUPS if key in differ), None)
    cases = [(case, {key: case["parameters"][key] for key in differ if key != group and key in case["parameters"]}) for case in run["cases"]]
    names = list(dict.fromkeys(run_tables.name_of(differing) for _, differing in cases))
    groups = list(dict.fromkeys(str(case["parameters"].get(group, "")) for case, _ in cases))
    measures = measures_of(run)
    columns = min(2, len(measures))
    rows = (len(measures) + columns - 1) // columns
    figure = Figure(figsize=(WIDTH, PANEL_HEIGHT * rows))
    figure.subplots_adjust(hspace=0.8, wspace=0.12)  # room for the names of cases
    for axes, measure in zip(figure.subplots(rows, columns, squeeze=False).flat, measures + [None]):
        if measure is None:
            axes.set_axis_off()
            continue
        title, value, logarithmic = measure
        axes.set_title(title, fontsize=9)
        draw_measure(axes, cases, value, groups, group, names)
        if logarithmic:
            axes.set_yscale("log")
    if len(groups) > 1:
        figure.axes[0].legend(fontsize=7)
    return figure


def beside_profile(Figure, run):
    """Of `model`: what each case reached beside what its profile makes one expect, by verdict."""
    figure = Figure(figsize=(WIDTH, PANEL_HEIGHT + 1))
    axes = figure.subplots()
    known = []
    for number, verdict in enumerate(sorted({case.get("verdict", "none") for case in run["cases"]})):
        found = [(statistics.median(r["expected_per_second_most"] for r in case["repeats"]),
                  statistics.median(r["operations"] / r["seconds"] for r in case["repeats"]))
                 for case in run["cases"] if case.get("verdict", "none") == verdict and "expected_per_second_most" in case["repeats"][0]]
        known += [x for x, _ in found if x > 0]
        axes.scatter([x for x, _ in found], [y for _, y in found], s=14, color=COLOURS[number % len(COLOURS)], label=verdict)
    if known:
        axes.plot([min(known), max(known)], [min(known), max(known)], color="#222222", linewidth=0.8, dashes=(4, 3), label="as expected")
        axes.set_xscale("log")
        axes.set_yscale("log")
    axes.set_title("IOPS beside what the profile makes one expect (most)", fontsize=9)
    axes.set_xlabel("expected IOPS, most", fontsize=8)
    axes.set_ylabel("IOPS", fontsize=8)
    axes.legend(fontsize=8)
    return figure


def plots_of(run):
    """Elements <svg>; raises plot_paper.NoMatplotlib."""
    with settings() as Figure:
        figures = ([beside_profile(Figure, run)] if run["benchmark"] == "model" else []) + [bars(Figure, run)]
        return [svg_of(figure) for figure in figures]
