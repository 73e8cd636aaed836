#!/usr/bin/env python3
"""Rules for files: no path of the machine that builds, no marker of unfinished work, no sleeping tests, one thing a file.

Each rule is first shown to catch a violating sample, then applied to every tracked file (or, outside git, to every file of the tree).
"""
import os
import pathlib
import re
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CODE = {".hpp", ".cpp", ".cu", ".cuh", ".inl", ".h"}
TEXT = CODE | {".py", ".sh", ".md", ".txt", ".cmake", ".json", ".yaml", ".yml", ".in", ".svg", ".pml", ".html", ".css", ".js", ""}
LINES_MAX = 900
FUNCTION_LINES_MAX = 70
# Put together from halves, so that this file does not violate its own rule.
UNFINISHED = re.compile(r"\b(" + "|".join(a + b for a, b in (("TO", "DO"), ("FIX", "ME"), ("X" + "X", "X"))) + r")\b")
SLEEP = re.compile(r"\b(sleep_for|sleep_until|usleep|nanosleep)\s*\(|time\.sleep\(")
# It throws where the stream takes nothing: a full disk under its log would end a program that serves.
THROWING_PRINT = re.compile(r"\bfmt::print(ln)?\(")
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(#[^)]*)?\)")


def machine_paths(root, home):
    """Paths that would betray, and tie the repository to, the machine it was written on."""
    # A checkout right below / has a name like any other (a clone at /gnstor), which says nothing.
    found = {str(root)} if len(pathlib.Path(root).parts) > 2 else set()
    if len(pathlib.Path(root).parts) > 2 and str(pathlib.Path(root).parent) not in ("/tmp", "/usr", "/opt", "/home", "/srv", "/var"):
        found.add(str(pathlib.Path(root).parent) + "/")
    if home and len(pathlib.Path(home).parts) > 1:
        found.add(home.rstrip("/") + "/")
    return sorted(found)


def check_text(name, text, forbidden_paths=()):
    for number, line in enumerate(text.split("\n"), 1):
        for path in forbidden_paths:
            # Not inside a longer path: "/x/main" matters, "/usr/x/main" and "https://host/x/main" do not.
            if re.search(r"(?<![\w./-])" + re.escape(path), line):
                yield f"{name}:{number}: an absolute path of this machine ({path})"
        if UNFINISHED.search(line):
            yield f"{name}:{number}: a marker of unfinished work; do it or say in docs/ what is not there"


def check_code(name, text):
    lines = text.split("\n")
    suffix = pathlib.PurePath(name).suffix
    # An implementation, or a test, may leave it to the header in question: then it opens by including that header.
    stem = re.escape(pathlib.PurePath(name).stem.removesuffix("_test"))
    if not lines[0].startswith("//") and not (suffix in (".cpp", ".cu") and re.match(rf'#include [<"][\w/]*\b{stem}\.hpp[">]', lines[0])):
        yield f"{name}: opens without a comment that says what the file owns"
    if suffix in (".hpp", ".h", ".cuh") and "#pragma once" not in text:
        yield f"{name}: a header without #pragma once"
    if len(lines) > LINES_MAX:
        yield f"{name}: {len(lines)} lines; a file does one thing, {LINES_MAX} is the limit"
    if not name.startswith("tests/") and any(THROWING_PRINT.search(line.split("//")[0]) for line in lines):
        yield f"{name}: fmt::print() throws where the stream cannot be written; use say() (gnstor/base/say.hpp)"
    if name.startswith("tests/") and SLEEP.search(text):
        yield f"{name}: a sleep in a test; wait for the condition, with a deadline"


NO_FUNCTION = re.compile(r"\s*((if|for|while|switch|else|do|try|catch|namespace|return|case|default|using|typedef)\b|[})\]#/]|(class|struct|enum|union)\b[^(]*[:{]|extern \"C\" \{)")
LAMBDA = re.compile(r"=\s*\[(?!\[)|=\s*\{$|[(,]\s*\[(?!\[)|^\[(?!\[)|\)\s*\[(?!\[)")
# In a table of cases, the two lines of each case.
TABLE_ROW = re.compile(r"\s*case [\w:]+:\n\s*return (\"[^\"]*\"|[\w:]+);\n")


def indent(line):
    return len(line) - len(line.lstrip())


def functions(text):
    """Line, number of lines without comments, and head of each function; relies on the layout of clang-format."""
    lines = [re.sub(r"(?<!:)//.*|\balignas\([^)]*\)", "", line).rstrip() for line in text.split("\n")]
    for end, line in enumerate(lines):
        if not line.endswith("{"):
            continue
        # The head begins above, where its brackets are balanced and no line is indented less.
        begin, open_brackets = end, line.count(")") - line.count("(")
        while begin > 0 and lines[begin - 1] and (
                open_brackets > 0 or lines[begin - 1].endswith(",") or lines[begin].lstrip().startswith(":")
                or (not re.search(r"[;{}]$|^\s*#|:$", lines[begin - 1]) and indent(lines[begin]) > indent(lines[begin - 1]))):
            begin -= 1
            open_brackets += lines[begin].count(")") - lines[begin].count("(")
        head = " ".join(part.strip() for part in lines[begin:end + 1])
        if "(" not in head or NO_FUNCTION.match(lines[begin]) or LAMBDA.search(head):
            continue
        last = end + 1
        while last < len(lines) - 1 and not (lines[last].startswith(" " * indent(lines[begin]) + "}")):
            last += 1
        body = TABLE_ROW.sub("\n", "".join(part + "\n" for part in lines[begin:last + 1] if part))
        yield begin + 1, sum(1 for part in body.split("\n") if part), head


def check_functions(name, text):
    for line, length, head in functions(text):
        if length > FUNCTION_LINES_MAX:
            yield f"{name}:{line}: {length} lines of code in one function ({head[:60]}); {FUNCTION_LINES_MAX} is the limit: give a part of it a name"


def check_links(name, text, exists):
    for match in LINK.finditer(re.sub(r"```.*?```", "", text, flags=re.S)):
        target = match.group(1)
        if "://" in target or target.startswith("mailto:"):
            continue
        if not exists(os.path.normpath(os.path.join(os.path.dirname(name), target))):
            yield f"{name}: a link to {target}, which does not exist"


def check_cuda_aware(files):
    """Sources that ask for GN_WITH_CUDA, or include a header that does, are given it: gn_cuda_aware() in the CMakeLists.txt above them.

    `files`: text by name. A source that asks without being given it would be built for CPU lanes alone, silently.
    """
    aware = set()
    for name, text in files.items():
        if pathlib.PurePath(name).name == "CMakeLists.txt":
            for names in re.findall(r"gn_cuda_aware\(([^)]*)\)", text):
                aware |= {os.path.normpath(os.path.join(os.path.dirname(name), n)) for n in names.split()}
    asks = {n for n, t in files.items() if pathlib.PurePath(n).suffix in CODE and re.search(r"^\s*#\s*(el)?if.*\bGN_WITH_CUDA\b", t, re.M)}
    headers = {n for n in asks if not n.endswith((".cpp", ".cu"))}
    for name in sorted(n for n in files if n.endswith(".cpp") and n not in aware):
        included = {n for n in headers if re.search(rf'#include [<"]{re.escape(re.sub("^(src|include)/", "", n))}[">]', files[name])}
        if name in asks or included:
            yield f"{name}: sees GN_WITH_CUDA, but no gn_cuda_aware() names it"


def tracked():
    try:
        out = subprocess.run(["git", "-C", ROOT, "ls-files", "-z"], capture_output=True, check=True).stdout.decode()
        names = [n for n in out.split("\0") if n]
    except (OSError, subprocess.CalledProcessError):
        skip = {".git", "build", ".cuda", ".venv", "tmp", "__pycache__"}
        names = [str(p.relative_to(ROOT)) for p in ROOT.rglob("*") if p.is_file() and not skip & set(p.relative_to(ROOT).parts)]
    return sorted(n for n in names if (ROOT / n).is_file())


class TheRulesCatch(unittest.TestCase):
    def test_a_path_of_the_machine(self):
        paths = machine_paths("/build/box/repo", "/users/me")
        self.assertTrue(list(check_text("a", "see /build/box/repo/x", paths)))
        self.assertTrue(list(check_text("a", "include(/build/box/other.cmake)", paths)))
        self.assertTrue(list(check_text("a", "cd /users/me/src", paths)))
        self.assertFalse(list(check_text("a", "/usr/build/box/repo and https://host/build/box/repo", paths)))

    def test_a_marker_of_unfinished_work(self):
        self.assertTrue(list(check_text("a", "// " + "TO" + "DO later")))
        self.assertFalse(list(check_text("a", "mktemp name." + "XXXX" + "XX")))

    def test_a_file_without_an_opening_comment_or_too_long(self):
        self.assertTrue(list(check_code("src/a.cpp", "#include <x>\n")))
        self.assertTrue(list(check_code("src/a.hpp", "// a\nint x;\n")))
        self.assertTrue(list(check_code("src/a.cpp", "#include <b.hpp>\n")))
        self.assertFalse(list(check_code("src/a.cpp", "#include <gnstor/x/a.hpp>\n")))
        self.assertTrue(list(check_code("src/a.cpp", "// a\n" * (LINES_MAX + 1))))
        self.assertFalse(list(check_code("src/a.hpp", "// a\n#pragma once\n")))

    def test_a_function_that_is_too_long(self):
        def of(lines, head="int f(int a,\n      int b) {", line="    a += b;\n"):
            return list(check_functions("src/a.cpp", f"// a\n{head}\n" + line * lines + "}\n"))
        self.assertTrue(of(FUNCTION_LINES_MAX))
        self.assertFalse(of(FUNCTION_LINES_MAX - 3))
        self.assertTrue(of(FUNCTION_LINES_MAX, "A::A(int b)\n    : b_(b),\n      c_(b) {"))
        for head in ("[[nodiscard]] int f() {", "void f([[maybe_unused]] int a) {", "struct X f() {", 'extern "C" int f() {', 'int f(const char* a = "http://b") {'):
            self.assertTrue(of(FUNCTION_LINES_MAX, head), head)
        self.assertFalse(of(FUNCTION_LINES_MAX, "class A : public B<int (*)(int)> {"))
        self.assertFalse(of(FUNCTION_LINES_MAX, "struct A {"))
        self.assertTrue(of(FUNCTION_LINES_MAX, line="    if (a) return b;\n"))
        self.assertFalse(of(FUNCTION_LINES_MAX - 3, line="    a += b;\n    // why\n\n"))
        self.assertFalse(of(FUNCTION_LINES_MAX, line='    case Status::kOk:\n        return "ok";\n'))

    def test_a_sleep_in_a_test(self):
        self.assertTrue(list(check_code("tests/x/a.cpp", "// a\nstd::this_thread::sleep_for(1ms);\n")))
        self.assertFalse(list(check_code("src/x/a.cpp", "// a\nstd::this_thread::sleep_for(1ms);\n")))

    def test_a_print_that_throws(self):
        self.assertTrue(list(check_code("src/x/a.cpp", '// a\nfmt::print(stderr, "x");\n')))
        self.assertFalse(list(check_code("src/x/a.cpp", '// a\nsay(stderr, "x");  // fmt::print() would throw\n')))

    def test_a_source_that_is_not_told_of_cuda(self):
        asks = {"src/a/x.cpp": "// x\n#if defined(GN_WITH_CUDA)\n", "src/a/CMakeLists.txt": "gn_layer(a SOURCES x.cpp)"}
        self.assertTrue(list(check_cuda_aware(asks)))
        self.assertFalse(list(check_cuda_aware(asks | {"src/a/CMakeLists.txt": "gn_cuda_aware(y.cpp x.cpp)"})))
        header = {"src/a/h.hpp": "#if GN_WITH_CUDA\n", "src/b/y.cpp": '#include "a/h.hpp"\n'}
        self.assertTrue(list(check_cuda_aware(header)))
        self.assertFalse(list(check_cuda_aware(header | {"src/b/CMakeLists.txt": "gn_cuda_aware(y.cpp)"})))

    def test_a_dead_link(self):
        self.assertTrue(list(check_links("docs/wire.md", "[x](gone.md)", lambda p: False)))
        self.assertFalse(list(check_links("docs/wire.md", "[x](testing.md#part) [y](https://a.b/c)", lambda p: p == "docs/testing.md")))


class TheRepository(unittest.TestCase):
    def test_every_file_obeys(self):
        wrong, files, sources = [], 0, {}
        paths = machine_paths(ROOT, os.path.expanduser("~"))
        for name in tracked():
            suffix = pathlib.PurePath(name).suffix
            if suffix not in TEXT:
                continue
            try:
                text = (ROOT / name).read_text()
            except UnicodeDecodeError:
                continue
            files += 1
            wrong += check_text(name, text, paths)
            if suffix in CODE or pathlib.PurePath(name).name == "CMakeLists.txt":
                sources[name] = text
            if suffix in CODE:
                wrong += check_code(name, text)
            if suffix in CODE and not name.startswith("tests/"):
                wrong += check_functions(name, text)
            if suffix == ".md":
                wrong += check_links(name, text, lambda p: (ROOT / p).exists())
        wrong += check_cuda_aware(sources)
        self.assertEqual(wrong, [], "\n" + "\n".join(wrong))
        self.assertGreaterEqual(files, 30)
        print(f"GN_COUNT house_files={files}")

    def test_the_licence_is_apache_2(self):
        text = (ROOT / "LICENSE").read_text()
        self.assertIn("Apache License", text)
        self.assertIn("Version 2.0, January 2004", text)


if __name__ == "__main__":
    unittest.main()
