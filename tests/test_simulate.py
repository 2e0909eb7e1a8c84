"""The lesson's worked problems, answered by the command, and the model behind the answers."""

import json
import random
import subprocess
import sys

import pytest

from mpicoll import cost, links
from mpicoll.algorithms.cut import even
from mpicoll.simulate import main
from mpicoll.simulation import fabric, state
from mpicoll.simulation.problems import PROBLEMS
from mpicoll.simulation.step import Job, changes, simulate
from mpicoll.simulation.units import digits, in_bytes, in_count, in_time, parse_bytes, parse_count
from mpicoll.world import clock


@pytest.fixture
def text(capsys):
    """command → what it prints, with single spaces."""

    def run(command):
        assert main(command.split()) == 0
        return " ".join(capsys.readouterr().out.split())

    return run


@pytest.fixture
def data(text):
    """command → its numbers."""
    return lambda command: json.loads(text(f"{command} --json"))


# The lesson's problems.


def test_500_mb_on_8_gpus_are_875_mb_over_nvlink_or_infiniband(text):
    said = text("allreduce --bytes 500M -n 8 --links nvlink4 ndr")
    assert "nvlink4 ring 8 875 MB 1.75 M 1.94 ms" in said
    assert "ndr ring 8 875 MB 1.75 M 17.5 ms" in said
    assert "nvlink4 450 GB/s 1.94 ms 900 GB/s 0.972 ms 900 GB/s counts both directions" in said
    assert "ndr 50 GB/s 17.5 ms 100 GB/s 8.75 ms 400 Gb/s counts one direction" in said
    assert "ndr takes 9 times as long as nvlink4, like for like; 18 times as quoted" in said


def test_switches_that_add_halve_the_bytes(data):
    ring, sharp = data("allreduce --bytes 500M -n 8 --links ndr")["allreduce"]
    assert (ring["sent"], sharp["sent"]) == (875e6, 437.5e6)
    assert sharp["bandwidth_s"] == pytest.approx(ring["bandwidth_s"] / 2)


def test_links_that_are_asked_for_come_once_and_only_like_is_compared_with_like(text):
    said = text("allreduce --bytes 500M -n 16 --links nvlink4x8+ndr ndr ndr-sharp ndr")
    assert said.count("ndr-sharp in_network 16") == said.count("ndr ring 16") == 1
    assert "like for like" not in said  # switches add: half the bytes


def test_bytes_hardly_grow_with_the_number_of_gpus_but_latency_does(text):
    said = text("allreduce --bytes 500M -n 8,512 --links ndr")
    assert "From N = 8 to 512 on ndr: 1.75 M becomes 1.996 M (x 1.14), latency x 73" in said


PROBLEM_1 = "step --parameters 7B --dtype bf16 -n 64 --links 0us/50GB/s --compute-ms 400"


def test_7b_on_64_gpus_are_bound_by_the_network(text):
    said = text(PROBLEM_1)
    assert "27.6 GB sent per GPU: bandwidth 551.2 ms" in said
    assert "max 551.2 ms 151.2 ms 72.6 %" in said  # the lesson: 550 ms, at least 150 ms exposed, about 73 %
    assert "Verdict: network-bound, by bandwidth. 285.8 ms of communication are exposed; at least 151.2 ms are" in said
    assert "timeline 685.8 ms 285.8 ms 58.3 %" in said
    assert "sum 1,022.3 ms" in said


@pytest.mark.parametrize(
    "change", ["links twice as fast, 100 GB/s (XDR for NDR)", "the switches add", "gradients of 1 B"]
)
def test_xdr_sharp_or_fp8_each_make_it_about_276_ms(data, change):
    (name,) = [name for name in data(PROBLEM_1)["changes"] if name.startswith(change)]
    new = data(PROBLEM_1)["changes"][name]
    assert new["network_s"] == pytest.approx(0.2756, abs=1e-4)
    assert new["verdict"] == "compute-bound"


