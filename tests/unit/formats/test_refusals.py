"""Tests of explaining ONNX Runtime's refusals of a model, in the words of 1.21.0 and 1.23.2."""

from __future__ import annotations

import pytest

from builder.formats.session_log import explanation_of
from tests.support.messages import Told

_LOAD = (
    "Load model from m.onnx failed:/onnxruntime_src/onnxruntime/core/graph/model_load_utils.h:46 void "
    "onnxruntime::model_load_utils::ValidateOpsetForDomain(const std::unordered_map<...>&) "
)

_OPSET = (
    _LOAD + "ONNX Runtime only *guarantees* support for models stamped with official released onnx opset "
    "versions. Opset 24 is under development and support for this is limited. The operator schemas and or "
    "other functionality may change before next ONNX release and in this case ONNX Runtime will not "
    "guarantee backward compatibility. Current official support for domain ai.onnx is till opset 22."
)

_NO_OP = (
    'This is an invalid model. In Node, ("n0", Swish, "", -1) : ("x": tensor(float),) -> ("y": '
    "tensor(float),) , Error No Op registered for Swish with domain_version of 17"
)


REFUSALS = {
    "opset": _OPSET,
    "IR version": "model.cc:180 onnxruntime::Model::Model(...) Unsupported model IR version: 99, max "
    "supported IR version: 10\n",
    "a foreign operator": "Load model from m.onnx failed:Fatal error: com.foo:Foo(-1) is not a registered "
    "function/op",
    "no operator": _NO_OP,
    "a domain": "This is an invalid model. In Node, (...) , Error No opset import for domain 'my\n.own'",
    "a long name": _NO_OP.replace("Swish", "S" * 4000),
    "no kernel": "Could not find an implementation for Relu(1) node with name 'n0'",
    "no weights": "Exception during initialization: filesystem error: cannot get file size: No such file or "
    "directory [/models/ext.bin]",
}


@pytest.mark.parametrize("refusal", REFUSALS)
def test_it_says_what_why_and_what_to_do(refusal: str, told: Told) -> None:
    told(explanation_of(REFUSALS[refusal], "1.21.0"))


def test_what_is_not_known_is_left_to_its_own_words() -> None:
    assert explanation_of("Invalid model. Node input 'q' is not a graph input", "1.21.0") is None
