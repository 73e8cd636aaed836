# shellcheck shell=bash
# commands.sh: the commands of ./run, other than test's stages.

# prepare_lanes PRESETS [-D...]: lanes chosen, packages there, nvcc there if they are GPU lanes; the preset that the function PRESETS names for
# them is configured. Sets GN_PRESET.
prepare_lanes() {
    local presets="$1"
    shift
    choose_lanes
    ensure_build
    [[ "$GN_LANES" != gpu ]] || ensure_nvcc
    GN_PRESET="$("$presets")"
    configure "$GN_PRESET" "$@" || die "configuring failed"
}

# run_program TARGET ARG...: builds one program of the chosen preset and runs it.
run_program() {
    local target="$1" path
    shift
    say "building $target ($GN_PRESET preset, $GN_JOBS jobs)"
    build "$GN_PRESET" "$target" || die "building $target failed"
    path="$(program "$GN_PRESET" "$target")" || die "the build left no program named $target"
    "$path" "$@"
}

command_demo() {
    parse_common "$@"
    prepare_lanes preset_of_lanes -DGN_TESTS=OFF
    has_target "$GN_PRESET" gnstor_demo || die "this checkout has no demo (target gnstor_demo)"
    # An array in processes of their own is started by these.
    if [[ " ${GN_REST[*]:-} " == *" --remote "* ]] && has_target "$GN_PRESET" gnstord; then
        say "building gnstor and gnstord ($GN_PRESET preset, $GN_JOBS jobs)"
        build "$GN_PRESET" gnstor gnstord || die "building gnstor and gnstord failed"
    fi
    run_program gnstor_demo --lanes "$GN_LANES" "${GN_REST[@]}"
}

command_bench() {
    parse_common "$@"
    prepare_lanes release_of_lanes
    has_target "$GN_PRESET" gnstor_bench || die "this checkout has no benchmarks (target gnstor_bench)"
    GN_COMMIT="$(git -C "$GN_ROOT" describe --always --dirty 2>/dev/null || echo unknown)"
    export GN_COMMIT
    [[ "${GN_REST[0]:-}" != path || "$GN_LANES" != cpu ]] || ensure bench || warn "without fio, bench path leaves the comparison with fio out"
    if [[ "${GN_REST[0]:-}" == targets ]]; then
        [[ -n "${GN_REST[1]:-}" ]] || die_usage "bench targets needs a folder for the raw results: ./run bench targets FOLDER"
        build "$GN_PRESET" gnstor_bench || die "building gnstor_bench failed"
        "$GN_ROOT/bench/targets.sh" "$(program "$GN_PRESET" gnstor_bench)" "$GN_LANES" "${GN_REST[@]:1}"
        return
    fi
    run_program gnstor_bench "${GN_REST[@]}" --lanes "$GN_LANES"
}

# The distribution's python3 is the one that finds the distribution's matplotlib.
command_report() {
    parse_common "$@"
    [[ " ${GN_REST[*]:-} " =~ \ (--no-plots|-h|--help)\  ]] || ensure plot || die "the plots need matplotlib (see above); ./run report --no-plots leaves them out"
    /usr/bin/python3 "$GN_ROOT/scripts/report.py" "${GN_REST[@]}"
}

