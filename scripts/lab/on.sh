#!/usr/bin/env bash
# on.sh HOST COMMAND...: runs a command on a host of the lab that net.sh made, as ssh would: a shell there reads it.
while [[ ${1:-} == -* ]]; do shift; done # what mpirun would tell ssh
[[ $# -gt 1 && " ${MPICOLL_LAB:-}" =~ \ "$1"=([0-9]+)\  ]] || {
    echo "usage, in a lab of scripts/lab/net.sh: on.sh HOST COMMAND...; the hosts are: ${MPICOLL_LAB:-none}" >&2
    exit 2
}
shift
# shellcheck disable=SC2016 # the inner shell expands $0 and $1
exec nsenter --target "${BASH_REMATCH[1]}" --mount --net --uts bash -c 'cd "$0" && eval "$1"' "$PWD" "$*"