def test_what_is_loose_in_that_problem_is_said(text):
    said = text(PROBLEM_1)
    for loose in (
        "every GPU holds 112 GB of state (16 B per parameter), too much for its 80 GB",
        "gradients only from backward on, and the last bucket sticks out",
        "ZeRO's reduce-scatter sends 13.8 GB instead, but its all-gather of weights sends as much again",
        "one ring leaves a node by one NIC at a time",
    ):
        assert loose in said


def test_state_is_16_bytes_per_parameter(text):
    assert "plain data parallelism 64 16 B 112 GB no never 5B" in text("memory --parameters 7B -n 64")
    assert "plain data parallelism 64 16 B 1.12 TB no never 5B" in text("memory --parameters 70B -n 64")


def test_no_number_of_gpus_makes_30b_fit_but_sharding_does(text):
    said = text("memory --parameters 30B -n 1,16 --gpu-memory 80G")
    assert "plain data parallelism 16 16 B 480 GB no never 5B" in said
    assert "ZeRO-3: weights, too (FSDP) 16 1 B 30 GB yes from N = 6 80B" in said


def test_the_global_batch_is_a_product(text):
    said = text("batch --local 4 --global-batch 8192 -n 256,64")
    assert "8192 = 4 x 256 x 8" in said
    assert "8192 = 4 x 64 x 32 32 x 1 x 4" in said
    assert "8192 = 4 x 256 x 8" in text("batch --local 4 -n 256 --accumulation 8")
    assert "2048 = 4 x 512 x 1 1 x 64" in text("batch --local 4 -n 8,512")


def test_a_frontier_run_takes_centuries_on_one_gpu_and_months_on_thousands(text, data):
    assert "time 320 years" in text("budget --flops 1e25 --gpus 1 --mfu 1")
    assert "GPU hours 2.664M" in text("budget --gpu-hours 2.664M --gpus 2048")
    assert data("budget --gpu-hours 2.664M --gpus 2048")["days"] == pytest.approx(54.2, abs=0.1)
    assert data("budget --gpu-hours 30.84M --gpus 16000")["days"] == pytest.approx(80.3, abs=0.1)


def test_mfu_follows_from_flops_and_gpu_hours(data):
    flops = data("budget --parameters 1B --tokens 100B --gpus 8 --mfu 0.5")
    assert flops["flops"] == 6e20
    assert flops["seconds"] == pytest.approx(6e20 / (0.5 * 990e12) / 8)
    assert data("budget --flops 6e20 --gpu-hours 1000")["mfu"] == pytest.approx(6e20 / (1000 * 3600 * 990e12))


def test_chatty_collectives_across_nodes_cost_a_factor_of_2_to_5(data):
    inside, across = data("chatty -n 8 --inside nvlink4 --across ndr --bytes 64M --compute-ms 100")["chatty"]
    assert across["chatty_s"] > 8 * inside["chatty_s"]
    assert 2 < across["step_s"] / inside["step_s"] < 5


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.command)
def test_every_listed_problem_has_a_command_that_answers_it(text, problem):
    assert f"{problem.question} [{problem.answer}] python -m mpicoll.simulate {problem.command}" in text("problems")
    assert text(problem.command)


def test_no_mpi_is_started():
    program = "import sys; from mpicoll.simulate import main; main(['problems']); sys.exit('mpi4py.MPI' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL)


# An all-reduce on links.


def test_the_ring_is_a_reduce_scatter_and_an_all_gather():
    for size in 2, 3, 64:
        link, nbytes = links.preset("ndr"), 1000 * size
        phase = cost.predict("allgather", "ring", even(nbytes, size), 1, link.alpha, link.beta, 0)
        assert fabric.build("ndr", size).allreduce(nbytes).seconds == pytest.approx(2 * phase)


