#!/usr/bin/env bash
# Starts ranks on every host of the lab that net.sh made, with the mpirun on PATH: that of Open MPI or of MPICH.
# What follows --per-host goes to mpirun, and overrides the lab's settings (settings.sh).
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
per_host=1
if [ "${1:-}" = --per-host ] && [ $# -gt 1 ]; then
    per_host=$2
    shift 2
fi
[[ $# -gt 0 && $per_host =~ ^[1-9][0-9]*$ && -n ${MPICOLL_LAB:-} ]] || {
    echo "usage: scripts/lab/net.sh HOSTS scripts/lab/mpirun.sh [--per-host 1] [MPIRUN'S OPTIONS] COMMAND..." >&2
    exit 2
}
read -ra hosts <<<"$MPICOLL_LAB"
hosts=("${hosts[@]%=*}")
names=$(IFS=, && echo "${hosts[*]}")

source "$here/settings.sh"
version=$(mpirun --version)
case $version in
*"Open MPI"*)
    flags=(--prtemca plm_ssh_agent "$here/on.sh" --host "${names//,/:$per_host,}:$per_host")
    ;;
*HYDRA*)
    flags=(-launcher ssh -launcher-exec "$here/on.sh" -hosts "$names" -ppn "$per_host")
    ;;
*)
    echo "lab: $(command -v mpirun) is neither Open MPI's nor MPICH's" >&2
    exit 1
    ;;
esac
exec mpirun "${flags[@]}" -np $((${#hosts[@]} * per_host)) "$@"
