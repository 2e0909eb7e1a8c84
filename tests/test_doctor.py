"""Every finding of the doctor, with its trouble planted in facts, and what the facts are read from."""

import json
import os
import re
import sys

import pytest

from mpicoll import doctor, gpu, runtime
from mpicoll.doctoring import findings, hardware, network, software
from mpicoll.doctoring.facts import Facts, Rank
from mpicoll.doctoring.hardware import Near
from mpicoll.doctoring.network import Clock, Link
from mpicoll.launch import Place

WELL = Rank(
    place=Place("a", (0,), 2),
    local_rank=0,
    blas="OpenBLAS",
    threads=1,
    share=1,
    device=None,
    no_device="CuPy cannot be imported",
    hidden=0,
    interfaces=(Near("e0 10 Gbit/s", (0, 1)),),
    differs=(),
)
LIBRARY = software.Library("MPICH 5.0.2", "/env/lib/libmpi.so.12", "a wheel brought it", "/env/bin/mpirun")
FAST, NETWORK = {8: 1e-6, 65536: 1e-5, 1048576: 1e-4}, {8: 5e-5, 65536: 6e-4, 1048576: 9e-3}


def at(host, core, **changed):
    """A rank that is well, bound to one core of its host's 2."""
    return WELL._replace(**{"place": Place(host, (core,), 2), "local_rank": core, **changed})


def on(cores, of_all, **changed):
    return WELL._replace(**{"place": Place("a", tuple(cores), of_all), **changed})


GOOD = Facts(
    ranks=[at("a", 0), at("a", 1), at("b", 0), at("b", 1)],
    launch=runtime.Launch("MPICH's mpirun", 4),
    level=3,
    library=LIBRARY,
    versions={"Python": "3.11.7", "MPI": "MPICH Version: 5.0.2", "numpy": "2.4.6"},
    missing=[],
    digest="0123456789ab",
    aware=None,
    links=[Link(0, 1, True, FAST), Link(2, 3, True, FAST), Link(0, 2, False, NETWORK)],
    clocks=[Clock(2, 1e-5, 1e-5)],
)


def with_gpus(*devices, cores=((0, 1), (0, 1))):
    """Ranks on host a with these (number, near cores), or None for none."""
    ranks = []
    for device, own in zip(devices, cores, strict=True):
        place = Place("a", own, 4, ("a", None, device[0]) if device else ())
        near = Near(f"{device[0]} (H200)", device[1]) if device else None
        ranks.append(WELL._replace(place=place, device=near, no_device="" if device else "CUDA finds none", hidden=2))
    return ranks


def look(name, **changed):
    """The finding of this name in facts that are good but for what is changed."""
    facts = GOOD._replace(**changed)
    if "links" not in changed and len(facts.ranks) < 4:  # those of ranks that are not there
        facts = facts._replace(links=[], clocks=[])
    found = [one for one in findings.all_findings(facts) if one.name == name]
    assert len(found) == 1, found
    return found[0]


def test_nothing_is_found_where_all_is_good():
    found = findings.all_findings(GOOD)
    assert {one.grade for one in found} == {"good"}
    assert {one.mend for one in found} == {""}
    names = ["versions", "MPI", "mpirun", "world", "thread level", "code", "nodes", "cores", "BLAS", "GPU", "network"]
    assert [one.name for one in found] == [*names, "in a node", "between nodes", "clocks"]


SLOW, LATE = FAST | {1048576: 1.0}, FAST | {8: 1e-3}
DIFFERS = (
    "numpy is 2.2.5 (rank 0: 2.4.6)",
    "mpicoll/jobs.py differs",
    "mpicoll/rules.py differs",
    "mpicoll/x.py differs",
)
OTHER_MPIRUN = LIBRARY._replace(mpirun="/usr/bin/mpirun")
NO_LAUNCHER = runtime.Launch("", 1)

