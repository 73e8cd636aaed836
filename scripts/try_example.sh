#!/usr/bin/env bash
# try_example.sh PRESET EXAMPLE [NVCC]: installs a built preset into build/<preset>/prefix, then configures, builds and runs an example
# as a project of its own that finds the library there and nowhere else.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

preset="$1" example="$2" nvcc="${3:-}"
prefix="$PWD/build/$preset/prefix"
work="build/examples/$preset/$example"
log="build/logs/example-$example.log"
mkdir -p build/logs
rm -rf "$prefix" "$work"

options=("-DCMAKE_PREFIX_PATH=$prefix" -DCMAKE_BUILD_TYPE=Release)
[[ -z "$nvcc" ]] || options+=("-DCMAKE_CUDA_COMPILER=$nvcc")
if ! {
    cmake --install "build/$preset" --prefix "$prefix" &&
        cmake -S "examples/$example" -B "$work" -G Ninja "${options[@]}" &&
        cmake --build "$work" -j "${GN_JOBS:-2}"
} >"$log" 2>&1; then
    echo "  FAIL  $example does not build against the installed library" >&2
    tail -n 30 "$log" >&2
    exit 1
fi
echo "  built $example against $(basename "$prefix"); running it:"
ctest --test-dir "$work" --output-on-failure --verbose --no-tests=error 2>&1 | sed -n 's/^[0-9]*: /    /p; /tests passed/p; /Failed/p'
