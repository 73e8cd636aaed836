#!/usr/bin/env python3
"""The functional tests are those that tests/house/functional_tests.txt names, each with its label: none leaves, and none changes its label,
without a line of that file that changes.

functional_test.py CTEST BUILD-FOLDER [--write]     --write makes the file anew
"""
import json
import pathlib
import subprocess
import sys

LIST = pathlib.Path(__file__).with_name("functional_tests.txt")
LABELS = ("fast", "long", "soak")
# Left out where a program or a right is missing that this test cannot ask for: nvcc, network namespaces.
MAY_BE_ABSENT = {"ptx_order"}


def declared(ctest, folder):
    shown = subprocess.run([ctest, "--test-dir", folder, "--show-only=json-v1"], capture_output=True, text=True, check=True).stdout
    found = {}
    for test in json.loads(shown)["tests"]:
        labels = [p["value"] for p in test.get("properties", []) if p["name"] == "LABELS"]
        label = [one for one in (labels[0] if labels else []) if one in LABELS]
        if label:
            found[test["name"]] = label[0]
    return found


def main(ctest, folder, *more):
    found = declared(ctest, folder)
    if more == ("--write",):
        LIST.write_text("".join(f"{name} {label}\n" for name, label in sorted(found.items())))
        return 0
    wanted = dict(line.split() for line in LIST.read_text().splitlines())
    wrong = [f"{name} ({label}) is listed and not declared" for name, label in wanted.items() if name not in found and name not in MAY_BE_ABSENT]
    wrong += [f"{name} has the label {found[name]}, and {label} in the list" for name, label in wanted.items() if found.get(name, label) != label]
    wrong += [f"{name} ({label}) is declared and not listed" for name, label in found.items() if name not in wanted]
    for line in sorted(wrong):
        print(f"functional tests: {line}")
    if wrong:
        print(f"If the change is intended, give the reason in the commit message and rewrite the list with: {__file__} {ctest} {folder} --write")
    print(f"functional tests: {len(found)}, all as listed" if not wrong else f"functional tests: {len(wrong)} differences")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
