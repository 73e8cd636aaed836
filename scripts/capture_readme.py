#!/usr/bin/env python3
"""Puts real output into docs/demo.md and README.md: runs the command named in each block's marker and replaces what the block shows.

    <!-- capture: ./run demo --lanes cpu -->
    ```text
    ...
    ```
    <!-- end capture -->

An excerpt shows the lines of such a block from the one that begins with FIRST (blanks aside) to the next one that has LAST in it, between lines `[...]`:

    <!-- excerpt: ./run demo --lanes cpu | FIRST | LAST -->
    ...
    <!-- end excerpt -->

A command that fails leaves both files as they are. Colour codes are removed, this repository's path becomes `.`; nothing else changes.
`--only TEXT` refreshes only blocks whose command contains TEXT. `--check` runs nothing and changes nothing: it fails where an excerpt is not
part of the captured output that is in the documents.
"""
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
DOCUMENTS = ("docs/demo.md", "README.md")
BLOCK = re.compile(r"(<!-- capture: (?P<command>.+?) -->\n)(?P<body>.*?)(<!-- end capture -->)", re.S)
EXCERPT = re.compile(r"(<!-- excerpt: (?P<command>[^|\n]+?) \| (?P<first>[^|\n]+?) \| (?P<last>[^|\n]+?) -->\n)(?P<body>.*?)(<!-- end excerpt -->)", re.S)


def capture(command):
    print(f"capture_readme: {command}", file=sys.stderr)
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          env={**os.environ, "TERM": "dumb"}, timeout=1800, text=True, errors="replace")
    if done.returncode != 0:
        print(done.stdout[-4000:], file=sys.stderr)
        raise SystemExit(f"capture_readme: exit status {done.returncode} of: {command}")
    text = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", done.stdout).replace(str(ROOT), ".")
    return "\n".join(line.rstrip() for line in text.strip().split("\n"))


def captured(text, only, run=capture):
    """The document with the output of each command whose text contains `only`."""
    def block(match):
        if only not in match["command"]:
            return match[0]
        return f"{match[1]}```text\n$ {match['command']}\n{run(match['command'])}\n```\n{match[4]}"
    return BLOCK.sub(block, text)


def excerpted(text, shown):
    """The document with each excerpt of `shown`, {command: what its block shows}."""
    def part(match):
        if match["command"] not in shown:
            raise SystemExit(f"capture_readme: no document has the whole output of: {match['command']}")
        lines = shown[match["command"]].split("\n")
        first = next((at for at, line in enumerate(lines) if line.lstrip().startswith(match["first"].lstrip())), None)
        last = first if first is None else next((at for at in range(first, len(lines)) if match["last"] in lines[at]), None)
        if last is None:
            raise SystemExit(f"capture_readme: the output of '{match['command']}' has no lines from '{match['first']}' to '{match['last']}'")
        inside = "\n".join(lines[first:last + 1])
        return f"{match[1]}```text\n$ {match['command']}\n[...]\n{inside}\n[...]\n```\n{match[6]}"
    return EXCERPT.sub(part, text)


def shown_in(texts):
    return {match["command"]: match["body"] for text in texts.values() for match in BLOCK.finditer(text)}


def main(arguments):
    check = arguments == ["--check"]
    only = arguments[1] if len(arguments) == 2 and arguments[0] == "--only" else ""
    if arguments and not only and not check:
        print(__doc__, file=sys.stderr)
        return 2
    before = {name: (ROOT / name).read_text() for name in DOCUMENTS}
    texts = before if check else {name: captured(text, only) for name, text in before.items()}
    shown = shown_in(texts)
    after = {name: excerpted(text, shown) for name, text in texts.items()}
    if check:
        for name in (name for name in DOCUMENTS if after[name] != before[name]):
            print(f"capture_readme: an excerpt in {name} differs from the captured output; run scripts/capture_readme.py", file=sys.stderr)
        return 1 if after != before else 0
    for name, text in after.items():
        (ROOT / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