PLANTED = [
    ("versions", {"missing": ["numpy is 1.26, 2.2.5 is needed"]}, "suspicious", "numpy is 1.26", "pip install"),
    ("mpirun", {"library": LIBRARY._replace(mpirun="")}, "suspicious", "none on PATH", "PATH"),
    (
        "mpirun",
        {"library": OTHER_MPIRUN, "launch": NO_LAUNCHER},
        "suspicious",
        "/usr/bin/mpirun on PATH is not of the installation of /env/lib/libmpi.so.12",
        "/env/bin/mpirun",
    ),
    ("world", {"launch": runtime.Launch("srun", 8)}, "suspicious", "srun started 8 processes, the world has 4", ""),
    ("thread level", {"level": 1}, "suspicious", "MPI_THREAD_FUNNELED: no thread may", "MPI_THREAD_MULTIPLE"),
    (
        "code",
        {"ranks": [*GOOD.ranks[:2], at("b", 0, differs=DIFFERS), at("b", 1, differs=DIFFERS)]},
        "broken",
        "rank 2 on b is not as rank 0: numpy is 2.2.5 (rank 0: 2.4.6), mpicoll/jobs.py differs, "
        "mpicoll/rules.py differs and 1 more; 1 more rank too",
        "the same environment",
    ),
    ("nodes", {"ranks": GOOD.ranks[:3]}, "suspicious", "a has 2 ranks, b has 1", "--map-by ppr:N:node"),
    ("cores", {"ranks": [on([0, 1], 2)] * 4}, "suspicious", "4 ranks share 2 cores on a", "start 2 ranks"),
    ("cores", {"ranks": [on([0], 8)] * 2}, "suspicious", "2 ranks share 1 core on a, which has 8", "--bind-to none"),
    (
        "cores",
        {"ranks": [on([0], 8), on([1], 8)]},
        "suspicious",
        "2 ranks on a may use only 2 of 8 cores: bound to one each, as Open MPI does with up to 2 ranks",
        "mpirun --bind-to none",
    ),
    ("cores", {"ranks": [on(range(4), 8)]}, "suspicious", "1 rank on a may use only 4 of 8 cores", "--bind-to none"),
    (
        "BLAS",
        {"ranks": [at("a", 0), at("a", 1, threads=2)]},
        "suspicious",
        "OpenBLAS uses 2 threads on rank 1 on a, whose share of cores is 1: ranks get in each other's way",
        "OMP_NUM_THREADS=1",
    ),
    ("BLAS", {"ranks": [on(range(8), 8, share=8)]}, "suspicious", "uses 1 thread on rank 0 on a", "unset OPENBLAS_NUM"),
    ("GPU", {"ranks": [at("a", 0, hidden=8)]}, "suspicious", "the machine has 8 GPUs, unused: CuPy", "pip install"),
    ("GPU", {"ranks": with_gpus((0, ()), None)}, "suspicious", "rank 1 on a has none: CUDA finds none", "every node"),
    (
        "GPU",
        {"ranks": with_gpus((0, (0, 1)), (1, (2, 3)))},
        "suspicious",
        "rank 1 on a runs on cores 0-1; its GPU 1 (H200) is near 2-3",
        "bind to the NUMA node",
    ),
    ("GPU", {"ranks": with_gpus((0, ()), (0, ()))}, "suspicious", "2 ranks share 1 GPU on a", "one rank for each GPU"),
    ("CUDA-aware", {"aware": (False, "SIGSEGV")}, "suspicious", "staged through host memory: SIGSEGV", "gpu_env.sh"),
    ("CUDA-aware", {"aware": "MPICOLL_CUDA is 'yes'"}, "broken", "MPICOLL_CUDA is 'yes'", "unset MPICOLL_CUDA"),
    (
        "network",
        {"ranks": [*GOOD.ranks[:3], at("b", 1, interfaces=())]},
        "suspicious",
        "no interface that is up is seen on rank 3 on b",
        "ip link",
    ),
    (
        "in a node",
        {"links": [Link(0, 1, True, FAST), Link(2, 3, True, LATE)]},
        "suspicious",
        "rank 2 on b and rank 3 on b: 8 B take 1e+03 us",
        "--bind-to none",
    ),
    ("in a node", {"links": [Link(0, 1, True, SLOW)]}, "suspicious", "1024 KiB at 0.00105 GB/s", "shared memory"),
    ("between nodes", {"links": [Link(0, 2, False, LATE)]}, "suspicious", "rank 0 on a and rank 2 on b", "btl_tcp_if"),
    ("between nodes", {"links": [Link(0, 2, False, SLOW)]}, "suspicious", "slower than 500 us or 0.05 GB/s", "-iface"),
    (
        "between nodes",
        {"links": [Link(0, 2, False, FAST), Link(1, 2, False, FAST), Link(0, 3, False, NETWORK)]},
        "suspicious",
        "rank 0 on a and rank 3 on b: 8 B take 50 us, 64 KiB at 0.109 GB/s, 1024 KiB at 0.117 GB/s; usual is 10 GB/s",
        "cables",
    ),
    ("clocks", {"clocks": [Clock(2, -2.5, 1e-5)]}, "suspicious", "b is 2.5e+03 ms behind a (+- 0.01 ms)", "on b"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "changed", "grade", "what", "mend"), PLANTED)