@pytest.mark.parametrize("text", ["0us/450GB/sx2+0us/50GB/s", "0us/450GB/sx4+0us/50GB/s", "0us/9GB/sx4+2*0us/50GB/s"])
@pytest.mark.parametrize("algorithm", ["ring", "hierarchical"])
def test_bandwidth_on_two_levels_is_that_of_the_simulated_world(text, algorithm):
    topology, counts = links.parse(text, 8), even(1 << 20, 8)
    options = {"nodes": [topology.node(rank) for rank in range(8)]} if algorithm == "hierarchical" else {}
    timing = clock.simulate("allreduce", algorithm, counts, 1, topology, **options)
    assert fabric.build(text, 8, algorithm).allreduce(1 << 20).seconds == pytest.approx(timing.seconds)


def test_several_levels_and_no_algorithm_mean_hierarchical():
    assert fabric.build("nvlink4x8+ndr", 64).algorithm == "hierarchical"
    assert fabric.build("nvlink4x8+ndr", 8).algorithm == "ring"  # one node


def test_other_algorithms_cost_what_the_closed_forms_say():
    link = links.preset("ndr")
    predicted = cost.predict("allreduce", "recursive_doubling", even(1000, 8), 1, link.alpha, link.beta, 0)
    assert fabric.build("ndr", 8, "recursive_doubling").allreduce(1000).seconds == pytest.approx(predicted)


def test_one_gpu_sends_nothing(data):
    assert all(row["sent"] == row["seconds"] == 0 for row in data("allreduce --bytes 1M -n 1")["allreduce"])


# A step.


def job(**changed):
    """Two layers of one tensor of 2 and 4 GB; forward takes 1 s, backward 3 s and then 2 s."""
    usual = {"layers": [2 * 10**9, 4 * 10**9], "tensors": 1, "itemsize": 1, "forward": 1.0, "backward": [2.0, 3.0]}
    return Job(**(usual | {"memory": 0.5} | changed))


GIGABYTE_PER_SECOND = fabric.build("0us/1GB/s", 2)  # 2 GPUs: an all-reduce of n GB takes n seconds


def test_buckets_go_out_in_order_when_they_are_full_and_the_links_are_free():
    step = simulate(job(), GIGABYTE_PER_SECOND)
    last, first = step.buckets
    assert (last.nbytes, last.ready, last.start, last.stop) == (4 * 10**9, 4, 4, 8)
    assert (first.nbytes, first.ready, first.start, first.stop) == (2 * 10**9, 6, 8, 10)
    assert step.bounds == {"max": 6, "timeline": 10, "sum": 12.5}
    assert (step.exposed, step.efficiency) == (4, 0.6)


def test_a_tensor_is_ready_when_its_share_of_backward_is_done():
    step = simulate(job(tensors=2), GIGABYTE_PER_SECOND)
    assert [bucket.ready for bucket in step.buckets] == [2.5, 4, 5, 6]


def test_a_bucket_takes_tensors_up_to_its_cap():
    small = job(layers=[1 << 20] * 8, backward=[1.0] * 8, bucket_cap_mb=3)
    assert [bucket.nbytes >> 20 for bucket in simulate(small, GIGABYTE_PER_SECOND).buckets] == [1, 3, 3, 1]


def test_the_bounds_enclose_the_timeline():
    rng = random.Random(1)
    for _ in range(200):
        layers = [rng.randrange(10**6, 10**9) for _ in range(rng.randrange(1, 6))]
        backward = [rng.uniform(0.01, 1) for _ in layers]
        some = job(layers=layers, backward=backward, memory=rng.uniform(0, 3), tensors=rng.randrange(1, 4))
        for step in (
            one := simulate(some, fabric.build("5us/1GB/s", rng.randrange(1, 20))),
            *(x.step for x in changes(one)),
        ):
            bounds = step.bounds
            assert bounds["max"] <= bounds["timeline"] * (1 + 1e-9)
            assert bounds["timeline"] <= bounds["sum"] * (1 + 1e-9)


