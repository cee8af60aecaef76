"""Tests of runtime images from inside, by testinfra: with a read-only root and an unknown user."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean

import pytest
import testinfra
from testinfra.host import Host

from builder.config.variants import Project
from builder.prove.sample_models import silero_inputs
from tests.doubles.gpus import library
from tests.images.conftest import FULL, SERVICE
from tests.support.containers import docker
from tests.support.real_packages import (
    LIBRARIES,
    MINIMAL,
    require_stock_numbers,
    silero_model,
    write_silero_inputs,
)

STARTS, ATTEMPTS = 6, 3
"""Limit of the time of a session's fallback, in starts of Python with ONNX Runtime, and attempts.

One attempt must keep it on the clock, the mean of all in CPU time. Measured on two cores: 3.3 to 4.3 in both.
"""

KINDS = ("cpu", "legacy", SERVICE, *FULL)
"""That of ``modern`` with the service has all that one without it has."""

HELD = {
    "cpu": {"libonnxruntime.so.1", "libonnxruntime_providers_shared.so"},
    "legacy": MINIMAL,
    "modern": LIBRARIES,
    **dict.fromkeys(FULL, LIBRARIES - {"libcurand.so.10"}),
}


MODEL = """
import json, numpy, ortpacks_runtime
types = {"f32": "<f4", "i32": "<i4", "i64": "<i8"}
feed = {
    name: numpy.fromfile(f"/in/{name}", types[type]).reshape(dims)
    for name, type, dims in json.load(open("/in/inputs.json"))
}
session = ortpacks_runtime.open_session("/in/silero_vad.onnx")
names = [output.name for output in session.inner.get_outputs()]
outputs = dict(zip(names, (value.ravel().tolist() for value in session.run(None, feed))))
print(json.dumps({"outputs": outputs, **session.report.value()}))
"""

ONE_NODE = """
import os, subprocess, sys
from ortpacks_runtime import one_node, session

def took(work):
    before = os.times()
    work()
    after = os.times()
    return sum(after[:4]) - sum(before[:4]), after.elapsed - before.elapsed

def start():
    subprocess.run([sys.executable, "-c", "import onnxruntime"], check=True)

def open_session():
    print(session.open_session("/tmp/model.onnx").report.provider)

open("/tmp/model.onnx", "wb").write(one_node.ONE_NODE)
cpu, clock = zip(took(start), took(open_session), took(start))
for before, opening, after in (cpu, clock):
    print(opening / ((before + after) / 2))
"""
"""A program that prints a session's provider, and the CPU time and the time on the clock of opening it.

Both are in starts of Python with ONNX Runtime, made just before and after, because seconds would judge the
machine and its other work too.
"""

READ_ONLY = ("--read-only", "--tmpfs=/tmp")

CUDNN = "/opt/ortpacks/lib/libcudnn.so.9"

REFUSALS = {
    "WSL2's driver": (
        (*READ_ONLY, "--env=FAKE_CUDA=500"),
        "CUDA failure 500: named symbol not found",
        "Take CUDA libraries that are not the package's out of LD_LIBRARY_PATH",
    ),
    "an old driver": (
        (*READ_ONLY, "--env=FAKE_CUDA_VERSION=11040"),
        "CUDA failure 35: CUDA driver version is insufficient",
        "On the host, not in this container: Update the NVIDIA driver.",
    ),
    "no device": (
        (*READ_ONLY, "--env=FAKE_CUDA=100"),
        "CUDA failure 100: no CUDA-capable device is detected",
        "Start a new container with the GPUs (`docker run --gpus all`)",
    ),
    "full memory": (
        (*READ_ONLY, "--env=FAKE_CUDA=2"),
        "CUDA failure 2: out of memory",
        "On the host, not in this container, `nvidia-smi` lists the programs",
    ),
    "no cuDNN": (
        ("--user=0",),
        "libcudnn.so.9: cannot open shared object file",
        "Start a new container from the image as it was built.",
    ),
}
"""Flags of a container, the message of NVIDIA's runtime or of the loader in it, and the advice."""

