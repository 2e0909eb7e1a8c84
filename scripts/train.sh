#!/usr/bin/env bash
# Trains on 8 ranks from a fresh clone; arguments are mpicoll.train's (try --help).
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
environment .venv mpich
exec mpirun -np 8 python -m mpicoll.train "$@"
