#!/usr/bin/env python3
"""planted_bugs: proves that the tests which a change selects find a bug in each layer.

    planted_bugs.py FOLDER [--layers LAYER,LAYER] [--jobs N] [--cmake=-DNAME=VALUE]...

In a clone of HEAD in FOLDER, builds the layers' own tests once. Then, for each layer: plants its bug, asks scripts/reach.py which folders of tests the
change selects, builds those and runs their tests labelled fast, until one fails that passes without the bug. Ends with 1 if a bug was not found. It
takes most of an hour on two processors, so no stage runs it; tests/house/reach_test.py checks that every bug can still be planted.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]

# Layer: file, text that stands there once, and the bug in its place.
BUGS = {
    "base": ("src/base/shell_word.cpp", '0123456789%+,-./:=@_"', '0123456789%+,-./:=@_*"'),
    "simt": ("include/gnstor/simt/copy.hpp", "if (i >= in_lines) return i;", "if (i > in_lines) return i;"),
    "nvme": ("include/gnstor/nvme/fencing.hpp", "return term >= newest &&", "return term > newest &&"),
    "placement": ("include/gnstor/placement/detail/place.inl", "{volume.volume} << 32 | chunk", "{volume.volume} << 16 | chunk"),
    "rdma": ("src/rdma/roce/psn.hpp", "kPsnHalf = 0x800000;", "kPsnHalf = 0x400000;"),
    "deengine": ("src/deengine/map/order.hpp", "crc <=> other.crc;", "other.crc <=> crc;"),
    "ssd": ("src/ssd/flash/record_copies.hpp", "other.unit_serial > found.counts.unit_serial", "other.unit_serial < found.counts.unit_serial"),
    "nvmf": ("src/nvmf/protocol/id_set.hpp", "if (from_home < ((at - gap)", "if (from_home <= ((at - gap)"),
    "gnor": ("include/gnstor/gnor/detail/paths/singly.hpp", "present > round.newest", "present < round.newest"),
    "client": ("src/client/floor_tracker.hpp", "if (taken_by_now - floor_ > gnor::kResolvedBits)", "if (taken_by_now - floor_ > 2 * gnor::kResolvedBits)"),
    "gateway": ("src/gateway/write_loss_tracker.cpp", "changing || unsettled() != 0;", "changing;"),
    "daemon": ("src/daemon/decisions/manager_volumes.cpp", "live.lease_end_ms = now_ms + options_.lease_ms;", "live.lease_end_ms = now_ms;"),
    "embedded": ("src/embedded/known_ssds.cpp", 'identity.nic_address = ssd.at("address")', 'identity.nic_address = value.at("address")'),
    "cli": ("src/cli/object_store.cpp", "whole_blocks(bytes), 2 * nvme::kBlockBytes)", "whole_blocks(bytes), nvme::kBlockBytes)"),
}


def cannot_plant(root=ROOT):
    """Why a bug cannot be planted: lines, of those bugs alone."""
    for layer, (name, good, _) in BUGS.items():
        count = (root / name).read_text().count(good)
        if count != 1:
            yield f"{layer}: {name} contains {good!r} {count} times; plant another bug of this layer (scripts/planted_bugs.py)"


def run(clone, *words, **more):
    return subprocess.run([str(w) for w in words], cwd=clone, capture_output=True, text=True, **more)


def build(clone, jobs, targets=()):
    done = run(clone, "cmake", "--build", "--preset", "cpu", f"-j{jobs}", *(["--target", *targets] if targets else []))
    if done.returncode != 0:
        sys.exit(f"planted_bugs: the build failed:\n{done.stdout[-3000:]}{done.stderr[-1000:]}")


def selected_folders(clone):
    answer = run(clone, sys.executable, "scripts/reach.py", "--since", "HEAD").stdout
    folders = re.search(r"^folders=(.*)$", answer, re.M).group(1).split()
    return [f for f in folders if f != "house" and (clone / "build/cpu/tests" / f).is_dir()]


def passes(clone, folder, test, jobs):
    build(clone, jobs, [f"tests/{folder}/all"])
    return run(clone, "ctest", "--test-dir", "build/cpu", "-R", f"^{test}$", "--no-tests=error").returncode == 0


def find(clone, layer, jobs):
    """The folders that the change selects, and the test that found the bug or None."""
    name, good, bug = BUGS[layer]
    text = (clone / name).read_text()
    (clone / name).write_text(text.replace(good, bug))
    suspect = None
    try:
        folders = selected_folders(clone)
        # The layer's own folder first: what it finds need not be looked for above.
        for folder in sorted(folders, key=lambda f: f != layer):
            build(clone, jobs, [f"tests/{folder}/all"])
            done = run(clone, "ctest", "--test-dir", "build/cpu", "-L", "fast", "-R", f"^{folder}(_|$)", f"-j{jobs}", "--stop-on-failure", "--timeout", "120")
            failed = re.search(r"^\s*\d+ - (\S+) \((?!Not Run)", done.stdout, re.M)
            if failed:
                suspect = folder, failed.group(1)
                break
    finally:
        (clone / name).write_text(text)
    if suspect and not passes(clone, *suspect, jobs):
        sys.exit(f"planted_bugs: {suspect[1]} fails without the bug, too; mend it first")
    return folders, suspect and suspect[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--layers", default=",".join(BUGS), help="only these, separated by commas")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--cmake", action="append", default=[], help="passed on to cmake")
    arguments = parser.parse_args()
    unknown = set(arguments.layers.split(",")) - set(BUGS)
    if unknown:
        parser.error(f"no such layer: {', '.join(sorted(unknown))}; there are {', '.join(BUGS)}")
    clone = arguments.folder / "clone"
    arguments.folder.mkdir(parents=True, exist_ok=True)
    if not clone.exists():
        subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    head = subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    for words in (["fetch", "-q", "origin"], ["reset", "-q", "--hard", head]):
        subprocess.run(["git", "-C", clone, *words], check=True)
    if list(cannot_plant(clone)):
        sys.exit("planted_bugs: " + "\n".join(cannot_plant(clone)))
    configured = run(clone, "cmake", "--preset", "cpu", "-DGN_TESTS=ON", *arguments.cmake)
    if configured.returncode != 0:
        sys.exit(f"planted_bugs: cmake failed:\n{configured.stderr[-2000:]}")
    layers = arguments.layers.split(",")
    # Most bugs are found by their layer's own tests; what else a bug selects is built when it was not.
    build(clone, arguments.jobs, [f"tests/{layer}/all" for layer in layers])
    missed = 0
    for layer in layers:
        begun = time.monotonic()
        folders, found = find(clone, layer, arguments.jobs)
        missed += found is None
        print(f"{layer:10} selects {len(folders):2} folders of tests; found by {found or 'NONE'} ({time.monotonic() - begun:.0f} s)", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