CLOSURE = """
for file in $(find / -xdev -type f \\( -name '*.so' -o -name '*.so.*' \\) 2>/dev/null) /usr/bin/python3.11; do
    /lib64/ld-linux-x86-64.so.2 --list "$file" 2>&1 | grep 'not found' | sed "s#^#$file #"
done
"""


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a model and its inputs, readable by any user."""
    folder = tmp_path_factory.mktemp("given")
    write_silero_inputs(folder)
    (folder / "silero_vad.onnx").write_bytes(silero_model().read_bytes())
    rows = [(one.name, one.type, one.dims) for one in silero_inputs()]
    (folder / "inputs.json").write_text(json.dumps(rows))
    folder.chmod(0o755)
    return folder


@contextmanager
def sleeping(image: str, *flags: str) -> Iterator[Host]:
    """Run a container without a network, which sleeps, inside the block."""
    label = "--label=io.ortpacks=run"
    container = docker("run", "--detach", "--rm", label, "--network=none", *flags, image, "sleep", "3600")
    try:
        yield testinfra.get_host(f"docker://{container}")
    finally:
        docker("rm", "--force", container)


@pytest.fixture(scope="module")
def host(image: str, given: Path) -> Iterator[Host]:
    """Yield a container in which only /tmp is writable and the user is unknown."""
    with sleeping(image, *READ_ONLY, "--user=4242:4242", f"--volume={given}:/in:ro") as found:
        yield found


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """Return flags that mount a stand-in for the driver where NVIDIA's container toolkit mounts a driver."""
    folder = tmp_path_factory.mktemp("driver")
    folder.chmod(0o755)
    libraries = {"libcuda.so.1": "libcuda", "libnvidia-ml.so.1": "nvml"}
    return tuple(
        f"--volume={library(folder, source)}:/usr/lib/x86_64-linux-gnu/{name}:ro"
        for name, source in libraries.items()
    )


def test_every_library_is_a_regular_file_of_the_manifests_bytes(host: Host, kind: str, variant: str) -> None:
    manifest = json.loads(host.file("/opt/ortpacks/manifest.json").content_string)
    assert manifest["variant"] == variant
    wanted = {entry["path"]: entry["sha256"] for entry in manifest["files"]}
    theirs = "! -name manifest.json ! -path './models/*'"  # models belong to the service, not to the package
    sums = host.check_output(f"cd /opt/ortpacks && find . -type f {theirs} | xargs sha256sum")
    assert {path.removeprefix("./"): sum_ for sum_, path in map(str.split, sums.splitlines())} == wanted
    libraries = {Path(path).name for path in wanted if path.startswith("lib/")}
    assert libraries == HELD[kind if kind in HELD else variant]
    assert host.check_output("find /opt/ortpacks ! -type f ! -type d") == ""
    assert host.check_output("find /opt/ortpacks /usr/local ! -user root -o -perm /022") == ""


def test_every_library_finds_all_that_it_needs(host: Host) -> None:
    assert host.run(CLOSURE).stdout == ""


def test_nothing_of_cuda_and_no_second_onnxruntime_but_the_packages(host: Host) -> None:
    patterns = ("libcu*.so*", "libnv*.so*", "libonnxruntime.so*", "*providers_cuda*")
    names = " -o ".join(f"-name '{pattern}'" for pattern in patterns)
    assert host.run(f"find / -xdev \\( {names} \\) -not -path '/opt/ortpacks/*'").stdout == ""


@pytest.mark.parametrize("program", ["gcc", "cc", "ld", "make", "nvcc", "pip", "apt", "dpkg", "perl"])
def test_there_is_nothing_to_build_or_install_with(host: Host, program: str) -> None:
    assert not host.exists(program)
    assert host.run("python3 -m pip").rc != 0


def test_without_a_gpu_the_doctor_says_cpu_after_running_there_and_why(host: Host, variant: str) -> None:
    said = json.loads(host.check_output("python3 -m ortpacks_runtime doctor --json"))
    assert (said["provider"], said["proved"]) == ("cpu", True)
    assert said["nodes"] == {"CPUExecutionProvider": 1}
    refused = {step["provider"]: step for step in said["steps"] if not step["taken"]}
    if variant == "cpu":
        assert refused == {}
    else:
        assert "libcuda.so.1" in refused["cuda"]["reason"]
        assert refused["cuda"]["advice"]


