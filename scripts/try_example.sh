#!/usr/bin/env bash
# try_example.sh PRESET EXAMPLE [NVCC]: installs a built preset into build/<preset>/prefix, then configures, builds and runs an example
# as a project of its own that finds the library there and nowhere else. Where gnstor was installed, the example also runs on arrays of
# other processes: one of a node (RoCEv2 packets), and one whose gnstord has the SSDs (shared memory).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

preset="$1" example="$2" nvcc="${3:-}"
prefix="$PWD/build/$preset/prefix"
work="build/examples/$preset/$example"
log="build/logs/example-$example.log"
mkdir -p build/logs
rm -rf "$prefix" "$work"

arrays=()
folder="$(mktemp -d)" # of the arrays: a short path, for a Unix socket's name is short
take_down() {
    local array
    for array in "${arrays[@]}"; do
        "$prefix/bin/gnstor" down --dir "$array" >>"$log" 2>&1 || tail -n 5 "$log" >&2
    done
    rm -rf "$folder"
}
trap take_down EXIT

start_arrays() {
    [[ -x "$prefix/bin/gnstor" && -x "$prefix/bin/gnstord" ]] || return 0
    local common=(--ssds 2 --capacity 256MiB --durability process)
    arrays+=("$folder/shm" "$folder/node" "$folder/udp")
    "$prefix/bin/gnstor" up --dir "$folder/shm" "${common[@]}" &&
        "$prefix/bin/gnstor" up --dir "$folder/node" --nodes 1 "${common[@]}" &&
        "$prefix/bin/gnstor" up --dir "$folder/udp" --nodes 2 "${common[@]}"
}

options=("-DCMAKE_PREFIX_PATH=$prefix" -DCMAKE_BUILD_TYPE=Release)
[[ -z "$nvcc" ]] || options+=("-DCMAKE_CUDA_COMPILER=$nvcc")
addresses() { # as a list of CMake's
    local array list=""
    for array in "${arrays[@]}"; do list+="${list:+;}unix:$array/gnstord.sock"; done
    echo "$list"
}
if ! {
    cmake --install "build/$preset" --prefix "$prefix" &&
        start_arrays &&
        cmake -S "examples/$example" -B "$work" -G Ninja "${options[@]}" "-DGNSTOR_ARRAYS=$(addresses)" &&
        cmake --build "$work" -j "${GN_JOBS:-2}"
} >"$log" 2>&1; then
    echo "  FAIL  $example does not build against the installed library, or no array could be started" >&2
    tail -n 30 "$log" >&2
    exit 1
fi
echo "  built $example against $(basename "$prefix"); running it:"
ctest --test-dir "$work" --output-on-failure --verbose --no-tests=error 2>&1 | sed -n 's/^[0-9]*: /    /p; /tests passed/p; /Failed/p'
