#!/usr/bin/env python3
"""Generated tables show every repeat's spread, a result that does not follow the schema is refused by name, plots are of their results,
documents that are read from top to bottom stay short, and what cites a document names one that exists, with a heading or rule that is there.

The rule of citations is first shown to catch violating samples, then applied to every tracked file.
"""
import html
import importlib.util
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
sys.path.insert(0, str(ROOT / "tests/house"))
import paper_claims  # noqa: E402
import paper_ideals  # noqa: E402
import plot_paper  # noqa: E402
import plot_targets  # noqa: E402
import render_docs  # noqa: E402
import run_tables  # noqa: E402
from files_test import TEXT, tracked  # noqa: E402
from run_tables import targets  # noqa: E402

DOCUMENT = "# t\n\n<!-- runs: path-cpu*.json -->\nold\n<!-- end runs -->\ntail\n"


def result(**changes):
    repeats = [{"seconds": s, "operations": 1000, "bytes": 4096000, "latency_ns": {"p50": 5000, "p99": 9000, "p999": 12000}}
               for s in (1.0, 0.5, 2.0)]
    return {"schema": 1, "benchmark": "path", "command": ["bench", "path"], "commit": "abc", "machine": {"cpu": "x", "cores": 2},
            "configuration": {"lanes": "cpu"}, "cases": [{"parameters": {"operation": "read", "bytes": 4096}, "repeats": repeats}], **changes}


# Of a document: its name, then what in it: headings, each in quotes, with the numbers of items there; or rules, by number.
NUMBERS = r"\d+(?:(?:, and |, | and | to )\d+)*"
CITATION = re.compile(rf"""\b(docs/[\w./-]+\.md)\b((?:,?[ ]\\?"[^"\n]+?\\?"(?:,[ ]{NUMBERS})?)*)(?:,?[ ]rules?[ ]({NUMBERS}))?""")
CITED_HEADING = re.compile(rf'\\?"([^"\n]+?)\\?"(?:, ({NUMBERS}))?')
# Documents that code cited before they were written, under these names. Put together from halves, so that this file obeys the rule.
NEVER_WRITTEN = re.compile("|".join(a + b + r"\.md" for a, b in (("DES", "IGN"), ("ARR", "AY"))))
# A citation may be broken between two lines of a comment.
LINE_BREAK = re.compile(r"[ \t]*\n[ \t]*(?://[/!]?<?|#|\*)?[ \t]*")


def cited_numbers(text):
    """All numbers of "1, 3 to 5 and 8"; ends of ranges suffice, since rules and items are numbered without gaps."""
    return [int(n) for n in re.findall(r"\d+", text or "")]


def check_citations(name, text, document):
    """`document`: the text of the document of that name, or None."""
    if ".md" not in text:
        return
    for match in NEVER_WRITTEN.finditer(text):
        yield f"{name}: cites {match.group(0)}, which is not in the repository; its successors are design.md and array.md in docs/"
    for match in CITATION.finditer(LINE_BREAK.sub(" ", text)):
        cited, headings, rules = match.groups()
        contents = document(cited)
        if contents is None:
            yield f"{name}: cites {cited}, which does not exist"
            continue
        sections = {}
        for part in re.split(r"^#+ ", re.sub(r"^```.*?^```", "", contents, flags=re.M | re.S), flags=re.M)[1:]:
            heading, _, body = part.partition("\n")
            sections[heading.strip().replace("`", "")] = body
        for heading, items in CITED_HEADING.findall(headings):
            if heading.rstrip(",.") not in sections:
                yield f'{name}: cites the heading "{heading}" of {cited}, which has no such heading'
                continue
            for number in cited_numbers(items):
                if not re.search(rf"^{number}\. ", sections[heading.rstrip(",.")], re.M):
                    yield f'{name}: cites item {number} of "{heading}" in {cited}, which has no such item'
        for number in cited_numbers(rules):
            if not any(re.match(rf"Rule {number}\b", heading) for heading in sections):
                yield f"{name}: cites rule {number} of {cited}, which has no such rule"


