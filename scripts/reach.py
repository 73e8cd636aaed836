#!/usr/bin/env python3
"""reach: which stages of ./run test a change can reach, and which folders of tests the sanitizers run for it.

    reach.py --since REV     compares HEAD and the working tree with the commit REV
    reach.py --landed        the same with the newest commit that .ci/landed names

Prints lines "stages=...", "folders=..." ("*": all of them) and "because=...", and a line "left_out=STAGE REASON" for each stage that is
left out. The functional tests (lint, cpu, docs) always run whole; this decides about the others.

Every doubt means all stages: a base that is unknown, no ancestor of HEAD, or hidden by a shallow clone; a changed file that belongs to no
room named here; a change of CMake, of scripts or of what all tests share; and every tenth landing (.ci/landed).
"""
import argparse
import pathlib
import re
import subprocess
import sys

from layer_graph import COUNTS_AS, ORDER, ROOT, arrows_of_repository, closure

ALWAYS = ["setup", "lint", "cpu", "docs"]
MORE = ["soak", "peer", "asan", "tsan", "cuda", "fuzz", "example", "release", "package", "docs_site"]
# Only ./run test --all: it takes as long as the functional tests, which other stages of a whole run leave no time for.
NOT_HERE = {"toolchains": "takes as long as the functional tests; ./run test --all runs it"}
LANDED = ROOT / ".ci" / "landed"
WHOLE_RUN_EVERY = 10

# Folders of tests that run programs rather than link layers: what those programs are made of.
PROGRAMS_OF = {
    "bench": {"embedded", "client", "nvmf"},
    "cli": {"cli"},
    "dashboard": {"cli"},
    "demo": {"embedded", "daemon"},
    "store": {"cli", "ssd"},
    "peer": {"nvmf", "gateway", "embedded", "cli"},
    "gate": {"simt", "rdma", "gnor"},
    "model": {"deengine", "daemon"},  # it runs nothing of them: models of what they do
    "house": set(),
}

# A stage, and the layers and top-level folders that it looks at. What nvcc compiles is headers, layers' device code and programs of kernels;
# other C++ compiles in the cuda preset as in the cpu preset.
LOOKS_AT = {
    "soak": ({"deengine", "ssd", "rdma", "daemon"}, {"tests/deengine", "tests/store", "tests/rdma", "tests/array", "tests/model"}),
    "peer": ({"nvmf", "gateway", "embedded", "cli"}, {"tests/peer"}),
    "cuda": ({"gnor"}, {"bench", "demo", "examples", "include", ".cu"}),
    "example": ({"embedded", "client"}, {"examples", "include"}),
    "release": ({"embedded"}, {"bench", "include"}),
    "package": ({"cli"}, {"packaging", "examples", "include"}),
    "docs_site": (set(), {"docs", "include", "examples"}),
}


class Change:
    """What a list of changed files reaches. `doubt`: why all stages have to run, or None."""

    def __init__(self, files, arrows, folders, doubt=None):
        self.arrows, self.test_folders = arrows, folders
        self.layers, self.folders, self.places, self.doubt = set(), set(), set(), doubt
        for name in files:
            self.take(name)
        self.reached = {layer for layer in ORDER if (closure(arrows, layer) | {layer}) & self.layers}
        for folder, uses in folders.items():
            if uses & self.reached:
                self.folders.add(folder)

    def take(self, name):
        parts = name.split("/")
        if name.endswith((".cu", ".cuh")):
            self.places.add(".cu")
        if parts[0] == "include":
            self.places.add("include")
        if parts[-1] == "CMakeLists.txt" or name.endswith(".cmake") or parts[0] in ("cmake", "scripts", ".ci", "run", "CMakePresets.json"):
            self.doubt = self.doubt or f"{name} decides how everything is built or tested"
        elif parts[0] == "docs" or name == "README.md":
            self.places.add("docs")  # lint, cpu and docs look at these, too
        elif name in ("LICENSE", ".gitignore", ".clang-format", ".clang-tidy"):
            pass  # lint and cpu look at these
        elif "/".join(parts[1:]) in COUNTS_AS:
            self.layers.add(COUNTS_AS["/".join(parts[1:])])
        elif parts[0] == "src" and len(parts) > 2 and parts[1] in ORDER:
            self.layers.add(parts[1])
        elif parts[:2] == ["include", "gnstor"] and len(parts) > 3 and parts[2] in ORDER:
            self.layers.add(parts[2])
        elif parts[0] == "tests" and len(parts) > 2 and parts[1] in self.test_folders:
            self.folders.add(parts[1])
            self.places.add("/".join(parts[:2]))
        elif parts[0] in ("bench", "demo", "examples", "packaging"):
            self.places.add(parts[0])
            self.folders |= {parts[0]} & set(self.test_folders)
        elif parts[0] == "share":
            self.layers.add("embedded")  # profiles, compiled into it
        else:
            self.doubt = self.doubt or f"{name} belongs to no layer and to no folder of tests"

    def stages(self):
        """{stage: None, or the reason why it is left out}, in the order in which they run."""
        if self.doubt:
            return {stage: None for stage in MORE}
        out = {}
        for stage in MORE:
            if stage in LOOKS_AT:
                layers, places = LOOKS_AT[stage]
                out[stage] = None if layers & self.reached or places & self.places else "nothing that this stage checks has changed"
            else:  # sanitizers and fuzzers
                out[stage] = None if self.folders - {"house"} else "no code and no test has changed"
        return out


