#!/usr/bin/env python3
"""The report holds every figure of every result, and needs no plotting library for its tables. Nothing is installed here."""
import html
import json
import os
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

    def test_figures_of_a_library_are_in_the_file_and_cannot_end_their_element(self):
        text = report.page({"path-cpu-x.json": result()}, {"a.txt": "x < y"}, "abc", lambda run: ['{"data": "</script>"}'], "LIBRARY")
        self.assertIn('<script type="application/json">{"data": "<\\/script>"}</script>', text)
        self.assertIn("<script>LIBRARY</script>", text)
        self.assertIn("<pre>x &lt; y</pre>", text)

    def test_what_cannot_be_made_is_told(self):
        for runs, said in (({}, "no raw result"), ({"a.json": {"schema": 7}}, "a.json: schema 7")):
            status, told, text = self.made("--no-plots", runs=runs)
            self.assertEqual((status, text), (1, None))
            self.assertIn(said, told)

    def test_without_the_library_and_with_no_install_the_way_out_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            # A Python that has no plotly, and no folder of packages of an earlier run.
            fake = pathlib.Path(folder, "bin", "python3")
            fake.parent.mkdir()
            fake.write_text(f'#!/bin/sh\ncase "$2" in "import plotly") exit 1 ;; esac\nexec {sys.executable} "$@"\n')
            fake.chmod(0o755)
            done = subprocess.run([ROOT / "run", "report", "--no-install"], capture_output=True, text=True, timeout=60,
                                  env={**os.environ, "PATH": f"{fake.parent}:{os.environ['PATH']}", "GN_REPORT_VENV": f"{folder}/none"})
        self.assertEqual(done.returncode, 1)
        self.assertIn("plotly", done.stderr)
        self.assertIn("--no-plots", done.stderr)

    def test_tables_of_a_document_are_read_back(self):
        parts = report.from_markdown("Ratios:\n\n| case | a |\n|---|---:|\n| x |  |\n| y | 2 |")
        self.assertEqual(parts[0], "Ratios:")
        self.assertEqual((parts[1].heads, parts[1].rows), (["case", "a"], [["x", ""], ["y", "2"]]))


if __name__ == "__main__":
    unittest.main()