class Citations(unittest.TestCase):
    """Of the sample documents; then of the repository."""
    DOCUMENTS = {"docs/" + "a.md": "# A\n## The `way`, in short\n1. one\n2. two\n### Rule 3: order\n```\n## No heading\n```\n"}
    A, NONE = "docs/" + "a.md", "docs/" + "none.md"

    def wrong(self, text):
        return list(check_citations("x", text, self.DOCUMENTS.get))

    def test_a_document_that_does_not_exist_is_caught(self):
        self.assertTrue(self.wrong(f"// see {self.NONE}, rule 3"))
        self.assertTrue(self.wrong("// see " + "ARR" + "AY.md, rule 3"))
        self.assertFalse(self.wrong(f"// see {self.A}"))

    def test_a_heading_that_does_not_exist_is_caught(self):
        for bad in ('"The road"', '"The way, in short", "The road"', '"No heading"', '"The way, in short", 3', '"The way, in short", 1, 2 and 3'):
            self.assertTrue(self.wrong(f"// see {self.A}, {bad}"), bad)
        for good in ('"The way, in short".', '"The way, in short", 2).', '"A", "The way, in short", 1 and 2; 17'):
            self.assertFalse(self.wrong(f"// see {self.A}, {good}"), good)

    def test_a_rule_that_does_not_exist_is_caught(self):
        for bad in ("rule 4", "rules 3 and 4", "rules 3 to 5", '"A", rule 33'):
            self.assertTrue(self.wrong(f"// ({self.A}, {bad})"), bad)
        for good in ("rule 3", "rules 3, 3", "rule 3: 4 are left", "which has rule 9"):
            self.assertFalse(self.wrong(f"// ({self.A}, {good})"), good)

    def test_a_citation_that_is_broken_between_lines_is_read_whole(self):
        for comment in ("//", "///", "#", "    ///<", "//    ", ""):
            self.assertTrue(self.wrong(f'x, {self.A}, "The\n{comment} road".'), comment)
            self.assertTrue(self.wrong(f"x ({self.A}, rules 3 and\n{comment} 4)."), comment)
            self.assertFalse(self.wrong(f'x, {self.A},\n{comment} "The way,\n{comment} in short", 2'), comment)
        self.assertTrue(self.wrong(f'error("{self.A}, \\"The road\\"")'))

    def test_what_the_repository_cites_is_there(self):
        def document(name):
            path = ROOT / name
            return path.read_text() if path.is_file() else None
        wrong, cited = [], 0
        for name in tracked():
            if pathlib.PurePath(name).suffix not in TEXT:
                continue
            try:
                text = (ROOT / name).read_text()
            except UnicodeDecodeError:
                continue
            cited += len(CITATION.findall(text))
            wrong += check_citations(name, text, document)
        self.assertEqual(wrong, [], "\n" + "\n".join(wrong))
        self.assertGreaterEqual(cited, 90)
        print(f"GN_COUNT house_citations={cited}")


class RenderDocs(unittest.TestCase):
    def load(self, content):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "path-cpu.json")
            path.write_text(content if isinstance(content, str) else json.dumps(content))
            return run_tables.load(path)

    def test_a_table_shows_the_median_with_the_least_and_the_most(self):
        text = render_docs.render(DOCUMENT, {"path-cpu-a.json": self.load(result()), "other.json": self.load(result(benchmark="no"))})
        self.assertIn("| read, bytes 4096 | 3 | 1,000 (500 … 2,000) |", text)
        self.assertNotIn("old", text)
        self.assertNotIn("**no**", text)
        self.assertTrue(text.endswith("tail\n"))

    def test_cpu_time_an_operation_is_shown_where_it_was_measured(self):
        run = result()
        self.assertNotIn("CPU", render_docs.render(DOCUMENT, {"path-cpu-a.json": self.load(run)}))
        for repeat in run["cases"][0]["repeats"]:
            repeat["engine_cpu_seconds"] = 0.002
        run["cases"].append({"parameters": {"operation": "copy"}, "repeats": [{"seconds": 1.0, "operations": 5}]})
        text = render_docs.render(DOCUMENT, {"path-cpu-a.json": self.load(run)})
        self.assertIn("| engine CPU µs/op |", text)
        self.assertIn("| 2.00 (2.00 … 2.00) |", text)
        self.assertIn("| copy | 1 | 5 | 0.000 | — |", text)

    def test_a_case_that_was_judged_shows_its_verdict_and_older_results_have_no_column(self):
        run = result()
        self.assertNotIn("verdict", render_docs.render(DOCUMENT, {"path-cpu-a.json": self.load(run)}))
        run["cases"][0]["verdict"] = "rate outside"
        run["cases"].append({"parameters": {"operation": "copy"}, "repeats": [{"seconds": 1.0, "operations": 5}]})
        text = render_docs.render(DOCUMENT, {"path-cpu-a.json": self.load(run)})
        self.assertIn("| verdict |\n", text)
        self.assertIn("| rate outside |\n", text)
        self.assertIn("| copy | 1 | 5 | 0.000 | — |\n", text)

    def test_a_shown_file_that_is_not_there_is_named(self):
        with self.assertRaisesRegex(render_docs.BadResult, "no-such.txt"):
            render_docs.render("<!-- file: no-such.txt -->\n<!-- end file -->\n", {})

    def test_a_pattern_that_no_result_matches_is_an_error(self):
        for kind in ("runs", "work", "ratios", "claims"):
            with self.subTest(kind=kind), self.assertRaisesRegex(render_docs.BadResult, f"{kind}: path-cqu.*no result in docs/runs/ has such a name"):
                render_docs.render(f"<!-- {kind}: path-cqu*.json -->\nold\n<!-- end {kind} -->\n", {"path-cpu-a.json": self.load(result())})

    def test_a_marker_that_makes_no_block_is_an_error_that_names_its_line(self):
        runs = {"path-cpu-a.json": self.load(result())}
        block = "<!-- runs: path-cpu*.json -->\nold\n<!-- end runs -->\n"
        for marker in ("<!-- runs: path-cpu*.json clients=1 -->", "<!-- work: path-cpu*.json path = gd -->", "<!-- ratios: path-cpu*.json-->",
                       "<!-- targets: path/gpu -->", "<!-- file: sim 16.txt -->", "<!--runs: path-cpu*.json -->"):
            kind = re.search(r"\w+", marker)[0]
            with self.subTest(marker=marker), self.assertRaisesRegex(render_docs.BadResult, f"line 4: '{re.escape(marker)}' belongs to no block"):
                render_docs.render(f"{block}{marker}\nold\n<!-- end {kind} -->\n", runs)
        for lost in ("<!-- run: path-cpu*.json -->\nold\n<!-- end runs -->\n",  # of another kind
                     "<!-- runs: path-cpu*.json -->\nwords that would go\n" + block, block + "<!-- runs: path-cpu*.json -->\n"):  # without its end
            with self.subTest(lost=lost), self.assertRaisesRegex(render_docs.BadResult, "belongs to no block"):
                render_docs.render(lost, runs)

    def test_rendering_again_changes_nothing(self):
        runs = {"path-cpu-a.json": self.load(result())}
        once = render_docs.render(DOCUMENT, runs)
        self.assertEqual(once, render_docs.render(once, runs))

    def test_a_changed_figure_changes_the_document(self):
        once = render_docs.render(DOCUMENT, {"path-cpu-a.json": self.load(result())})
        other = result()
        other["cases"][0]["repeats"][0]["operations"] = 999
        self.assertNotEqual(once, render_docs.render(once, {"path-cpu-a.json": self.load(other)}))

    def test_a_result_that_breaks_the_schema_is_refused(self):
        missing = result()
        del missing["machine"]
        for content in ("{", result(schema=2), missing, result(cases=[{"parameters": {}, "repeats": []}]),
                        result(cases=[{"parameters": {}, "repeats": [{"seconds": 0, "operations": 1}]}])):
            with self.assertRaises(render_docs.BadResult):
                self.load(content)


