#!/usr/bin/env python3
"""Tables of README.md and docs/*.md from the raw results in docs/runs/*.json (schema: docs/runs/README.md).

A document holds, for each table,

    <!-- runs: FILE-PATTERN -->
    ...generated...
    <!-- end runs -->

and gets one table for each result whose name matches, in order of name (FILE-PATTERN,FILE-PATTERN: first those of the first). In place of `runs`:

    figures: FILE-PATTERN show=COLUMN,... [NAME=VALUE,...] ...
                             one small table of the cases with these parameters (values are patterns; ? stands for a space, too, and - for
                             a case without such a parameter), with these columns (scripts/run_tables/cells.py names them)
    beside: FILE-PATTERN [with=FILE-PATTERN,...] [NAME=VALUE,...] ...
                             the array beside fio and plain copies in GB/s; of the results after with= only the latter two count
    targets: SESSION ...     what is aimed at (bench/targets.py) beside the medians of sessions of `./run bench targets`, whose results are SESSION-*.json
    work: FILE-PATTERN [NAME=VALUE] ...    what threads did with their time, of all cases or of those with these parameters
    steps: FILE-PATTERN [NAME=VALUE,...] ...    the steps of a single lane's operation
    ratios: FILE-PATTERN     ways to initiate I/O beside each other
    claims: FILE-PATTERN     a figure of the paper beside what the paper says (paper_claims.py)
    aims: FILE-PATTERN [PATTERN]    the ratios of `bench wire` that something is aimed at, of all cases or those whose name matches
    verdicts: FILE-PATTERN   how many cases of `bench model` have which verdict
    profile: FILE-PATTERN    what bench/profile.py says of engine threads (docs/runs/*.txt)
    file: NAME               the text of docs/runs/NAME unchanged

Plots are kept in step too (plot_paper.py, plot_targets.py). `--check` writes nothing and fails if a document differs from what its results say; without
it, the documents are rewritten, and matplotlib is needed to draw a plot whose result has changed. A result that does not follow the schema is refused by name, and so are a marker that is not of this form, a pattern or a
session that no result has, and a marker without its end.
"""
import fnmatch
import re
import sys

import paper_claims
import paper_ratios
import plot_paper
import plot_targets
import run_tables
from run_tables import ROOT, BadResult

PATTERN, NAMED = r"[^\s=]+", r"(?: \w+=[^\s=]+)"
ARGUMENTS = {"runs": PATTERN, "figures": f"{PATTERN}{NAMED}+", "beside": f"{PATTERN}{NAMED}*", "targets": r"[\w. -]+", "work": f"{PATTERN}{NAMED}*", "steps": f"{PATTERN}{NAMED}*",
             "ratios": PATTERN, "claims": PATTERN, "aims": rf"{PATTERN}(?: [^\s=]+)?", "verdicts": PATTERN, "profile": PATTERN, "file": r"[\w.-]+"}
BLOCKS = {kind: re.compile(rf"(<!-- {kind}: (?P<what>{form}) -->\n)(?P<body>.*?)(<!-- end {kind} -->)", re.S) for kind, form in ARGUMENTS.items()}
CLOSE = {"figures", "beside", "steps", "aims", "verdicts", "profile"}  # no empty lines between markers and what they hold: these are small, and many
MARKER = re.compile(rf"<!--\s*(?:end\s+)?(?:{'|'.join(ARGUMENTS)})\s*(?::[^\n>]*>?|-->)")


def check_markers(text):
    """Raises BadResult for a marker that no block begins or ends with: nothing would be generated there, or what follows would be lost."""
    used = set()
    for block in BLOCKS.values():
        for match in block.finditer(text):
            used |= {match.start(), match.start(match.re.groups)}
    for marker in MARKER.finditer(text):
        if marker.start() not in used:
            line = text.count("\n", 0, marker.start()) + 1
            raise BadResult(f"line {line}: '{marker[0]}' belongs to no block: it is mistyped, or the other end of its block is missing")


def matching(names, patterns, marker):
    """Pattern by pattern, each in order of name."""
    found = []
    for pattern in patterns.split(","):
        more = sorted(name for name in names if fnmatch.fnmatch(name, pattern) and name not in found)
        if not more:
            raise BadResult(f"{marker}: no result in docs/runs/ has such a name")
        found += more
    return found


def shown_file(name):
    path = ROOT / "docs" / "runs" / name
    if not path.is_file():
        raise BadResult(f"docs/runs/{name}: a document shows it, but the file does not exist")
    return f"```text\n{path.read_text().rstrip()}\n```"


def body_of(kind, what, runs, marker):
    if kind == "file":
        return shown_file(what)
    if kind == "targets":
        return run_tables.targets_table(what.split(), runs).markdown()
    pattern, *words = what.split()
    if kind == "profile":
        files = {path.name: path for path in (ROOT / "docs" / "runs").glob("*.txt")}
        return run_tables.profile_table({name: files[name].read_text() for name in matching(files, pattern, marker)})
    found = {name: runs[name] for name in matching(runs, pattern, marker)}
    if kind == "verdicts":
        return run_tables.verdict_counts(found)
    small = {"figures": run_tables.figures_table, "beside": run_tables.beside_table, "steps": run_tables.steps_table, "aims": run_tables.aims_table}
    if kind in small:
        return small[kind](found, words)
    each = {"runs": run_tables.table, "ratios": lambda _, run: paper_ratios.ratio_tables(run), "claims": paper_claims.table,
            "work": lambda name, run: run_tables.work_table(name, run, " ".join(words))}[kind]
    return "\n\n".join(each(name, run) for name, run in found.items())


def render(text, runs, folder=""):
    """The document with every block generated; raises BadResult for a marker that makes no block, and for one that names no result. `folder`: from
    the document to docs/."""
    check_markers(text)

    def body(kind, match):
        return body_of(kind, match["what"], runs, match[1].strip()).replace("](runs/", f"]({folder}runs/")
    for kind, block in BLOCKS.items():
        before, after = ("", "\n") if kind in CLOSE else ("\n", "\n\n")
        text = block.sub(lambda match: f"{match[1]}{before}{body(kind, match)}{after}{match[4]}", text)
    return text


def main(arguments):
    if arguments not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        runs = run_tables.load_all()
    except BadResult as wrong:
        print(f"render_docs: {wrong}", file=sys.stderr)
        return 1
    stale = plot_paper.plot_docs(bool(arguments)) + plot_targets.plot_docs(bool(arguments))
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        before, name = path.read_text(), path.relative_to(ROOT)
        try:
            after = render(before, runs, "" if path.parent.name == "docs" else "docs/")
        except BadResult as wrong:
            print(f"render_docs: {name}: {wrong}", file=sys.stderr)
            return 1
        if after == before:
            continue
        if arguments:
            stale += 1
            print(f"render_docs: {name} differs from what docs/runs/ says; run scripts/render_docs.py", file=sys.stderr)
        else:
            path.write_text(after)
            print(f"render_docs: wrote {name}")
    print(f"render_docs: {len(runs)} results")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
