"""Plots of one raw result for report.py, made with plotly: bars by case beside each other, or what was measured beside what was expected."""
import statistics

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs
from plotly.subplots import make_subplots

import run_tables

COLOURS = ("#1b7837", "#2166ac", "#b2182b", "#f4a582", "#92c5de", "#762a83", "#999999", "#dfc27d", "#35978f", "#555555")
GROUPS = ("path", "through", "profile", "allocator", "structure", "variant", "way", "over-provisioning %")  # the parameter that tells bars of one case apart
HEIGHT, PANEL_WIDTH = 430, 620

SCRIPT = get_plotlyjs


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


def bars(run):
    cases = run["cases"]
    differ = run_tables.varying(cases)
    group = next((key for key in GROUPS if key in differ), None)
    measures = measures_of(run)
    rows = (len(measures) + 1) // 2
    columns = min(2, len(measures))
    figure = make_subplots(rows=rows, cols=columns, subplot_titles=[title for title, *_ in measures], vertical_spacing=0.3, horizontal_spacing=0.08)
    groups = list(dict.fromkeys(str(case["parameters"].get(group, "")) for case in cases))
    for place, (_, value, logarithmic) in enumerate(measures):
        where = {"row": place // columns + 1, "col": place % columns + 1}
        for number, name in enumerate(groups):
            found = [(run_tables.name_of({key: case["parameters"][key] for key in differ if key != group and key in case["parameters"]}), middle(case, value))
                     for case in cases if str(case["parameters"].get(group, "")) == name]
            found = [(case, values) for case, values in found if values]
            figure.add_trace(go.Bar(
                name=name or "all", legendgroup=name, showlegend=place == 0 and len(groups) > 1, marker_color=COLOURS[number % len(COLOURS)],
                x=[case for case, _ in found], y=[values[0] for _, values in found],
                error_y={"type": "data", "symmetric": False, "thickness": 1, "array": [most - mid for _, (mid, _, most) in found],
                         "arrayminus": [mid - least for _, (mid, least, _) in found]}), **where)
        if logarithmic:
            figure.update_yaxes(type="log", **where)
    figure.update_layout(template="none", height=HEIGHT * rows, barmode="group", margin={"t": 40, "l": 60, "r": 20, "b": 140}, legend={"orientation": "h", "y": 1.12})
    figure.update_xaxes(tickfont_size=9, automargin=True)
    return figure


def beside_profile(run):
    """Of `model`: what each case reached beside what its profile makes one expect, by verdict."""
    figure = go.Figure()
    for number, verdict in enumerate(sorted({case.get("verdict", "none") for case in run["cases"]})):
        found = [case for case in run["cases"] if case.get("verdict", "none") == verdict and "expected_per_second_most" in case["repeats"][0]]
        figure.add_trace(go.Scatter(
            name=verdict, mode="markers", marker_color=COLOURS[number % len(COLOURS)], text=[run_tables.name_of(case["parameters"]) for case in found],
            x=[statistics.median(r["expected_per_second_most"] for r in case["repeats"]) for case in found],
            y=[statistics.median(r["operations"] / r["seconds"] for r in case["repeats"]) for case in found]))
    known = [value for trace in figure.data for value in trace.x if value > 0]
    if known:
        ends = [min(known), max(known)]
        figure.add_trace(go.Scatter(name="as expected", mode="lines", line={"dash": "dash", "color": "#222", "width": 1}, x=ends, y=ends))
    figure.update_layout(template="none", height=HEIGHT + 80, width=2 * PANEL_WIDTH, title="IOPS beside what the profile makes one expect (most)")
    figure.update_xaxes(type="log", title="expected IOPS, most")
    figure.update_yaxes(type="log", title="IOPS")
    return figure


def plots_of(run):
    """Figures as JSON."""
    figures = ([beside_profile(run)] if run["benchmark"] == "model" else []) + [bars(run)]
    return [figure.to_json() for figure in figures]
