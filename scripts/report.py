#!/usr/bin/env python3
"""One HTML file of all raw results (docs/runs/*.json): contents, and of each result its machine, commit, command, plots and tables.

usage: scripts/report.py [--output FILE] [--runs FOLDER] [--no-plots]     (default: build/report.html of docs/runs; `./run report` calls it)

The file needs nothing beside it and no network. A click on the head of a column sorts its table. Plots are drawn by matplotlib, which `./run report`
installs if it is missing; --no-plots leaves out all of them but those in docs/plots, which are drawn already.
"""
import argparse
import collections
import html
import json
import pathlib
import re
import subprocess
import sys

import paper_ratios
import plot_targets
import report_plots
import run_tables
from plot_paper import NoMatplotlib
from run_tables import ROOT, Table
from run_tables.results import command_of

STYLE = """
body { font: 14px/1.4 sans-serif; margin: 1.5em auto; max-width: 1500px; padding: 0 1em; color: #222 }
pre, code { font: 12px/1.4 monospace; background: #f4f4f4 } pre { padding: .6em; overflow-x: auto; white-space: pre-wrap }
.scroll { overflow-x: auto; max-height: 80vh } table { border-collapse: collapse; font-size: 12px; margin: .6em 0 }
th, td { border: 1px solid #ddd; padding: 2px 7px; text-align: right; white-space: nowrap } th { background: #eee; cursor: pointer; position: sticky; top: 0 }
th.left, td.left { text-align: left } tbody tr:hover { background: #f6faf6 }
th[aria-sort=ascending]::after { content: " \\25b2" } th[aria-sort=descending]::after { content: " \\25bc" }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 2px 1em } dt { font-weight: bold } dd { margin: 0 }
section { border-top: 1px solid #bbb; margin-top: 2em } nav li { margin: 1px 0 } svg { max-width: 100%; height: auto }
"""
SORTING = r"""
const number = text => { const m = /^-?[\d,]+(\.\d+)?(e[+-]?\d+)?/i.exec(text.trim()); return m ? parseFloat(m[0].replaceAll(",", "")) : NaN; };
document.addEventListener("click", event => {
  const head = event.target.closest("th");
  if (!head) return;
  const table = head.closest("table"), body = table.tBodies[0], column = head.cellIndex, down = head.getAttribute("aria-sort") === "ascending";
  for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  const rows = [...body.rows].map(row => [row, row.cells[column].textContent]);
  rows.sort(([, a], [, b]) => {
    const x = number(a), y = number(b);
    if (isNaN(x) !== isNaN(y)) return isNaN(x) ? 1 : -1;  // dashes and words last, whichever way
    return (isNaN(x) ? a.localeCompare(b) : x - y) * (down ? -1 : 1);
  });
  body.append(...rows.map(([row]) => row));
});
"""


def escaped(text):
    return html.escape(str(text), quote=False)


def html_table(table):
    def cells(row, tag):
        return "".join(f'<{tag}{" class=left" if column in table.left else ""}>{escaped(cell)}</{tag}>' for column, cell in enumerate(row))
    body = "\n".join(f"<tr>{cells(row, 'td')}</tr>" for row in table.rows)
    return f"<div class=scroll><table><thead><tr>{cells(table.heads, 'th')}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>"


def html_parts(parts):
    return "\n".join(html_table(part) if isinstance(part, Table) else f"<p>{escaped(part)}</p>" for part in parts)


def from_markdown(text):
    """Tables and paragraphs of what paper_ratios writes for a document."""
    parts = []
    for block in text.split("\n\n"):
        lines = block.strip().split("\n")
        if len(lines) > 1 and re.fullmatch(r"\|[-:|]+\|", lines[1]):
            rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines if line is not lines[1]]
            parts.append(Table(rows[0], rows[1:]))
        elif block.strip():
            parts.append(block.strip())
    return parts


def shown(value):
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def flat(repeat):
    """Every field of a repeat; those inside others by both names."""
    found = {}
    for key, value in repeat.items():
        found |= {f"{key}.{inner}": v for inner, v in value.items()} if isinstance(value, dict) else {key: value}
    return found


def repeats_table(run):
    """Every figure of the raw result, one row a repeat."""
    rows = [(run_tables.name_of(case.get("parameters", {})), number, flat(repeat))
            for case in run["cases"] for number, repeat in enumerate(case["repeats"], 1)]
    keys = list(dict.fromkeys(key for *_, repeat in rows for key in repeat))
    return Table(["case", "repeat"] + keys, [[case, str(number)] + [shown(repeat[key]) if key in repeat else "—" for key in keys]
                                             for case, number, repeat in rows])


def described(pairs):
    return "<dl>" + "".join(f"<dt>{escaped(key)}</dt><dd>{escaped(shown(value))}</dd>" for key, value in pairs) + "</dl>"


def drawn(stem):
    """The plot of docs/plots/ with this name, if there is one, without its XML header."""
    path = ROOT / "docs" / "plots" / f"{stem}.svg"
    return [re.sub(r"^.*?(?=<svg)", "", path.read_text(), flags=re.S)] if path.is_file() else []


