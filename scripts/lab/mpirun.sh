#!/usr/bin/env bash
# Starts ranks on every host of the lab that net.sh made, with the mpirun on PATH: that of Open MPI or of MPICH.
# Both go between hosts by TCP on the lab's network, whatever else they find on this machine, with the settings with
# which large messages were fastest there. What follows --per-host goes to mpirun and overrides them.
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

version=$(mpirun --version)
case $version in
*"Open MPI"*)
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    # unbound: else the first ranks of all hosts share one core; yielding: there may be more ranks than cores.
    # Large messages leave as they are (flags 1: send) and in large pieces through small buffers: presumably what a
    # rendezvous waits for stands behind all that fills the buffers. MPI_Allreduce of 16 MiB on 4 hosts: 420 to 240 ms.
    flags=(--prtemca plm_ssh_agent "$here/on.sh" --host "${names//,/:$per_host,}:$per_host" --bind-to none
        --mca mpi_yield_when_idle 1 --mca pml ob1 --mca btl "tcp,sm,self" --mca btl_tcp_if_include e0
        --mca btl_tcp_flags 1 --mca btl_tcp_sndbuf 262144 --mca btl_tcp_rcvbuf 262144 --mca btl_tcp_eager_limit 524288
        --mca btl_tcp_rndv_eager_limit 524288 --mca btl_tcp_max_send_size 1048576)
    ;;
*HYDRA*)
    # UCX would take all hosts for one machine; ranks of one host do not need it. No rendezvous either
    flags=(-launcher ssh -launcher-exec "$here/on.sh" -hosts "$names" -ppn "$per_host" -iface e0
        -genv UCX_TLS "tcp,self" -genv UCX_NET_DEVICES e0 -genv UCX_RNDV_THRESH inf)
    ;;
*)
    echo "lab: $(command -v mpirun) is neither Open MPI's nor MPICH's" >&2
    exit 1
    ;;
esac
exec mpirun "${flags[@]}" -np $((${#hosts[@]} * per_host)) "$@"
