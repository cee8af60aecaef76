"""Tests with C stand-ins for NVML and libcuda that work, refuse, hang and crash.

Error numbers come from cuda.h and nvml.h.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from builder.client.commands.show_gpus import device_line, profile_value
from builder.client.doctor.observations import Detection, Outcome
from builder.client.probe import driver_calls
from builder.client.probe.detect import Surroundings, detect
from builder.client.probe.driver_calls import absent
from builder.client.probe.native import cuda_places, nvml_places
from builder.facts.gpu.architectures import Capability
from tests.doubles.captures import quoted
from tests.doubles.gpus import library, machine, probes
from tests.support import ROOT

H200 = "GPU-11111111-1111-1111-1111-111111111111"

MUSL = "Error loading shared library"

M2200 = "GPU-22222222-2222-2222-2222-222222222222"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("driver")


@pytest.fixture(scope="module")
def cuda_so(folder: Path) -> str:
    return library(folder, "libcuda")


@pytest.fixture(scope="module")
def nvml_so(folder: Path) -> str:
    return library(folder, "nvml")


class Driver:
    """A machine with both stand-ins, whose environment says how they behave."""

    def __init__(self, root: Path, cuda: str, nvml: str) -> None:
        self.root, self.cuda, self.nvml = root, cuda, nvml

    def around(self, *lacks: str, **env: str) -> Surroundings:
        """Return the machine, without the libraries that it lacks."""
        there = {name: path for name, path in vars(self).items() if name in {"cuda", "nvml"} - {*lacks}}
        return machine(self.root, env=env, **there)

    def found(self, *lacks: str, **env: str) -> Detection:
        return detect(self.around(*lacks, **env))


@pytest.fixture
def driver(tmp_path: Path, cuda_so: str, nvml_so: str) -> Driver:
    return Driver(tmp_path, cuda_so, nvml_so)


def test_cuda_says_which_devices_and_nvml_which_driver(driver: Driver) -> None:
    found = driver.found()
    assert [(card.uuid, card.name, str(card.capability), card.memory_mib) for card in found.devices] == [
        (H200, "NVIDIA H200", "9.0", 139 * 1024),
        (M2200, "Quadro M2200", "5.2", 4096),
    ]
    assert {card.driver for card in found.devices} == {"570.133.07"}
    assert [card.uuid for card in probes(found)["NVML"].devices] == [M2200, H200]
    assert probes(found)["nvidia-smi"].outcome is Outcome.SKIPPED


def test_without_nvml_nvidia_smi_is_asked_for_the_driver_alone(tmp_path: Path, cuda_so: str) -> None:
    smi = quoted("kepler-440").program(tmp_path)
    found = detect(machine(tmp_path, cuda=cuda_so, smi=(smi,)))
    assert (found.driver, found.cuda) == ("440.64.00", "12.9")
    assert [card.uuid for card in found.devices] == [H200, M2200]


def test_a_profile_follows_the_memory_that_is_free_and_without_nvml_all_of_it(driver: Driver) -> None:
    """The H200 has 9,000 MiB free of 139 GiB."""

    def seen(**env: str) -> tuple[object, ...]:
        first = driver.found(**env).devices[0]
        profile = profile_value(first)
        assert profile is not None
        assert (f", {first.free_mib} MiB free" in device_line(first)) == (first.free_mib is not None)
        return first.memory_mib, first.free_mib, profile["batch"], profile["memory_limit_mib"]

    assert seen() == (139 * 1024, 9000, 64, 8100)
    assert seen(FAKE_UNKNOWN="nvmlDeviceGetMemoryInfo") == (139 * 1024, None, 128, 128102)
    assert seen(ORTPACKS_FORCE_MEMORY="2048") == (2048, None, 16, 1843), "what the user states is free"
    assert seen(FAKE_MIG="1")[:2] == (9728, None), "nobody says it of an instance"


@pytest.mark.parametrize(
    ("call", "field", "filled"),
    [
        ("cuDeviceTotalMem_v2", "memory_mib", 143771),
        ("cuDeviceGetName", "name", "NVIDIA H200"),
        ("cuDeviceGetName,cuDeviceGetAttribute", "capability", "9.0"),  # the name would give it too
    ],
)
def test_what_cuda_does_not_say_is_taken_from_nvml(
    driver: Driver, call: str, field: str, filled: object
) -> None:
    assert str(getattr(driver.found(FAKE_UNKNOWN=call).devices[0], field)) == str(filled)


@pytest.mark.parametrize(
    ("call", "lost"),
    [
        ("nvmlDeviceGetHandleByIndex_v2", ("capability", None)),
        ("nvmlDeviceGetName", ("name", "NVIDIA GPU")),
        ("nvmlDeviceGetUUID", ("uuid", "")),
        ("nvmlDeviceGetCudaComputeCapability", ("capability", Capability(5, 2))),  # by product
        ("nvmlDeviceGetMemoryInfo", ("memory_mib", None)),
        ("nvmlSystemGetDriverVersion", ("driver", None)),
        ("nvmlSystemGetCudaDriverVersion_v2", ("cuda", None)),
    ],
)
def test_a_call_that_fails_loses_its_field_and_never_the_gpu(
    driver: Driver, call: str, lost: tuple[str, object]
) -> None:
    found = driver.found("cuda", FAKE_UNKNOWN=call)
    assert len(found.devices) == 2
    assert lost in {*vars(found.devices[0]).items(), ("driver", found.driver), ("cuda", found.cuda)}


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"),
        (35, "an error without a name"),
    ],
)
def test_where_cuda_fails_nvmls_gpus_stay_and_the_failure_is_kept(
    driver: Driver, code: int, name: str
) -> None:
    found = driver.found(FAKE_CUDA=str(code))
    assert [card.uuid for card in found.devices] == [M2200, H200]
    said = probes(found)["libcuda"]
    assert (said.outcome, said.code, said.error) == (Outcome.FAILED, code, name)
    assert said.detail == f"cuInit: {name} ({code})"
    assert said.cuda == "12.9"


def test_no_device_is_an_answer_and_no_failure(driver: Driver) -> None:
    said = probes(driver.found("nvml", FAKE_CUDA="100"))["libcuda"]
    assert (said.outcome, said.detail) == (Outcome.NONE, "cuInit: CUDA_ERROR_NO_DEVICE (100)")


@pytest.mark.parametrize(
    ("code", "words"), [(9, "Driver Not Loaded"), (18, "Driver/library version mismatch")]
)
def test_nvmls_own_words_for_a_failure_are_kept(driver: Driver, code: int, words: str) -> None:
    said = probes(driver.found("cuda", FAKE_NVML=str(code)))["NVML"]
    assert (said.outcome, said.code, said.error) == (Outcome.FAILED, code, words)


def test_what_the_user_hides_from_cuda_is_not_found_by_other_means(driver: Driver) -> None:
    found = driver.found(FAKE_CUDA="100", CUDA_VISIBLE_DEVICES="")
    assert found.devices == ()
    assert probes(found)["NVML"].detail == "CUDA_VISIBLE_DEVICES hides every GPU of 2"


@pytest.mark.parametrize(("env", "probe"), [({}, "libcuda"), ({"ORTPACKS_FORCE_CC": "8.6"}, "environment")])
def test_a_gpu_that_counts_is_not_called_hidden(driver: Driver, env: dict[str, str], probe: str) -> None:
    """Defect: CUDA numbers what is visible from 0 on, and so the second GPU alone was called hidden."""
    said = probes(driver.found("nvml", FAKE_MIG="1", CUDA_VISIBLE_DEVICES="1", **env))[probe]
    assert said.devices
    assert (said.outcome, "hides" in said.detail) == (Outcome.FOUND, False)


def test_a_mig_instance_has_the_name_that_cuda_visible_devices_takes(driver: Driver) -> None:
    (card,) = driver.found(FAKE_MIG="1").devices
    assert card.uuid == "MIG-feb88891-0321-5fef-9c87-d4af3b54259e"
    assert (card.name, card.memory_mib) == ("NVIDIA A100-SXM4-80GB MIG 1g.10gb", 9728)


def test_a_divided_card_has_the_memory_of_its_largest_instance(driver: Driver) -> None:
    (card,) = driver.found("cuda", FAKE_MIG="1").devices
    assert (card.uuid, card.memory_mib) == ("GPU-7fdaf0a5-179b-f636-d15d-daf243e3ff16", 9728)
    assert card.mig == ("MIG-feb88891-0321-5fef-9c87-d4af3b54259e",)


@pytest.mark.parametrize(
    ("named", "count"),
    [
        ("MIG-feb88891-0321-5fef-9c87-d4af3b54259e", 1),
        ("MIG-GPU-7fdaf0a5-179b-f636-d15d-daf243e3ff16/1/0", 1),
        ("MIG-00000000-0321-5fef-9c87-d4af3b54259e", 0),
    ],
)
def test_an_instance_that_is_no_longer_there_hides_every_gpu(driver: Driver, named: str, count: int) -> None:
    """NVIDIA's MIG User Guide: instances do not persist across a restart, and CUDA_VISIBLE_DEVICES takes the
    names ``MIG-<UUID>`` and, as before driver 470, ``MIG-<GPU-UUID>/<GI>/<CI>``."""
    found = driver.found(FAKE_CUDA="100", FAKE_MIG="1", CUDA_VISIBLE_DEVICES=named)
    assert (len(found.devices), "hides" in probes(found)["NVML"].detail) == (count, not count)


BOTH_LIBRARIES = pytest.mark.parametrize(("name", "who"), [("libcuda", "FAKE_CUDA"), ("NVML", "FAKE_NVML")])


@BOTH_LIBRARIES
def test_a_library_that_crashes_takes_only_its_own_answer_down(driver: Driver, name: str, who: str) -> None:
    found = driver.found(**{who: "crash"})
    assert (probes(found)[name].outcome, probes(found)[name].error) == (Outcome.FAILED, "SIGSEGV")
    assert {card.uuid for card in found.devices} == {H200, M2200}


def hurried(around: Surroundings, limit: float, *names: str) -> Surroundings:
    """Return the machine with a limit of ``limit`` seconds for the probes of these libraries."""
    return replace(
        around, ask=lambda argv, seconds: around.ask(argv, limit if {*names} & {*argv} else seconds)
    )


@BOTH_LIBRARIES
def test_a_library_that_hangs_costs_its_time_limit_and_leaves_nothing_behind(
    driver: Driver, tmp_path: Path, name: str, who: str
) -> None:
    pid = tmp_path / "pid"
    around = driver.around(FAKE_PID=str(pid), **{who: "hang"})
    found = detect(hurried(around, 1, name))
    assert probes(found)[name].outcome is Outcome.TIMEOUT
    assert {card.uuid for card in found.devices} == {H200, M2200}
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


def test_both_libraries_are_asked_at_the_same_time(driver: Driver, tmp_path: Path) -> None:
    around = driver.around(FAKE_CUDA="hang", FAKE_NVML="hang", FAKE_PID=str(tmp_path / "pid"))
    began = time.perf_counter()
    found = detect(hurried(around, 1.5, "NVML", "libcuda"))
    assert time.perf_counter() - began < 2 * 1.5
    assert [probes(found)[name].outcome for name in ("NVML", "libcuda")] == [Outcome.TIMEOUT] * 2


@BOTH_LIBRARIES
def test_a_probe_that_nobody_waits_for_ends_by_itself(
    tmp_path: Path, cuda_so: str, nvml_so: str, name: str, who: str
) -> None:
    asked = cuda_so if who == "FAKE_CUDA" else nvml_so
    code = f"from {driver_calls.__name__} import main; main({name!r}, {asked!r}, longest=0.15)"
    argv = [sys.executable, "-c", code]
    env = {"PYTHONPATH": str(ROOT), who: "hang", "FAKE_PID": str(tmp_path / "pid")}
    ended = subprocess.run(argv, env=env, timeout=5, check=False)
    assert ended.returncode == -signal.SIGALRM


@pytest.mark.parametrize("name", ["NVML", "libcuda"])
def test_a_library_that_is_there_and_does_not_load_is_not_missing(tmp_path: Path, name: str) -> None:
    broken = tmp_path / "broken.so.1"
    broken.write_bytes(b"\x7fELF and no more")
    said = probes(broken_found(tmp_path, str(broken)))[name]
    assert (said.outcome, str(broken) in said.detail) == (Outcome.FAILED, True)


def test_a_library_whose_own_library_is_missing_is_not_missing(tmp_path: Path, cuda_so: str) -> None:
    """Docker Desktop has libcuda without libdxcore (NVIDIA/nvidia-container-toolkit#1739)."""
    dxcore, lonely = tmp_path / "libdxcore.so", tmp_path / "libcuda.so.1"
    for target, needs in ((dxcore, []), (lonely, [str(dxcore)])):
        compile_empty(target, needs)
    dxcore.unlink()
    said = probes(broken_found(tmp_path, str(lonely)))["libcuda"]
    assert said.outcome is Outcome.FAILED
    assert "libdxcore.so" in said.detail


def test_the_loaders_own_search_path_counts(tmp_path: Path, cuda_so: str, nvml_so: str) -> None:
    for name, target in (("libcuda.so.1", cuda_so), ("libnvidia-ml.so.1", nvml_so)):
        (tmp_path / name).symlink_to(target)
    cuda, nvml_name = cuda_places("linux")[0], nvml_places("linux")[0]
    around = machine(tmp_path, cuda=cuda, nvml=nvml_name, env={"LD_LIBRARY_PATH": str(tmp_path)})
    assert {probe.outcome for probe in detect(around).replies.values() if probe.devices} == {Outcome.FOUND}
    assert len(detect(around).devices) == 2


def test_windows_has_other_names_for_the_same_libraries() -> None:
    assert cuda_places("win32") == ("nvcuda.dll",)
    assert nvml_places("win32")[0] == "nvml.dll"


@pytest.mark.parametrize(
    ("reason", "expected"),
    [  # messages of glibc, musl and Windows, by dlopen(3) and LoadLibraryEx
        ("libcuda.so.1: cannot open shared object file: No such file or directory", True),
        (f"{MUSL} libcuda.so.1: No such file or directory", True),
        ("Could not find module 'libcuda.so.1' (or one of its dependencies).", True),
        ("libdxcore.so: cannot open shared object file: No such file or directory", False),
        (
            "Error loading shared library libdxcore.so: No such file or directory (needed by libcuda.so.1)",
            False,
        ),
        ("libcuda.so.1: wrong ELF class: ELFCLASS32", False),
    ],
)
def test_a_missing_library_and_a_missing_dependency_are_told_apart(reason: str, expected: bool) -> None:
    assert absent("libcuda.so.1", reason) is expected


def test_a_library_without_the_functions_is_named_by_the_one_it_lacks(tmp_path: Path, cuda_so: str) -> None:
    empty = tmp_path / "libcuda.so.1"
    compile_empty(empty, [])
    found = broken_found(tmp_path, str(empty))
    assert probes(found)["libcuda"].detail == "cuInit: the library has no such function"
    assert probes(found)["NVML"].detail == "nvmlInit_v2: the library has no such function"


def broken_found(tmp_path: Path, path: str) -> Detection:
    return detect(machine(tmp_path, cuda=path, nvml=path))


def compile_empty(target: Path, needs: list[str]) -> None:
    """Compile an empty library that needs others, with the compiler that made ``cuda_so``."""
    options = ["-shared", "-fPIC", "-Wl,--no-as-needed", "-x", "c", "/dev/null", "-x", "none"]
    subprocess.run(["cc", *options, *needs, "-o", target], check=True)
