#!/usr/bin/env python3
"""The compiler says what lanes must not throw away: tokens, pool memory, outcomes (thrown_away.cpp)."""
import argparse
import re
import subprocess
import sys

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--compiler", required=True)
parser.add_argument("--include", required=True)
parser.add_argument("source")
options = parser.parse_args()

command = [options.compiler, "-std=c++20", "-fsyntax-only", "-Wunused-result", "-I", options.include, options.source]
run = subprocess.run(command, capture_output=True, text=True, timeout=300)
if run.returncode != 0:
    sys.exit(f"{' '.join(command)} failed:\n{run.stderr}")
said = {int(n) for n in re.findall(r"thrown_away\.cpp:(\d+):\d+: warning: ignoring return", run.stderr)}
with open(options.source, encoding="utf-8") as source:
    wanted = {n for n, line in enumerate(source, 1) if line.rstrip().endswith("// said")}
print(f"{len(wanted)} calls whose results must not be discarded")
if not wanted or said != wanted:
    sys.exit(f"the compiler did not warn about lines {sorted(wanted - said)}, but warned about lines {sorted(said - wanted)}\n{run.stderr}")
