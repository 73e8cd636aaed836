# shellcheck shell=bash
# lanes.sh: which processor runs device code (CPU or GPU lanes), and where nvcc comes from. Lanes never change silently.

gpu_here() { { have nvidia-smi && nvidia-smi -L 2>/dev/null | grep '^GPU' >/dev/null; } || [[ -e /dev/nvidia0 ]]; }

gpu_name() { nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1 || true; }

# choose_lanes: sets GN_LANES and says which and why.
choose_lanes() {
    local why
    case "$GN_LANES" in
        gpu)
            gpu_here || die "--lanes gpu: no GPU on this machine (nvidia-smi lists none, /dev/nvidia0 is absent); use --lanes cpu"
            why="asked for with --lanes"
            ;;
        cpu) why="asked for with --lanes" ;;
        *)
            if gpu_here; then
                GN_LANES=gpu
                why="this machine has a GPU: $(gpu_name)"
            else
                GN_LANES=cpu
                why="no GPU on this machine"
            fi
            ;;
    esac
    say "lanes: $GN_LANES ($why)"
}

# find_nvcc: prints the path of a compiler that is already here, PATH first, then the local one.
find_nvcc() {
    local candidate
    for candidate in "$(command -v nvcc || true)" "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc" /usr/local/cuda/bin/nvcc \
        "$GN_ROOT"/.cuda/nvidia/cu*/bin/nvcc; do
        if [[ -n "$candidate" && -x "$candidate" ]]; then
            echo "$candidate"
            return 0
        fi
    done
    return 1
}

driver_cuda() { # "13.0": the newest CUDA the driver runs
    nvidia-smi 2>/dev/null | grep -oE 'CUDA( UMD)? Version: *[0-9]+\.[0-9]+' | grep -oE '[0-9]+\.[0-9]+' | head -n 1
}

# ensure_nvcc: sets GN_NVCC; installs PyPI's compiler of the driver's version into .cuda/ where there is none.
ensure_nvcc() {
    if GN_NVCC="$(find_nvcc)"; then
        say "nvcc: $GN_NVCC"
        return 0
    fi
    local version
    version="${GN_CUDA_VERSION:-$(driver_cuda || true)}"
    [[ -n "$version" ]] || die "no nvcc, and the driver's CUDA version is unknown (nvidia-smi reports none); set GN_CUDA_VERSION=13.0 or install nvcc"
    [[ "$GN_INSTALL" == yes ]] || die "no nvcc here, and --no-install was given; install CUDA $version or drop --no-install"
    install_nvcc "$version"
    GN_NVCC="$(find_nvcc)" || die "nvcc was installed into .cuda/ but cannot be found there; remove .cuda/ and try again"
    say "nvcc: $GN_NVCC"
}

# install_nvcc MAJOR.MINOR: PyPI's packages, laid out as CMake expects a toolkit (lib64, unversioned names of shared libraries).
install_nvcc() {
    local version="$1" major="${1%%.*}" top name base library
    # PyPI's packages for CUDA 12 carry ptxas but no nvcc, so there is nothing to install for such a driver.
    ((major >= 13)) || die "no nvcc here, and PyPI has a whole compiler only for CUDA 13 and newer (the driver runs $version):
     install CUDA $version's toolkit (on Ubuntu 24.04: apt-get install nvidia-cuda-toolkit), or use --lanes cpu"
    have python3 || ensure test || die "python3 is needed to install nvcc from PyPI"
    python3 -m pip --version >/dev/null 2>&1 || apt_install python3-pip
    local names=()
    for name in nvidia-cuda-nvcc nvidia-nvvm nvidia-cuda-crt nvidia-cuda-cccl nvidia-cuda-runtime; do names+=("$name==$version.*"); done
    say "no nvcc here: installing PyPI's compiler for CUDA $version (about 300 MB) into .cuda/: ${names[*]}"
    rm -rf "$GN_ROOT/.cuda.part"
    python3 -m pip install --quiet --disable-pip-version-check --no-deps --target "$GN_ROOT/.cuda.part" "${names[@]}" ||
        die "pip could not install the compiler (is PyPI reachable?); install CUDA $version's toolkit, or use --lanes cpu"
    top="$GN_ROOT/.cuda.part/nvidia/cu$major"
    [[ -x "$top/bin/nvcc" ]] || die "PyPI's packages for CUDA $version have no bin/nvcc; install CUDA's toolkit, or use --lanes cpu"
    chmod +x "$top"/bin/* "$top"/nvvm/bin/*
    [[ -e "$top/lib64" ]] || ln -s lib "$top/lib64"
    for library in "$top"/lib/lib*.so.*; do
        base="$(basename "$library")"
        ln -sf "$base" "$top/lib/${base%%.so*}.so"
    done
    rm -rf "$GN_ROOT/.cuda"
    mv "$GN_ROOT/.cuda.part" "$GN_ROOT/.cuda"
}