# The distribution's python3, for which the package is; another one in PATH does not see it.
command_plot() {
    parse_common "$@"
    [[ ${#GN_REST[@]} -gt 0 ]] || die_usage "plot FILE.json [OUT.svg], or plot --docs: name the result of './run bench paper --figure N --json FILE'"
    ensure plot || die "plots are drawn by matplotlib (Debian package python3-matplotlib), which /usr/bin/python3 does not find; nothing was plotted"
    /usr/bin/python3 scripts/plot_paper.py "${GN_REST[@]}" || return 1
    [[ "${GN_REST[0]}" != --docs ]] || /usr/bin/python3 scripts/plot_targets.py
}

# The simulator runs no device code: always the cpu preset.
command_sim() {
    parse_common "$@"
    [[ "$GN_LANES" != gpu ]] || die_usage "sim runs no device code; give --lanes cpu, or leave --lanes out"
    GN_LANES=cpu
    ensure test || die "the packages above are needed to build the simulator"
    prepare_lanes preset_of_lanes -DGN_TESTS=ON
    run_program gnstor_sim "${GN_REST[@]}"
}

# The tests labelled `gpu` on the GPU, then each of them under three tools of compute-sanitizer (GN_UNDER_TOOL names it, so that a test can
# do less of the same). No daemon, no command line.
command_gpu_test() {
    parse_common "$@"
    [[ "$GN_LANES" != cpu ]] || die_usage "gpu-test runs on GPU lanes only; leave --lanes out, or give --lanes gpu"
    GN_LANES="${GN_LANES:-gpu}"
    choose_lanes
    ensure build || die "the packages above are needed to build"
    check_versions
    ensure test || die "the packages above are needed by the tests"
    ensure_nvcc
    export GN_DAEMON=OFF
    configure cuda -DGN_BENCH=OFF -DGN_TESTS=ON || die "configuring failed"
    build cuda gpu_programs || die "the CUDA build failed"
    local log="$GN_LOGS/gpu-test.log" failed=0 passed=0
    heading "device tests on $(gpu_name)"
    ctest --test-dir build/cuda -L gpu --no-tests=error --output-on-failure --timeout 300 || failed=1
    # At once: naming the programs, as below, begins a new LastTest.log.
    cp build/cuda/Testing/Temporary/LastTest.log "$log"
    [[ "$failed" != 0 ]] || passed="$(gpu_test_programs | wc -l)"
    python3 scripts/floors.py check "$log" gpu || failed=$((failed + 1))
    local sanitizer tool name path
    sanitizer="$(command -v compute-sanitizer || echo "$(dirname "$(dirname "$GN_NVCC")")/bin/compute-sanitizer")"
    [[ -x "$sanitizer" ]] || die "compute-sanitizer is not on this machine, so memcheck, racecheck and synccheck did not run; install CUDA's toolkit, which contains it"
    while read -r name path; do
        for tool in memcheck racecheck synccheck; do
            heading "compute-sanitizer $tool: $name"
            if GN_UNDER_TOOL="$tool" timeout 300 "$sanitizer" --tool "$tool" --error-exitcode 77 "$path" >"$GN_LOGS/gpu-$tool-$name.log" 2>&1; then
                passed=$((passed + 1))
                tail -n 2 "$GN_LOGS/gpu-$tool-$name.log"
            else
                failed=$((failed + 1))
                tail -n 40 "$GN_LOGS/gpu-$tool-$name.log"
            fi
        done
    done < <(gpu_test_programs)
    echo "$passed passed, $failed failed"
    [[ "$failed" == 0 ]]
}

gpu_test_programs() { # "name path" of each test labelled gpu
    ctest --test-dir build/cuda -L gpu --show-only=json-v1 | python3 -c '
import json, sys
for test in json.load(sys.stdin)["tests"]:
    print(test["name"], test["command"][0])'
}

command_format() {
    parse_common "$@"
    ensure lint || die "format needs clang-format-14, which decides the layout"
    tracked_code | xargs -0 clang-format-14 -i
    say "laid out $(tracked_code | tr -cd '\0' | wc -c) files"
}

tracked_code() { git -C "$GN_ROOT" ls-files -z -- '*.hpp' '*.cpp' '*.cu' '*.cuh' '*.inl' '*.h'; }

# lint_checks: every check, one line each; returns how many failed. Sets GN_LINT_PASSED and GN_LINT_FAILED.
lint_checks() {
    GN_LINT_PASSED=0
    GN_LINT_FAILED=0
    lint_one "format (clang-format 14)" lint_format
    lint_one "layer rule" python3 tests/house/layers_test.py
    lint_one "file rules" python3 tests/house/files_test.py
    lint_one "floors" python3 tests/house/floors_test.py
    lint_one "Python syntax" lint_python
    lint_one "shell (shellcheck)" lint_shell
    [[ "$GN_LINT_FAILED" == 0 ]]
}

lint_one() {
    local title="$1" log="$GN_LOGS/lint.log"
    shift
    mkdir -p "$GN_LOGS"
    if "$@" >"$log" 2>&1; then
        printf '  ok    %s\n' "$title"
        GN_LINT_PASSED=$((GN_LINT_PASSED + 1))
    else
        printf '  FAIL  %s\n' "$title"
        head -n 40 "$log"
        GN_LINT_FAILED=$((GN_LINT_FAILED + 1))
    fi
}

lint_format() { tracked_code | xargs -0 clang-format-14 --dry-run -Werror; }
lint_shell() { shellcheck -x -S warning run .ci/run scripts/lib/*.sh scripts/*.sh tests/*/*.sh packaging/*.sh packaging/gnstor.bash packaging/debian/p*; }
lint_python() {
    git ls-files -z -- '*.py' | xargs -0 python3 -c '
import ast, sys
for name in sys.argv[1:]:
    ast.parse(open(name).read(), name)'
}

command_lint() {
    parse_common "$@"
    if [[ " ${GN_REST[*]:-} " == *" --layers "* ]]; then
        python3 scripts/layer_graph.py
        return
    fi
    ensure lint test || die "the packages above are needed by lint"
    lint_checks || true
    if [[ " ${GN_REST[*]:-} " == *" --tidy "* ]]; then
        have clang-tidy || { apt_install clang-tidy; have clang-tidy || die "clang-tidy could not be installed"; }
        ensure_build
        configure cpu || die "configuring failed"
        lint_one "clang-tidy" lint_tidy
    fi
    echo "$GN_LINT_PASSED passed, $GN_LINT_FAILED failed"
    [[ "$GN_LINT_FAILED" == 0 ]]
}

lint_tidy() {
    git ls-files -z -- 'src/*.cpp' | xargs -0 -P "$GN_JOBS" -n 4 nice clang-tidy -p build/cpu --quiet --extra-arg=-Wno-unknown-warning-option
}
