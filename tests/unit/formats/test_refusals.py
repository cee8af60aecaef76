"""Tests of explaining ONNX Runtime's refusals of a model, in the words of 1.21.0 and 1.23.2."""

from __future__ import annotations

import pytest

from builder.formats.session_log import explanation_of

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


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        (
            _OPSET,
            (
                "ONNX Runtime 1.21.0 knows ai.onnx up to 22; this model asks for 24: export it again with "
                "opset_version=22, or take a package of a newer ONNX Runtime."
            ),
        ),
        (
            (
                "model.cc:180 onnxruntime::Model::Model(...) Unsupported model IR version: 99, max supported "
                "IR version: 10\n"
            ),
            (
                "ONNX Runtime 1.21.0 reads IR versions up to 10; this model is written in 99: save it again "
                "with model.ir_version = 10, or take a package of a newer ONNX Runtime."
            ),
        ),
        (
            "Load model from m.onnx failed:Fatal error: com.foo:Foo(-1) is not a registered function/op",
            "ONNX Runtime 1.21.0 knows no operator com.foo:Foo: it comes with a library",
        ),
        (_NO_OP, "ONNX Runtime 1.21.0 knows no operator ai.onnx:Swish in opset 17: it comes with a library"),
        (
            "This is an invalid model. In Node, (...) , Error No opset import for domain 'my\n.own'",
            r"ONNX Runtime 1.21.0 has to know which opset of the domain 'my\n.own' the model was",
        ),
        (
            _NO_OP.replace("Swish", "S" * 4000),
            f"ONNX Runtime 1.21.0 knows no operator ai.onnx:{'S' * 121}… in opset 17: it comes with",
        ),
        (
            "Could not find an implementation for Relu(1) node with name 'n0'",
            "ONNX Runtime 1.21.0 has no kernel for Relu of version 1, on CUDA or on the CPU",
        ),
        (
            (
                "Exception during initialization: filesystem error: cannot get file size: No such file or "
                "directory [/models/ext.bin]"
            ),
            "ONNX Runtime 1.21.0 cannot read the model's weights from /models/ext.bin",
        ),
    ],
)
def test_it_says_what_why_and_what_to_do(said: str, wanted: str) -> None:
    told = explanation_of(said, "1.21.0")
    assert told is not None
    assert told.startswith(wanted)
    assert told.endswith(".")


def test_what_is_not_known_is_left_to_its_own_words() -> None:
    assert explanation_of("Invalid model. Node input 'q' is not a graph input", "1.21.0") is None
