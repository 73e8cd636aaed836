#!/usr/bin/env python3
"""Puts real output into README.md: runs the command named in each block's marker and replaces what the block shows.

    <!-- capture: ./run demo --lanes cpu -->
    ```text
    ...
    ```
    <!-- end capture -->

A command that fails leaves README.md as it is. Colour codes are removed, this repository's path becomes `.`; nothing else changes.
`--only TEXT` refreshes only blocks whose command contains TEXT.
"""
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"(<!-- capture: (?P<command>.+?) -->\n)(.*?)(<!-- end capture -->)", re.S)


def capture(command):
    print(f"capture_readme: {command}", file=sys.stderr)
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          env={**os.environ, "TERM": "dumb"}, timeout=1800, text=True, errors="replace")
    if done.returncode != 0:
        print(done.stdout[-4000:], file=sys.stderr)
        raise SystemExit(f"capture_readme: exit status {done.returncode} of: {command}")
    text = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", done.stdout).replace(str(ROOT), ".")
    return "\n".join(line.rstrip() for line in text.strip().split("\n"))


def main(arguments):
    only = arguments[1] if len(arguments) == 2 and arguments[0] == "--only" else ""
    if arguments and not only:
        print(__doc__, file=sys.stderr)
        return 2
    readme = ROOT / "README.md"

    def block(match):
        if only not in match["command"]:
            return match[0]
        return f"{match[1]}```text\n$ {match['command']}\n{capture(match['command'])}\n```\n{match[4]}"

    text = BLOCK.sub(block, readme.read_text())
    readme.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
