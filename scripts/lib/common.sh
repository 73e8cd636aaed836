# shellcheck shell=bash
# common.sh: messages, options that every command of ./run knows, small helpers. Sourced by ./run.

GN_JOBS="${GN_JOBS:-$(nproc)}"
GN_INSTALL="${GN_INSTALL:-yes}"
GN_VERBOSE="${GN_VERBOSE:-no}"
GN_LANES="${GN_LANES:-}"   # cpu, gpu or empty: choose
GN_REST=()                 # what parse_common leaves for the command itself

say() { printf '%s\n' "run: $*"; }
warn() { printf '%s\n' "run: $*" >&2; }
die() {
    warn "$*"
    exit 1
}
die_usage() {
    warn "$*"
    exit 2
}
heading() { printf '\n=== %s\n' "$*"; }
have() { command -v "$1" >/dev/null 2>&1; }

# parse_common ARG...: takes the options every command knows, leaves the others in GN_REST.
parse_common() {
    GN_REST=()
    while [[ $# -gt 0 ]]; do
        case "$1" in
            --lanes)
                [[ $# -ge 2 ]] || die_usage "--lanes needs cpu or gpu"
                GN_LANES="$2"
                shift
                ;;
            --lanes=*) GN_LANES="${1#*=}" ;;
            --jobs)
                [[ $# -ge 2 && "$2" =~ ^[1-9][0-9]*$ ]] || die_usage "--jobs needs a number, 1 or more"
                GN_JOBS="$2"
                shift
                ;;
            --no-install) GN_INSTALL=no ;;
            --verbose) GN_VERBOSE=yes ;;
            *) GN_REST+=("$1") ;;
        esac
        shift
    done
    case "$GN_LANES" in
        "" | cpu | gpu) ;;
        *) die_usage "--lanes is cpu or gpu, not '$GN_LANES'" ;;
    esac
}

# as_root COMMAND...: directly for root, else through sudo; fails with a reason where neither is possible.
as_root() {
    if [[ "$(id -u)" == 0 ]]; then
        "$@"
    elif have sudo; then
        sudo "$@"
    else
        warn "this command needs root, and there is no sudo: $*"
        return 1
    fi
}