def test_the_verdict_names_what_takes_longest():
    ten = fabric.build("0us/10GB/s", 2)
    assert simulate(job(), ten).verdict == "compute-bound"  # 0.2 of 6.2 seconds are exposed
    assert simulate(job(memory=7), ten).verdict == "memory-bound"
    assert simulate(job(forward=2), GIGABYTE_PER_SECOND).verdict == "compute-bound, 36 % exposed"  # 4 of 11
    assert simulate(job(memory=7), GIGABYTE_PER_SECOND).verdict == "memory-bound, 34 % exposed"
    assert simulate(job(forward=0.5), GIGABYTE_PER_SECOND).verdict == "network-bound, by bandwidth"
    assert simulate(job(), fabric.build("9000000us/1GB/s", 2)).verdict == "network-bound, by latency"


def test_where_memory_sets_the_time_it_is_said(text):
    scaling = "scaling --parameters 1B --links ndr --compute-ms 100 -n"
    assert "10.1 ms*" in text(f"{scaling} 8,512")
    assert "* the GPU's memory sets its time" in text(f"{scaling} 8,512")
    assert "memory sets its time" not in text(f"{scaling} 8,16")
    assert "Verdict: memory-bound*." in text("step --parameters 1B -n 1 --compute-ms 1")


def test_a_gpu_that_waits_for_its_memory_is_slower_everywhere():
    step = simulate(job(memory=12), GIGABYTE_PER_SECOND)
    assert (step.gpu, step.forward, step.layers) == (12, 2, [(8, 12), (2, 8)])


def test_larger_buckets_are_advised_where_latency_counts_and_only_there():
    names = [
        [x.name for x in changes(simulate(job(), fabric.build(text, 2)))] for text in ("0us/1GB/s", "900000us/1GB/s")
    ]
    assert [any(name.startswith("buckets of") for name in each) for each in names] == [False, True]


def test_layers_given_one_by_one_are_in_forward_order(data):
    answer = data("step --parameters 1G,2G --backward-ms 20,30 --compute-ms 60 -n 2 --tensors 1 --links 0us/100GB/s")
    assert answer["bounds_s"]["timeline"] == pytest.approx(0.01 + 0.03 + 0.06)  # buckets of 4 and 2 GB: 40 ms, 20 ms


def test_computing_follows_from_tokens(data):
    answer = data("step --parameters 1B --tokens 16k --mfu 0.5 -n 8")
    assert answer["compute_s"] == pytest.approx(6 * 1e9 * 16e3 / (0.5 * 990e12))
    assert answer["memory_s"] == pytest.approx(1e9 * state.TRAFFIC_PER_PARAMETER / 3.35e12)


def test_strong_scaling_ends_where_communication_does_not_shrink(data):
    points = data("scaling --parameters 1B -n 8,64,512 --links ndr --compute-ms 400")["scaling"]
    assert [point["weak"]["compute_s"] for point in points] == [0.4, 0.4, 0.4]
    assert [point["strong"]["compute_s"] for point in points] == pytest.approx([0.4, 0.05, 0.00625])
    assert points[2]["speedup"] < points[1]["speedup"]
    assert points[1]["speedup"] == pytest.approx(0.4 / points[1]["strong"]["bounds_s"]["timeline"])


# Pictures.


@pytest.mark.parametrize("command", [PROBLEM_1, "scaling --parameters 1B --compute-ms 400"])
def test_the_picture_is_svg_and_the_same_each_time(text, tmp_path, command):
    pytest.importorskip("matplotlib")
    for name in "a.svg", "b.svg", "c.png":
        text(f"{command} --svg {tmp_path}/{name}")
    assert "<svg" in (tmp_path / "a.svg").read_text()
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")


