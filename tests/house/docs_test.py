#!/usr/bin/env python3
"""Generated tables show every repeat's spread, and a result that does not follow the schema is refused by name."""
import json
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import plot_paper  # noqa: E402
import render_docs  # noqa: E402

DOCUMENT = "# t\n\n<!-- runs: path-cpu*.json -->\nold\n<!-- end runs -->\ntail\n"


def result(**changes):
    repeats = [{"seconds": s, "operations": 1000, "bytes": 4096000, "latency_ns": {"p50": 5000, "p99": 9000, "p999": 12000}}
               for s in (1.0, 0.5, 2.0)]
    return {"schema": 1, "benchmark": "path", "command": ["bench", "path"], "commit": "abc", "machine": {"cpu": "x", "cores": 2},
            "configuration": {"lanes": "cpu"}, "cases": [{"parameters": {"operation": "read", "bytes": 4096}, "repeats": repeats}], **changes}


class RenderDocs(unittest.TestCase):
    def load(self, content):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "path-cpu.json")
            path.write_text(content if isinstance(content, str) else json.dumps(content))
            return render_docs.load(path)

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


def figure(number, **changes):
    repeats = [{"seconds": 1.0, "operations": n, "bytes": n * 4096, "latency_ns": {"mean": 50000}, "work_array_lock_us": 0.25, "work_array_idle_us": 9.0,
                "limit_drives_per_second": 800_000.0, "limit_network_per_second": 900_000.0} for n in (100_000, 200_000, 400_000)]
    cases = [{"parameters": {"path": path, "operation": operation, "bytes": 4096, "pattern": "rand", "clients": 1, "SSDs": 4, "depth": 32}, "repeats": repeats}
             for path in ("gnor", "gd") for operation in ("read", "write")]
    return {"schema": 1, "benchmark": f"paper-figure-{number}", "command": ["bench"], "commit": "abc", "machine": {"cpu": "x"},
            "configuration": {"lanes": "cpu", "replicas": 2, "engine threads": 1, "profile": "none"}, "cases": cases, **changes}


class PaperFigures(unittest.TestCase):
    def test_a_plot_of_docs_is_written_once_and_a_changed_result_or_plot_is_noticed(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "docs" / "runs").mkdir(parents=True)
            for number in range(9, 14):
                (root / "docs" / "runs" / f"paper-figure-{number}-x.json").write_text(json.dumps(figure(number)))
            self.assertEqual(plot_paper.plot_docs(True, root), 5)
            self.assertEqual(plot_paper.plot_docs(False, root), 0)
            self.assertEqual(plot_paper.plot_docs(True, root), 0)
            source, plot = root / "docs/runs/paper-figure-12-x.json", root / "docs/plots/paper-figure-12-x.svg"
            self.assertIn("SSDs", plot.read_text())
            self.assertNotIn("nan", plot.read_text())
            source.write_text(source.read_text().replace("819200000", "1228800000"))
            self.assertEqual(plot_paper.plot_docs(True, root), 1)
            self.assertEqual(plot_paper.plot_docs(False, root), 0)
            source.unlink()
            self.assertEqual(plot_paper.plot_docs(True, root), 1)

    def test_tables_show_the_share_of_the_limit_and_what_threads_did(self):
        runs = {"paper-figure-13-x.json": figure(13)}
        text = render_docs.render("<!-- runs: paper-*.json -->\n<!-- end runs -->\n<!-- work: paper-*.json -->\n<!-- end work -->\n", runs)
        self.assertIn("25.0 (12.5 … 50.0) % of drives", text)
        self.assertIn("array: lock", text)
        self.assertNotIn("array: idle", text)

    def test_ratios_are_of_medians_with_a_mean_over_the_cases_of_a_size(self):
        run = json.loads(json.dumps(figure(9)))  # cases share their repeats until then
        for repeat in run["cases"][0]["repeats"]:
            repeat["bytes"] *= 4
        text = render_docs.render("<!-- ratios: p.json -->\n<!-- end ratios -->\n", {"p.json": run})
        self.assertIn("| case | gnor | gd | gnor / gd |", text)
        self.assertIn("| read | 3.277 | 0.819 | 4.00 |", text)
        self.assertIn("| write | 0.819 | 0.819 | 1.00 |", text)
        self.assertIn("| geometric mean, bytes 4096 |  |  | 2.00 |", text)


if __name__ == "__main__":
    unittest.main()
