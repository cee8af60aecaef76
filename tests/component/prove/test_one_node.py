"""Tests of reading kernels by graphs of one node, with a stand-in for ONNX Runtime."""

from collections.abc import Iterator, Sequence

import onnx
import onnx.shape_inference
import pytest

from builder.errors import CheckFailedError
from builder.prove.operator_query import LAST, Definition, NodeForm, Question, ask, definitions, future
from builder.prove.virtualcard.sessions import CardSession, ModelToOpen

DEFINITIONS = {str(item): item for item in definitions()}


def question(name: str, form: NodeForm | None = None) -> Question:
    definition = DEFINITIONS[name]
    return Question(definition, definition.bindings(), form or NodeForm())


def model(asked: Question) -> onnx.ModelProto:
    return onnx.load_model_from_string(asked.model())


def test_a_model_has_a_node_for_each_combination_of_types() -> None:
    graph = model(question("ai.onnx:Cast-13")).graph
    types = {value.name: value.type.tensor_type.elem_type for value in graph.value_info}
    inputs = {value.name: value.type.tensor_type.elem_type for value in graph.input}
    asked = {(inputs[node.input[0]], types[node.output[0]]) for node in graph.node[:-1]}
    assert len(asked) == len(graph.node) - 1 == 14 * 14, (
        "ONNX allows Cast-13 14 types without complex, in and out"
    )
    assert {node.attribute[0].i for node in graph.node[:-1]} == set(types.values())
    assert graph.node[-1].name == LAST


@pytest.mark.parametrize(
    "name", ["ai.onnx:Add-14", "ai.onnx:If-16", "ai.onnx:Loop-11", "ai.onnx:Scan-9", "ai.onnx:Dropout-13"]
)
def test_onnx_itself_takes_the_models(name: str) -> None:
    onnx.shape_inference.infer_shapes(model(question(name)), check_type=True, strict_mode=True)


def test_opsets_are_those_of_the_definition() -> None:
    asked = model(question("com.microsoft:BiasGelu-1"))
    assert {item.domain: item.version for item in asked.opset_import} == {"": 17, "com.microsoft": 1}
    (far,) = (item.version for item in onnx.ModelProto.FromString(future("")).opset_import)
    assert far > 1000


def test_constants_are_not_asked_for() -> None:
    assert not [name for name in DEFINITIONS if name.startswith("ai.onnx:Constant-")]


@pytest.mark.parametrize(
    ("refusal", "form"),
    [
        ("schema(x) has input size 13 not in range [min=7, max=9].", NodeForm(inputs=(7, 9))),
        ("schema(x) has output size 1 not in range [min=3, max=3].", NodeForm(outputs=(3, 3))),
        ("Error Required attribute 'bits' is missing. ", NodeForm(attributes=frozenset({"bits"}))),
    ],
)
def test_a_refusal_that_names_the_remedy_is_followed(refusal: str, form: NodeForm) -> None:
    (asked,) = question("com.microsoft:MatMulNBits-1").again(refusal)
    assert asked.form == form


def test_an_element_type_that_the_host_has_not_is_left_out() -> None:
    before = question("ai.onnx:Identity-19")
    (after,) = before.again("MLDataType for: tensor(float8e5m2) is not currently registered or supported")
    kept = [kind for kind in before.definition.types["V"] if "e5m2)" not in kind]
    assert after.bindings == tuple({"V": kind} for kind in kept)
    assert len(kept) < len(before.bindings)


def test_any_other_refusal_parts_the_nodes_then_tries_other_forms() -> None:
    relu = question("ai.onnx:Relu-14")
    alone = list(relu.again("something else"))
    assert [one.bindings for one in alone] == [(binding,) for binding in relu.bindings]
    following, forms = alone[:1], []
    while following:
        (asked,) = following
        forms.append((asked.form.whole, asked.form.rank))
        following = list(asked.again("something else"))
    assert forms == [
        (False, None), (True, None), (False, 2), (False, 3), (False, 4), (False, 1),
    ]  # fmt: skip
    assert list(alone[0].again("Type Error: Type 'tensor(int8)' of input parameter")) == []


class Played:
    """A stand-in for ONNX Runtime that knows opset 13, crashes on ``Loop``, and has ``Relu``
    kernels for floats."""

    def __call__(self, asked: Sequence[ModelToOpen]) -> Iterator[CardSession]:
        for one in asked:
            yield self.opening(onnx.load(one.model))

    def opening(self, proto: onnx.ModelProto) -> CardSession:
        opsets = {item.domain: item.version for item in proto.opset_import}
        if opsets[""] > 13 and len(opsets) == 1:
            return CardSession(error="Current official support for domain ai.onnx is till opset 13.")
        types = {value.name: value.type.tensor_type.elem_type for value in proto.graph.input}
        nodes = list(proto.graph.node)
        if nodes[0].op_type == "Loop":
            return CardSession(error="the process ended with signal SIGSEGV")
        served = {
            node.name
            for node in nodes
            if node.op_type == "Relu" and types[node.input[0]] == onnx.TensorProto.FLOAT
        }
        missing = frozenset((node.op_type, node.name) for node in nodes if node.name not in served)
        return CardSession(no_kernel=missing, error="fallback to CPU EP has been explicitly disabled")


def some(*operators: str) -> list[Definition]:
    """Return each opset of these operators.

    All operators take minutes: tests/integration/test_operators.py.
    """
    found = [item for item in DEFINITIONS.values() if item.operator in operators]
    assert {item.operator for item in found} == set(operators)
    return found


def test_the_table_is_what_was_answered() -> None:
    table = ask(some("Relu", "Loop", "BiasGelu"), Played(), "9.9.9")
    assert [(item.domain, item.operator, item.opsets, dict(item.types)) for item in table.kernels] == [
        ("ai.onnx", "Relu", "1+", {"T": ("tensor(float)",)})
    ]
    assert table.opsets == {"ai.onnx": 13}
    assert [name for name in table.unasked if name.startswith("ai.onnx:")] == [
        "ai.onnx:Loop-1", "ai.onnx:Loop-11", "ai.onnx:Loop-13",
    ]  # fmt: skip


def test_no_answer_at_all_is_an_error_and_no_empty_table() -> None:
    with pytest.raises(CheckFailedError, match="answered for no operator at all"):
        ask(some("Relu"), lambda asked: (CardSession(error="Type Error: Type ") for _ in asked), "9.9.9")