class SmallTables(unittest.TestCase):
    """`figures:` and what else performance.md is made of."""

    def runs(self):
        run = result()
        other = json.loads(json.dumps(run["cases"][0]))
        other["parameters"] = {"operation": "fio io_uring", "bytes": 4096, "depth": 8}
        run["cases"].append(other)
        return {"path-cpu-a.json": run, "path-cpu-b.json": json.loads(json.dumps(run))}

    def rendered(self, words, runs=None):
        kind = words.split(":")[0]
        return render_docs.render(f"<!-- {words} -->\nold\n<!-- end {kind} -->\n", runs or self.runs())

    def test_figures_are_of_the_cases_and_columns_that_are_asked_for(self):
        text = self.rendered("figures: path-cpu-a.json show=iops,p99 operation=read")
        self.assertEqual(text.split("\n")[1:5], ["| [path-cpu-a](runs/path-cpu-a.json) (`abc`, x, 2 cores) | IOPS | p99 µs |", "|---|---:|---:|",
                                                 "| read, bytes 4096 | 1,000 (500 … 2,000) | 9.0 |", "<!-- end figures -->"])
        self.assertEqual(render_docs.render(text, self.runs()), text)

    def test_rows_say_in_what_they_differ_and_of_several_results_which_they_are_of(self):
        text = self.rendered("figures: path-cpu-a.json show=iops")
        self.assertIn("| fio io_uring, depth 8 | 1,000", text)
        text = self.rendered("figures: path-cpu-b.json,path-cpu-a.json show=repeats operation=fio?io*")
        self.assertIn("| run (`abc`, x, 2 cores) | repeats |\n|---|---:|\n| [path-cpu-b](runs/path-cpu-b.json) | 3 |\n| [path-cpu-a]", text)

    def test_a_dash_asks_for_cases_without_the_parameter(self):
        self.assertNotIn("fio", self.rendered("figures: path-cpu-a.json show=iops depth=-"))
        self.assertIn("fio", self.rendered("figures: path-cpu-a.json show=iops depth=8,-"))

    def test_an_unknown_column_and_a_choice_without_a_case_are_errors(self):
        for words, said in (("show=nonsense", "no column 'nonsense'"), ("show=iops operation=trim", "no case of path-cpu-a.json")):
            with self.assertRaisesRegex(render_docs.BadResult, said):
                self.rendered(f"figures: path-cpu-a.json {words}")

    def test_the_array_stands_beside_others_of_its_machine_with_links_from_the_document(self):
        runs = self.runs()
        for run in runs.values():
            run["cases"] = [{**run["cases"][0], "parameters": {"path": path, "operation": "read", "bytes": 4096}} for path in ("array", "plain copy")]
        del runs["path-cpu-a.json"]["cases"][1]
        marked = "<!-- beside: path-cpu-a.json,path-cpu-b.json with=path-cpu-b.json bytes=4096 -->\nold\n<!-- end beside -->\n"
        text = render_docs.render(marked, runs, "docs/")
        self.assertEqual(text.split("\n")[1], "| GB/s | GNStor | fio with io_uring | plain copy | raw results |")
        self.assertRegex(text, r"\n\| 2 cores, 4 KiB reads \| 0\.\S+ \(.*\) \| — \| .* \| \[1\]\(docs/runs/path-cpu-a\.json\), \[2\]\(docs/runs/path-cpu-b\.json\) \|\n<!--")
        self.assertEqual(render_docs.render(text, runs, "docs/"), text)
        with self.assertRaisesRegex(render_docs.BadResult, "no case of the array"):
            render_docs.render(marked.replace("with=path-cpu-b.json", "with=path-cpu-*"), runs)

    def test_verdicts_are_counted_and_missing_ones_are_an_error(self):
        runs = self.runs()
        for kind in ("verdicts", "aims", "steps"):
            with self.subTest(kind=kind), self.assertRaises(render_docs.BadResult):
                self.rendered(f"{kind}: path-cpu-a.json", runs)
        for case, verdict in zip(runs["path-cpu-a.json"]["cases"], ("within 3 %", "rate outside")):
            case["verdict"] = verdict
            case["parameters"]["loop"] = "open"
        self.assertIn("| open | 1 | 1 |", self.rendered("verdicts: path-cpu-a.json", runs))

    def test_aims_are_those_ratios_that_have_one(self):
        runs = self.runs()
        ratio = {"what": "depth 1 shm", "beside": "loop", "median": 0.9, "least": 0.8, "most": 1.0}
        runs["path-cpu-a.json"]["verdicts"] = {"receive_overruns": 0, "retransmissions": 0, "ratios": [
            ratio, {**ratio, "target": 0.8, "met": True}, {**ratio, "what": "depth 32 udp", "target": 0.5, "met": False}]}
        text = self.rendered("aims: path-cpu-a.json", runs)
        self.assertEqual(text.count("0.90 (0.80 … 1.00)"), 2)
        self.assertNotIn("shm", self.rendered("aims: path-cpu-a.json *udp", runs))

    def test_steps_are_means_of_the_cases_that_were_taken_apart(self):
        runs = self.runs()
        for repeat, nanoseconds in zip(runs["path-cpu-a.json"]["cases"][0]["repeats"], (1000, 3000, 2000)):
            repeat["step_0_choose_ns"] = nanoseconds
        self.assertIn("| choose | 2.00 |\n", self.rendered("steps: path-cpu-a.json", runs))

    def test_a_profile_shows_the_large_parts_and_sums_the_others(self):
        text = ("read of 512 bytes: 10 IOPS\n  engine threads (NIC and SSDs): 0.64 us an operation, 9 samples\n     90.0 %    0.57 us  copy\n      4.0 %    0.03 us  a\n"
                "      3.0 %    0.02 us  b\n    functions\n       50.0 %    0.3 us  f\n  lanes: 1.00 us an operation, 9 samples\n     99.0 %    1.0 us  g\n")
        self.assertEqual(run_tables.profile_table({"profile-x.txt": text}).split("\n")[2:],
                         ["| µs of engine threads an operation | 0.64 |", "| copy, % | 90 |", "| the rest, % | 7 |"])


