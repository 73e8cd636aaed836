#!/usr/bin/env python3
"""README.md shows code and output that exist, links lead to headings that exist, and the site finds a place for every document.

What needs Doxygen and MkDocs is the stage docs_site of ./run test --all; here is what can be seen without them.
"""
import pathlib
import re
import sys
import textwrap
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
sys.path.insert(0, str(ROOT / "scripts/site"))
import capture_readme  # noqa: E402
import docs_site  # noqa: E402
import header_comment  # noqa: E402

REGION = re.compile(r"<!-- region: (?P<file>\S+) -->\n```\w+\n(?P<shown>.*?)```\n<!-- end region -->", re.S)
MARKS = re.compile(r"^ *// \[shown in (?P<document>\S+)\]\n(?P<code>.*?)^ *// \[end of what (?P=document) shows\]\n", re.M | re.S)
WITH_REGION = ("README.md", "docs/device-api.md")


def documents():
    """README.md and every Markdown file of docs/, by name."""
    return {path.relative_to(ROOT).as_posix(): path.read_text() for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]}


def anchors(text):
    """The anchors that GitHub and the site give to the headings of a document."""
    headings = re.findall(r"^#+ (.+?)\s*$", docs_site.FENCE.sub("", text), re.M)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings]
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in plain}


def region_of(source, document):
    """The code between the marks of a document in a source, without the indentation that its lines have in common; None without marks."""
    marked = [textwrap.dedent(match["code"]) for match in MARKS.finditer(source) if match["document"] == document]
    return marked[0] if len(marked) == 1 else None


class Readme(unittest.TestCase):
    def test_its_code_is_a_region_of_a_file_that_is_built(self):
        shown = {name: list(REGION.finditer(text)) for name, text in documents().items()}
        self.assertEqual({name: len(found) for name, found in shown.items() if found}, dict.fromkeys(WITH_REGION, 1))
        for name in WITH_REGION:
            match = shown[name][0]
            file = ROOT / match["file"]
            self.assertEqual(region_of(file.read_text(), name), match["shown"],
                             f"{name} differs from the region marked for it in {match['file']}: copy the region, without its indentation")
            self.assertIn(file.name, (file.parent / "CMakeLists.txt").read_text())
            self.assertEqual(file.parent.parent.name, "examples", "scripts/try_example.sh builds the folders of examples/")

    def test_a_region_is_that_of_the_document_without_its_indentation(self):
        source = "// [shown in a.md]\nint a;\n// [end of what a.md shows]\n  // [shown in b.md]\n  int b;\n\n    int c;\n  // [end of what b.md shows]\n"
        self.assertEqual(region_of(source, "a.md"), "int a;\n")
        self.assertEqual(region_of(source, "b.md"), "int b;\n\n  int c;\n")
        self.assertIsNone(region_of(source, "c.md"))

    def test_its_excerpts_are_of_the_output_that_the_demo_document_has(self):
        texts = {name: (ROOT / name).read_text() for name in capture_readme.DOCUMENTS}
        self.assertTrue(capture_readme.EXCERPT.search(texts["README.md"]))
        self.assertTrue(capture_readme.BLOCK.search(texts["docs/demo.md"]))
        for name, text in texts.items():
            self.assertEqual(capture_readme.excerpted(text, capture_readme.shown_in(texts)), text, f"{name}: run scripts/capture_readme.py")

    def test_it_is_short(self):
        self.assertLessEqual(len((ROOT / "README.md").read_text().splitlines()), 130)


class Excerpts(unittest.TestCase):
    WHOLE = "<!-- capture: c -->\n```text\n$ c\nold\n```\n<!-- end capture -->\n"
    PART = "<!-- excerpt: c | [ok] b | d of -->\n<!-- end excerpt -->\n"

    def test_are_taken_from_the_run_that_is_captured(self):
        whole = capture_readme.captured(self.WHOLE, "", lambda command: "a\n  [ok] b\nc\nthe d of e\nf")
        shown = capture_readme.shown_in({"x": whole})
        text = capture_readme.excerpted(self.PART, shown)
        self.assertIn("```text\n$ c\n[...]\n  [ok] b\nc\nthe d of e\n[...]\n```\n", text)
        self.assertEqual(capture_readme.excerpted(text, shown), text)

    def test_of_lines_that_are_not_there_are_errors(self):
        for shown in ({}, capture_readme.shown_in({"x": self.WHOLE})):
            with self.assertRaises(SystemExit):
                capture_readme.excerpted(self.PART, shown)


