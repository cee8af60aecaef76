"""Tests of reading ONNX Runtime's verbose log, with lines printed by 1.21.0, and its refusals of a model."""

import json

import pytest

from builder.formats.session_log import Placement, explanation_of
from tests.support.messages import Told
from tests.support.tables import data_text, table

_SAID = "2026-11-22 08:51:31.03 [V:onnxruntime:, session_state.cc:1263 VerifyEachNodeIsAssignedToAnEp]"

LOG = data_text("formats/session.log")


def heard(log: str) -> Placement:
    placement = Placement()
    placement.add_log(log)
    return placement


def test_each_node_and_why_it_is_not_on_cuda() -> None:
    placement = heard(LOG)
    assert placement.counts == {"CUDAExecutionProvider": 2, "CPUExecutionProvider": 2}
    assert sorted(placement.nodes_by_kind()) == [
        ("CPUExecutionProvider", "Shape", "shape", 1),
        ("CPUExecutionProvider", "StringNormalizer", "norm", 1),
        ("CUDAExecutionProvider", "Relu", "n0", 1),
        ("CUDAExecutionProvider", "Relu", "n1", 1),
    ]
    assert (placement.no_kernel, placement.cheaper) == ({("StringNormalizer", "norm")}, {"shape"})
    assert heard(LOG.replace("ORT optimization-", "EP optimization:").replace("node: ", "node ")).cheaper == {
        "shape"
    }


def test_a_node_s_name_may_have_several_lines() -> None:
    placement = heard(LOG.replace("norm", "a (b)\nc"))
    assert ("CPUExecutionProvider", "StringNormalizer", "a (b)\nc", 1) in placement.nodes_by_kind()
    assert placement.no_kernel == {("StringNormalizer", "a (b)\nc")}


def test_one_provider_alone_lists_no_nodes() -> None:
    all_on = f"{_SAID} All nodes placed on [CUDAExecutionProvider]. Number of nodes: 188"
    assert heard(all_on).nodes_by_kind() == [("CUDAExecutionProvider", "every node", "", 188)]


def test_a_line_that_is_not_understood_is_an_error_and_no_small_number() -> None:
    with pytest.raises(ValueError, match="3 nodes were listed"):
        heard(LOG.replace("Relu (n1)", "Relu [n1]")).nodes_by_kind()


REFUSALS = {name: json.loads(text) for name, text in table("formats/refusals.txt")}


@pytest.mark.parametrize("refusal", REFUSALS)
def test_it_says_what_why_and_what_to_do(refusal: str, told: Told) -> None:
    told(explanation_of(REFUSALS[refusal], "1.21.0"))


def test_a_long_name_is_cut_and_what_is_not_known_is_left_to_its_own_words(told: Told) -> None:
    told(explanation_of(REFUSALS["no operator"].replace("Swish", "S" * 4000), "1.21.0"))
    assert explanation_of("Invalid model. Node input 'q' is not a graph input", "1.21.0") is None
