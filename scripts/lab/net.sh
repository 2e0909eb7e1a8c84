#!/usr/bin/env bash
# A cluster on one machine: hosts h0, h1, ... are namespaces of the kernel, joined by a switch with slow links.
# A host has a name, a network, an address and shared memory of its own; files are common, as on a cluster with NFS.
# All of it belongs to this process: when it ends, in whatever way, the kernel ends what runs on the hosts and removes
# them. Nothing outside is changed, and several of these do not see each other.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

usage() {
    cat >&2 <<'TEXT'
usage: scripts/lab/net.sh [--rate 1gbit] HOSTS COMMAND...
e.g.:  scripts/lab/net.sh 4 scripts/lab/mpirun.sh python scripts/lab/allreduce.py
       scripts/lab/net.sh 2 scripts/lab/mpirun.sh --per-host 2 python -m mpicoll.train
       scripts/lab/net.sh 2 bash
Makes HOSTS hosts, runs COMMAND on the first, h0, and ends as it ends; then the hosts are gone.
There, scripts/lab/on.sh h1 COMMAND... runs something on h1, as ssh would; mpirun.sh starts ranks on all hosts.
Every link carries --rate (as tc writes it) in each direction. Needs root.
TEXT
    exit 2
}

fail() {
    echo "lab: $1" >&2
    exit 1
}

# host NAME ADDRESS RATE: a process that holds the namespaces of a host, by whose id ($!) others enter them
host() {
    local ready shape="root tbf rate $3 burst 128kb latency 400ms"
    # shellcheck disable=SC2016 # the inner shell expands $0
    exec {ready}< <(exec unshare --mount --net --uts bash -c '
        echo "$0" >/proc/sys/kernel/hostname
        mount -t sysfs sysfs /sys # it shows the network in which it is mounted; UCX looks for its devices there
        mount -t tmpfs tmpfs /dev/shm
        echo ready
        exec sleep infinity' "$1")
    read -r -u "$ready" || fail "the host $1 could not be made (see above)"
    ip link add "$1" type veth peer name e0 netns $! || fail "this kernel gives no veth pair (see above)"
    ip link set "$1" master switch up
    nsenter --target $! --net ip -batch - <<TEXT
address add $2/16 dev e0
link set e0 up
link set lo up
TEXT
    # shellcheck disable=SC2086 # $shape is words
    if ! { tc qdisc add dev "$1" $shape && nsenter --target $! --net tc qdisc add dev e0 $shape; }; then
        fail "tc cannot limit a link to '$3' (see above); the kernel needs sch_tbf"
    fi
}

if [ "${1:-}" = --inside ]; then # process 1 of the lab, in the namespaces of the switch
    rate=$2 hosts=$3
    shift 3
    ip link add switch up type bridge || fail "this kernel gives no bridge (see above)"
    mount -t tmpfs tmpfs /dev/shm
    {
        echo "127.0.0.1 localhost"
        for ((i = 0; i < hosts; i++)); do
            echo "10.0.$((i / 250)).$((i % 250 + 1)) h$i"
        done
    } >/dev/shm/hosts
    mount --bind /dev/shm/hosts /etc/hosts
    MPICOLL_LAB=
    while read -r address name; do
        [ "$name" = localhost ] && continue
        host "$name" "$address" "$rate"
        MPICOLL_LAB+="$name=$! "
    done </etc/hosts
    export MPICOLL_LAB
    status=0
    "$here/on.sh" h0 "${@@Q}" || status=$? # no exec: process 1 does not hear Ctrl-C
    exit "$status"
fi

rate=1gbit
while [[ ${1:-} == -* ]]; do
    [ "$1" = --rate ] && [ $# -gt 1 ] || usage
    rate=$2
    shift 2
done
[[ ${1:-} =~ ^[1-9][0-9]*$ ]] && [ $# -gt 1 ] || usage
[ "$(id -u)" = 0 ] || fail "making network namespaces needs root"
for tool in ip tc unshare nsenter setpriv; do
    command -v "$tool" >/dev/null || fail "there is no $tool; it is in the package iproute2 or util-linux"
done
unshare --mount --net --pid --fork --uts true 2>/dev/null || fail "this machine allows no new namespaces"
# Killed in turn: this process, unshare, process 1 inside, all of the lab
setpriv --pdeathsig KILL unshare --mount --net --pid --fork --kill-child --mount-proc "$0" --inside "$rate" "$@"
exit # no exec: unshare does not heed SIGTERM