def test_folders(root=ROOT):
    """{folder of tests: the layers that its programs are made of}"""
    found = {}
    for path in sorted(root.glob("tests/*/CMakeLists.txt")):
        folder = path.parent.name
        uses = set(PROGRAMS_OF.get(folder, {folder} if folder in ORDER else ()))
        for words in re.findall(r"\bLAYERS((?:\s+[a-z_]+)+)", path.read_text()):
            uses |= set(words.split()) & set(ORDER)
        found[folder] = uses
    return found


def git(*arguments):
    done = subprocess.run(["git", "-C", ROOT, *arguments], capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else None


def landed(text):
    """(newest landed commit, or None; why a whole run is due, or None) of .ci/landed."""
    lines = [line.split() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    if not lines:
        return None, ".ci/landed names no commit"
    partial = 0
    for words in reversed(lines):
        if words[1:] == ["whole"]:
            break
        partial += 1
    due = f"{partial} landings since the last whole run" if partial >= WHOLE_RUN_EVERY - 1 else None
    return lines[-1][0], due


def changed_since(base):
    """(changed files, doubt)"""
    if base is None:
        return [], "there is no base to compare with"
    if (git("rev-parse", "--is-shallow-repository") or "true").strip() != "false":
        return [], "this clone is shallow (or no clone), so its base cannot be seen"
    if git("rev-parse", "--verify", "--quiet", base + "^{commit}") is None:
        return [], f"commit {base} is unknown here"
    if git("merge-base", "--is-ancestor", base, "HEAD") is None:
        return [], f"commit {base} is not an ancestor of HEAD"
    names = git("diff", "--name-only", "--no-renames", "-z", base)
    others = git("ls-files", "--others", "--exclude-standard", "-z")
    if names is None or others is None:
        return [], "git could not list the changes"
    return sorted(set((names + others).split("\0")) - {"", ".ci/landed"}), None


def main(arguments):
    parser = argparse.ArgumentParser(description="which stages of ./run test a change can reach")
    choice = parser.add_mutually_exclusive_group(required=True)
    choice.add_argument("--since", metavar="REV", help="the commit to compare with")
    choice.add_argument("--landed", action="store_true", help="compare with the newest commit that .ci/landed names")
    options = parser.parse_args(arguments)
    base, due = options.since, None
    if options.landed:
        base, due = landed(LANDED.read_text() if LANDED.exists() else "")
    files, doubt = changed_since(base)
    change = Change(files, arrows_of_repository(), test_folders(), due or doubt)
    stages = change.stages()
    print("stages=" + " ".join(ALWAYS[:3] + [s for s, reason in stages.items() if reason is None] + ALWAYS[3:]))
    print("folders=" + ("*" if change.doubt else " ".join(sorted(change.folders))))
    print("because=" + (f"all stages: {change.doubt}" if change.doubt else
                        f"{len(files)} files changed since {base}; layers reached: {' '.join(sorted(change.reached, key=ORDER.index)) or 'none'}"))
    for stage, reason in (stages | NOT_HERE).items():
        if reason:
            print(f"left_out={stage} {reason}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
