#!/usr/bin/env bash
# read_sources.sh COMPILER JOBS: lets another compiler read every source of the layers and programs (src/), each by itself and without
# precompiled headers, and makes no code. Warnings are errors. Prints what it read, and fails where one was refused.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
compiler="$1" jobs="$2"
cmake --preset cpu -B build/read -DGN_UNITY=0 -DGN_PCH=OFF -DGN_TESTS=OFF -DGN_BENCH=OFF >/dev/null
commands="$(mktemp)"
trap 'rm -f "$commands"' EXIT
python3 - "$compiler" >"$commands" <<'P'
import json, os, shlex, sys
for entry in json.load(open("build/read/compile_commands.json")):
    name = os.path.relpath(entry["file"])
    if not name.startswith("src/") or not name.endswith(".cpp"):
        continue
    words = shlex.split(entry["command"])
    # After the launcher (ccache) and the compiler: options, without those of an output.
    first = next(at for at, word in enumerate(words) if word.endswith(("g++", "c++", "clang++")))
    options, skip = [], False
    for word in words[first + 1:]:
        if skip or word in ("-c",):
            skip = False
        elif word in ("-o", "-MF", "-MT", "-MQ"):
            skip = True
        elif word not in ("-MD", "-MMD") and not word.startswith("--param="):  # g++'s own
            options.append(word)
    print(shlex.join([sys.argv[1], "-fsyntax-only", "-Werror", "-Wno-unknown-warning-option", *options]))
P
count="$(wc -l <"$commands")"
[[ "$count" -gt 0 ]] || { echo "build/read/compile_commands.json names no source"; exit 1; }
xargs -d '\n' -P "$jobs" -n 1 bash -c <"$commands"
echo "$("$compiler" --version | head -n 1): read $count sources"