def test_planted_trouble_is_found_named_and_mended(name, changed, grade, what, mend):
    found = look(name, **changed)
    assert found.grade == grade
    assert what in found.what
    assert mend in found.mend


@pytest.mark.parametrize(
    ("name", "changed", "what"),
    [
        ("world", {"launch": NO_LAUNCHER}, "4 ranks; the launcher does not say how many it started"),
        ("world", {"launch": NO_LAUNCHER, "ranks": GOOD.ranks[:1]}, "1 rank, no launcher"),
        ("mpirun", {"library": OTHER_MPIRUN}, "/usr/bin/mpirun"),  # they have found each other
        ("cores", {"ranks": [on([0, 1], 4), on([2, 3], 4)]}, "each rank may use 2, its share is 1"),
        ("cores", {}, "each rank is bound to one core of its own"),
        ("BLAS", {"ranks": [at("a", 0, blas="", threads=0)]}, "NumPy's is none whose threads can be asked for"),
        ("GPU", {"ranks": with_gpus((0, (0, 1)), (1, ()))}, "one for each rank: 2 ranks on (H200)"),
        ("CUDA-aware", {"aware": (True, "56 messages")}, "MPI sends from GPU memory: 56 messages"),
        ("messages", {"ranks": GOOD.ranks[:1], "links": [], "clocks": []}, "one rank has nobody to talk to"),
        ("clocks", {"clocks": [Clock(2, 0.3, 0.25)]}, "b is 300 ms ahead of a (+- 2.5e+02 ms)"),  # not known that well
    ],
)
def test_what_only_looks_odd_is_good(name, changed, what):
    found = look(name, **changed)
    assert found.grade == "good"
    assert found.what.startswith(what)