class Documents(unittest.TestCase):
    def test_performance_is_short_enough_to_be_read(self):
        lines = (ROOT / "docs/performance.md").read_text().splitlines()
        self.assertLessEqual(len(lines), 300, "docs/performance.md: raw tables belong into ./run report, trials into docs/history")
        wide = [line for line in lines if len(line) > 120 and not line.startswith(("|", "<!--", "!["))]
        self.assertEqual(wide, [])

    def test_every_decision_record_is_half_a_page_and_listed(self):
        listed = (ROOT / "docs/history/README.md").read_text()
        for record in (ROOT / "docs/history").glob("[0-9]*.md"):
            self.assertIn(f"({record.name})", listed)
            self.assertLessEqual(len(record.read_text().splitlines()), 30, record.name)

    def test_links_to_headings_of_performance_find_them(self):
        headings = re.findall(r"^#+ (.+)$", (ROOT / "docs/performance.md").read_text(), re.M)
        anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
        self.assertIn("the-wires", anchors)
        for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
            for anchor in re.findall(r"performance\.md#([\w-]+)", path.read_text()):
                self.assertIn(anchor, anchors, path.name)


def session_of_targets(median_seconds):
    """A read of 4 KiB blocks by lanes, of 1,000 operations a repeat."""
    repeats = [{"seconds": s, "operations": 1000, "bytes": 4096000} for s in (0.9 * median_seconds, median_seconds, 3 * median_seconds)]
    return result(configuration={"working set": "32 GiB"},
                  cases=[{"parameters": {"operation": "read", "bytes": 4096, "path": "array"}, "repeats": repeats}])


