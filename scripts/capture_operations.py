#!/usr/bin/env python3
"""Puts real output into docs/operations.md and docs/troubleshooting.md: runs the commands of each marker, in one session from the first block
of the first document to the last block of the second, and replaces what the block shows.

    <!-- run:
    gnstor up --ssds 4
    gnstor status --output xml    # exit 2
    -->
    ```console
    ...
    ```
    <!-- end run -->

The session has a home folder of its own, shown as ~. A command must exit with 0, or with what its remark says; otherwise the documents
are not changed. `--bin DIR` holds gnstor and gnstord (default build/cpu/bin). `--check` changes nothing and fails where a document shows
something else than these programs print, numbers and identifiers aside.
"""
import argparse
import difflib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
DOCUMENTS = (ROOT / "docs" / "operations.md", ROOT / "docs" / "troubleshooting.md")
BLOCK = re.compile(r"(<!-- run:\n(?P<commands>.+?)\n-->\n)(?P<shown>.*?)(<!-- end run -->)", re.S)
REMARK = re.compile(r"\s+# exit (\d)$")
VOLATILE = ((re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "UUID"), (re.compile(r"GN[0-9A-F]{16}"), "SERIAL"),
            (re.compile(r"[\d,]*\.?\d+(e-?\d+)?"), "N"), (re.compile(r"-{3,}| {2,}"), " "))


class Session:
    """A shell's worth of environment for all blocks: what one begins, the next one finds."""

    def __init__(self, programs, home):
        self.home = pathlib.Path(home).resolve()
        self.env = {"HOME": str(self.home), "PATH": f"{programs}:{os.environ['PATH']}", "TERM": "dumb", "LC_ALL": "C"}

    def run(self, line):
        remark = REMARK.search(line)
        wanted = int(remark[1]) if remark else 0
        command = REMARK.sub("", line)
        done = subprocess.run(["bash", "-c", command], cwd=self.home, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=300, text=True, errors="replace", check=False)
        if done.returncode != wanted:
            raise SystemExit(f"capture_operations: exit {done.returncode}, not {wanted}, of: {command}\n{done.stdout}")
        text = "\n".join(piece.rstrip() for piece in done.stdout.rstrip().split("\n")).replace(str(self.home), "~")
        return f"$ {line}\n{text}\n" if text else f"$ {line}\n"

    def block(self, commands):
        return "```console\n" + "".join(self.run(line) for line in commands.split("\n")) + "```\n"


def masked(text):
    for pattern, word in VOLATILE:
        text = pattern.sub(word, text)
    return text


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--bin", default=str(ROOT / "build" / "cpu" / "bin"))
    options.add_argument("--check", action="store_true")
    options = options.parse_args()
    programs = pathlib.Path(options.bin).resolve()
    if not (programs / "gnstor").exists():
        raise SystemExit(f"capture_operations: there is no {programs}/gnstor; build first, or name its folder with --bin")
    home = tempfile.mkdtemp(prefix="gnstor-docs-")
    session = Session(programs, home)
    before = [path.read_text() for path in DOCUMENTS]
    try:
        after = [BLOCK.sub(lambda block: block[1] + session.block(block["commands"]) + block[4], text) for text in before]
    finally:
        subprocess.run([str(programs / "gnstor"), "down"], env=session.env, stdout=subprocess.DEVNULL, check=False)
        shutil.rmtree(home)
    print(f"capture_operations: {sum(len(BLOCK.findall(text)) for text in before)} blocks")
    wrong = any(not BLOCK.search(text) for text in before)
    for path, old, new in zip(DOCUMENTS, before, after):
        if not options.check:
            path.write_text(new)
            continue
        difference = list(difflib.unified_diff(masked(old).split("\n"), masked(new).split("\n"), f"{path.name} documents", "printed", lineterm="", n=1))
        print("\n".join(difference))
        wrong = wrong or bool(difference)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
