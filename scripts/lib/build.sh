# shellcheck shell=bash
# build.sh: configuring and building a preset, quietly unless it fails or --verbose is given.

GN_DAEMON="${GN_DAEMON:-ON}"
GN_NVCC="${GN_NVCC:-}"
GN_LOGS="$GN_ROOT/build/logs"

# Warnings are errors where the compilers are known: in continuous integration. Another compiler or library has other warnings, which stop no user.
# All of a folder is compiled again where this changes, so it hangs on the environment and not on the command.
GN_WERROR="${GN_WERROR:-$([[ "${CI:-}" == true ]] && echo ON || echo OFF)}"

# What one preset compiled serves another that compiles it alike (cpu and cuda, host side): the build folder is no part of the question.
export CCACHE_NOHASHDIR=1
# Without these the cache refuses whatever is compiled with precompiled headers (the sanitizer presets).
export CCACHE_SLOPPINESS=pch_defines,time_macros
# On a miss the compiler alone reads the headers, and tells which: without this the cache preprocesses each source before it is compiled.
export CCACHE_DEPEND=1

# quietly LOG COMMAND...: the command's output goes to LOG; its end is shown if the command fails.
quietly() {
    local log="$1"
    shift
    mkdir -p "$(dirname "$log")"
    if [[ "$GN_VERBOSE" == yes ]]; then
        "$@" 2>&1 | tee "$log"
        return "${PIPESTATUS[0]}"
    fi
    "$@" >"$log" 2>&1 && return 0
    warn "failed: $*"
    { grep -nE -A4 'error:|Error |FAILED:|undefined reference|CMake Error' "$log" || true; } | head -n 60 >&2
    warn "the whole log: $log"
    return 1
}

# A folder that another compiler was configured for is begun again: cmake would keep the compiler and forget the rest of the preset.
forget_other_compiler() { # PRESET COMPILER
    local cache="$GN_ROOT/build/$1/CMakeCache.txt"
    [[ -f "$cache" ]] || return 0
    grep -qE "^CMAKE_CXX_COMPILER:[A-Z]*=(.*/)?$2\$" "$cache" && return 0
    say "build/$1 was configured for another compiler: it is removed and configured again"
    rm -rf "${GN_ROOT:?}/build/$1"
}

# configure PRESET [-D...]
configure() {
    local preset="$1" extra=() ptx=ON
    shift
    # ptxas takes most of a CUDA source's time; where nothing can run what it makes, one program goes through it.
    [[ "$GN_LANES" != gpu ]] || ptx=OFF
    [[ "$preset" != cuda && "$preset" != release-cuda ]] || extra+=("-DCMAKE_CUDA_COMPILER=$GN_NVCC" "-DGN_PTX_ONLY=$ptx")
    quietly "$GN_LOGS/$preset-configure.log" cmake --preset "$preset" "-DGN_DAEMON=$GN_DAEMON" "-DGN_WERROR=$GN_WERROR" \
        "-DGN_TEST_OPTIMISATION=${GN_TEST_OPTIMISATION:-}" "${extra[@]}" "$@" || return 1
    { grep -E '^-- gnstor:' "$GN_LOGS/$preset-configure.log" || true; } | sed 's/^-- /     /'
}

# build PRESET [TARGET...]: shows ninja's progress on a terminal, one line a tenth otherwise.
build() {
    local preset="$1" log="$GN_LOGS/$1-build.log" status
    shift
    # Nor is the checkout part of the question, but where precompiled headers name it: a clean clone finds what another has compiled.
    local checkout="$GN_ROOT"
    [[ "$preset" != asan && "$preset" != tsan ]] || checkout=""
    local command=(env "CCACHE_BASEDIR=$checkout" nice cmake --build --preset "$preset" -j "$GN_JOBS")
    [[ $# -gt 0 ]] && command+=(--target "$@")
    mkdir -p "$GN_LOGS"
    if [[ "$GN_VERBOSE" == yes || -t 1 ]]; then
        "${command[@]}" 2>&1 | tee "$log"
        return "${PIPESTATUS[0]}"
    fi
    status=0
    "${command[@]}" 2>&1 | tee "$log" | progress || status=1
    # pipefail gives the build's own status through `progress`, which never fails.
    if [[ "$status" != 0 ]]; then
        warn "the build of preset $preset failed:"
        { grep -nE -A4 'error:|FAILED:|undefined reference|ninja: error' "$log" || true; } | head -n 60 >&2
        warn "the whole log: $log"
        return 1
    fi
}

progress() { # "[12/340] ..." to a line at each tenth
    awk 'match($0, /^\[[0-9]+\/[0-9]+\]/) {
             split(substr($0, 2, RLENGTH - 2), n, "/"); tenth = int(10 * n[1] / n[2])
             if (tenth > last) { printf "     built %d of %d\n", n[1], n[2]; fflush(); last = tenth } }
         { all = 1 } END { if (!all) print "     nothing to build" }'
}

# has_target PRESET TARGET: whether a configured preset can build it. (Not grep -q in a pipe: it ends at the first match, and pipefail then
# reports the SIGPIPE of the other side.)
has_target() { cmake --build --preset "$1" --target help 2>/dev/null | grep -E "^$2(:|$)" >/dev/null; }

# program PRESET NAME: the path of a built program.
program() {
    local path
    path="$(find "$GN_ROOT/build/$1" -type f -name "$2" -perm -u+x -not -path '*/CMakeFiles/*' -print -quit 2>/dev/null)"
    [[ -n "$path" ]] || return 1
    echo "$path"
}

release_of_lanes() { if [[ "$GN_LANES" == gpu ]]; then echo release-cuda; else echo release; fi; } # what is measured
preset_of_lanes() { if [[ "$GN_LANES" == gpu ]]; then echo cuda; else echo cpu; fi; }

# fixed_addresses COMMAND...: runs it without address randomisation where the kernel randomises more bits than the sanitizers of these
# compilers expect (vm.mmap_rnd_bits above 28, as on Ubuntu 24.04: "unexpected memory mapping"), if the machine allows that.
fixed_addresses() {
    local bits
    bits="$(cat /proc/sys/vm/mmap_rnd_bits 2>/dev/null || echo 28)"
    if [[ "$bits" -gt 28 ]] && have setarch && setarch "$(uname -m)" -R true 2>/dev/null; then
        setarch "$(uname -m)" -R "$@"
    else
        "$@"
    fi
}