class TestReport:
    BAD = (findings.good("one", "is well"), findings.broken("second", "is not", "do this"))

    @pytest.fixture(autouse=True)
    def _first(self, monkeypatch):
        monkeypatch.setattr(doctor, "rank", lambda: 0)

    def test_a_line_for_each_and_a_table_of_ranks(self, capsys):
        assert doctor.report(self.BAD, GOOD, False, False) == 1
        assert capsys.readouterr().out.splitlines() == [
            "good        one     is well",
            "broken      second  is not  ->  do this",
            "",
            "rank  host  local  cores  threads  GPU  network interfaces (near cores)",
            "0     a     0      0      1        -    e0 10 Gbit/s (0-1)",
            "1     a     1      1      1        -    e0 10 Gbit/s (0-1)",
            "2     b     0      0      1        -    e0 10 Gbit/s (0-1)",
            "3     b     1      1      1        -    e0 10 Gbit/s (0-1)",
            "",
            "1 good, 0 suspicious, 1 broken",
        ]

    def test_the_short_form_counts_what_is_good(self, capsys):
        assert doctor.report(self.BAD, GOOD, False, True) == 1
        told = "1 good, 0 suspicious, 1 broken; python -m mpicoll.doctor shows all"
        assert capsys.readouterr().out.splitlines() == ["broken      second  is not  ->  do this", told]

    def test_what_is_suspicious_is_no_failure(self):
        assert doctor.report([findings.suspicious("one", "odd", "look")], GOOD, False, False) == 0

    def test_json_has_it_all(self, capsys):
        assert doctor.report(self.BAD, GOOD, True, False) == 1
        found = json.loads(capsys.readouterr().out)
        assert found["findings"][1] == {"name": "second", "grade": "broken", "what": "is not", "mend": "do this"}
        assert [own["place"]["host"] for own in found["ranks"]] == ["a", "a", "b", "b"]
        assert found["links"][0]["seconds"]["8"] == 1e-6

    def test_a_long_table_is_cut(self):
        lines = doctor.table(GOOD._replace(ranks=GOOD.ranks * 20))
        assert len(lines) == 1 + doctor.ROWS + 1
        assert lines[-1] == "and 16 more: --json has all"

    def test_other_ranks_say_nothing(self, monkeypatch, capsys):
        monkeypatch.setattr(doctor, "rank", lambda: 1)
        assert doctor.report(self.BAD, GOOD, False, False) == 0
        assert capsys.readouterr().out == ""


def test_cores_are_read_and_shown_as_the_kernel_writes_them():
    for text, cores in {"": (), "3": (3,), "0-2,8": (0, 1, 2, 8), "0-1,4-5": (0, 1, 4, 5)}.items():
        assert hardware.parse_cores(text) == cores
        assert hardware.show_cores(cores) == text