class Links(unittest.TestCase):
    def test_to_headings_find_them(self):
        wrong, count, texts = [], 0, documents()
        for name, text in texts.items():
            for _, link in docs_site.LINK.findall(docs_site.FENCE.sub("", text)):
                path, _, anchor = link.partition("#")
                if "://" in link or not anchor or path and not path.endswith(".md"):
                    continue
                target = (ROOT / name).parent.joinpath(path).resolve().relative_to(ROOT).as_posix() if path else name
                count += 1
                if anchor not in anchors(texts[target]):
                    wrong.append(f"{name}: {link}")
        self.assertEqual(wrong, [])
        self.assertGreaterEqual(count, 25)

    def test_to_a_heading_are_found_as_github_names_it(self):
        self.assertEqual(anchors("# A `b`, c\n## What is real (here)?\n```\n# no\n```\n"), {"a-b-c", "what-is-real-here"})

    def test_to_sources_lead_to_pages_of_the_site(self):
        links = docs_site.Links({"include/gnstor/embedded_array.hpp": "embedded__array_8hpp.html"})
        text = "[a](../include/gnstor/embedded_array.hpp) [b](../examples/vector_add) [c](wire.md#the-wires) [d](runs/sim-16-cores.txt) [e](https://x/y)"
        self.assertEqual(links.rewritten(text, "docs/operations.md"),
                         "[a](api/embedded__array_8hpp.html) [b](source/examples/vector_add/index.md) [c](wire.md#the-wires) [d](runs/sim-16-cores.txt) [e](https://x/y)")
        self.assertEqual(links.rewritten("[f](../../README.md)", "docs/history/README.md"), "[f](../index.md)")
        with self.assertRaisesRegex(SystemExit, "gone.md"):
            links.rewritten("[x](gone.md)", "docs/wire.md")


class Site(unittest.TestCase):
    def test_every_document_has_a_place_in_the_navigation(self):
        pages = [docs_site.page_of(name) for name in documents()]
        lines, left = docs_site.navigation(pages)
        self.assertEqual(left, [])
        for page in pages:
            self.assertEqual(lines.count(f"- {page}\n"), 1, page)
        self.assertEqual(docs_site.navigation(pages + ["new.md"])[1], ["new.md"])

    def test_markdown_that_only_github_reads_is_rewritten(self):
        self.assertEqual(docs_site.as_python_markdown("text:\n- a\n  - b\n"), "text:\n\n- a\n    - b\n")
        self.assertEqual(docs_site.as_python_markdown("<!-- x: y -->\n| a |\n|---|\n| `b\\|c` |\n"), "\n| a |\n|---|\n| `b|c` |\n")
        self.assertEqual(docs_site.as_python_markdown("```\n- a\n<!-- b -->\n```\n"), "```\n- a\n<!-- b -->\n```\n")

    def test_every_table_has_a_head_without_which_the_site_shows_it_as_text(self):
        for name, text in documents().items():
            self.assertIsNone(re.search(r"\n\|[ |]*\|\n\|-", docs_site.FENCE.sub("", text)), name)

    def test_dead_links_are_found(self):
        page = docs_site.Page('<a href="x.html#y">z</a><h2 id="here">h</h2><img src="p.svg">')
        self.assertEqual((page.links, page.places), (["x.html#y", "p.svg"], {"here"}))
        self.assertTrue(docs_site.Page("<p>| a |\n|---|---|</p>").table_as_text)

    def test_the_opening_comment_of_a_header_is_its_documentation(self):
        self.assertEqual(header_comment.documented("// a.hpp: one\n// two\n//   x(y)   is z\n// end\n#pragma once\n// other"),
                         "/// @file\n/// one\n/// two\n///   * `x(y)` is z\n///\n/// end\n#pragma once\n// other")
        for path in (ROOT / "include/gnstor").rglob("*.?p?"):
            if path.suffix in (".hpp", ".inl"):
                self.assertTrue(header_comment.documented(path.read_text()).startswith("/// @file\n"), path)


if __name__ == "__main__":
    unittest.main()
