# Sourced by the *.sbatch scripts. What follows runs in the folder from which sbatch was called, with the environment
# that was active there, else .venv; `launcher` is the words that start the ranks: mpirun, or those of MPICOLL_LAUNCHER.

cd "$SLURM_SUBMIT_DIR"
if [ -z "${VIRTUAL_ENV:-}" ] && [ -d .venv ]; then
    export VIRTUAL_ENV=$PWD/.venv PATH=$PWD/.venv/bin:$PATH
fi
python -c 'import mpicoll, mpi4py' || {
    echo "$SLURM_JOB_NAME: $(command -v python || echo "no python, which") cannot import mpicoll: before sbatch," \
        "activate an environment that has it, or make one: python3 -m venv .venv && .venv/bin/pip install ." >&2
    exit 1
}
read -ra launcher <<<"${MPICOLL_LAUNCHER:-mpirun}"
command -v "${launcher[0]}" >/dev/null || {
    echo "$SLURM_JOB_NAME: there is no ${launcher[0]}: load the MPI's module, or set MPICOLL_LAUNCHER" >&2
    exit 1
}
if [[ ${launcher[0]} == *srun ]]; then # which has not asked sbatch for it since Slurm 22.05
    launcher+=(--cpus-per-task "${SLURM_CPUS_PER_TASK:-1}" --kill-on-bad-exit) # as mpirun does
fi
