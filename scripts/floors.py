#!/usr/bin/env python3
"""Floors: the least a stage of ./run test must have done, so that a test that silently stops testing is noticed.

A test program prints lines of the form      GN_COUNT <name>=<integer>
(equal names are added up). tests/<layer>/floors.json says, by section, what the sum must reach:

    {"fast": {"nvme_fields_round_trips": 20000}, "long": {...}, "soak": {...}, "asan": {...}, "tsan": {...}, "fuzz": {"fuzz_capsule": 50000}}

Sections `fast`, `long` and `soak` are checked where tests of that label ran in the cpu preset, so a counter's floor in `long` is for both labels
together; `asan`, `tsan`, `gpu`, `fuzz` and `peer` in their stages (`peer_short`: what continuous integration runs of that one). `ci` is checked
beside `fast` where CI is set: tests that need programs which are left out elsewhere.
A counter that has a floor and was not printed fails, as one below its floor does.

    floors.py check LOG SECTION... [--folders "A B"]
                                         checks the counters in LOG against these sections of every floors.json, or of those of tests/A and tests/B
    floors.py show LOG                   prints the counters in LOG
    floors.py floor SECTION COUNTER      prints the floor of one counter; fails where it has none
"""
import json
import os
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
SECTIONS = {"fast", "long", "soak", "asan", "tsan", "gpu", "fuzz", "cuda", "example", "peer", "peer_short", "ci"}
COUNT = re.compile(r"(?<!\S)GN_COUNT\s+([\w.:/-]+)=(\d+)\s*$", re.M)


def counters(text):
    sums = {}
    for name, value in COUNT.findall(text):
        sums[name] = sums.get(name, 0) + int(value)
    return sums


def load_floors(root=ROOT, folders=None):
    """{section: {counter: (floor, file)}}, of these folders of tests or of all; raises ValueError on a file that says something else."""
    floors = {}
    for path in sorted(pathlib.Path(root).glob("tests/*/floors.json")):
        if folders is not None and path.parent.name not in folders:
            continue
        for section, wanted in json.loads(path.read_text()).items():
            if section not in SECTIONS:
                raise ValueError(f"{path}: there is no section '{section}'; sections are {', '.join(sorted(SECTIONS))}")
            for name, floor in wanted.items():
                if not isinstance(floor, int) or floor < 1:
                    raise ValueError(f"{path}: the floor of {name} must be an integer from 1")
                if name in floors.setdefault(section, {}):
                    raise ValueError(f"{path}: {name} has a floor in {floors[section][name][1]} already")
                floors[section][name] = (floor, path)
    return floors


def check(sums, floors, sections):
    """Lines for the log, and the number of floors that were missed."""
    lines, missed = [], 0
    for section in sections:
        for name, (floor, path) in sorted(floors.get(section, {}).items()):
            value = sums.get(name)
            good = value is not None and value >= floor
            missed += not good
            shown = "not printed" if value is None else f"{value:,}"
            lines.append(f"  {'ok  ' if good else 'MISS'} {name:<44} {shown:>16}   floor {floor:,}")
    return lines, missed


def with_ci(sections):
    return [*sections, "ci"] if os.environ.get("CI") and "fast" in sections else sections


def show_floor(section, counter):
    try:
        found = load_floors().get(section, {}).get(counter)
    except ValueError as wrong:
        print(f"floors: {wrong}", file=sys.stderr)
        return 1
    if found is None:
        print(f"floors: {counter} has no floor in section '{section}' of any tests/<layer>/floors.json; give it one", file=sys.stderr)
        return 1
    print(found[0])
    return 0


def main(arguments):
    if len(arguments) < 2 or arguments[0] not in ("check", "show", "floor") or (arguments[0] == "floor" and len(arguments) != 3):
        print(__doc__, file=sys.stderr)
        return 2
    if arguments[0] == "floor":
        return show_floor(arguments[1], arguments[2])
    folders = None
    if len(arguments) > 4 and arguments[-2] == "--folders":
        folders, arguments = arguments[-1].split(), arguments[:-2]
    log = pathlib.Path(arguments[1])
    sums = counters(log.read_text(errors="replace")) if log.exists() else {}
    if arguments[0] == "show":
        for name, value in sorted(sums.items()):
            print(f"  {name:<48} {value:>16,}")
        return 0
    try:
        lines, missed = check(sums, load_floors(folders=folders), with_ci(arguments[2:]))
    except ValueError as wrong:
        print(f"floors: {wrong}", file=sys.stderr)
        return 1
    print("\n".join(lines) if lines else "  no floors for " + ", ".join(arguments[2:]))
    if missed:
        print(f"floors: {missed} counters are missing or below their floors (tests/<layer>/floors.json)", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