class Targets(unittest.TestCase):
    MARKED = "<!-- targets: path-gpu-a path-gpu-b -->\nold\n<!-- end targets -->\ntail\n"
    OTHER = {"path-gpu-b-writes.json": session_of_targets(1e-4)}  # a session that lacks what is asked for

    def row(self, runs, what):
        found = [line for line in render_docs.render(self.MARKED, runs).split("\n") if line.startswith(f"| {what} |")]
        self.assertEqual(len(found), 1, what)
        return found[0]

    def test_every_target_has_a_row_and_every_named_session_a_column(self):
        text = render_docs.render(self.MARKED, {"path-gpu-a-blocks.json": session_of_targets(1e-4), **self.OTHER})
        self.assertIn("| measurement | working set | target | `path-gpu-a` | `path-gpu-b` |\n", text)
        for what, *_ in targets.TARGETS:
            self.assertIn(f"\n| {what} |", text)
        self.assertNotIn("old", text)
        self.assertTrue(text.endswith("<!-- end targets -->\ntail\n"))

    def test_a_cell_is_the_median_of_the_repeats_and_a_dash_where_a_session_lacks_the_result(self):
        self.assertEqual(self.row({"path-gpu-a-blocks.json": session_of_targets(1e-4), **self.OTHER}, "random 4 KiB reads"),
                         "| random 4 KiB reads | 32 GiB | 11.50 M/s | 10.00 M/s | - |")

    def test_a_result_without_the_case_is_a_dash_too(self):
        self.assertEqual(self.row({"path-gpu-a-blocks.json": session_of_targets(1e-4), **self.OTHER}, "random 512 B reads"),
                         "| random 512 B reads | 32 GiB | 40.00 M/s | - | - |")

    def test_a_changed_result_changes_the_table(self):
        runs = {"path-gpu-a-writes.json": session_of_targets(1e-4), "path-gpu-b-blocks.json": session_of_targets(1e-4)}
        once = render_docs.render(self.MARKED, runs)
        self.assertEqual(once, render_docs.render(once, runs))
        self.assertNotEqual(once, render_docs.render(once, {**runs, "path-gpu-b-blocks.json": session_of_targets(2e-4)}))

    def test_the_plot_has_a_bar_for_what_each_session_reached_and_a_changed_result_is_noticed(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "docs" / "runs").mkdir(parents=True)
            for number, seconds in ((9, 2e-4), (10, 1e-4)):  # 5 and 10 of 11.5 M/s
                (root / f"docs/runs/path-gpu-h200-{number}-blocks.json").write_text(json.dumps(session_of_targets(seconds)))
            self.assertEqual(plot_targets.plot_docs(True, root), 1, "there is no plot yet")
            description = plot_targets.describe(run_tables.load_all(root / "docs" / "runs"))
            self.assertEqual([name.rsplit("-", 1)[1] for name in description["sessions"]], ["9", "10"], "sessions in order of their numbers")
            self.assertIn([43, 87], [[share and round(share) for share in row] for _, row in description["rows"]])
            if importlib.util.find_spec("matplotlib"):
                self.assertEqual([plot_targets.plot_docs(check, root) for check in (False, True)], [0, 0])
                self.assertEqual({"43", "87"}, set(re.findall(r">(\d+)</text>", (root / "docs/plots/targets-gpu-h200.svg").read_text())))
            (root / "docs/runs/path-gpu-h200-9-blocks.json").unlink()
            self.assertEqual(plot_targets.plot_docs(True, root), 1)

    def test_a_session_without_any_result_is_an_error(self):
        for runs in ({}, {"path-gpu-b-other.json": session_of_targets(1e-4)}):
            with self.assertRaisesRegex(render_docs.BadResult, "session path-gpu-b has no result"):
                render_docs.render(self.MARKED, {"path-gpu-a-blocks.json": session_of_targets(1e-4), **runs})

    def test_a_session_is_told_where_a_repeat_has_no_steps(self):
        run = session_of_targets(1e-4)
        case = run["cases"][0]
        case["parameters"]["path"] = "array, step by step"
        for repeat, wait in zip(case["repeats"], (None, 100, 300)):
            repeat.update({"latency_ns": {"p50": 8000}} | ({"step_5_wait_ns": wait} if wait else {"left_straight_path": 1}))
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "path-gpu-alone.json").write_text(json.dumps(run))
            ended = subprocess.run([sys.executable, ROOT / "bench/targets.py", "gpu", folder], capture_output=True, text=True, timeout=60)
        self.assertEqual((ended.returncode, ended.stderr), (1, ""), "other results are missing")
        self.assertRegex(ended.stdout, r"\n +5_wait +200 ns\n")

    def test_sessions_of_other_working_sets_name_each(self):
        small = session_of_targets(1e-4)
        small["configuration"]["working set"] = "256 MiB"
        row = self.row({"path-gpu-a-blocks.json": small, "path-gpu-b-blocks.json": session_of_targets(1e-4)}, "random 4 KiB reads")
        self.assertIn("| 256 MiB, 32 GiB |", row)


def figure(number, **changes):
    repeats = [{"seconds": 1.0, "operations": n, "bytes": n * 4096, "latency_ns": {"mean": 50000}, "work_array_lock_us": 0.25, "work_array_idle_us": 9.0,
                "limit_drives_per_second": 800_000.0, "limit_network_per_second": 900_000.0} for n in (100_000, 200_000, 400_000)]
    cases = [{"parameters": {"path": path, "operation": operation, "bytes": 4096, "pattern": "rand", "clients": 1, "SSDs": 4, "depth": 32}, "repeats": repeats}
             for path in ("gnor", "gd") for operation in ("read", "write")]
    return {"schema": 1, "benchmark": f"paper-figure-{number}", "command": ["bench"], "commit": "abc", "machine": {"cpu": "x"},
            "configuration": {"lanes": "cpu", "replicas": 2, "engine threads": 1, "profile": "none"}, "cases": cases, **changes}


def labels(run):
    """The words of a plot."""
    return plot_paper.words_of(plot_paper.describe(run))


def lines_of(run):
    """The dashed lines that a plot has, without those beyond its scale."""
    return [line for panel in plot_paper.describe(run)["panels"] for line in panel["ideals"] if not line["beyond"]]