def plots_html(name, run, plots_of):
    return "\n".join(drawn(name.removesuffix(".json")) + (plots_of(run) if plots_of else []))


def section(name, run, plots_of):
    stem = name.removesuffix(".json")
    work = run_tables.work_of(run["cases"])
    parts = [f'<section id="{escaped(stem)}"><h2>{escaped(stem)}</h2>',
             described([("benchmark", run["benchmark"]), ("machine", run_tables.machine_line(run["machine"])), ("commit", run["commit"]),
                        ("raw result", f"docs/runs/{name}")]),
             f"<pre>{escaped(command_of(run))}</pre>", plots_html(name, run, plots_of),
             "<p>Figures are the median over repeats (least … most).</p>", html_parts(run_tables.tables_of(run))]
    if work:
        parts += ["<h3>What threads did: µs an I/O, medians</h3>", html_table(work)]
    if run["benchmark"].startswith("paper-figure-"):
        parts += ["<h3>Ways to initiate I/O beside each other</h3>", html_parts(from_markdown(paper_ratios.ratio_tables(run)))]
    if run.get("configuration"):
        parts.append(f"<details><summary>Configuration</summary>{described(run['configuration'].items())}</details>")
    parts.append(f"<details><summary>Every repeat</summary>{html_table(repeats_table(run))}</details></section>")
    return "\n".join(parts)


def contents(runs, texts):
    groups = collections.defaultdict(list)
    for name, run in runs.items():
        groups[run["benchmark"]].append((name.removesuffix(".json"), run))
    parts = []
    for benchmark, found in sorted(groups.items()):
        items = "".join(f'<li><a href="#{escaped(stem)}">{escaped(stem)}</a>: {len(run["cases"])} cases, commit {escaped(run["commit"])}, '
                        f'{escaped(run["machine"].get("gpu") or run["machine"].get("cpu", "machine unknown"))}</li>' for stem, run in found)
        parts.append(f"<h3>{escaped(benchmark)}</h3><ul>{items}</ul>")
    if texts:
        parts.append("<h3>texts</h3><ul>" + "".join(f'<li><a href="#{escaped(name)}">{escaped(name)}</a></li>' for name in texts) + "</ul>")
    return "<nav><h2>Contents</h2>" + "".join(parts) + "</nav>"


def targets_html(runs):
    sessions = [plot_targets.PREFIX + number for number in plot_targets.sessions_of(runs)]
    if not sessions:
        return ""
    return ("<section id=targets><h2>Targets of GPU lanes</h2>" + "".join(drawn(plot_targets.NAME.removesuffix(".svg"))) + html_table(run_tables.targets_table(sessions, runs)) + "</section>")


def page(runs, texts, commit, plots_of=None):
    """The whole file. `plots_of(run)`: elements <svg>; None: only the plots of docs/plots."""
    note = "" if plots_of else "<p>Made with --no-plots: tables, and the plots of docs/plots.</p>"
    return "\n".join([
        f"<!doctype html><html lang=en><head><meta charset=utf-8><title>GNStor: measurements</title><style>{STYLE}</style></head><body>",
        f"<h1>GNStor: measurements</h1><p>{len(runs)} raw results of docs/runs; report of commit {escaped(commit)}. "
        "docs/runs/README.md says what each field means, docs/performance.md what the figures say. A click on the head of a column sorts its table.</p>",
        note, contents(runs, texts), targets_html(runs), *(section(name, run, plots_of) for name, run in runs.items()),
        *(f'<section id="{escaped(name)}"><h2>{escaped(name)}</h2><pre>{escaped(text)}</pre></section>' for name, text in texts.items()),
        f"<script>{SORTING}</script>", "</body></html>\n"])


def commit_of():
    done = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else "unknown"


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0], prog="./run report")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "build" / "report.html", metavar="FILE", help="where the report goes (build/report.html)")
    parser.add_argument("--runs", type=pathlib.Path, default=ROOT / "docs" / "runs", metavar="FOLDER", help="folder of the raw results (docs/runs)")
    parser.add_argument("--no-plots", action="store_true", help="tables, and the plots of docs/plots; needs no matplotlib")
    options = parser.parse_args(arguments)
    try:
        runs = run_tables.load_all(options.runs)
        texts = {path.name: path.read_text() for path in sorted(options.runs.glob("*.txt"))}
        if not runs:
            print(f"report: no raw result (*.json) in {options.runs}; './run bench ... --json FILE' writes one", file=sys.stderr)
            return 1
        if not options.no_plots:
            print(f"report: drawing the plots of {len(runs)} results; dozens of results take about a minute", flush=True)
        text = page(runs, texts, commit_of(), None if options.no_plots else report_plots.plots_of)
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(text)
    except run_tables.BadResult as wrong:
        print(f"report: {wrong}", file=sys.stderr)
        return 1
    except NoMatplotlib as wrong:
        print(f"report: {wrong}; --no-plots leaves the plots out", file=sys.stderr)
        return 1
    except OSError as wrong:
        print(f"report: cannot write {options.output}: {wrong.strerror}", file=sys.stderr)
        return 1
    print(f"report: wrote {options.output} ({len(runs)} results, {len(text.encode()) / 1e6:.1f} MB)")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
