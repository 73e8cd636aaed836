# shellcheck shell=bash
# stages.sh: the stages of ./run test. Each prints a heading, what it did and its time; all run even if one fails, a table closes,
# and the last line is "N passed, N failed". Counters printed by tests are held against tests/*/floors.json (scripts/floors.py).

# In the order in which they run. GN_STAGES: every functional test, once. GN_ALL_STAGES: --all; what of it a change can reach, scripts/reach.py says.
GN_STAGES=(setup lint cpu docs)
GN_ALL_STAGES=(setup lint cpu soak peer asan tsan cuda fuzz example release package toolchains docs docs_site)
# The folders of tests that the sanitizers and the fuzzers run: all, or what a change reaches.
GN_FOLDERS="*"

stage_about() {
    case "$1" in
        setup) echo "packages and lanes" ;;
        lint) echo "format, layer rule, file rules, Python and shell syntax" ;;
        cpu) echo "default build with CPU lanes: every test" ;;
        asan) echo "AddressSanitizer and UndefinedBehaviorSanitizer: every test but those labelled programs" ;;
        tsan) echo "ThreadSanitizer, test warps of many lanes: every test that has threads, but those labelled programs" ;;
        cuda) echo "CUDA build where nvcc is found: compiles and links; device tests where a GPU is" ;;
        soak) echo "the cpu build's longest simulations and kill tests: more seeds, runs and kills of what the functional tests do" ;;
        fuzz) echo "libFuzzer programs, briefly" ;;
        example) echo "cmake --install, and the examples built as projects against the installed library" ;;
        docs) echo "generated parts of README.md and docs/ agree with docs/runs/" ;;
        docs_site) echo "the site of ./run docs: README.md and docs/ by MkDocs, public headers by Doxygen, all links" ;;
        release) echo "build of the release preset, and a run of its benchmark for a second" ;;
        package) echo "Debian packages: built, and tried in a fresh system" ;;
        toolchains) echo "the compilers of the next Debian release, in a system in a folder: fast tests with g++, sources read by clang" ;;
        peer) echo "the Linux kernel's NVMe over RDMA as our peer, in QEMU (less of it in continuous integration)" ;;
    esac
}

GN_PASSED=0
GN_FAILED=0
GN_TABLE=""
GN_DID=""
GN_WRONG="" # a line each of what failed, for the end of a long log

wrong() { GN_WRONG+="$(printf '  %s: %s' "$1" "$2")"$'\n'; } # STAGE WHAT

