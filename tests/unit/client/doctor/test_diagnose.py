"""Tests of the findings that doctor derives from its observations."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from builder.client.commands.doctor import diagnose
from builder.client.doctor.advice import MachineFinding, catalogue
from builder.client.doctor.observations import Observations, Probe, SessionTrial, Shadow
from builder.config.toolkits import ToolkitChoice, check_version
from builder.facts.gpu.architectures import Arch, Capability
from builder.facts.gpu.devices import profile_of
from builder.finding import Severity
from tests.support import ROOT
from tests.unit.client.doctor.doctor_cases import BARE, CASES, NO_DEVICE, OWN, WELL, WSL_500
from tests.unit.client.selection.select_cases import gpu

ADVICE = catalogue()


@pytest.mark.parametrize("name", CASES)
def test_a_machine_gets_its_codes_and_no_others(name: str) -> None:
    observed, codes = CASES[name]
    found = diagnose(observed)
    assert {finding.code for finding in found} == codes
    assert len(found) == len(codes)


def test_every_code_has_a_case_and_no_case_a_code_that_is_none() -> None:
    assert {code for _, codes in CASES.values() for code in codes} == set(ADVICE)


def test_codes_are_unique_sorted_and_of_one_family() -> None:
    text = (ROOT / "builder/client/doctor/advice.json").read_text()
    names = re.findall(r'^  "(\w+)": \{$', text, re.MULTILINE)
    assert names == sorted(set(names)) == list(ADVICE)
    assert all(re.fullmatch(r"D\d{3}", name) for name in names)


@pytest.mark.parametrize("name", CASES)
def test_a_finding_says_what_was_seen_what_it_means_and_what_to_do(name: str) -> None:
    for finding in diagnose(CASES[name][0]):
        for text in (finding.seen, finding.means, finding.do):
            assert text.endswith((".", "?"))
            assert "{" not in text
            assert "None" not in text


def only(observed: Observations) -> MachineFinding:
    (finding,) = diagnose(observed)
    return finding


def test_a_wheel_of_ours_is_not_called_by_the_official_ones_name() -> None:
    lacking, both = (
        {finding.code: finding.seen for finding in diagnose(CASES[name][0])}
        for name in ("a wheel of ours without NVIDIA's", "a wheel of ours and the official one")
    )
    assert lacking["D403"] == "A Python here has ortpacks-onnxruntime-gpu."
    assert both["D403"] == "A Python here has onnxruntime-gpu and ortpacks-onnxruntime-gpu."


def test_a_finding_names_what_was_seen() -> None:
    observed = {
        name: only(CASES[name][0]) for name in ("a Pascal card and driver 590", "two cards of two packages")
    }
    assert "0000:02:00.0 (10de:1b80)" in observed["a Pascal card and driver 590"].seen
    assert "590.44.01" in observed["a Pascal card and driver 590"].seen
    assert "modern runs on card 0 (8.6), not on card 1 (12.0)" in observed["two cards of two packages"].seen
    assert (
        "NVIDIA_DRIVER_CAPABILITIES=utility"
        in only(CASES["a container with utility and without compute"][0]).means
    )
    assert "CUDA_ERROR_NOT_FOUND (500)" in only(WSL_500).seen
    assert "525.60.13" in only(CASES["a driver below the package's floor"][0]).means
    assert "and 1 more" in only(CASES["a library of the package was replaced"][0]).seen
    one = replace(OWN, problems=("lib/x: is missing",))
    assert only(replace(WELL, installed=one)).seen == f"{OWN.folder}: lib/x: is missing."
    assert "(9.1.0), the package's is 9.10.2.21" in only(CASES["another cuDNN first"][0]).seen


def test_a_stated_value_is_told_with_what_it_replaces() -> None:
    """Defect: with each of the variables the finding said that the machine was not asked for its GPUs."""
    found = only(replace(WELL, stated=("ORTPACKS_FORCE_MEMORY=8192",)))
    assert found.seen == "ORTPACKS_FORCE_MEMORY=8192 in the environment."
    assert "ORTPACKS_FORCE_CC replaces its GPUs, which are not asked for" in found.means
    assert "ORTPACKS_FORCE_MEMORY the memory of its GPUs" in found.means


def test_a_session_that_fails_on_the_gpu_and_on_the_cpu_has_the_gpus_failure() -> None:
    """Defect: the failure on the GPU was told as the CPU's."""
    found = only(CASES["a host library that does not load"][0])
    assert found.seen == "A session fails on cuda (invalid ELF header), and on the CPU too."
    found = only(replace(WELL, trial=SessionTrial("cpu", "invalid ELF header")))
    assert found.seen == "A session on the CPU fails: invalid ELF header."


def test_a_session_s_number_without_a_row_is_not_called_a_failed_start_of_cuda() -> None:
    """Defect: a wrong device_id was called a CUDA that does not start, to be cured by another driver."""
    found = only(replace(WELL, trial=SessionTrial("cuda", "CUDA failure 101: invalid device ordinal", 101)))
    assert found.code == "D029"
    assert "does not start" not in found.means
    assert found.do.startswith("In a session, 101 means that the device_id is none of the visible GPUs")