class PlotsOfDocs(unittest.TestCase):
    def root(self, folder):
        root = pathlib.Path(folder)
        (root / "docs" / "runs").mkdir(parents=True)
        (root / "docs" / "plots").mkdir()
        for number in range(9, 14):
            (root / "docs" / "runs" / f"paper-figure-{number}-x.json").write_text(json.dumps(figure(number)))
        return root

    def test_a_changed_result_or_plot_is_noticed_without_matplotlib(self):
        with tempfile.TemporaryDirectory() as folder:
            root = self.root(folder)
            self.assertEqual(plot_paper.plot_docs(True, root), 5)
            for number in range(9, 14):
                said = f"<svg><dc:identifier>{plot_paper.digest(plot_paper.describe(figure(number)))}</dc:identifier></svg>\n"
                (root / f"docs/plots/paper-figure-{number}-x.svg").write_text(plot_paper.sealed(said))
            self.assertEqual(plot_paper.plot_docs(True, root), 0)
            self.assertEqual(plot_paper.plot_docs(False, root), 0, "a plot of its result is left as it is")
            source, plot = root / "docs/runs/paper-figure-12-x.json", root / "docs/plots/paper-figure-12-x.svg"
            written = plot.read_text()
            plot.write_text(written.replace("<svg>", "<svg >"))
            self.assertEqual(plot_paper.plot_docs(True, root), 1)
            plot.write_text(written)
            source.write_text(source.read_text().replace("819200000", "1228800000"))
            self.assertEqual(plot_paper.plot_docs(True, root), 1)
            source.unlink()
            self.assertEqual(plot_paper.plot_docs(True, root), 1)

    def test_without_matplotlib_the_message_says_what_installs_it(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "figure.json")
            file.write_text(json.dumps(figure(9)))
            hidden = f"import sys; sys.modules['matplotlib'] = None; sys.path.insert(0, {str(ROOT / 'scripts')!r}); import plot_paper; sys.exit(plot_paper.main({[str(file)]!r}))"
            ended = subprocess.run([sys.executable, "-c", hidden], capture_output=True, text=True, timeout=60)
            self.assertEqual(ended.returncode, 1)
            self.assertIn("'./run plot' installs it (Debian package python3-matplotlib)", ended.stderr)
            self.assertFalse(file.with_suffix(".svg").exists())

    def test_the_plots_of_the_repository_are_small(self):
        plots = sorted((ROOT / "docs/plots").glob("*.svg"))
        self.assertGreaterEqual(len(plots), 5)
        for plot in plots:
            self.assertLess(plot.stat().st_size, 150_000, plot.name)

    @unittest.skipUnless(importlib.util.find_spec("matplotlib"), "matplotlib is not installed: ./run plot installs it")
    def test_drawing_twice_gives_the_same_bytes_with_every_word_and_no_date(self):
        for number in (10, 11):
            description = plot_paper.describe(figure(number))
            image = plot_paper.draw(description)
            self.assertEqual(image, plot_paper.draw(description))
            self.assertTrue(plot_paper.is_of(image, description))
            self.assertNotIn("<dc:date>", image)
            self.assertNotIn("nan", image)
            for word in plot_paper.words_of(description):
                self.assertIn(html.escape(word, quote=False), image)


