"""What detect makes of fake tools. Outputs of nvidia-smi are as quoted in the public issues named here."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from builder.client.commands import asker
from builder.client.detect import Detection, Surroundings, detect
from builder.client.probes import Outcome
from builder.errors import ConfigError

FIELDS_OK = """\
case "$1" in
  *uuid*) echo "0, GPU-aaaa, NVIDIA GeForce RTX 4090"; echo "1, GPU-bbbb, Quadro M2200" ;;
  *compute_cap*) echo "0, 8.9"; echo "1, 5.2" ;;
  *memory*) echo "0, 24564"; echo "1, 4096" ;;
  *driver*) echo "0, 570.133.07"; echo "1, 570.133.07" ;;
esac
"""
# huggingface/candle#733: the 470 branch; the complaint is on stdout, the exit status 2.
OLD_BRANCH = """\
case "$1" in
  *uuid*) echo "0, GPU-cccc, Tesla M60" ;;
  *compute_cap*) echo 'Field "compute_cap" is not a valid field to query.'; exit 2 ;;
  *memory*) echo "0, 8129" ;;
  *driver*) echo "0, 470.256.02" ;;
esac
"""
# unslothai/unsloth#10703: unified memory.
UNIFIED = """\
case "$1" in
  *uuid*) echo "0, GPU-dddd, NVIDIA GB10" ;;
  *compute_cap*) echo "0, 12.1" ;;
  *memory*) echo "0, [N/A]" ;;
  *driver*) echo "0, 580.95.05" ;;