command_test() {
    local fast=no all=no since=() only=() stages=()
    parse_common "$@"
    set -- ${GN_REST[@]+"${GN_REST[@]}"}
    while [[ $# -gt 0 ]]; do
        case "$1" in
            --fast) fast=yes ;;
            --all) all=yes ;;
            --peer) only+=(peer) ;;
            --landed) since=(--landed) ;;
            --since)
                [[ $# -ge 2 ]] || die_usage "--since needs a commit"
                since=(--since "$2")
                shift
                ;;
            --only)
                [[ $# -ge 2 ]] || die_usage "--only needs a stage, one of: ${GN_ALL_STAGES[*]}"
                only+=("$2")
                shift
                ;;
            --list)
                local stage
                for stage in "${GN_ALL_STAGES[@]}"; do
                    printf '%-10s %s %s\n' "$stage" "$([[ " ${GN_STAGES[*]} " == *" $stage "* ]] && echo "     " || echo --all)" "$(stage_about "$stage")"
                done
                return 0
                ;;
            *) die_usage "test has no option '$1'; see ./run help" ;;
        esac
        shift
    done
    local stage
    for stage in ${only[@]+"${only[@]}"}; do
        [[ " ${GN_ALL_STAGES[*]} " == *" $stage "* ]] || die_usage "there is no stage '$stage'; stages: ${GN_ALL_STAGES[*]}"
    done
    GN_FAST="$fast"
    if [[ ${#only[@]} -gt 0 ]]; then
        stages=(setup)
        for stage in "${only[@]}"; do [[ "$stage" == setup ]] || stages+=("$stage"); done
    elif [[ "$fast" == yes ]]; then
        stages=(setup lint cpu)
    elif [[ ${#since[@]} -gt 0 ]]; then
        reached_stages "${since[@]}" || return 1
        stages=("${GN_REACHED[@]}")
    elif [[ "$all" == yes ]]; then
        stages=("${GN_ALL_STAGES[@]}")
    else
        stages=("${GN_STAGES[@]}")
        say "every functional test, once (${stages[*]}); ./run test --all adds the other stages (sanitizers, fuzzers, the Linux kernel as peer and more)"
    fi
    [[ "${CI:-}" != true ]] || GN_PEER_ARGUMENTS="${GN_PEER_ARGUMENTS:---short}"
    GN_PLAN=" ${stages[*]} "
    for stage in "${stages[@]}"; do run_stage "$stage"; done
    closing
}

# reached_stages --since REV | --landed: sets GN_REACHED and GN_FOLDERS, and says what is left out and why.
reached_stages() {
    local line answer
    ensure test || return 1 # python3
    answer="$(python3 scripts/reach.py "$@")" || die "scripts/reach.py failed (see above), so it is not known which stages this change reaches; ./run test --all runs all stages"
    while read -r line; do
        case "$line" in
            stages=*) read -ra GN_REACHED <<<"${line#*=}" ;;
            folders=*) GN_FOLDERS="${line#*=}" ;;
            because=*) say "${line#*=}" ;;
            left_out=*) GN_LEFT_OUT+="  left out: ${line#*=}"$'\n' ;;
        esac
    done <<<"$answer"
    printf '%s' "$GN_LEFT_OUT"
    [[ "$GN_FOLDERS" == "*" ]] || say "sanitizers and fuzzers run the tests of these folders: ${GN_FOLDERS:-none}"
}
GN_REACHED=()
GN_LEFT_OUT=""

run_stage() {
    local stage="$1" start=$SECONDS result=ok before=$GN_FAILED
    heading "$stage: $(stage_about "$stage")"
    GN_DID=""
    await_builder "$stage"
    # `if` turns set -e off inside, so every step of a stage says itself whether it may fail.
    if ! "stage_$stage"; then
        result=FAILED
        [[ "$GN_FAILED" -gt "$before" ]] || { GN_FAILED=$((GN_FAILED + 1)); wrong "$stage" "the stage itself failed; see the output below its heading"; }
        [[ "$stage" != setup ]] || { warn "setup failed, so no other stage can run"; GN_TABLE+="$(printf '  %-10s %-7s %5ds  %s' setup FAILED $((SECONDS - start)) "$GN_DID")"$'\n'; closing; exit 1; }
    elif [[ "$GN_DID" == skipped* ]]; then
        result=skipped
    fi
    printf -- '--- %s: %s in %d s; %s\n' "$stage" "$result" $((SECONDS - start)) "$GN_DID"
    GN_TABLE+="$(printf '  %-10s %-7s %5ds  %s' "$stage" "$result" $((SECONDS - start)) "$GN_DID")"$'\n'
}

# start_builder: builds what later stages of the plan need while tests run, which leave processors idle while they wait: one preset after
# the other, on time that nobody else wants. A stage waits for its own, then configures and builds as ever: what failed here says so there.
GN_BUILDER=""
start_builder() {
    local presets=() preset
    for preset in asan tsan cuda; do [[ "$GN_PLAN" != *" $preset "* ]] || presets+=("$preset"); done
    [[ ${#presets[@]} -gt 0 && -z "$GN_BUILDER" ]] || return 0
    rm -rf "$GN_LOGS/builder"
    mkdir -p "$GN_LOGS/builder"
    # A process group of its own, so that all of it ends with this run.
    set -m
    (
        renice -n 19 "$BASHPID" || true
        # Not even what a test gives away by yielding.
        chrt --idle --pid 0 "$BASHPID" || true
        for preset in "${presets[@]}"; do
            build_ahead "$preset" || true
            touch "$GN_LOGS/builder/$preset"
        done
    ) </dev/null >"$GN_LOGS/builder.log" 2>&1 &
    GN_BUILDER=$!
    set +m
    trap end_background EXIT
}

build_ahead() { # PRESET: as its stage does
    case "$1" in
        cuda)
            [[ "$GN_LANES" != gpu ]] || return 0
            GN_NVCC="$(find_nvcc)" || return 0
            configure cuda -DGN_TESTS=ON && build cuda gpu_programs
            ;;
        *) configure "$1" && build_folders "$1" ;;
    esac
}

# build_folders PRESET: the tests of GN_FOLDERS, and what they are made of.
build_folders() {
    local folder targets=()
    [[ "$GN_FOLDERS" != "*" ]] || { build "$1"; return; }
    for folder in $GN_FOLDERS; do targets+=("tests/$folder/all"); done
    build "$1" "${targets[@]}"
}

await_builder() { # STAGE: until its preset is built, or cannot be
    [[ -n "$GN_BUILDER" ]] || return 0
    [[ " asan tsan cuda " == *" $1 "* ]] || return 0
    while [[ ! -e "$GN_LOGS/builder/$1" ]] && kill -0 "$GN_BUILDER" 2>/dev/null; do sleep 0.5; done
}

end_background() {
    [[ -z "$GN_BUILDER" ]] || kill -- "-$GN_BUILDER" 2>/dev/null || true
    [[ -z "$GN_PEER_SETUP" ]] || kill "$GN_PEER_SETUP" 2>/dev/null || true
}

closing() {
    heading "all stages, $SECONDS s (lanes: ${GN_LANES:-none})"
    printf '%s%s' "$GN_TABLE" "$GN_LEFT_OUT"
    [[ -z "$GN_WRONG" ]] || printf 'failed:\n%s' "$GN_WRONG"
    echo "$GN_PASSED passed, $GN_FAILED failed"
    [[ "$GN_FAILED" == 0 ]]
}

stage_setup() {
    choose_lanes
    local kinds=(build isal blkid uring daemon test property oracle) kind
    for kind in lint fuzz peer; do [[ "$GN_PLAN" != *" $kind "* ]] || kinds+=("$kind"); done
    [[ "$GN_PLAN" != *" asan "* && "$GN_PLAN" != *" tsan "* ]] || kinds+=(fuzz link)
    # scapy and tshark judge packets in functional tests, too; in continuous integration none of these is left out.
    [[ "${CI:-}" != true || "$GN_PLAN" != *" cpu "* ]] || kinds+=(peer)
    ensure "${kinds[@]}" || true
    ensure_build || return 1
    ensure test || return 1
    [[ "$GN_PLAN" != *" peer "* ]] || start_peer_setup
    [[ "$GN_PLAN" != *" asan "* && "$GN_PLAN" != *" tsan "* ]] || ensure link || warn "without lld, the sanitizer programs are linked by the default linker, which is slower"
    for kind in property oracle; do ensure "$kind" || warn "without the packages above, the tests that need them are left out"; done
    GN_DID="$(g++ --version | head -n 1); cmake $(cmake --version | head -n 1 | grep -oE '[0-9.]+'); $GN_JOBS jobs"
}

stage_lint() {
    local status=0
    lint_checks || status=1
    GN_PASSED=$((GN_PASSED + GN_LINT_PASSED))
    GN_FAILED=$((GN_FAILED + GN_LINT_FAILED))
    [[ "$GN_LINT_FAILED" == 0 ]] || wrong lint "$GN_LINT_FAILED checks failed; see the output below the heading of the stage"
    GN_DID="$((GN_LINT_PASSED + GN_LINT_FAILED)) checks"
    return $status
}

# test_preset PRESET LABELS FLOOR-SECTION...: builds all of a preset, runs ctest, counts, holds the counters against the floors.
test_preset() {
    local preset="$1" labels="$2" status=0 log="$GN_LOGS/$1-test.log" summary total failed at_once="$GN_JOBS"
    shift 2
    local chosen=() floors_of=()
    if [[ "$preset" == cpu || "$preset" == cuda || "$GN_FOLDERS" == "*" ]]; then
        build "$preset" || return 1
    else
        build_folders "$preset" || return 1
        chosen=(-R "^(${GN_FOLDERS// /|})(_|\$)")
        floors_of=(--folders "$GN_FOLDERS")
    fi
    if [[ "$preset" == asan || "$preset" == tsan ]]; then
        chosen+=(-LE programs)
        say "left to the stage cpu: the tests labelled programs, which start gnstor and gnstord hundreds of times (tests/cli/CMakeLists.txt)"
    fi
    [[ "$preset" != cpu ]] || start_builder
    # Tests wait as much as they work. Where the builder takes what that leaves of the processors, there is one test for each; it is done by
    # the time of the sanitizers.
    [[ "$preset" == cuda || "$preset" == cpu && -n "$GN_BUILDER" ]] || at_once=$((GN_JOBS + (GN_JOBS + 1) / 2))
    fixed_addresses ctest --test-dir "build/$preset" -L "$labels" ${chosen[@]+"${chosen[@]}"} -j "$at_once" --no-tests=error --output-on-failure --timeout 600 >"$log" 2>&1 || status=1
    if [[ "$GN_VERBOSE" == yes ]]; then cat "$log"; else grep -vE '^ +Start |Passed +[0-9.]+ sec$|^Test project|^$' "$log" || true; fi
    summary="$(grep -E '[0-9]+% tests passed' "$log" | tail -n 1)"
    total="$(sed -nE 's/.* out of ([0-9]+).*/\1/p' <<<"$summary")"
    failed="$(sed -nE 's/.*, ([0-9]+) tests? failed.*/\1/p' <<<"$summary")"
    GN_PASSED=$((GN_PASSED + ${total:-0} - ${failed:-0}))
    GN_FAILED=$((GN_FAILED + ${failed:-0}))
    local name
    while read -r name; do wrong "$preset" "$name"; done < <(sed -nE '/^The following tests FAILED:/,/^$/ s/^\s*[0-9]+ - (.*)$/\1/p' "$log")
    cp "build/$preset/Testing/Temporary/LastTest.log" "$GN_LOGS/$preset-output.log" 2>/dev/null || true
    grep -E '^skipped: ' "$GN_LOGS/$preset-output.log" || true
    local cases
    cases="$(sed -nE 's/^\[  PASSED  \] ([0-9]+) tests?\.$/\1/p' "$GN_LOGS/$preset-output.log" | awk '{ n += $1 } END { print n + 0 }')"
    echo "floors:"
    python3 scripts/floors.py check "$GN_LOGS/$preset-output.log" "$@" ${floors_of[@]+"${floors_of[@]}"} || { status=1; GN_FAILED=$((GN_FAILED + 1)); wrong "$preset" "a counter is below its floor; see 'floors:' above"; }
    GN_DID="${total:-0} programs, $cases test cases, $(counter_sum "$GN_LOGS/$preset-output.log") counted operations"
    return $status
}

counter_sum() { python3 scripts/floors.py show "$1" | awk '{ gsub(",", "", $2); n += $2 } END { printf "%d", n }'; }

stage_cpu() {
    configure cpu -DGN_TESTS=ON || return 1
    check_functional_tests || return 1
    if [[ "$GN_FAST" == yes ]]; then test_preset cpu fast fast; else test_preset cpu 'fast|long' fast long; fi
}

# Not a test of ctest's: asking ctest for its list while it runs would end its log.
check_functional_tests() {
    if [[ "$GN_DAEMON" != ON || -n "$(missing property oracle)" ]]; then
        say "packages that tests need are missing (see above), so the list of declared functional tests is not checked"
        return 0
    fi
    python3 tests/house/functional_test.py ctest build/cpu && { GN_PASSED=$((GN_PASSED + 1)); return 0; }
    GN_FAILED=$((GN_FAILED + 1))
    wrong cpu "the list of functional tests differs from tests/house/functional_tests.txt; see above"
    return 1
}

stage_soak() {
    configure cpu -DGN_TESTS=ON || return 1
    test_preset cpu soak soak
}

# By clang, and with what libFuzzer needs: tests and fuzzers share what they are made of.
stage_asan() {
    ensure fuzz || return 1
    forget_other_compiler asan 'clang\+\+'
    configure asan || return 1
    ASAN_OPTIONS="detect_stack_use_after_return=1:strict_string_checks=1:${ASAN_OPTIONS:-}" \
        UBSAN_OPTIONS="print_stacktrace=1:${UBSAN_OPTIONS:-}" test_preset asan 'fast|long' asan
}

# By clang, whose runtime is faster: the same processor time for tests' own sources without optimising.
stage_tsan() {
    ensure fuzz || return 1
    forget_other_compiler tsan 'clang\+\+'
    configure tsan || return 1
    TSAN_OPTIONS="halt_on_error=1:second_deadlock_stack=1:${TSAN_OPTIONS:-}" test_preset tsan 'fast|long' tsan
}

stage_cuda() {
    if [[ "$GN_LANES" == gpu ]]; then
        ensure_nvcc
    elif ! GN_NVCC="$(find_nvcc)"; then
        GN_DID="skipped: no nvcc on this machine"
        return 0
    fi
    say "nvcc: $GN_NVCC"
    configure cuda -DGN_TESTS=ON || return 1
    if [[ "$GN_LANES" == gpu ]]; then
        test_preset cuda gpu gpu
        return
    fi
    build cuda gpu_programs || return 1
    GN_PASSED=$((GN_PASSED + 1))
    # What can be read from PTX without a GPU.
    if ctest --test-dir build/cuda -L nvcc --no-tests=error --output-on-failure >"$GN_LOGS/cuda-test.log" 2>&1; then
        GN_PASSED=$((GN_PASSED + 1))
    else
        cat "$GN_LOGS/cuda-test.log"
        return 1
    fi
    GN_DID="compiled and linked with $("$GN_NVCC" --version | grep -oE 'release [0-9.]+'), PTX checked; not run (CPU lanes)"
}

stage_fuzz() {
    ensure fuzz || return 1
    forget_other_compiler asan 'clang\+\+'
    configure asan || return 1
    local list="$GN_LOGS/fuzzers.txt" count seconds status=0 log="$GN_LOGS/fuzz-output.log" path corpus floors_of=()
    if [[ "$GN_FOLDERS" == "*" ]]; then
        cp build/asan/fuzzers.txt "$list"
    else
        grep -E "/tests/(${GN_FOLDERS// /|})/" build/asan/fuzzers.txt >"$list" || true
        floors_of=(--folders "$GN_FOLDERS")
    fi
    count="$(grep -c . "$list" || true)"
    local targets=()
    while read -r path corpus; do targets+=("$(basename "$path")"); done <"$list"
    [[ "$count" -gt 0 ]] || { GN_DID="skipped: this change reaches no fuzzer"; return 0; }
    build asan "${targets[@]}" || return 1
    # GN_FUZZ_SECONDS is shared by all of them; a run ends earlier only by finding something.
    seconds=$((${GN_FUZZ_SECONDS:-96} / count))
    [[ "$seconds" -ge 5 ]] || seconds=5
    : >"$log"
    # As many at once as builds run; each says its end in files of its own, read when all are done.
    local running=0 name
    while read -r path corpus; do
        [[ "$running" -lt "$GN_JOBS" ]] || { wait -n || true; running=$((running - 1)); }
        fuzz_one "$path" "$corpus" "$seconds" >"$GN_LOGS/$(basename "$path").told" 2>&1 </dev/null &
        running=$((running + 1))
    done <"$list"
    wait || true
    while read -r path corpus; do
        name="$(basename "$path")"
        cat "$GN_LOGS/$name.told"
        if [[ "$(head -n 1 "$GN_LOGS/$name.told")" == "  ok "* ]]; then
            GN_PASSED=$((GN_PASSED + 1))
            echo "GN_COUNT $name=$(fuzz_executions "$name")" >>"$log"
        else
            GN_FAILED=$((GN_FAILED + 1))
            wrong fuzz "$name"
            status=1
        fi
    done <"$list"
    echo "floors:"
    python3 scripts/floors.py check "$log" fuzz ${floors_of[@]+"${floors_of[@]}"} || { status=1; GN_FAILED=$((GN_FAILED + 1)); wrong fuzz "a counter is below its floor; see 'floors:' above"; }
    GN_DID="$count fuzzers, $(counter_sum "$log") executions"
    return $status
}

# New inputs go to build/fuzz/found, a crashing one to build/fuzz/crashes. The first line says ok or FAIL. A fuzzer that has not reached its floor of
# executions after its seconds, because the machine is slow or busy, runs on until it has, at most two minutes: the floor tells a fuzzer that does nothing, not a slow machine.
fuzz_one() { # PROGRAM CORPUS SECONDS
    local path="$1" corpus="$2" seconds="$3" name executions=0 output floor limit
    name="$(basename "$path")"
    output="$GN_LOGS/$name.log"
    mkdir -p "build/fuzz/found/$name" build/fuzz/crashes
    : >"$output"
    if ! floor="$(python3 scripts/floors.py floor fuzz "$name" 2>&1)"; then
        printf '  FAIL  %s: %s\n' "$name" "$floor"
        return
    fi
    local common=(-timeout=10 -rss_limit_mb=2048 -print_final_stats=1 "-seed=${GN_SEED:-$RANDOM}" "-artifact_prefix=build/fuzz/crashes/$name-" "build/fuzz/found/$name")
    [[ -z "$corpus" ]] || common+=("$corpus")
    for limit in "-max_total_time=$seconds" -max_total_time=120; do
        [[ "$executions" -lt "$floor" ]] || break
        local command=("$path" "$limit" "${common[@]}")
        [[ "$executions" -eq 0 ]] || command+=("-runs=$((floor - executions))")
        if ! fixed_addresses "${command[@]}" >>"$output" 2>&1; then
            printf '  FAIL  %s: %s\n' "$name" "${command[*]}"
            tail -n 30 "$output"
            return
        fi
        executions="$(fuzz_executions "$name")"
    done
    printf '  ok    %-32s %12s executions\n' "$name" "$executions"
}

fuzz_executions() { # NAME: of all its runs in this stage
    awk '/^stat::number_of_executed_units:/ { sum += $2 } END { print sum + 0 }' "$GN_LOGS/$1.log"
}

stage_example() {
    local preset=cpu
    if [[ "$GN_LANES" == gpu ]]; then preset=cuda; ensure_nvcc; fi
    configure "$preset" || return 1
    build "$preset" || return 1
    local folder name status=0
    GN_DID=""
    for folder in examples/*/CMakeLists.txt; do
        [[ -e "$folder" ]] || { GN_DID="skipped: no examples in this checkout"; return 0; }
        name="$(basename "$(dirname "$folder")")"
        if bash scripts/try_example.sh "$preset" "$name" "${GN_NVCC:-}"; then
            GN_PASSED=$((GN_PASSED + 1))
            GN_DID+="$name "
        else
            GN_FAILED=$((GN_FAILED + 1))
            wrong example "$name"
            status=1
        fi
    done
    GN_DID="installed; built and ran: $GN_DID"
    return $status
}

# As ./run bench builds it, so that what is measured is known to compile, link and answer right.
stage_release() {
    local preset
    preset="$(release_of_lanes)"
    [[ "$GN_LANES" != gpu ]] || ensure_nvcc
    configure "$preset" || return 1
    build "$preset" gnstor_bench || return 1
    local log="$GN_LOGS/release-bench.log" program
    program="$(program "$preset" gnstor_bench)" || return 1
    if ! "$program" path --lanes "$GN_LANES" --repeats 1 --seconds 1 --working-set 64MiB >"$log" 2>&1 || ! grep -q '^Checked: .*all as written' "$log"; then
        cat "$log"
        return 1
    fi
    GN_PASSED=$((GN_PASSED + 1))
    GN_DID="$(grep '^Checked: ' "$log")"
}

stage_docs() {
    python3 scripts/render_docs.py --check || return 1
    GN_PASSED=$((GN_PASSED + 1))
    GN_DID="$(find docs/runs -name '*.json' | wc -l) results"
}

stage_docs_site() {
    if ! ensure_site; then
        [[ "$GN_INSTALL" != yes ]] || return 1
        GN_DID="skipped: Doxygen or MkDocs Material is not installed, and --no-install was given"
        return 0
    fi
    local log="$GN_LOGS/docs-site.log"
    mkdir -p "$GN_LOGS"
    if ! "$GN_SITE_PYTHON" scripts/docs_site.py >"$log" 2>&1; then
        tail -n 40 "$log"
        return 1
    fi
    GN_PASSED=$((GN_PASSED + 1))
    GN_DID="$(sed -nE 's/^docs_site: ([0-9]+ pages.*)/\1/p' "$log"), none of them dead; build/site"
}

# start_peer_setup: fetches what the guests are made of while others compile; stage_peer looks whether it went well.
GN_PEER_SETUP=""
start_peer_setup() {
    mkdir -p "$GN_LOGS"
    nice /usr/bin/python3 tests/peer/peer.py setup </dev/null >"$GN_LOGS/peer-setup.log" 2>&1 &
    GN_PEER_SETUP=$!
    trap end_background EXIT
}

# Real kernels on the other side of the wire (tests/peer). GN_PEER_ARGUMENTS goes to its program: "--kernel 6.1 --scenario loop", "--short".
stage_peer() {
    ensure_patiently peer || return 1
    configure cpu -DGN_TESTS=ON || return 1
    build cpu peer_programs || return 1
    local log="$GN_LOGS/peer-output.log" status=0 passed failed floors="" arguments=()
    mkdir -p "$GN_LOGS"
    read -ra arguments <<<"${GN_PEER_ARGUMENTS:-}"
    [[ -z "$GN_PEER_SETUP" ]] || wait "$GN_PEER_SETUP" || say "the guests could not be prepared in the background ($GN_LOGS/peer-setup.log); trying again now"
    GN_PEER_SETUP=""
    PYTHONUNBUFFERED=1 /usr/bin/python3 tests/peer/peer.py run --keep build/peer "${arguments[@]}" 2>&1 | tee "$log" || status=1
    passed="$(awk -F= '/^GN_COUNT peer_scenarios=/ { n += $2 } END { print n + 0 }' "$log")"
    failed="$(grep -cE '^FAILED ' "$log" || true)"
    local line
    while read -r line; do wrong peer "$line"; done < <(sed -nE 's/^FAILED //p' "$log")
    [[ "$status" == 0 || "$failed" != 0 ]] || { failed=1; wrong peer "the test harness failed, not a scenario; see the output below the heading of the stage"; }
    GN_PASSED=$((GN_PASSED + passed))
    GN_FAILED=$((GN_FAILED + failed))
    case "${arguments[*]}" in
        "") floors=peer ;;
        --short) floors=peer_short ;;
    esac
    if [[ -n "$floors" && "$failed" == 0 ]]; then
        echo "floors:"
        python3 scripts/floors.py check "$log" "$floors" || { status=1; GN_FAILED=$((GN_FAILED + 1)); wrong peer "a counter is below its floor; see 'floors:' above"; }
    fi
    GN_DID="$passed scenarios passed; captures, consoles and logs in build/peer"
    return $status
}
