"""Reads from PTX what the sharing modes of a channel and the views that know their handlers cost.

A read and an asynchronous read with a handler, compiled for a lane, a block and the grid: a single lane has no
read-modify-writes but those of the channel's first error, a block has them in block scope, and a view that knows its
handlers has no indirect call. Those of 64 bits are instructions for global memory. Needs nvcc, not a GPU.
"""
import argparse
import collections
import pathlib
import re
import subprocess
import sys
import tempfile

GATES = ("lane", "block", "grid", "grid, any callback")
# record_error: claims and publishes the first error of a channel, which the host reads under a running kernel. One
# read-modify-write wherever the compiler put a copy of it; a block has hundreds of its own.
FIRST_ERROR = 10


def ptx_of(nvcc, include, gate):
    source = pathlib.Path(__file__).with_name("scopes_gate.cu")
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "gate.ptx"
        subprocess.run([nvcc, "-std=c++20", "-arch=sm_90", "-ptx", f"-DGATE={gate}", f"-I{include}", str(source),
                        "-o", str(out)], check=True)
        return out.read_text()


def count(ptx):
    found = collections.Counter()
    for line in ptx.splitlines():
        atom = re.match(r"\s*(?:@!?%p\d+ )?(?:atom|red)\.[\w.]*\.(cta|gpu|sys)\.", line)
        if atom:
            found[atom.group(1)] += 1
            # Of 64 bits and any window: the compiler puts an emulation behind it, for shared and local memory.
            if re.search(r"\.[bu]64\s", line) and ".global." not in line:
                found["any window"] += 1
    # An indirect call names its prototype; a direct one names a function.
    found["indirect"] = len(re.findall(r"^\s*prototype_\d+\s*:\s*\.callprototype", ptx, re.M))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nvcc", required=True)
    parser.add_argument("--include", required=True)
    options = parser.parse_args()
    found = {}
    for number, name in enumerate(GATES):
        found[name] = count(ptx_of(options.nvcc, options.include, number))
        print(f"  {name}: read-modify-writes of block scope {found[name]['cta']}, of device scope "
              f"{found[name]['gpu']}, of system scope {found[name]['sys']}; indirect calls {found[name]['indirect']}")
    rules = [
        ("a single lane has none of block scope", found["lane"]["cta"] == 0),
        ("a single lane has those of the first error alone", found["lane"]["gpu"] <= FIRST_ERROR),
        ("a block has them in block scope", found["block"]["cta"] > 20 and found["block"]["gpu"] <= FIRST_ERROR),
        ("the grid has them in device scope", found["grid"]["gpu"] > 20 and found["grid"]["cta"] == 0),
        ("those of 64 bits name the window of global memory", all(found[name]["any window"] == 0 for name in GATES)),
        ("views that know their handlers call nothing indirectly",
         all(found[name]["indirect"] == 0 for name in GATES[:3])),
        ("a view of any callback does (or this looked in vain)", found[GATES[3]]["indirect"] > 0),
    ]
    wrong = [rule for rule, holds in rules if not holds]
    for rule in wrong:
        print(f"  violated: {rule}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