class PaperFigures(unittest.TestCase):
    def test_every_throughput_figure_labels_what_is_ideal_and_whose_it_is(self):
        for number in (9, 11, 12, 13):
            with self.subTest(figure=number):
                words = labels(figure(number))
                for said in ("SSDs 3.3", "network 3.7", "PCIe 27.0 (paper) \u2191"):  # this figure is of CPU lanes: no PCIe of its own
                    self.assertTrue(any(said in word for word in words), f"{said}: {words}")

    def test_figures_of_a_machine_whose_link_was_measured_say_its_pcie_and_configured_latency(self):
        plain = json.loads((ROOT / "docs/runs" / paper_ideals.PCIE_RUN).read_text())
        run = figure(13, machine=plain["machine"])
        run["configuration"]["profile"] = "gnstor-paper"
        words = labels(run)
        measured = next(c for c in plain["cases"] if c["parameters"] == {"bytes": 4096, "operation": "read", "path": "plain copy"})
        middle = sorted(r["bytes"] / r["seconds"] / 1e9 for r in measured["repeats"])[len(measured["repeats"]) // 2]
        self.assertTrue(any(f"PCIe {middle:.1f} (H200)" in word for word in words), words)
        self.assertFalse(any(word.startswith("PCIe") and "(paper)" in word for word in words), words)
        self.assertTrue(any(word.startswith("SSD + network 42.5") for word in words), words)
        self.assertTrue(any(word.startswith("SSD + network 42.5") for word in labels({**run, "benchmark": "paper-figure-10"})))

    def test_a_latency_that_no_run_states_has_no_line(self):
        self.assertFalse(any(word.startswith("SSD + network") for word in labels(figure(10))))

    def test_the_caption_says_of_each_ideal_whose_it_is(self):
        plain = {"path": "plain copy", "operation": "read", "bytes": 4096}
        run = figure(13, machine={"cpu": "x", "gpu": "NVIDIA H9"})
        with tempfile.TemporaryDirectory() as folder:
            runs = pathlib.Path(folder)

            def said(cases, with_latency=False):
                measured = {"machine": run["machine"], "configuration": {"replicas": 2}, "cases": cases}
                (runs / paper_ideals.PCIE_RUN).write_text(json.dumps(measured))
                return paper_ideals.explained(run, True, with_latency, runs)
            cases = [{"parameters": {**plain, "operation": operation}, "repeats": [{"bytes": 4096, "seconds": 1.0}]} for operation in ("read", "write")]
            self.assertIn("PCIe is what plain copies by lanes of NVIDIA H9", said(cases))
            self.assertNotIn("(paper)", said(cases))
            self.assertIn("PCIe, where not marked (paper), is what plain copies", said(cases[:1]))
            self.assertIn("What is marked (paper)", said(cases[:1]))
            self.assertNotIn("plain copies", said([]))  # the same GPU, but no copy of this size
            self.assertIn("What is marked (paper)", said([]))
            self.assertNotIn("latency", said(cases, True))  # no run states it

    def test_the_configured_latency_is_of_the_run_that_the_document_names(self):
        self.assertIn(f"(runs/{paper_ideals.MODEL_RUN})", (ROOT / "docs/paper.md").read_text())
        run = figure(10)
        run["configuration"]["profile"] = "p"
        with tempfile.TemporaryDirectory() as folder:
            for name, nanoseconds in (("model-a.json", 1000), (paper_ideals.MODEL_RUN, 2000)):
                first = {"parameters": {"profile": "p", "operation": "read", "bytes": 4096}, "repeats": [{"configured_latency_ns": nanoseconds}]}
                pathlib.Path(folder, name).write_text(json.dumps({"configuration": {"replicas": 2}, "cases": [first]}))
            self.assertEqual([ideal.value for ideal in paper_ideals.latency(run, run["cases"][0], pathlib.Path(folder))], [2.0])

    def test_an_ideal_is_a_line_where_it_is_near_and_words_above_the_panel_where_it_is_far(self):
        def with_network(limit):
            run = json.loads(json.dumps(figure(11)))
            for case in run["cases"]:
                for repeat in case["repeats"]:
                    repeat["limit_network_per_second"] = limit
            return run
        near, far = with_network(700_000.0), with_network(9_000_000.0)
        self.assertEqual([word for word in set(labels(near)) if word.startswith("network")], ["network 2.9"])
        self.assertEqual([word for word in set(labels(far)) if word.startswith("network")], ["network 36.9 \u2191"])
        self.assertEqual(len(lines_of(near)) - len(lines_of(far)), 2)  # the panels of 4 KiB, read and written

    def test_neighbours_with_the_same_ideal_share_its_line(self):
        ideals = [paper_ideals.Ideal("SSDs", value, "") for value in (1.0, 1.0, 2.0)]
        self.assertEqual([(first, end) for first, end, _ in plot_paper.spans([[i] for i in ideals], "SSDs")], [(0, 2), (2, 3)])

    def test_the_papers_losses_stand_beside_the_straw_designs(self):
        caption = " ".join(labels(figure(13)))
        for claim in ("86.6 %", "72.0 %"):
            self.assertIn(claim, caption)

    def test_tables_show_the_share_of_the_limit_and_what_threads_did(self):
        runs = {"paper-figure-13-x.json": figure(13)}
        text = render_docs.render("<!-- runs: paper-*.json -->\n<!-- end runs -->\n<!-- work: paper-*.json -->\n<!-- end work -->\n", runs)
        self.assertIn("25.0 (12.5 … 50.0) % of drives", text)
        self.assertIn("array: lock", text)
        self.assertNotIn("array: idle", text)

    def test_what_threads_did_is_shown_of_the_cases_that_are_asked_for_with_their_stages(self):
        run = json.loads(json.dumps(figure(11)))
        run["cases"][2]["parameters"]["clients"] = 32
        for repeat in run["cases"][2]["repeats"]:
            repeat["stage_log_us"] = 7.0
        text = render_docs.render("<!-- work: paper-*.json clients=32 operation=read -->\n<!-- end work -->\n", {"paper-figure-11-x.json": run})
        self.assertTrue(text.endswith("\n\n<!-- end work -->\n"))
        self.assertEqual(render_docs.render(text, {"paper-figure-11-x.json": run}), text)
        self.assertIn("| case | array: lock | stage: log |\n", text)
        self.assertIn("clients 32, SSDs 4, depth 32 | 0.25 | 7.00 |\n", text)
        self.assertNotIn("clients 1,", text)
        again = "<!-- work: paper-*.json clients=1 -->\n<!-- end work -->\n"
        self.assertNotIn("stage", render_docs.render(again, {"paper-figure-11-x.json": run}))
        with self.assertRaisesRegex(render_docs.BadResult, "paper-figure-11-x.json: no case with clients=5"):
            render_docs.render(again.replace("=1", "=5"), {"paper-figure-11-x.json": run})

    def test_a_value_that_is_asked_for_may_have_dashes(self):
        run = json.loads(json.dumps(figure(11)))
        run["cases"][0]["parameters"]["path"] = "gd-deengine"
        text = render_docs.render("<!-- work: paper-*.json path=gd-deengine -->\nold\n<!-- end work -->\n", {"paper-figure-11-x.json": run})
        self.assertNotIn("old", text)
        self.assertIn("| gd-deengine, ", text)
        self.assertNotIn("| gnor, ", text)

    def test_ratios_are_of_medians_with_a_mean_over_the_cases_of_a_size(self):
        run = json.loads(json.dumps(figure(9)))  # cases share their repeats until then
        for repeat in run["cases"][0]["repeats"]:
            repeat["bytes"] *= 4
        text = render_docs.render("<!-- ratios: p.json -->\n<!-- end ratios -->\n", {"p.json": run})
        self.assertIn("| case | gnor | gd | gnor / gd |", text)
        self.assertIn("| read | 3.277 | 0.819 | 4.00 |", text)
        self.assertIn("| write | 0.819 | 0.819 | 1.00 |", text)
        self.assertIn("| geometric mean, bytes 4096 |  |  | 2.00 |", text)

    def test_a_claim_stands_beside_ours_with_the_ratio_and_a_row_without_a_case_has_dashes(self):
        text = render_docs.render("<!-- claims: p.json -->\nold\n<!-- end claims -->\ntail\n", {"p.json": figure(12)})
        self.assertNotIn("old", text)
        self.assertTrue(text.endswith("\n\n<!-- end claims -->\ntail\n"))
        self.assertIn("| `gnor`, five SSDs, 4 KiB reads, GB/s | 14.60 | — | — |\n", text)  # of four SSDs here
        self.assertIn("[Raw result](runs/p.json): 4 cases of 3 repeats, commit `abc`, x.", text)
        run = json.loads(json.dumps(figure(9)))
        for repeat in run["cases"][0]["repeats"]:
            repeat["bytes"] *= 4
        text = render_docs.render("<!-- claims: p.json -->\n<!-- end claims -->\n", {"p.json": run})
        self.assertIn("| `gnor` / `gd`, 4 KiB | 1.80 | 2.00 | 1.11 |\n", text)  # the geometric mean of reads and writes
        self.assertEqual(render_docs.render(text, {"p.json": run}), text)

    def test_every_row_of_the_document_has_a_value(self):
        for path in sorted((ROOT / "docs/runs").glob("paper-figure-*.json")):
            for line in paper_claims.claims_table(path.name, run_tables.load(path)).split("\n"):
                self.assertNotRegex(line, r"\| — \| [^|]+ \|$", "our value is missing")

    def test_shares_of_the_limit_are_a_row_for_each_case_and_a_column_for_each_path(self):
        text = render_docs.render("<!-- claims: p.json -->\n<!-- end claims -->\n", {"p.json": figure(9, benchmark="load")})
        self.assertIn("| case | limit, operations/s | `gnor`, % of it | `gd`, % of it |\n", text)
        self.assertIn("| 4 KiB read, 1 clients, 32 in flight | 800,000, SSDs | 25.0 (12.5 … 50.0) | 25.0 (12.5 … 50.0) |\n", text)


def long_lines(text, most):
    """Numbers of the lines of prose that are longer: without tables, code, comments and what a link points to."""
    code, comment, found = False, False, []
    for number, line in enumerate(text.split("\n"), 1):
        code ^= line.startswith("```")
        comment = not code and (comment or line.startswith("<!--"))
        if not (code or comment or line.startswith(("```", "|", "    "))) and len(re.sub(r"\]\([^)]*\)", "]", line)) > most:
            found.append(number)
        comment = comment and "-->" not in line
    return found


class DocumentsToRead(unittest.TestCase):
    def test_long_lines_are_those_of_prose(self):
        long = "x" * 121
        self.assertEqual(long_lines(f"{long}\n| {long} |\n```\n{long}\n```\n    {long}\n[a]({long})\n- {long}\n{'x' * 120}", 120), [1, 8])
        self.assertEqual(long_lines(f"<!-- {long} -->\n{long}\n<!-- run:\n{long}\n-->\n{long}\n", 120), [2, 6])

    def test_prose_is_at_most_120_characters_wide(self):
        documents = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
        self.assertGreaterEqual(len(documents), 20)
        for path in documents:
            with self.subTest(document=path.relative_to(ROOT).as_posix()):
                self.assertEqual(long_lines(path.read_text(), 120), [])

    def test_a_document_that_is_read_at_once_has_a_bound(self):
        for name, most in (("paper.md", 300), ("testing.md", 150), ("reliability.md", 300)):
            with self.subTest(document=name):
                self.assertLessEqual(len((ROOT / "docs" / name).read_text().rstrip("\n").split("\n")), most)

    def test_every_health_code_has_its_row_with_its_severity(self):
        source = (ROOT / "src" / "daemon" / "decisions" / "health.cpp").read_text()
        declared = [(name, severity.lower()) for name, severity in re.findall(r'"(GNS_[A-Z_]+)",\s*Severity::k(\w+)', source)]
        shown = re.findall(r"^\| `(GNS_[A-Z_]+)` \| (\w+) \|", (ROOT / "docs" / "operations.md").read_text(), re.M)
        self.assertGreaterEqual(len(declared), 12)
        self.assertEqual(shown, declared)


if __name__ == "__main__":
    unittest.main()
