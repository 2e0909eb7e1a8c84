"""A cluster of scripts/lab: ranks on hosts that share no memory, with a network between them that counts its bytes."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
LAB = ROOT / "scripts" / "lab"
NET, MPIRUN = LAB / "net.sh", LAB / "mpirun.sh"
TOOLS = ("ip", "tc", "unshare", "nsenter", "setpriv")
ENVIRONMENT = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "OPENBLAS_NUM_THREADS": "1"}
SHOW_NAMESPACES = f"readlink /proc/self/ns/net /proc/self/ns/pid; {LAB}/on.sh h1 readlink /proc/self/ns/net"


@pytest.fixture(scope="session")
def needs():
    """Skips where this machine gives no lab, and says why."""
    if os.getuid() != 0:
        pytest.skip("a lab needs root")
    if missing := [tool for tool in TOOLS if not shutil.which(tool)]:
        pytest.skip(f"a lab needs {', '.join(missing)}")
    shape = "tc qdisc add dev lo root tbf rate 1gbit burst 128kb latency 400ms"
    words = ["unshare", "--mount", "--net", "--uts", "--pid", "--fork", *shape.split()]
    tried = subprocess.run(words, capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"this kernel gives no lab: {tried.stderr.strip()}")


@pytest.fixture
def lab(needs):
    """lab(arguments of net.sh...): the finished process; a hang is a failure after 60 s."""

    def run(*arguments):
        words = [NET, *map(str, arguments)]
        return subprocess.run(words, env=ENVIRONMENT, capture_output=True, text=True, timeout=60, check=False)

    return run


def inside(namespaces):
    """The ids of the processes that are in one of these namespaces."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        for kind in ("net", "pid"):
            try:
                if os.readlink(process / "ns" / kind) in namespaces:
                    found.append(process.name)
            except OSError:  # it has just ended
                continue
    return found


def left_over(namespaces):
    """What is still in these namespaces 10 s later, or keeps them by a mount."""
    deadline = time.monotonic() + 10
    while (found := inside(namespaces)) and time.monotonic() < deadline:
        time.sleep(0.01)
    mounts = Path("/proc/self/mountinfo").read_text()
    return found + [name for name in namespaces if name in mounts]


def surroundings():
    """What a lab must leave as it was: links, names of namespaces, hosts, mounts."""
    links = sorted(os.listdir("/sys/class/net"))
    named = [sorted(os.listdir(path)) if path.exists() else None for path in map(Path, ("/run/netns", "/etc/netns"))]
    return links, named, Path("/etc/hosts").read_text(), Path("/proc/self/mountinfo").read_text(), os.uname().nodename


PROGRAM = """
import os, sys
from pathlib import Path
import numpy as np
from mpi4py import MPI
import mpicoll

per_host = int(sys.argv[1])
world = MPI.COMM_WORLD
sent = lambda: int(Path("/sys/class/net/e0/statistics/tx_bytes").read_text())
with mpicoll.Communicator(world) as comm:
    host, local = divmod(comm.rank, per_host)
    assert (comm.node, comm.local_rank, comm.size) == (host, local, 2 * per_host), comm.places
    assert comm.nodes == tuple(rank // per_host for rank in range(comm.size))
    assert os.uname().nodename == f"h{host}"
    x = np.arange(2**18) % 7 + comm.rank
    total = comm.size * (np.arange(2**18) % 7) + sum(range(comm.size))
    y = np.empty_like(x)
    calls = {"native": lambda: world.Allreduce(x, y), "auto": lambda: comm.allreduce(x, y)}
    for name in ("recursive_doubling", "circulant", "ring", "hierarchical"):
        calls[name] = lambda name=name: comm.allreduce(x, y, algorithm=name)
    for name, call in calls.items():
        for nth in range(2):  # the first one makes connections
            y[:] = 0
            world.Barrier()
            before = sent()
            world.Barrier()
            call()
            world.Barrier()
            crossed = (sent() - before) / x.nbytes
            assert (y == total).all(), name
        for rank, share in enumerate(world.gather(crossed) or []):  # one rank prints: launchers mix lines
            print(rank // per_host, name, f"{share:.3f}")
"""


@pytest.mark.parametrize("per_host", [1, 2])
def test_ranks_on_two_hosts_reduce_over_the_network(lab, tmp_path, per_host):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = lab(2, MPIRUN, "--per-host", per_host, sys.executable, program, per_host)
    assert done.returncode == 0, done.stderr
    crossed = {(int(host), name): float(share) for host, name, share in map(str.split, done.stdout.splitlines())}
    assert len(crossed) == 2 * 6
    for host in range(2):  # what left the host, in lengths of the buffer: 2 (p - 1) / p over p hosts, and the headers
        assert crossed[host, "native"] > 1
        assert 1 < crossed[host, "hierarchical"] < 1.2  # as often as it must, however many ranks there are
        assert 1.5 < crossed[host, "ring"] < 1.8 if per_host == 2 else 1 < crossed[host, "ring"] < 1.2