def test_a_model_that_misses_a_kernel_names_the_package_and_the_cure() -> None:
    found = {finding.code: finding for finding in diagnose(CASES["a lean package, and a transformer"][0])}
    assert found["D404"].seen.startswith("/m/minilm.onnx does not open with cuda: [ONNXRuntimeError]")
    assert found["D404"].means.startswith("modern-lean has no kernel for com.microsoft.BiasGelu")
    assert "Install the full package" in found["D404"].do
    assert "ORT_ENABLE_BASIC" in found["D404"].do
    assert "1 of com.microsoft" in found["D211"].seen
    assert "Transformer models fail" in found["D211"].means
    assert found["D404"].severity is Severity.ERROR
    assert found["D211"].severity is Severity.WARNING


@pytest.mark.parametrize(("count", "rest"), [(3, False), (4, True)])
def test_of_many_libraries_three_are_named(count: int, *, rest: bool) -> None:
    libraries = tuple(Shadow(f"libcublas.so.{number}", f"/cuda/{number}") for number in range(count))
    found = only(replace(WELL, shadows=libraries))
    assert found.seen.count("/cuda/") == 3
    assert found.seen.endswith("; and 1 more.") == rest
    assert (" more" in found.seen) == rest


def test_one_cause_from_three_sources_is_one_finding() -> None:
    found = only(CASES["803, and NVML and nvidia-smi say 18"][0])
    assert found.seen.count(";") == 2


@pytest.mark.parametrize(
    ("device", "old"),
    [(0x133F, False), (0x1340, True), (0x1DFF, True), (0x1E00, False)],
    ids=["Kepler", "GM107, the first Maxwell", "the last before Turing", "Turing"],
)
def test_the_generations_that_580_is_the_last_driver_of(device: int, *, old: bool) -> None:
    card = replace(WELL.kernel.cards[0], device=device, driver=None)
    cards = (*WELL.kernel.cards, card)
    observed = replace(WELL, kernel=replace(WELL.kernel, cards=cards), driver="590.1")
    codes = {finding.code for finding in diagnose(observed)}
    assert ("D010" in codes) == old
    assert ("D012" in codes) == (device < 0x1340)


@pytest.mark.parametrize(
    ("capability", "warned"), [("5.0", True), ("5.2", True), ("5.3", False), ("6.0", False)]
)
def test_half_precision_begins_at_5_3(capability: str, *, warned: bool) -> None:
    codes = {finding.code for finding in diagnose(replace(WELL, devices=(gpu(capability),)))}
    assert ("D207" in codes) == warned


def test_a_gpu_without_fp16_is_given_no_number_type_that_its_profile_leaves_out() -> None:
    """ONNX Runtime's OperatorKernels.md: CUDA has no DynamicQuantizeLinear, and MatMulInteger of int8 alone.
    Defect: "or in int8", whose nodes run on the CPU."""
    known = {types for level in profile_of(Capability(5, 2), 8192).dtypes.values() for types in level}
    old = ToolkitChoice(variant="v", sm=(Arch(5, 2),), cuda="12.9", cudnn="9.10.2.21", ort="1.21.0")
    for text in (ADVICE["D207"].do, next(check_version(old)).message):
        named = set(re.findall(r"\b(?:fp32|int8|bf16)\b", text))
        assert named == known == {"fp32"}


def test_a_package_for_directml_is_not_said_to_leave_the_gpu_unused() -> None:
    """ONNX Runtime's page on its DirectML provider: it runs on any GPU for DirectX 12, NVIDIA's too. Defect:
    "the package in use does not use it", of each NVIDIA GPU on Windows without the variant ``windows``."""
    found = only(CASES["Windows with DirectML and an old driver"][0])
    assert "with one for DirectML it is used by DirectX 12" in found.means


def test_the_worst_comes_first() -> None:
    observed = replace(WELL, devices=(gpu("5.2"),), noexec=("/tmp",))
    found = [(finding.severity, finding.code) for finding in diagnose(observed)]
    assert found == [(Severity.ERROR, "D204"), (Severity.WARNING, "D207"), (Severity.NOTE, "D308")]


def documented() -> dict[str, list[str]]:
    rows = re.findall(r"^\| (D\d{3}) \| (.+) \|$", (ROOT / "docs" / "doctor.md").read_text(), re.MULTILINE)
    return {code: [cell.strip() for cell in row.split(" | ")] for code, row in rows}


def test_the_page_has_a_row_for_every_code_with_its_severity() -> None:
    rows = documented()
    assert list(rows) == sorted(ADVICE)
    assert {code: cells[0] for code, cells in rows.items()} == {
        code: advice.severity.value for code, advice in ADVICE.items()
    }
    assert all(len(cells) == 4 and all(cells) for cells in rows.values())


def test_the_page_says_of_each_code_what_doctor_says() -> None:
    for code, (_, _, means, do) in documented().items():
        said = [re.sub(r"\{\w+\}", "…", text) for text in (ADVICE[code].means, ADVICE[code].do)]
        assert [means.replace(r"\|", "|"), do.replace(r"\|", "|")] == said


def test_that_there_is_no_driver_is_said_only_where_nothing_of_it_was_seen() -> None:
    def says(**replies: Probe) -> str:
        return diagnose(replace(BARE, replies={**BARE.replies, **replies}))[0].seen

    assert says() == "No NVIDIA GPU was found, and no driver of one."
    assert says(libcuda=NO_DEVICE) == "No NVIDIA GPU was found."
