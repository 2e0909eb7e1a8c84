#!/usr/bin/env bash
# A Slurm cluster on one machine: the hosts of net.sh, a slurmd on each, slurmctld and munged on the first.
# Their files and sockets are in a /run of their own, so that all of it ends with this process, as the hosts do:
# nothing outside is changed, not even by a Slurm that is installed, and several of these do not see each other.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
packages="slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge libpmix-dev"

usage() {
    cat >&2 <<'TEXT'
usage: scripts/lab/slurm.sh HOSTS COMMAND...
e.g.:  scripts/lab/slurm.sh 2 srun --nodes 2 hostname
       scripts/lab/slurm.sh 2 sbatch --wait --ntasks-per-node 2 scripts/train.sbatch --steps 100
       scripts/lab/slurm.sh 2 bash
Makes HOSTS hosts, h0, h1, ..., that are nodes of a Slurm cluster, runs COMMAND on h0 and ends as it ends.
Every node says that it has 4 cores, whatever this machine has. Needs root, and Debian's Slurm (it need not run).
TEXT
    exit 2
}

fail() {
    echo "lab: $1" >&2
    exit 1
}

configuration() {
    cat <<TEXT
ClusterName=lab
SlurmctldHost=h0
SlurmUser=root
MailProg=/bin/true
# a job that is put back into the queue waits for as long as its credential may live
AuthInfo=cred_expire=5
StateSaveLocation=/run/slurm/state
SlurmdSpoolDir=/run/slurm/%n
SlurmctldPidFile=/run/slurm/slurmctld.pid
SlurmdPidFile=/run/slurm/%n.pid
SlurmctldLogFile=/run/slurm/slurmctld.log
SlurmdLogFile=/run/slurm/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0
SlurmdParameters=config_overrides
KillWait=2
NodeName=h[0-$1] CPUs=4
PartitionName=lab Nodes=ALL Default=YES
TEXT
}

start() {
    "$@" >>/run/slurm/start.log 2>&1 || {
        cat /run/slurm/start.log >&2
        fail "$1 does not start (see above)"
    }
}

if [ "${1:-}" = --inside ]; then # on h0
    hosts=$2
    shift 2
    umask 022
    mkdir -m 755 /run/munge /run/slurm
    (umask 077 && head -c 32 /dev/urandom >/run/munge/key)
    export SLURM_CONF=/run/slurm/slurm.conf
    configuration $((hosts - 1)) >"$SLURM_CONF"
    echo CgroupPlugin=cgroup/v1 >/run/slurm/cgroup.conf # it is loaded, not used
    echo PMIxCliTmpDirBase=/dev/shm >/run/slurm/mpi.conf # a folder that hosts do not share
    start munged --key-file /run/munge/key --log-file /run/munge/log --pid-file /run/munge/pid --seed-file /run/munge/seed
    start slurmctld
    for ((i = 0; i < hosts; i++)); do
        start "$here/on.sh" "h$i" slurmd -N "h$i"
    done
    until [ "$(sinfo --noheader --states idle --format %D 2>/dev/null)" = "$hosts" ]; do
        [ $SECONDS -lt 30 ] || {
            tail -n 20 /run/slurm/*.log >&2
            fail "not all nodes have come up (see above)"
        }
        sleep 0.05
    done
    source "$here/settings.sh"
    exec "$@"
fi

[[ ${1:-} =~ ^[1-9][0-9]*$ ]] && [ $# -gt 1 ] || usage
[ "$(id -u)" = 0 ] || fail "making network namespaces needs root"
for tool in munged slurmctld slurmd srun; do
    command -v "$tool" >/dev/null || fail "there is no $tool: apt-get install --no-install-recommends $packages"
done
# shellcheck disable=SC2016 # the inner shell expands $@
exec unshare --mount bash -c 'mount -t tmpfs -o mode=755 tmpfs /run && exec "$@"' bash \
    "$here/net.sh" "$1" "$here/slurm.sh" --inside "$@"
