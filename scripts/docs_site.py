#!/usr/bin/env python3
"""The documentation as a site: README.md and docs/ by MkDocs Material, the public headers by Doxygen, every link checked.

usage: docs_site.py [--output FOLDER]      (default: build/site; `./run docs` calls it with a Python that has MkDocs Material)

    build/site-source    what MkDocs reads: the documents, with Markdown that only GitHub understands rewritten; a page for each source
                         file and folder that a document links to; Doxygen's pages
    build/site           the site; open index.html, no server is needed

A warning of Doxygen or of MkDocs is an error, and so is a link of any page, Doxygen's too, to a file or a place in a page that does not exist.
"""
import argparse
import html.parser
import os
import pathlib
import re
import shutil
import subprocess
import sys
import urllib.parse
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[1]
SOURCE = ROOT / "build" / "site-source"
CONFIGURATION = "scripts/site/mkdocs.yml"
# What the documents are for, in the order in which a reader may want them; a document that is not named here fails the build (omitted_files).
NAVIGATION = (
    ("Start", ("index.md", "demo.md", "concepts.md")),
    ("Use", ("device-api.md", "operations.md", "security.md", "troubleshooting.md")),
    ("How it is built", ("design.md", "array.md", "repair.md", "wire.md", "store-format.md")),
    ("Measured", ("performance.md", "paper.md", "runs/README.md")),
    ("Tested", ("testing.md", "reliability.md", "models.md", "peer.md")),
    ("Decisions", ("history/README.md", "history/*.md")),
)
LINK = re.compile(r"(!?\[(?:[^\]\[]|\[[^\]]*\])*\])\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```[ \t]*$", re.M | re.S)
CODE = re.compile(r"(`+)(.+?)\1", re.S)
AS_IT_IS = {".json", ".txt", ".svg", ".png"}
LANGUAGE = {".hpp": "cpp", ".cpp": "cpp", ".inl": "cpp", ".cu": "cpp", ".py": "python", ".sh": "bash", ".cmake": "cmake", ".md": "markdown"}


def page_of(name):
    """Where the site has the document `name` (README.md, docs/..., ...); None: it is no document."""
    if name == "README.md":
        return "index.md"
    if name.startswith("docs/") and name.endswith(".md"):
        return name.removeprefix("docs/")
    return None


class Links:
    """Where a link of a document leads to in the site. `api`: the page of each header; `needed` collects what has to be copied there."""

    def __init__(self, api):
        self.api, self.needed = api, {}

    def target(self, name):
        """The file of the site for a file or folder of the repository."""
        path = ROOT / name
        if page := page_of(name):
            return page
        if name in self.api:
            return f"api/{self.api[name]}"
        if name.startswith("docs/") and path.suffix in AS_IT_IS:
            place = name.removeprefix("docs/")
        else:
            place = f"source/{name}/index.md" if path.is_dir() else f"source/{name}.md"
        self.needed[name] = place
        return place

    def rewritten(self, text, document):
        """The links of `text`, which is of the document `document` (its name in the repository)."""
        here = pathlib.PurePosixPath(page_of(document)).parent

        def one(match):
            words, link = match[1], match[2]
            if "://" in link or link.startswith(("#", "mailto:")):
                return match[0]
            path, _, anchor = link.partition("#")
            name = os.path.normpath(os.path.join(os.path.dirname(document), path))
            if not (ROOT / name).exists():
                raise SystemExit(f"docs_site: {document} links to {link}, which does not exist")
            place = os.path.relpath(self.target(name), here)
            return f"{words}({place}{'#' + anchor if anchor else ''})"
        return LINK.sub(one, text)


def outside_code(text, change):
    """`change` of what is neither in a fence nor, line by line, in a code span."""
    out, at = [], 0
    for fence in FENCE.finditer(text):
        out += [change(text[at:fence.start()]), fence[0]]
        at = fence.end()
    return "".join(out + [change(text[at:])])


def as_python_markdown(text):
    """What GitHub reads differently: lists need an empty line before them, items of items four blanks, code in tables no backslash before '|'."""
    def change(part):
        part = re.sub(r"<!--.*?-->", "", part, flags=re.S)
        lines, out = part.split("\n"), []
        for line in lines:
            if line.startswith("|"):
                line = CODE.sub(lambda code: code[0].replace("\\|", "|"), line)
                if out and out[-1].strip() and not out[-1].startswith("|"):
                    out.append("")
            elif item := re.match(r"( *)([-*]|\d+\.) ", line):
                if not item[1] and out and out[-1].strip() and not re.match(r" *([-*]|\d+\.) |  ", out[-1]):
                    out.append("")
                line = item[1] + line  # twice as far in
            out.append(line)
        return "\n".join(out)
    return outside_code(text, change)


def stage(links):
    """Writes build/site-source but for Doxygen's pages."""
    documents = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    for path in documents:
        name = path.relative_to(ROOT).as_posix()
        text = outside_code(path.read_text(), lambda part, name=name: links.rewritten(part, name))
        write(page_of(name), as_python_markdown(text))
    written = set()
    while left := sorted(set(links.needed) - written):
        for name in left:
            written.add(name)
            copy_source(name, links.needed[name])
    return [page_of(path.relative_to(ROOT).as_posix()) for path in documents]


