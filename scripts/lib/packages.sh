# shellcheck shell=bash
# packages.sh: what is needed from the distribution, how we see that it is there, and its installation through apt.
# A package counts as present when its command, header or library is found, wherever it came from.

# name | needed for | probe | why. "Needed for" is one of build, cache, isal, blkid, uring, daemon,
# test, property, oracle, bench, plot, site, package, roots, fuzz, link, lint, peer.
GN_PACKAGES='
g++|build|cmd:g++|the C++20 compiler
cmake|build|cmd:cmake|configures the build
ninja-build|build|cmd:ninja|runs the build
ccache|cache|cmd:ccache|keeps object files between builds
libfmt-dev|build|inc:fmt/core.h|text formatting
libspdlog-dev|build|inc:spdlog/spdlog.h|the log
nlohmann-json3-dev|build|inc:nlohmann/json.hpp|JSON results and configuration
libcli11-dev|build|inc:CLI/CLI.hpp|command lines
libssl-dev|build|inc:openssl/ssl.h|in-band authentication, and TLS of the HTTP interface
libisal-dev|isal|inc:isa-l.h|fast CRC-32C on the host
libblkid-dev|blkid|inc:blkid/blkid.h|finds what is on a block device before it is formatted
liburing-dev|uring|inc:liburing.h|stores without the page cache: writes and reads side by side
libsqlite3-dev|daemon|inc:sqlite3.h|records of gnstord
libcpp-httplib-dev|daemon|inc:httplib.h|the HTTP client that asks gnstord
pkg-config|daemon|cmd:pkg-config|finds the HTTP library
libgtest-dev|test|inc:gtest/gtest.h|the tests
librapidcheck-dev|property|inc:rapidcheck.h|property tests
libbenchmark-dev|test|inc:benchmark/benchmark.h|micro-benchmarks
libibverbs-dev|test|inc:infiniband/mlx5dv.h|oracle of the NIC data-path layout
libnvme-dev|oracle|inc:nvme/types.h|oracle of the NVMe structures
spin|oracle|cmd:spin|searches the models of the protocol of the array
fio|bench|cmd:fio|comparison for bench path
python3-venv|site|py:ensurepip|makes the folder of Python packages that MkDocs goes into
doxygen|site|cmd:doxygen|makes the API reference from the public headers
git|site|cmd:git|names the files of the folders that documents link to
git|lint|cmd:git|names the tracked files that lint looks at
curl|test|cmd:curl|commands of the documents that ask gnstord over HTTP
python3|test|cmd:python3|house tests, floors, generated documents
help2man|package|cmd:help2man|manual pages from --help
dpkg-dev|package|cmd:dpkg-shlibdeps|which packages hold the shared libraries that programs need
mmdebstrap|roots|cmd:mmdebstrap|minimal systems to build and install in
debian-archive-keyring|roots|file:/usr/share/keyrings/debian-archive-keyring.gpg|signatures of their packages
clang|fuzz|cmd:clang++|libFuzzer, and AddressSanitizer with it
@clang-rt|fuzz|fuzzer|runtime of libFuzzer and the sanitizers for clang
lld|link|cmd:ld.lld|links the programs of the sanitizers in a third of the time
clang-format-14|lint|cmd:clang-format-14|the layout of the sources (version 14 decides)
shellcheck|lint|cmd:shellcheck|checks ./run itself
qemu-system-x86|peer|cmd:qemu-system-x86_64|boots the Linux kernels that we are tested against
iproute2|peer|cmd:ip|the network between them and us
kmod|peer|cmd:depmod|modules of those kernels
binutils|peer|cmd:readelf|which shared libraries a program of the guest needs
debian-archive-keyring|peer|file:/usr/share/keyrings/debian-archive-keyring.gpg|signatures of the packages of the guest
tshark|peer|cmd:tshark|judges captured packets
python3-scapy|peer|py:scapy|judges captured packets
python3-matplotlib|plot|py:matplotlib|draws the plots of docs/plots and of ./run report
'

distribution() { # debian-12, ubuntu-24.04, or what /etc/os-release says
    (
        # shellcheck source=/dev/null
        source /etc/os-release 2>/dev/null || true
        printf '%s-%s' "${ID:-unknown}" "${VERSION_ID:-0}"
    )
}

package_name() { # names that differ between the two distributions
    case "$1:$(distribution)" in
        @clang-rt:debian-12) echo libclang-rt-14-dev ;;
        @clang-rt:ubuntu-24.04) echo libclang-rt-18-dev ;;
        @clang-rt:*) echo libclang-rt-dev ;;
        *) echo "$1" ;;
    esac
}

probe() {
    case "$1" in
        # A user's path need not have the administrator's programs, which are there all the same.
        cmd:*) (PATH="$PATH:/usr/sbin:/sbin" && have "${1#cmd:}") ;;
        file:*) [[ -e "${1#file:}" ]] ;;
        py:*) /usr/bin/python3 -c "import ${1#py:}" 2>/dev/null ;;
        inc:*) have g++ && echo "#include <${1#inc:}>" | g++ -std=c++20 -E -x c++ - -o /dev/null 2>/dev/null ;;
        fuzzer) have clang++ && [[ -n "$(find "$(clang++ -print-resource-dir)/lib" -name 'libclang_rt.fuzzer*' -print -quit 2>/dev/null)" ]] ;;
    esac
}

# missing KIND...: lines "package|why" of what these kinds need and this machine lacks.
missing() {
    local kinds=" $* " name kind test why
    while IFS='|' read -r name kind test why; do
        [[ -n "$name" && "$kinds" == *" $kind "* ]] || continue
        probe "$test" || printf '%s|%s\n' "$(package_name "$name")" "$why"
    done <<<"$GN_PACKAGES"
}

