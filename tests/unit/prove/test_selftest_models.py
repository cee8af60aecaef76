"""Tests of the verdict on a self-test's answers."""

import json
import math

import pytest

from builder.finding import Code, Finding
from builder.prove.sample_models import magika_inputs, silero_inputs
from builder.prove.selftest import judge
from tests.support.factories.selftests import OUTPUTS, answer
from tests.support.tables import table

REFERENCES = {"silero_vad": OUTPUTS, "magika": OUTPUTS}


def judged(first: str, second: str = "") -> tuple[Finding, ...]:
    return judge(first + (second or answer()), REFERENCES, "1.21.0", "p")


@pytest.mark.parametrize(
    "right",
    [{"outputs": {"output": [0.50001], "stateN": [0.25, -0.75]}}, {"cuda": {"ok": True, "message": ""}}],
    ids=["clean fallback", "with a GPU"],
)
def test_the_right_numbers_pass(right: dict[str, object]) -> None:
    assert judged(answer(**right)) == ()


def test_a_package_without_cuda_need_not_know_the_provider() -> None:
    said = answer(providers=["CPUExecutionProvider"], cuda={"ok": False, "message": "not enabled"})
    assert judge(said + said, REFERENCES, "1.21.0", "p", cuda=False) == ()
    wrong = answer(version="1.22.0", providers=["CPUExecutionProvider"])
    found = judge(wrong + wrong, REFERENCES, "1.21.0", "p", cuda=False)
    assert [finding.code for finding in found] == [Code.B011]


def test_a_provider_that_links_the_driver_may_wait_for_it() -> None:
    """1.31.1's provider fails so in a bare container; one that opens the driver late gives CUDA's error."""
    said = answer(cuda={"ok": False, "message": "Failed to load shared library"})
    assert judge(said + said, REFERENCES, "1.21.0", "p", waits=True) == ()
    other = answer(cuda={"ok": False, "message": "no such provider"})
    (finding,) = judge(other + other, REFERENCES, "1.21.0", "p", waits=True)
    assert finding.code is Code.B012


@pytest.mark.parametrize(("code", "changes"), table("rules/wrong-answers.txt"))
@pytest.mark.parametrize("model", REFERENCES)
def test_each_wrong_answer_is_one_finding(code: str, changes: str, model: str) -> None:
    lines = [answer(**json.loads(changes)) if model == one else answer() for one in REFERENCES]
    (finding,) = judged(*lines)
    assert finding.code is Code[code]
    assert finding.message.startswith(f"{model}: ") == (code == "B013")


def test_what_is_wrong_for_every_model_is_told_once() -> None:
    wrong = answer(cuda={"ok": False, "message": "Failed to load shared library"})
    assert [finding.code for finding in judged(wrong, wrong)] == [Code.B012]


@pytest.mark.parametrize("said", ["Segmentation fault\n", "[]\n", '{"version"\n'])
def test_no_json_is_a_finding(said: str) -> None:
    assert [finding.code for finding in judged(said)] == [Code.B010]


@pytest.mark.parametrize("answers", [0, 1, 3])
def test_not_one_answer_a_model_is_a_finding(answers: int) -> None:
    (finding,) = judge(answer() * answers, REFERENCES, "1.21.0", "p")
    assert (finding.code, finding.wanted, finding.got) == (Code.B010, "2", str(answers))


def test_inputs_have_the_sizes_they_claim() -> None:
    for item in (*silero_inputs(), *magika_inputs()):
        assert len(item.data) == math.prod(item.dims) * {"f32": 4, "i32": 4, "i64": 8}[item.type], item.name


def test_the_classifier_reads_a_thousand_bytes_from_either_end() -> None:
    """The model's input is [1, 2048] of int32, little-endian."""
    (item,) = magika_inputs()
    assert item.argument == "bytes:i32:1x2048:"
    assert item.data[:8] == b"#\0\0\0i\0\0\0"
    assert item.data[-8:] == b"}\0\0\0\n\0\0\0"