@pytest.mark.parametrize("kind", [SERVICE], indirect=True)
@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_gpu_that_cannot_be_used_is_left_for_the_cpu_within_seconds_and_told(
    image: str, driver: tuple[str, ...], refusal: str
) -> None:
    flags, reason, advice = REFUSALS[refusal]
    with sleeping(image, *driver, *flags) as host:
        if refusal == "no cuDNN":
            host.check_output(f"rm {CUDNN}")
        said = json.loads(host.check_output("python3 -m ortpacks_runtime doctor --json"))
        opened = [host.run("python3 -c %s", ONE_NODE) for _ in range(ATTEMPTS)]
    assert (said["provider"], said["proved"]) == ("cpu", True)
    (cuda,) = [step for step in said["steps"] if step["provider"] == "cuda"]
    assert reason in cuda["reason"]
    assert advice in cuda["advice"]
    assert {one.rc for one in opened} == {0}
    providers, cpu, clock = zip(*(one.stdout.split() for one in opened), strict=True)
    assert set(providers) == {"cpu"}
    assert fmean(map(float, cpu)) < STARTS, cpu
    assert min(map(float, clock)) < STARTS, clock
    assert f"Falling back to CPU: cuda: {cuda['reason']}" in opened[0].stderr


def test_a_session_falls_back_to_the_cpu_and_computes_what_the_stock_build_does(
    host: Host, variant: str
) -> None:
    done = host.run("python3 -c %s", MODEL)
    assert done.rc == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["provider"] == "cpu"
    require_stock_numbers(said)
    assert ("Falling back to CPU: cuda:" in done.stderr) == (variant != "cpu")


def test_it_speaks_tls_and_knows_whom_to_trust(host: Host) -> None:
    program = "import ssl; print(ssl.create_default_context().cert_store_stats()['x509_ca'])"
    assert int(host.check_output(f'python3 -c "{program}"')) > 100


def test_its_glibc_asks_for_large_pages(host: Host) -> None:
    """``--list-tunables`` prints values after glibc has read the environment; 0 is the default."""
    tunables = host.check_output("/lib64/ld-linux-x86-64.so.2 --list-tunables")
    assert "glibc.malloc.hugetlb: 0x1 " in tunables


def test_it_says_what_it_is_and_runs_as_nobody_in_particular(host: Host, image: str, variant: str) -> None:
    config = json.loads(docker("inspect", image))[0]["Config"]
    labels = config["Labels"]
    version = image.rpartition(":")[2].partition("-")[0]
    assert labels["io.ortpacks"] == "runtime"
    assert labels["io.ortpacks.variant"] == variant
    assert labels["io.ortpacks.onnxruntime"] == labels["org.opencontainers.image.version"] == version
    assert len(labels["io.ortpacks.onnxruntime.commit"]) == 10
    assert ("NVIDIA" in labels["org.opencontainers.image.licenses"]) == (variant != "cpu")
    assert (labels.get("io.ortpacks.sm"), labels.get("io.ortpacks.cuda")) == {
        "cpu": (None, None),
        "legacy": ("50 52 60 61 70", "12.9"),
        "modern": ("75 80 86", "12.9"),
        "latest": ("89 90 100 120", "12.9"),
    }[variant]
    compiled = {"cpu": "none", "modern": "official"}.get(variant, r"12\.[0-9.]+")  # by nvcc 12, or not
    assert re.fullmatch(compiled, labels.get("io.ortpacks.toolkit", "none"))
    assert config["User"] == "10001:10001"
    assert host.user("ortpacks").uid == 10001
    environment = " ".join(config["Env"])
    assert ("NVIDIA_VISIBLE_DEVICES=all" in environment) == (variant != "cpu")
    assert not [word for word in ("TOKEN", "SECRET", "PASSWORD", "PROXY") if word in environment.upper()]


def test_its_default_command_runs_a_model_on_the_cpu_and_claims_no_gpu(image: str, kind: str) -> None:
    if kind == SERVICE:
        pytest.skip("its default command is the service, which test_service_image asks")
    flags = ("--rm", "--network=none", "--read-only", "--tmpfs=/tmp", "--label=io.ortpacks=run")
    said = docker("run", *flags, image).splitlines()
    assert said[0].startswith("cpu: onnxruntime ")
    assert "  cpu: taken: 1 nodes on CPUExecutionProvider" in said
    assert said[-1].startswith("  in use: ")
    assert "onnxruntime" in said[-1]
    assert any(line.startswith("  cuda: refused: libcuda.so.1") for line in said) == (kind != "cpu")


def test_the_one_for_the_cpu_is_as_small_as_promised(image: str, variant: str, project: Project) -> None:
    if variant != "cpu":
        pytest.skip("NVIDIA's libraries alone are larger; test_registry holds what is pulled beside them")
    assert json.loads(docker("inspect", image))[0]["Size"] < project.image.budget