# ensure KIND...: installs what is missing, saying what and why; returns 1 (with the reason printed) if that fails.
ensure() {
    local lacking names name why
    lacking="$(missing "$@")"
    [[ -n "$lacking" ]] || return 0
    names="$(cut -d'|' -f1 <<<"$lacking" | paste -sd' ')"
    if [[ "$GN_INSTALL" != yes ]]; then
        warn "missing packages: $names; install them, or leave --no-install out"
        return 1
    fi
    if ! have apt-get; then
        warn "missing packages: $names; ./run installs packages only with apt (Debian 12 and 13, Ubuntu 24.04): install them by hand"
        return 1
    fi
    if [[ "$GN_APT_DEAD" == yes ]]; then
        warn "missing packages: $names; apt failed before in this run (see above), so it is not tried again"
        return 1
    fi
    say "installing what is missing on this machine ($(distribution)), through apt:"
    while IFS='|' read -r name why; do printf '       %-22s %s\n' "$name" "$why"; done <<<"$lacking"
    apt_install "$names"
    lacking="$(missing "$@")"
    [[ -z "$lacking" ]] && return 0
    warn "still missing: $(cut -d'|' -f1 <<<"$lacking" | paste -sd' '); see apt's messages above, or install them by hand"
    return 1
}

GN_APT_DEAD=no # yes once neither the package lists nor a package could be had: no network, no root

apt_install() {
    local log updated=yes
    log="$(mktemp)"
    local apt=(as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=120 -o Acquire::Retries=2 -o Acquire::http::Timeout=20)
    # An old package list is the usual reason of a failed install, so it is refreshed first; a failure of that alone is not fatal.
    "${apt[@]}" update >"$log" 2>&1 || { updated=no; warn "apt-get update failed: $(tail -n 1 "$log")"; }
    # shellcheck disable=SC2086
    if ! "${apt[@]}" install -y --no-install-recommends $1 >"$log" 2>&1; then
        warn "apt-get install failed; its last lines:"
        tail -n 8 "$log" | sed 's/^/       /' >&2
        [[ "$updated" == yes ]] || GN_APT_DEAD=yes
    fi
    rm -f "$log"
}

# ensure_patiently KIND: as ensure; where apt did not work (a mirror is busy) again after a while.
ensure_patiently() {
    local wait
    for wait in 15 60 0; do
        ensure "$1" && return 0
        [[ "$GN_INSTALL" == yes && "$wait" -gt 0 ]] || return 1
        warn "trying again in $wait s"
        sleep "$wait"
        GN_APT_DEAD=no
    done
}

# ensure_site: Doxygen, and MkDocs Material in GN_SITE_PYTHON: the system's Python if it has both, else that of build/docs-venv, into which they
# are installed from PyPI. Returns 1, with the reason printed, if one of them cannot be had.
GN_MKDOCS=1.6.1
GN_MATERIAL=9.8.2
ensure_site() {
    local folder="${GN_SITE_VENV:-$GN_ROOT/build/docs-venv}"
    ensure site || return 1
    for GN_SITE_PYTHON in python3 "$folder/bin/python"; do
        ! "$GN_SITE_PYTHON" -c 'import material, mkdocs' >/dev/null 2>&1 || return 0
    done
    if [[ "$GN_INSTALL" != yes ]]; then
        warn "MkDocs Material, which makes the site, is not installed, and --no-install was given"
        return 1
    fi
    say "installing mkdocs $GN_MKDOCS and mkdocs-material $GN_MATERIAL from PyPI (60 MB) into $folder: they make the site of the documents"
    rm -rf "$folder"
    mkdir -p "$GN_ROOT/build"
    /usr/bin/python3 -m venv "$folder" || { warn "python3 -m venv could not make $folder"; return 1; }
    "$GN_SITE_PYTHON" -m pip install --quiet --disable-pip-version-check "mkdocs==$GN_MKDOCS" "mkdocs-material==$GN_MATERIAL" && return 0
    warn "pip could not install mkdocs $GN_MKDOCS and mkdocs-material $GN_MATERIAL (is PyPI reachable?)"
    return 1
}

# ensure_build: what demo, bench and gpu-test cannot do without, and the daemon's libraries if they can be had.
# Sets GN_DAEMON (ON or OFF).
ensure_build() {
    # All at once first: one apt run where everything can be had. The groups below say what happens where not.
    ensure build cache isal blkid uring daemon || true
    ensure build || die "the packages above are needed to build"
    check_versions
    if [[ -z "$(missing isal)" ]] || ensure isal; then :; else warn "without libisal: CRC-32C is computed without ISA-L, with the compiler's instructions"; fi
    ensure cache || warn "without ccache: every build compiles all sources again"
    ensure blkid || warn "without libblkid: gnstor ssd format formats a block device only with --force and --device-serial"
    ensure uring || warn "without liburing: stores opened with O_DIRECT use plain reads and writes"
    export GN_DAEMON=ON
    ensure daemon || { export GN_DAEMON=OFF; warn "gnstord and the gnstor command are not built, because their libraries are missing"; }
}

check_versions() {
    local version
    version="$(cmake --version | head -n 1 | grep -oE '[0-9]+\.[0-9]+' | head -n 1)"
    [[ "$(printf '%s\n3.25\n' "$version" | sort -V | head -n 1)" == 3.25 ]] || die "cmake $version is too old; 3.25 or newer is needed"
}