esac
"""
BROKEN = 'echo "NVIDIA-SMI has failed because it couldn\'t communicate with the NVIDIA driver."; exit 9\n'


def machine(
    tmp_path: Path, *, smi: str | None = None, env: Mapping[str, str] | None = None, cuda: str = ""
) -> Surroundings:
    folder = tmp_path / "bin"
    folder.mkdir(exist_ok=True)
    if smi is not None:
        program = folder / "nvidia-smi"
        program.write_text(f"#!/bin/sh\n{smi}")
        program.chmod(0o755)
    full = {"PATH": f"{folder}:/usr/bin:/bin", **(env or {})}
    return Surroundings(
        env=full,
        ask=asker(full),
        python=sys.executable,
        driver_file=tmp_path / "version",
        cuda_libraries=(cuda or "libno-such-cuda.so",),
        smi_programs=(str(folder / "nvidia-smi"),),
    )


def outcomes(found: Detection) -> dict[str, Outcome]:
    return {Path(probe.name).name: probe.outcome for probe in found.probes}


def test_all_cards_of_nvidia_smi_with_all_they_say(tmp_path: Path) -> None:
    found = detect(machine(tmp_path, smi=FIELDS_OK))
    first, second = found.devices
    assert (first.uuid, str(first.capability), first.memory_mib, first.driver) == (
        "GPU-aaaa",
        "8.9",
        24564,
        "570.133.07",
    )
    assert (second.name, str(second.capability), second.memory_mib) == ("Quadro M2200", "5.2", 4096)


def test_a_driver_without_compute_cap_is_known_by_product(tmp_path: Path) -> None:
    (card,) = detect(machine(tmp_path, smi=OLD_BRANCH)).devices
    assert (str(card.capability), card.memory_mib, card.driver) == ("5.2", 8129, "470.256.02")


def test_memory_that_is_not_said_is_no_missing_gpu(tmp_path: Path) -> None:
    (card,) = detect(machine(tmp_path, smi=UNIFIED)).devices
    assert (str(card.capability), card.memory_mib) == ("12.1", None)


def test_nothing_at_all_is_no_gpu_with_every_probes_reason(tmp_path: Path) -> None:
    found = detect(machine(tmp_path))
    assert found.devices == ()
    assert outcomes(found) == {
        "environment": Outcome.MISSING,
        "libcuda": Outcome.MISSING,
        "nvidia-smi": Outcome.MISSING,
        "version": Outcome.MISSING,
    }
    assert "libno-such-cuda.so" in found.probes[1].detail


def test_an_error_on_stdout_is_kept_word_for_word(tmp_path: Path) -> None:
    found = detect(machine(tmp_path, smi=BROKEN))
    assert outcomes(found)["nvidia-smi"] is Outcome.FAILED
    assert "couldn't communicate with the NVIDIA driver" in found.probes[2].detail


def test_a_hanging_nvidia_smi_is_stopped_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("builder.client.smi.SECONDS", 0.3)
    found = detect(machine(tmp_path, smi="sleep 60 | cat\n"))
    assert outcomes(found)["nvidia-smi"] is Outcome.TIMEOUT
    assert found.devices == ()


@pytest.mark.parametrize(
    ("visible", "uuids"),
    [
        ("GPU-bbbb", ["GPU-bbbb"]),
        ("1,0", ["GPU-bbbb", "GPU-aaaa"]),
        ("0,7,1", ["GPU-aaaa"]),
        ("", []),
        ("-1", []),
    ],
)
def test_cuda_visible_devices_is_respected_without_libcuda(
    tmp_path: Path, visible: str, uuids: list[str]
) -> None:
    found = detect(machine(tmp_path, smi=FIELDS_OK, env={"CUDA_VISIBLE_DEVICES": visible}))
    assert [card.uuid for card in found.devices] == uuids


@pytest.mark.parametrize(
    "line",
    [
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.133.07  Fri Mar 14 13:12:07 UTC 2025",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.133.07  Release Build  (dvs-builder)",
    ],
)
def test_the_driver_file_gives_the_version_alone(tmp_path: Path, line: str) -> None:
    (tmp_path / "version").write_text(f"{line}\nGCC version: gcc 12.2.0\n")
    found = detect(machine(tmp_path))
    assert (found.devices, found.driver) == ((), "570.133.07")


def test_the_users_word_comes_first(tmp_path: Path) -> None:
    env = {"ORTPACKS_FORCE_CC": "8.6,5.2", "ORTPACKS_FORCE_DRIVER": "525.60.13"}
    found = detect(machine(tmp_path, smi=FIELDS_OK, env=env))
    assert [str(card.capability) for card in found.devices] == ["8.6", "5.2"]
    assert {card.driver for card in found.devices} == {"525.60.13"}
    assert detect(machine(tmp_path, smi=FIELDS_OK, env={"ORTPACKS_FORCE_CC": "none"})).devices == ()


@pytest.mark.parametrize(
    "env",
    [
        {"ORTPACKS_FORCE_CC": "86"},
        {"ORTPACKS_FORCE_CC": ""},
        {"ORTPACKS_FORCE_CC": "8.6,"},
        {"ORTPACKS_FORCE_DRIVER": "new"},
    ],
)
def test_a_malformed_word_is_refused_by_name(tmp_path: Path, env: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=next(iter(env))) as caught:
        detect(machine(tmp_path, env=env))
    assert caught.value.exit_code == 2


FAKE_CUDA = r"""
#include <stdlib.h>
#include <string.h>
int cuInit(unsigned f) { return getenv("FAKE_NO_DEVICE") ? 100 : getenv("FAKE_CRASH") ? (abort(), 0) : 0; }
int cuGetErrorName(int c, const char **t) { *t = c == 100 ? "CUDA_ERROR_NO_DEVICE" : "?"; return 0; }
int cuDriverGetVersion(int *v) { *v = 12090; return 0; }
int cuDeviceGetCount(int *n) { *n = 2; return 0; }
int cuDeviceGet(int *d, int i) { *d = i; return 0; }
int cuDeviceGetName(char *s, int n, int d) { strncpy(s, d ? "Quadro M2200" : "NVIDIA H200", n); return 0; }
int cuDeviceTotalMem_v2(size_t *b, int d) { *b = d ? 4ull << 30 : 139ull << 30; return 0; }
int cuDeviceGetAttribute(int *v, int a, int d) { *v = a == 75 ? (d ? 5 : 9) : (d ? 2 : 0); return 0; }
int cuDeviceGetUuid_v2(char *u, int d) { memset(u, d ? 0x22 : 0x11, 16); return 0; }
"""


@pytest.fixture(scope="module")
def libcuda(tmp_path_factory: pytest.TempPathFactory) -> str:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler for the stand-in libcuda")
    folder = tmp_path_factory.mktemp("cuda")
    (folder / "cuda.c").write_text(FAKE_CUDA)
    target = folder / "libcuda.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-w", "-o", target, folder / "cuda.c"], check=True)
    return str(target)


def test_libcuda_comes_before_nvidia_smi(tmp_path: Path, libcuda: str) -> None:
    found = detect(machine(tmp_path, smi=OLD_BRANCH, cuda=libcuda))
    first, second = found.devices
    assert (first.name, str(first.capability), first.memory_mib) == ("NVIDIA H200", "9.0", 139 * 1024)
    assert (second.uuid, str(second.capability)) == ("GPU-22222222-2222-2222-2222-222222222222", "5.2")
    assert found.driver == "470.256.02"  # libcuda does not know it: nvidia-smi is asked for this alone
    assert outcomes(found)["nvidia-smi"] is Outcome.SKIPPED


def test_what_the_user_hides_from_cuda_is_not_found_by_other_means(tmp_path: Path, libcuda: str) -> None:
    env = {"FAKE_NO_DEVICE": "1", "CUDA_VISIBLE_DEVICES": ""}
    found = detect(machine(tmp_path, smi=FIELDS_OK, cuda=libcuda, env=env))
    assert found.devices == ()
    assert "CUDA_ERROR_NO_DEVICE (100)" in found.probes[1].detail


def test_a_crashing_libcuda_takes_only_its_probe_down(tmp_path: Path, libcuda: str) -> None:
    found = detect(machine(tmp_path, smi=FIELDS_OK, cuda=libcuda, env={"FAKE_CRASH": "1"}))
    assert outcomes(found)["libcuda"] is Outcome.FAILED
    assert "exit -6" in found.probes[1].detail
    assert len(found.devices) == 2
