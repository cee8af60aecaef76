"""How a self-test's answer is judged. The JSON lines are what the smoke program printed on real machines."""

from __future__ import annotations

import json

import pytest

from builder.core.checks import Code
from builder.core.selftest import judge, silero_inputs

REFERENCE = {"output": [0.5], "stateN": [0.25, -0.75]}
NO_DRIVER = (
    "cuda_call.cc:129 ... CUDA failure 35: CUDA driver version is insufficient for CUDA runtime version"
)


def answer(**changes: object) -> str:
    good = {
        "version": "1.21.0",
        "providers": ["CUDAExecutionProvider", "CPUExecutionProvider"],
        "cuda": {"ok": False, "message": NO_DRIVER},
        "provider": "cpu",
        "outputs": {"output": [0.50001], "stateN": [0.25, -0.75]},
    }
    return json.dumps({**good, **changes})


def test_a_clean_fallback_with_the_right_numbers_passes() -> None:
    assert judge(answer(), REFERENCE, "1.21.0", "p") == ()


def test_a_machine_with_a_gpu_passes_too() -> None:
    assert judge(answer(cuda={"ok": True, "message": ""}), REFERENCE, "1.21.0", "p") == ()


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"version": "1.22.0"}, Code.B011),
        ({"providers": ["CPUExecutionProvider"]}, Code.B012),
        # The seed's failure: the provider cannot even be loaded, and the session quietly runs on the CPU.
        ({"cuda": {"ok": False, "message": "Failed to load shared library"}}, Code.B012),
        ({"outputs": {"output": [0.6], "stateN": [0.25, -0.75]}}, Code.B013),
        ({"outputs": {"output": [float("nan")], "stateN": [0.25, -0.75]}}, Code.B013),
        ({"outputs": {"output": [0.5], "stateN": [0.25]}}, Code.B013),
        ({"outputs": {"output": [0.5]}}, Code.B013),
        ({"outputs": {}}, Code.B013),
    ],
)
def test_each_wrong_answer_is_one_finding(changes: dict[str, object], code: Code) -> None:
    assert [finding.code for finding in judge(answer(**changes), REFERENCE, "1.21.0", "p")] == [code]


def test_no_json_is_a_finding() -> None:
    assert [finding.code for finding in judge("Segmentation fault", REFERENCE, "1.21.0", "p")] == [Code.B010]


def test_inputs_have_the_sizes_they_claim() -> None:
    widths = {"f32": 4, "i64": 8}
    for item in silero_inputs():
        elements = 1
        for dim in item.dims:
            elements *= dim
        assert len(item.data) == elements * widths[item.type], item.name