# Bad input.


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("allreduce --bytes 0", "0 must be positive"),
        ("allreduce --bytes -5", "'-5' is not a positive number"),
        ("allreduce --bytes 1M -n 0", "'0' is not a whole number from 1 up"),
        ("allreduce --bytes 1M --links nvlink9", "'nvlink9' is unknown; there are nvlink4, nvlink5, pcie5, ndr"),
        ("allreduce --bytes 1M --links nvlink4 -n 64", "64 ranks on nvlink4, which joins 8"),
        ("allreduce --bytes 1M --links nvlink4x8+ndr -n 12", "--links nvlink4x8+ndr: nodes of 8 and 4 GPUs; here all"),
        ("allreduce --bytes 1M --links 0us/0GB/s", "link '0us/0GB/s' carries nothing"),
        ("allreduce --bytes 1M --algorithm rings", "algorithm 'rings' is unknown; there are ring, hierarchical"),
        ("allreduce --bytes 1M --algorithm in_network", "nvlink4-sharp"),
        ("allreduce --bytes 1M --links nvlink4x8+ndr -n 16 --algorithm tree", "tree needs one link for all"),
        ("step --parameters 7B", "--compute-ms, or --tokens"),
        ("step --parameters 7B --compute-ms 0", "0 must be positive"),
        ("step --parameters 7B,1B --backward-ms 1,2,3 --compute-ms 10", "2 layers, --backward-ms has 3"),
        (
            "step --parameters 7B --backward-ms 2,1 --compute-ms 10",
            "2 layers, --parameters one number: give one for each",
        ),
        ("step --parameters 7B --backward-ms 2,1 --compute-ms 10 --layers 3", "--layers is 3, and 2 are given one by"),
        ("step --parameters 7B --compute-ms 10 --svg x.pdf", "--svg x.pdf: the name ends in .svg or .png"),
        ("step --parameters 7B --backward-ms 11 --compute-ms 10", "backward takes 11 ms of 10 ms"),
        (
            "step --parameters 7B --compute-ms 10 --svg /nowhere/at/all.svg",
            "--svg /nowhere/at/all.svg: there is no folder /nowhere/at",
        ),
        ("scaling --parameters 7B --compute-ms 10 -n 8,4", "8,4 is not ascending"),
        ("memory --parameters 7Q", "'7Q' is not a positive number such as 7B"),
        ("budget", "--flops, or --parameters and --tokens, or --gpu-hours"),
        ("budget --flops 1e25 --mfu 2", "2 is more than 1"),
        ("batch --local 4 -n 64 --global-batch 300", "512 would"),
        ("batch --local 4 -n 64 --global-batch 512 --accumulation 3", "leave one of them out"),
        ("chatty -n 1", "does not communicate"),
    ],
)
def test_a_wrong_argument_is_one_line_that_says_what_would_be_right(capsys, command, message):
    try:
        status = main(command.split())
    except SystemExit as ended:
        status = ended.code
    printed = capsys.readouterr()
    assert status == 2
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert message in printed.err


def test_without_matplotlib_a_picture_names_what_is_missing(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main([*PROBLEM_1.split(), "--svg", "picture.svg"]) == 2
    assert capsys.readouterr().err.strip().endswith("pip install 'mpicoll[plot]'")


def test_numbers_are_read_and_written_as_people_do():
    assert [parse_bytes(x) for x in ("500M", "500MB", "25MiB", "8")] == [500_000_000, 500_000_000, 25 << 20, 8]
    assert [parse_count(x) for x in ("7B", "2.664M", "1e25", "16k")] == [7e9, 2.664e6, 1e25, 16e3]
    assert [in_bytes(x) for x in (875e6, 27.5625e9, 1.12e12, 5)] == ["875 MB", "27.6 GB", "1.12 TB", "5 B"]
    assert [in_time(x) for x in (5e-6, 0.972e-3, 17.5e-3, 1.5, 86400 * 54.2)] == [
        *("5 us", "0.972 ms", "17.5 ms", "1.5 s", "54.2 days")
    ]
    assert [in_count(x) for x in (7e9, 2.664e6, 12)] == ["7B", "2.664M", "12"]
    assert [digits(x) for x in (0, 1234, 0.5, 73.0)] == ["0", "1,234", "0.5", "73"]
