#!/usr/bin/env python3
"""Doxygen's filter for a header: header_comment.py FILE prints it with its opening comment ('// name.hpp: ...') as the documentation of the file.

Lines such as '//   warp(lane)    every live lane' become items of a list, and an empty line ends each list; everything else is unchanged.
"""
import re
import sys

OPENING = re.compile(r"// [\w.]+\.(?:hpp|inl): (.*)")
ENTRY = re.compile(r"//( {2,})(?![*-] |\d+\. )(\S.*?) {2,}(\S.*)")


def documented(text):
    lines = text.split("\n")
    first = OPENING.fullmatch(lines[0])
    if not first:
        return text
    out, indented = [f"/// @file\n/// {first[1]}"], False
    for at, line in enumerate(lines[1:], 1):
        if not line.startswith("//"):
            return "\n".join(out + lines[at:])
        if indented and re.match(r"// \S", line):
            out.append("///")
        indented = line.startswith("//  ")
        entry = ENTRY.fullmatch(line)
        out.append(f"///{entry[1]}* `{entry[2].replace('`', '')}` {entry[3]}" if entry else "/" + line)
    return "\n".join(out)


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as header:
        sys.stdout.write(documented(header.read()))
