# shellcheck shell=bash
# roots.sh: throw-away Debian systems, each in a folder of build/roots, in which stages build with another distribution's compiler or install
# packages. They need root, mmdebstrap and a mount namespace; can_make_roots says what is missing.

GN_ROOTS="$GN_ROOT/build/roots"

# can_make_roots: sets GN_DID, which the stage prints, to the reason where it is not so.
# shellcheck disable=SC2034
can_make_roots() {
    if [[ "$(id -u)" != 0 ]]; then
        GN_DID="skipped: only root can make a system in a folder (mmdebstrap, chroot)"
        return 1
    fi
    if ! unshare --mount true 2>/dev/null; then
        GN_DID="skipped: this machine allows no mount namespace (a container without CAP_SYS_ADMIN?)"
        return 1
    fi
}

# make_root NAME SUITE PACKAGE...: the folder build/roots/NAME, unless it was made of the same suite and packages.
make_root() {
    local name="$1" suite="$2" folder="$GN_ROOTS/$1" wanted log="$GN_LOGS/root-$1.log"
    shift 2
    wanted="$suite: $*"
    [[ "$(cat "$folder.made" 2>/dev/null)" != "$wanted" ]] || return 0
    ensure roots || return 1
    rm -rf "${folder:?}" "$folder.made"
    mkdir -p "$GN_ROOTS" "$GN_LOGS"
    say "making a minimal system of suite '$suite' in build/roots/$name"
    local attempt
    for attempt in 1 2 3; do
        if mmdebstrap --mode=root --variant=minbase --skip=cleanup/apt/lists --include="$(IFS=, && echo "$*")" "$suite" "$folder" >"$log" 2>&1; then
            cp -L /etc/resolv.conf "$folder/etc/resolv.conf"
            echo "$wanted" >"$folder.made"
            return 0
        fi
        warn "mmdebstrap failed (attempt $attempt of 3): $(tail -n 1 "$log")"
        rm -rf "${folder:?}"
        sleep $((attempt * 10))
    done
    warn "the whole log: $log"
    return 1
}

# in_root FOLDER BINDS COMMAND...: runs a command in it. BINDS: "HOST-FOLDER:FOLDER-THERE" words. What is mounted goes with the command.
in_root() {
    local folder="$1" binds="$2"
    shift 2
    # shellcheck disable=SC2016
    unshare --mount --propagation private bash -c '
        set -e
        folder="$1" binds="$2"
        shift 2
        mount -t proc proc "$folder/proc"
        mount --rbind /dev "$folder/dev"
        mount --rbind /sys "$folder/sys"
        for bind in $binds; do
            mkdir -p "$folder/${bind#*:}"
            mount --bind "${bind%%:*}" "$folder/${bind#*:}"
        done
        exec chroot "$folder" env -i HOME=/ LC_ALL=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive "$@"
    ' in_root "$folder" "$binds" "$@"
}

# copy_checkout FOLDER: the tracked files as they are here, and no others; those that are no longer tracked go. Unchanged ones keep their times.
copy_checkout() {
    mkdir -p "$1"
    find "$1" -mindepth 1 -maxdepth 1 ! -name build -exec rm -rf {} +
    git -C "$GN_ROOT" ls-files -z | (cd "$GN_ROOT" && while IFS= read -r -d '' name; do [[ ! -e "$name" ]] || printf '%s\0' "$name"; done) |
        tar --create --directory "$GN_ROOT" --null --files-from - | tar --extract --directory "$1"
}