def test_a_failure_on_one_host_is_the_labs(lab, tmp_path):
    program = tmp_path / "program.py"
    program.write_text("import os, sys\nsys.exit(3 if os.uname().nodename == 'h1' else 0)")
    assert lab(2, MPIRUN, sys.executable, program).returncode == 3


def test_it_is_gone_when_its_command_has_ended(lab):
    before = surroundings()
    done = lab(2, "bash", "-c", f"{SHOW_NAMESPACES}; sleep 1000 & exit 7")
    assert done.returncode == 7, done.stderr
    namespaces = done.stdout.split()
    assert len(set(namespaces)) == 3
    assert not left_over(namespaces)
    assert surroundings() == before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_it_is_gone_when_it_is_killed(needs, number):
    before = surroundings()
    words = [NET, "2", "bash", "-c", f"{SHOW_NAMESPACES}; {LAB}/on.sh h1 sleep 1000"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        namespaces = [process.stdout.readline().strip() for _ in range(3)]
        assert inside(namespaces)  # so what is left would be seen
        process.send_signal(number)
        assert process.wait(10) == -number
        assert not left_over(namespaces)
    assert surroundings() == before


def test_links_carry_the_rate_that_is_asked_for_both_ways(lab):
    done = lab("--rate", "200mbit", 1, "bash", "-c", "tc qdisc show dev e0; nsenter -t 1 -n tc qdisc show dev h0")
    assert done.stdout.count(" rate 200Mbit ") == 2, done.stdout + done.stderr


def test_hosts_share_no_memory_and_no_network_with_others(lab):
    done = lab(2, "bash", "-c", f"touch /dev/shm/mine; ls /dev/shm; {LAB}/on.sh h1 'ls /dev/shm; ip route'")
    assert done.stdout.splitlines() == ["mine", "10.0.0.0/16 dev e0 proto kernel scope link src 10.0.0.2 "], done.stderr


def test_words_arrive_as_they_were_given(lab):
    done = lab(1, "printf", "<%s>", "a b", "*", "", "$HOME", "it's")
    assert done.stdout == "<a b><*><><$HOME><it's>"


def test_the_comparison_shows_every_algorithm(lab):
    words = ["--mib", "0.25", "--repetitions", "1", "--algorithm", "ring,tree"]
    done = lab(2, MPIRUN, sys.executable, LAB / "allreduce.py", *words)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert ": 2 hosts, 2 ranks, 1 repetitions" in lines[0]
    assert [line.split("  ")[0] for line in lines[4:6]] == ["one stream", "streams of all hosts"]
    assert [line.split()[0] for line in lines[6:]] == ["native", "auto:", "ring", "tree"]


class TestWithoutALab:
    """What is told where there can be none; this needs neither root nor tools."""

    @pytest.fixture
    def net(self, tmp_path):
        """net(user id, arguments...): its end and its errors, with nothing on PATH but what it surely finds."""

        def run(user, *arguments):
            for name in ("bash", "dirname", "cat"):
                (tmp_path / name).symlink_to(shutil.which(name))
            (tmp_path / "id").write_text(f"#!/bin/sh\necho {user}\n")
            (tmp_path / "id").chmod(0o755)
            words, path = [shutil.which("bash"), NET, *arguments], {"PATH": str(tmp_path)}
            done = subprocess.run(words, env=path, capture_output=True, text=True, check=False)
            return done.returncode, done.stderr

        return run

    def test_not_root(self, net):
        assert net(1000, "2", "true") == (1, "lab: making network namespaces needs root\n")

    def test_no_tools(self, net):
        assert net(0, "2", "true") == (1, "lab: there is no ip; it is in the package iproute2 or util-linux\n")

    @pytest.mark.parametrize(
        "arguments", [[], ["2"], ["0", "true"], ["two", "true"], ["--rate"], ["--fast", "2", "true"]]
    )
    def test_wrong_arguments(self, net, arguments):
        status, told = net(0, *arguments)
        assert status == 2
        assert told.startswith("usage: scripts/lab/net.sh [--rate 1gbit] HOSTS COMMAND...\n")

    @pytest.mark.parametrize("script", ["on.sh", "mpirun.sh"])
    def test_on_and_mpirun_belong_in_a_lab(self, script):
        done = subprocess.run([LAB / script, "h0", "true"], capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert done.stderr.startswith("usage")
