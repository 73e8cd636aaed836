#!/usr/bin/env python3
"""The report holds every figure of every result, and needs no plotting library for its tables. Nothing is installed here."""
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
import report  # noqa: E402


def result():
    def case(operation, first):
        return {"parameters": {"operation": operation, "bytes": 4096},
                "repeats": [{"seconds": 0.5 + n, "operations": first + n, "bytes": 8192 * (first + n), "note": "<b>&</b>",
                             "latency_ns": {"mean": 5001 + n, "p50": 5002 + n, "p99": 9003 + n}, "engine_cpu_seconds": 0.125 * (n + 1)} for n in range(3)]}
    return {"schema": 1, "benchmark": "path", "command": ["bench", "path", "--a<b"], "commit": "abc1234", "machine": {"cpu": "Some CPU", "cores": 2},
            "configuration": {"lanes": "cpu", "sizes": [1, 2]}, "cases": [case("read", 1000), case("write", 77)]}


def values_of(value):
    if isinstance(value, dict):
        return [inner for v in value.values() for inner in values_of(v)]
    return [report.shown(value)]


def cells_of(text):
    return [html.unescape(cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", text)]


class Report(unittest.TestCase):
    def made(self, *arguments, runs=None):
        """(status, what it said, the file or None)."""
        with tempfile.TemporaryDirectory() as folder:
            for name, run in (runs if runs is not None else {"path-cpu-x.json": result()}).items():
                pathlib.Path(folder, name).write_text(json.dumps(run))
            output = pathlib.Path(folder, "new", "report.html")
            done = subprocess.run([sys.executable, ROOT / "scripts/report.py", "--runs", folder, "--output", output, *arguments],
                                  capture_output=True, text=True, timeout=60)
            return done.returncode, done.stdout + done.stderr, output.read_text() if output.exists() else None

    def test_every_figure_of_every_repeat_is_in_a_cell(self):
        status, said, text = self.made("--no-plots")
        self.assertEqual(status, 0, said)
        cells = set(cells_of(text))
        for case in result()["cases"]:
            for value in values_of({"repeats": dict(enumerate(case["repeats"]))}):
                self.assertIn(value, cells)

    def test_every_cell_of_the_documents_tables_is_there(self):
        text = self.made("--no-plots")[2]
        cells = cells_of(text)
        for table in report.run_tables.tables_of(result()):
            for row in table.rows:
                for cell in row:
                    self.assertIn(cell, cells)

    def test_a_result_is_named_with_machine_commit_and_command_and_linked_from_the_contents(self):
        text = self.made("--no-plots")[2]
        for said in ("Some CPU, 2 cores", "abc1234", "bench path --a&lt;b", 'href="#path-cpu-x"', 'id="path-cpu-x"'):
            self.assertIn(said, text)
        self.assertNotIn("<b>&</b>", text)

    def test_the_file_needs_nothing_beside_it(self):
        text = self.made("--no-plots")[2]
        self.assertIsNone(re.search(r"<(script|link|img)[^>]*(src|href)=", text))

    def test_plots_are_in_the_file(self):
        text = report.page({"path-cpu-x.json": result()}, {"a.txt": "x < y"}, "abc", lambda run: ["<svg>bars</svg>"])
        self.assertIn("<svg>bars</svg>", text)
        self.assertIn("<pre>x &lt; y</pre>", text)

    @unittest.skipUnless(importlib.util.find_spec("matplotlib"), "matplotlib is not installed: ./run report installs it")
    def test_a_plot_names_every_case_and_every_measure(self):
        plot, = report.report_plots.plots_of(result())
        self.assertTrue(plot.startswith("<svg"))
        texts = {html.unescape(text) for text in re.findall(r">([^<>]+)</text>", plot)}
        self.assertLessEqual({title for title, *_ in report.report_plots.measures_of(result())} | {"read", "write"}, texts)

    def test_what_cannot_be_made_is_told(self):
        for runs, said in (({}, "no raw result"), ({"a.json": {"schema": 7}}, "a.json: schema 7")):
            status, told, text = self.made("--no-plots", runs=runs)
            self.assertEqual((status, text), (1, None))
            self.assertIn(said, told)

    def test_without_matplotlib_the_way_out_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "x.json").write_text(json.dumps(result()))
            hidden = (f"import sys; sys.modules['matplotlib'] = None; sys.path.insert(0, {str(ROOT / 'scripts')!r}); import report; "
                      f"sys.exit(report.main(['--runs', {folder!r}, '--output', {folder + '/r.html'!r}]))")
            done = subprocess.run([sys.executable, "-c", hidden], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 1)
        self.assertIn("'./run plot' installs it", done.stderr)
        self.assertIn("--no-plots", done.stderr)

    def test_tables_of_a_document_are_read_back(self):
        parts = report.from_markdown("Ratios:\n\n| case | a |\n|---|---:|\n| x |  |\n| y | 2 |")
        self.assertEqual(parts[0], "Ratios:")
        self.assertEqual((parts[1].heads, parts[1].rows), (["case", "a"], [["x", ""], ["y", "2"]]))


if __name__ == "__main__":
    unittest.main()