def write(place, text):
    path = SOURCE / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def copy_source(name, place):
    """A file of docs/ as it is; another file as a page of its text; a folder as a page of the names in it."""
    path = ROOT / name
    if path.is_dir():
        inside = subprocess.run(["git", "-C", ROOT, "ls-files", "--", name], capture_output=True, text=True, check=True).stdout.split()
        write(place, f"# {name}/\n\n```text\n" + "\n".join(inside) + "\n```\n")
    elif path.suffix in AS_IT_IS and place == name.removeprefix("docs/"):
        (SOURCE / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, SOURCE / place)
    else:
        fence = "~~~~~~"
        write(place, f"# {name}\n\n{fence}{LANGUAGE.get(path.suffix, 'text')}\n{path.read_text().rstrip()}\n{fence}\n")


def navigation(pages):
    """The lines of `nav:`; a name with a star stands for all pages that no other name stands for."""
    left, lines = set(pages), ["nav:"]
    for title, names in NAVIGATION:
        lines.append(f"  - {title}:")
        for name in names:
            found = sorted(left & set(pages)) if "*" in name else [name]
            for page in found if "*" not in name else [p for p in found if pathlib.PurePosixPath(p).match(name)]:
                lines.append(f"      - {page}")
                left.discard(page)
    lines.append("  - API: api/index.html")
    return "\n".join(lines) + "\n", sorted(left)


def api_pages(folder):
    """Runs Doxygen; {header in the repository: its page}."""
    folder.mkdir(parents=True)
    tags = folder.parent / "api.tag"
    added = f"OUTPUT_DIRECTORY = {folder}\nGENERATE_TAGFILE = {tags}\n"
    settings = (ROOT / "scripts/site/Doxyfile").read_text() + added
    done = subprocess.run(["doxygen", "-"], input=settings, text=True, cwd=ROOT, check=False)
    if done.returncode != 0:
        raise SystemExit("docs_site: Doxygen found errors in the comments of include/gnstor (above); no site was made")
    found = {}
    for compound in xml.etree.ElementTree.parse(tags).getroot().iter("compound"):
        if compound.get("kind") == "file":
            path = pathlib.Path(compound.findtext("path"), compound.findtext("name")).resolve()
            page = compound.findtext("filename")
            found[path.relative_to(ROOT).as_posix()] = page if page.endswith(".html") else page + ".html"
    tags.unlink()
    return found


class Page(html.parser.HTMLParser):
    """What a page links to, and the places in it that others can link to."""

    def __init__(self, text):
        super().__init__()
        self.links, self.places = [], set()
        self.table_as_text = re.search(r"\|-{3,}:?\|", text)
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.places |= {values[key] for key in ("id", "name") if values.get(key)}
        self.links += [values[key] for key in ("href", "src") if values.get(key)]


def wrong_in(site):
    """(page, what) of each link to a file or a place that does not exist, and of each table that is none."""
    pages = {path: Page(path.read_text(errors="replace")) for path in sorted(site.rglob("*.html"))}
    count = 0
    for path, page in pages.items():
        if path.name == "404.html":
            continue  # its links begin at the root of a server
        if page.table_as_text:
            yield path, "a table that MkDocs takes for text (is its first row empty?)"
        for link in page.links:
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc or link.startswith("javascript:"):
                continue
            if link == "#nested-classes" and "api" in path.parts:
                continue  # Doxygen 1.9.4 writes it for private classes, too, which it then does not list
            count += 1
            target = path if not parts.path else pathlib.Path(os.path.normpath(path.parent / urllib.parse.unquote(parts.path)))
            if target.is_dir():
                target = target / "index.html"
            if not target.is_file():
                yield path, f"a link to {link}, which does not exist"
            elif parts.fragment and target in pages and urllib.parse.unquote(parts.fragment) not in pages[target].places | {"top", "__top"}:
                yield path, f"a link to {link}, which does not exist"
    print(f"docs_site: {len(pages)} pages with {count} links within the site")


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "build" / "site")
    options = parser.parse_args(arguments)
    shutil.rmtree(SOURCE, ignore_errors=True)
    links = Links(api_pages(SOURCE / "api"))
    pages = stage(links)
    nav, left = navigation(pages)
    if left:
        raise SystemExit(f"docs_site: NAVIGATION in scripts/docs_site.py names no place for {', '.join(left)}")
    sources = "not_in_nav: |\n  /source/\n"
    settings = SOURCE.parent / "site-mkdocs.yml"
    text = (ROOT / CONFIGURATION).read_text().replace("../../build/site-source", str(SOURCE)).replace("../../build/site", str(options.output.resolve()))
    settings.write_text(text + nav + sources)
    done = subprocess.run([sys.executable, "-m", "mkdocs", "build", "--strict", "--clean", "--config-file", settings], cwd=ROOT, check=False,
                          env={**os.environ, "NO_MKDOCS_2_WARNING": "1"})
    if done.returncode != 0:
        print("docs_site: MkDocs found errors in the documents (above)", file=sys.stderr)
        return 1
    wrong = sorted(set(wrong_in(options.output.resolve())))
    for path, what in wrong:
        print(f"docs_site: {path.relative_to(options.output.resolve())} has {what}", file=sys.stderr)
    if wrong:
        return 1
    print(f"docs_site: wrote {options.output}/index.html")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
