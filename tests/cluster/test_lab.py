"""A cluster of scripts/lab: ranks on hosts that share no memory, with a network between them that counts its bytes."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from namespaces import inside, left_over, surroundings

ROOT = Path(__file__).parent.parent.parent
LAB = ROOT / "scripts" / "lab"
MPI = Path(sys.executable).parent / "mpirun"
NET, MPIRUN = LAB / "net.sh", LAB / "mpirun.sh"
SHOW_NAMESPACES = f"readlink /proc/self/ns/net /proc/self/ns/pid; {LAB}/on.sh h1 readlink /proc/self/ns/net"


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


@pytest.mark.parametrize("hosts", [2, 4])
def test_the_hostfiles_start_ranks_on_every_host(lab, tmp_path, hosts):
    version = subprocess.run([MPI, "--version"], capture_output=True, text=True, check=True).stdout
    mpi = "openmpi" if "Open MPI" in version else "mpich"
    command, *lines = (ROOT / "hostfiles" / f"{mpi}-two-nodes").read_text().splitlines()
    pattern = next(line for line in lines if not line.startswith("#"))  # a host, and how many ranks it takes
    file = tmp_path / "hosts"
    file.write_text("".join(f"{pattern.replace('node0', f'h{i}').replace('8', '2')}\n" for i in range(hosts)))
    words = command.removeprefix("# ").replace("16", str(2 * hosts)).replace(f"hostfiles/{mpi}-two-nodes", str(file))
    show = "from mpi4py import MPI; import os; print(*MPI.COMM_WORLD.gather(os.uname().nodename) or [], end='')"
    agents = f"PRTE_MCA_plm_ssh_agent={LAB}/on.sh HYDRA_LAUNCHER=ssh HYDRA_LAUNCHER_EXEC={LAB}/on.sh"
    started = f"source {LAB}/settings.sh; {agents} {words.replace('-m mpicoll.train', f'-c {show!r}')}"
    done = lab(hosts, "bash", "-c", started)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [f"h{rank // 2}" for rank in range(2 * hosts)]


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