def test_devices_and_the_cores_near_to_them_are_read(tmp_path):
    for name, text in {
        "class/net/lo/operstate": "up",
        "class/net/eth0/operstate": "up",
        "class/net/eth0/speed": "25000",
        "class/net/eth0/device/local_cpulist": "0-1",
        "class/net/eth1/operstate": "down",
        "class/net/veth/operstate": "up",
        "class/net/veth/speed": "-1",
        "class/infiniband/mlx5_0/ports/1/rate": "400 Gb/sec (4X NDR)",
        "class/infiniband/mlx5_0/device/local_cpulist": "8-15",
        "bus/pci/devices/0000:1b:00.0/vendor": "0x10de",
        "bus/pci/devices/0000:1b:00.0/class": "0x030200",
        "bus/pci/devices/0000:1b:00.0/local_cpulist": "4-5",
        "bus/pci/devices/0000:1c:00.0/vendor": "0x10de",
        "bus/pci/devices/0000:1c:00.0/class": "0x068000",  # a switch of theirs
        "bus/pci/devices/0000:00:02.0/vendor": "0x8086",
        "bus/pci/devices/0000:00:02.0/class": "0x030000",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    assert hardware.interfaces(tmp_path) == [
        ("eth0 25 Gbit/s", (0, 1)),
        ("veth", ()),
        ("mlx5_0 400 Gbit/s", tuple(range(8, 16))),
    ]
    assert hardware.nvidia(tmp_path) == 1
    assert hardware.near_pci("0000:1B:00.0", tmp_path) == (4, 5)
    assert hardware.near_pci("", tmp_path) == hardware.near_pci("0000:ff:00.0", tmp_path) == ()
    assert hardware.interfaces(tmp_path / "none") == []
    assert hardware.nvidia(tmp_path / "none") == 0


@pytest.mark.parametrize(
    ("path", "wheel", "environment", "why"),
    [
        ("/env/lib/libmpi.so.12", "5.0.2", {}, "the wheel mpich 5.0.2 brought it"),
        ("/env/lib/libmpi.so.12", "", {}, "no wheel brought it"),
        ("/opt/mpi/lib/libmpi.so.12", "", {"MPI4PY_LIBMPI": "/opt/mpi/lib"}, "MPI4PY_LIBMPI names it"),
        ("/opt/mpi/lib/libmpi.so.12", "", {"LD_LIBRARY_PATH": "/x:/opt/mpi/lib"}, "LD_LIBRARY_PATH leads there"),
        ("/usr/lib/x86_64-linux-gnu/libmpich.so.12", "", {}, "of the system"),
        ("", "", {}, "of the system"),
    ],
)
def test_why_it_is_this_mpi_is_told(path, wheel, environment, why):
    assert why in software.origin(path, "MPICH", wheel, "/env", environment)


@pytest.mark.parametrize(
    ("file", "folder"),
    [
        ("/env/lib/libmpi.so.12", "/env"),
        ("/env/bin/mpirun", "/env"),
        ("/usr/lib/x86_64-linux-gnu/libmpi.so", "/usr"),
        ("/usr/bin/mpirun.openmpi", "/usr"),
        ("/opt/library/ompi/lib64/libmpi.so.40", "/opt/library/ompi"),
    ],
)
def test_a_library_and_its_programs_are_of_one_installation(file, folder):
    assert software.installation(file) == folder


def test_this_process_has_an_mpi_and_its_file():
    found = software.library()
    assert re.fullmatch(r".+ \d+(\.\d+)+", found.name)
    assert os.path.exists(found.path)


def test_threads_of_this_blas_are_told():
    name, threads = software.blas()
    assert (threads >= 1) == bool(name)


def test_what_is_older_than_needed_is_told():
    versions = {"numpy": "2.10.1", "mpi4py": "4.0", "tqdm": "4.59.2", "ml_dtypes": ""}
    needed = ["numpy>=2.2.5", "mpi4py>=4.0", "ml_dtypes >= 0.4", "tqdm>=4.60"]
    told = ["ml_dtypes is missing, 0.4 or newer is needed", "tqdm is 4.59.2, 4.60 or newer is needed"]
    assert software.too_old(needed, versions.__getitem__) == told


def test_what_differs_from_rank_0_is_named():
    first, mine = {"a.py": "1", "b.py": "2", "c.py": "3"}, {"a.py": "1", "b.py": "x", "d.py": "4"}
    told = ["mpicoll/b.py differs", "mpicoll/c.py is missing", "mpicoll/d.py is not on rank 0"]
    assert software.differences(mine, first, "mpicoll/") == told
    assert software.differences({"numpy": "2.2"}, {"numpy": "2.4"}) == ["numpy is 2.2 (rank 0: 2.4)"]
    assert software.differences(first, first) == []
    assert software.digest(first) != software.digest(mine)


def test_the_code_of_this_rank_is_all_of_it():
    assert {"runtime.py", "algorithms/ring.py", "doctoring/software.py"} <= software.code().keys()


@pytest.mark.parametrize("size", range(1, 8))
def test_no_rank_is_in_two_pairs_at_once_and_all_nodes_are_in_a_ring(size):
    nodes = [0, *range(size), size - 1]  # two on the first and on the last
    first = [nodes.index(node) for node in range(size)]
    near, *far = network.rounds(nodes)
    for pairs in (near, *far):
        ranks = [rank for pair in pairs for rank in pair]
        assert len(set(ranks)) == len(ranks)
    assert all(nodes[a] == nodes[b] for a, b in near)
    ring = {(first[i], first[(i + 1) % size]) for i in range(size if size > 2 else size - 1)}
    assert {pair for pairs in far for pair in pairs} == ring


def test_the_address_of_a_gpu_is_asked_only_where_one_is_in_use(monkeypatch):
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    assert gpu.address() == ""
