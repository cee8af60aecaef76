"""Tests of the order in which GPUs are detected, and of what the user, the kernel and the system report."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from builder.client.doctor.observations import Outcome
from builder.client.probe.detect import detect
from builder.errors import ConfigError
from tests.doubles.captures import quoted
from tests.doubles.gpus import machine, probes, program

TWO_CARDS = """\
case "$1" in
  *uuid*) echo "0, GPU-aaaa, NVIDIA GeForce RTX 4090"; echo "1, GPU-bbbb, Quadro M2200" ;;
  *compute_cap*) echo "0, 8.9"; echo "1, 5.2" ;;
  *memory*) echo "0, 24564"; echo "1, 4096" ;;
  *driver*) echo "0, 570.133.07"; echo "1, 570.133.07" ;;
esac
"""


def test_nothing_at_all_is_no_gpu_with_every_probes_reason(tmp_path: Path) -> None:
    found = detect(machine(tmp_path))
    said = probes(found)
    assert (found.devices, found.driver, found.cuda) == ((), None, None)
    assert list(said) == ["environment", "NVML", "libcuda", "nvidia-smi", "proc", "sys"]
    assert {probe.outcome for probe in found.replies.values()} == {Outcome.MISSING}
    assert "libno-such-cuda.so" in said["libcuda"].detail
    assert "libno-such-nvml.so" in said["NVML"].detail


def test_a_hanging_nvidia_smi_is_stopped_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("builder.client.probe.smi.SECONDS", 0.2)
    found = detect(machine(tmp_path, smi=(program(tmp_path, "sleep 60 | cat"),)))
    assert probes(found)["nvidia-smi"].outcome is Outcome.TIMEOUT
    assert found.devices == ()


def test_an_nvidia_smi_that_writes_without_end_is_stopped(tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    said = probes(detect(machine(tmp_path, smi=(program(tmp_path, "exec yes"),))))["nvidia-smi"]
    assert (said.outcome, said.detail) == (Outcome.TIMEOUT, "stopped, because it wrote more than 64 MiB")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 * 1024, "KiB"


def test_a_program_that_ends_and_leaves_its_pipe_to_another_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("builder.client.probe.smi.SECONDS", 0.3)
    found = detect(machine(tmp_path, smi=(program(tmp_path, "sleep 60 &"),)))
    assert probes(found)["nvidia-smi"].outcome is Outcome.TIMEOUT


@pytest.mark.parametrize(
    ("visible", "uuids"),
    [
        ("GPU-bbbb", ["GPU-bbbb"]),
        ("1,0", ["GPU-bbbb", "GPU-aaaa"]),
        ("0,7,1", ["GPU-aaaa"]),
        ("1,0,1", []),
        ("GPU-bbbb,GPU-bbbb", []),
        ("", []),
        ("-1", []),
    ],
)
def test_cuda_visible_devices_is_respected_without_libcuda(
    tmp_path: Path, visible: str, uuids: list[str]
) -> None:
    """The rule is that of ``_parse_visible_devices`` in PyTorch's ``torch/cuda/__init__.py``, which follows
    CUDA: a repeated number or UUID leaves no GPU."""
    smi = program(tmp_path, TWO_CARDS)
    found = detect(machine(tmp_path, smi=(smi,), env={"CUDA_VISIBLE_DEVICES": visible}))
    assert [card.uuid for card in found.devices] == uuids
    assert len(probes(found)["nvidia-smi"].devices) == 2


def test_a_variable_that_hides_every_gpu_is_named(tmp_path: Path) -> None:
    smi = program(tmp_path, TWO_CARDS)
    said = probes(detect(machine(tmp_path, smi=(smi,), env={"CUDA_VISIBLE_DEVICES": "-1"})))["nvidia-smi"]
    assert (said.outcome, said.detail) == (Outcome.NONE, "CUDA_VISIBLE_DEVICES hides every GPU of 2")


def test_an_nvidia_smi_that_fails_does_not_hide_the_next(tmp_path: Path) -> None:
    linux = quoted("not-loaded-wsl").program(tmp_path / "linux")
    wsl = quoted("wsl").program(tmp_path / "wsl")
    (card,) = detect(machine(tmp_path, smi=(linux, wsl))).devices
    assert card.uuid == "GPU-b5e386b4-3e71-5837-aca5-80c5914cf07f"


@pytest.mark.parametrize(
    "line",
    [
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.133.07  Fri Mar 14 13:12:07 UTC 2025",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.133.07  Release Build  (dvs-builder)",
    ],
)
def test_the_driver_file_gives_the_version_alone(tmp_path: Path, line: str) -> None:
    write(tmp_path / "proc/driver/nvidia/version", f"{line}\nGCC version: gcc 12.2.0\n")
    found = detect(machine(tmp_path))
    assert (found.devices, found.driver) == ((), "570.133.07")


@pytest.mark.parametrize(
    ("text", "driver", "outcome"),
    [("580.95.05", "580.95.05", Outcome.FOUND), ("unknown", None, Outcome.FAILED)],
)
def test_the_kernel_module_says_its_version_where_proc_is_hidden(
    tmp_path: Path, text: str, driver: str | None, outcome: Outcome
) -> None:
    write(tmp_path / "sys/module/nvidia/version", f"{text}\n")
    found = detect(machine(tmp_path))
    assert (found.driver, probes(found)["sys"].outcome) == (driver, outcome)
    assert probes(found)["proc"].outcome is Outcome.MISSING


def test_the_users_word_comes_first(tmp_path: Path) -> None:
    smi = program(tmp_path, TWO_CARDS)
    env = {"ORTPACKS_FORCE_CC": "sm_86,5.2", "ORTPACKS_FORCE_DRIVER": "525.60.13"}
    found = detect(machine(tmp_path, smi=(smi,), env=env))
    assert [str(card.capability) for card in found.devices] == ["8.6", "5.2"]
    assert {card.driver for card in found.devices} == {"525.60.13"}
    assert detect(machine(tmp_path, smi=(smi,), env={"ORTPACKS_FORCE_CC": "none"})).devices == ()


@pytest.mark.parametrize(
    ("stated", "capabilities", "memory"),
    [
        ("8192", "8.6,5.2", [8192, 8192]),
        ("8192, 4000", "8.6,5.2", [8192, 4000]),
        ("2000", None, [2000, 2000]),
        ("2000", "none", []),
    ],
)
def test_stated_memory_goes_before_what_the_driver_says_for_all_gpus_or_for_each(
    tmp_path: Path, stated: str, capabilities: str | None, memory: list[int]
) -> None:
    env = {"ORTPACKS_FORCE_MEMORY": stated}
    env |= {"ORTPACKS_FORCE_CC": capabilities} if capabilities else {}
    found = detect(machine(tmp_path, smi=(program(tmp_path, TWO_CARDS),), env=env))
    assert [card.memory_mib for card in found.devices] == memory


@pytest.mark.parametrize(
    "env",
    [
        {"ORTPACKS_FORCE_CC": "90a"},
        {"ORTPACKS_FORCE_CC": "8.6,"},
        {"ORTPACKS_FORCE_DRIVER": "new"},
        {"ORTPACKS_FORCE_MEMORY": "8 GB"},
        {"ORTPACKS_FORCE_MEMORY": "0"},
        {"ORTPACKS_FORCE_MEMORY": "1,2,3", "ORTPACKS_FORCE_CC": "8.6,5.2"},
    ],
)
def test_a_malformed_word_is_refused_by_name(tmp_path: Path, env: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=next(iter(env))) as caught:
        detect(machine(tmp_path, env=env))
    assert caught.value.exit_code == 2


def test_a_mac_is_not_asked_for_a_driver_it_cannot_have(tmp_path: Path) -> None:
    asked = program(tmp_path, f"echo asked > {tmp_path}/asked")
    found = detect(machine(tmp_path, smi=(asked,), system="darwin"))
    skipped = {
        name: probe.detail for name, probe in probes(found).items() if probe.outcome is Outcome.SKIPPED
    }
    assert list(skipped) == ["NVML", "libcuda", "nvidia-smi"]
    assert set(skipped.values()) == {"there is no NVIDIA driver for macOS"}
    assert not (tmp_path / "asked").exists()


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
