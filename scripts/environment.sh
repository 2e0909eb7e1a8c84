# Sourced by the other scripts. environment DIR EXTRA...: the virtual environment DIR exists, holds this package with
# these extras, and is first on PATH. Quick when there is nothing to do.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

missing() {
    echo "mpicoll: $1" >&2
    exit 1
}

newest_python() {
    local name
    for name in python3 python python3.14 python3.13 python3.12 python3.11 python3.10; do
        if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
            command -v "$name"
            return
        fi
    done
    return 1
}

environment() {
    local dir=$root/$1 python wanted extra stamp
    shift
    if [ ! -x "$dir/bin/pip" ]; then
        python=$(newest_python) || missing "Python 3.10 or newer is needed, and none is on PATH"
        rm -rf "$dir"
        "$python" -m venv "$dir" >/dev/null 2>&1 ||
            missing "$python cannot make virtual environments; on Debian and Ubuntu install the package python3-venv"
    fi
    stamp=$dir/installed-from
    wanted=$(cksum <"$root/pyproject.toml")
    for extra in "$@"; do
        grep -qxs "$wanted $extra" "$stamp" && continue
        echo "mpicoll: installing the package with its extra '$extra' into $dir" >&2
        "$dir/bin/pip" install --quiet --disable-pip-version-check --editable "$root[$extra]" >&2 ||
            missing "pip could not install '$extra' (see above); is a package index within reach?"
        echo "$wanted $extra" >>"$stamp"
    done
    export VIRTUAL_ENV=$dir PATH=$dir/bin:$PATH
    if [ "$(id -u)" = 0 ]; then # Open MPI wants to be told that this is meant
        export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    fi
}
