"""Maker of models of single nodes, for every operator that ONNX Runtime has a schema for.

ONNX Runtime refuses a model as a whole. Each model is therefore about one definition of one operator, and has
a node for each combination of types that the operator's schema allows; no node is connected with another. A
host library that is older than the schemas refuses the definitions that it does not know.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import onnx
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, TypeProto, helper

from builder.adapters.test_models.operator_schemas import (
    ELEMENT_ATTRIBUTES,
    ELEMENTS,
    PLAIN_FORM,
    Attribute,
    Binding,
    Definition,
    NodeForm,
    Parameter,
    element_of,
)

LAST = "ortpacks_last"
"""The name of each model's last node, for which no CUDA provider has a kernel."""

_PLAIN_OPSET, _IR_VERSION = 17, 8

_FUTURE = 9999

_SIZE = re.compile(r"has (input|output) size \d+ not in range \[min=(\d+), max=(\d+)\]")

_NO_DATA_TYPE = re.compile(r"MLDataType for: (\S+) is not currently registered")

_NO_TENSOR_TYPE = re.compile(r"Invalid tensor data type (\d+)")

_OTHER_TYPE = re.compile(
    r"Type Error: Type |expected to have the same elem type"
    r"|Graph attribute inferencing failed"
)
"""Parts of a refusal whose reason is that the schema does not allow the types, or not together."""

_REQUIRED = re.compile(r"Required attribute '(\w+)' is missing")

_WIDEST = 8
"""Bytes of the widest element."""


@dataclass(frozen=True)
class Question:
    """A model to try, with nodes of one definition and form, one for each binding."""

    definition: Definition
    bindings: tuple[Binding, ...]
    form: NodeForm = PLAIN_FORM

    def again(self, refusal: str) -> Iterator[Question]:
        """Yield the questions that follow a refusal.

        They have fewer bindings if an element type is unknown, else a mended form, one binding each, or
        another form.
        """
        mended = _mended(self.form, refusal)
        absent = _absent_element(refusal)
        left = tuple(
            binding
            for binding in self.bindings
            if absent is None or absent not in map(element_of, binding.values())
        )
        if len(left) < len(self.bindings):
            yield from [replace(self, bindings=left)] if left else []
        elif mended is not None and mended != self.form:
            yield replace(self, form=mended)
        elif len(self.bindings) > 1:
            for binding in self.bindings:
                yield replace(self, bindings=(binding,))
        elif not _OTHER_TYPE.search(refusal):
            other = self.form.other()
            if other is not None:
                yield replace(self, form=other)

    def model(self) -> bytes:
        """Return the model; node ``n0`` has the first binding, and so on, and ``LAST`` is the last node."""
        graph = _NodeGraph(self.definition, self.form)
        for at, binding in enumerate(self.bindings):
            graph.add(f"n{at}", binding)
        return graph.model()


def _mended(form: NodeForm, refusal: str) -> NodeForm | None:
    """Return the form that the text of a refusal asks for; ``None`` if the text asks for none."""
    if found := _SIZE.search(refusal):
        allowed = int(found[2]), int(found[3])
        return replace(form, inputs=allowed) if found[1] == "input" else replace(form, outputs=allowed)
    if found := _REQUIRED.search(refusal):
        return replace(form, attributes=form.attributes | {found[1]})
    return None


def _absent_element(refusal: str) -> int | None:
    """Return the element type for which, by a refusal, there is no data type; ``None`` for other refusals."""
    if named := _NO_DATA_TYPE.search(refusal):
        return element_of(named[1])
    numbered = _NO_TENSOR_TYPE.search(refusal)
    return int(numbered[1]) if numbered else None


def future(domain: str) -> bytes:
    """Return a model of an opset of ``domain`` that no ONNX Runtime has; the refusal names the newest."""
    return _model([], {}, [], {domain: _FUTURE})


class _NodeGraph:
    """A graph under construction. All nodes that need an input of one type share it."""

    def __init__(self, definition: Definition, form: NodeForm) -> None:
        self._definition = definition
        self._form = form
        self._nodes: list[NodeProto] = []
        self._inputs: dict[str, TypeProto] = {}
        self._values: list[onnx.ValueInfoProto] = []

    def add(self, name: str, binding: Binding) -> None:
        definition, form = self._definition, self._form
        body = _body(definition, name, binding)
        node = helper.make_node(
            definition.operator,
            self._slot_names(
                definition.places("inputs", form),
                lambda at: self._input(_bound_type(definition.inputs[at], binding)),
            ),
            self._slot_names(
                definition.places("outputs", form),
                lambda at: self._output(f"{name}_{at}", _bound_type(definition.outputs[at], binding)),
            ),
            name=name,
            domain=definition.domain,
        )
        given = (_attribute(one, body) for one in definition.attributes(binding, form))
        node.attribute.extend(one for one in given if one is not None)
        self._nodes.append(node)

    def model(self) -> bytes:
        return _model(
            self._nodes, self._inputs, self._values, {self._definition.domain: self._definition.since}
        )

    def _input(self, spelled: str) -> str:
        kind = _type(spelled)
        rank = self._form.rank
        if rank is not None and kind.HasField("tensor_type"):
            for _ in range(rank):
                kind.tensor_type.shape.dim.add()
        self._inputs[f"in_{spelled}"] = kind
        return f"in_{spelled}"

    def _output(self, name: str, spelled: str) -> str:
        """Return ``name``, and declare the output if its type was chosen, so that another type is refused."""
        if "(" in spelled:
            self._values.append(helper.make_value_info(name, _type(spelled)))
        return name

    @staticmethod
    def _slot_names(places: Sequence[int], name: Callable[[int], str]) -> list[str]:
        wanted = set(places)
        return [name(at) if at in wanted else "" for at in range(max(wanted, default=-1) + 1)]


def _model(
    nodes: Sequence[NodeProto],
    inputs: Mapping[str, TypeProto],
    values: Sequence[onnx.ValueInfoProto],
    opsets: Mapping[str, int],
) -> bytes:
    text = _type("tensor(string)")
    graph = helper.make_graph(
        [*nodes, helper.make_node("Identity", [LAST], [f"{LAST}_out"], name=LAST)],
        "operators",
        [helper.make_value_info(name, kind) for name, kind in {**inputs, LAST: text}.items()],
        [helper.make_value_info(f"{LAST}_out", text)],
        value_info=values,
    )
    wanted = {"": _PLAIN_OPSET, **opsets}
    imports = [helper.make_opsetid(domain, version) for domain, version in wanted.items()]
    made = helper.make_model(graph, opset_imports=imports, ir_version=_IR_VERSION)
    return bytes(made.SerializeToString())


def _bound_type(item: Parameter, binding: Binding) -> str:
    """Return the type that ``binding`` gives a parameter, else the type that the schema names."""
    return binding.get(item.type, item.type)


def _type(spelled: str) -> TypeProto:
    made = TypeProto()
    kind, _, rest = spelled.partition("(")
    inner = rest[:-1]
    if kind == "tensor":
        made.tensor_type.elem_type = ELEMENTS[inner]
    elif kind == "sparse_tensor":
        made.sparse_tensor_type.elem_type = ELEMENTS[inner]
    elif kind == "seq":
        made.sequence_type.elem_type.CopyFrom(_type(inner))
    elif kind == "optional":
        made.optional_type.elem_type.CopyFrom(_type(inner))
    elif kind == "map":
        key, _, value = inner.partition(",")
        made.map_type.key_type = ELEMENTS[key.strip()]
        value = value.strip()
        made.map_type.value_type.CopyFrom(_type(value if "(" in value else f"tensor({value})"))
    return made


def _attribute(given: Attribute, body: GraphProto) -> AttributeProto | None:
    """Return the attribute with any value of its kind, since no node runs; ``None`` for another kind."""
    values: dict[str, object] = {
        "INT": given.element if given.name in ELEMENT_ATTRIBUTES else 1,
        "FLOAT": 1.0,
        "STRING": TensorProto.DataType.Name(given.element) if given.name == "to" else "a",
        "INTS": [1],
        "FLOATS": [1.0],
        "STRINGS": ["a"],
        "TENSOR": _tensor("value", given.element),
        "GRAPH": body,
    }
    return helper.make_attribute(given.name, values[given.kind]) if given.kind in values else None


def _tensor(name: str, element: int) -> TensorProto:
    if element == TensorProto.STRING:
        return TensorProto(name=name, data_type=element, dims=[1], string_data=[b""])
    return TensorProto(name=name, data_type=element, dims=[1], raw_data=bytes(_WIDEST))


def _body(definition: Definition, name: str, binding: Binding) -> GraphProto:
    """Return the subgraph that ``If`` branches to or ``Loop`` and ``Scan`` repeat; its result is a ``V``."""
    wanted = binding.get("V", "tensor(float)")
    inputs: list[onnx.ValueInfoProto] = []
    nodes: list[NodeProto] = []
    outputs: list[onnx.ValueInfoProto] = []
    if definition.operator == "Loop":
        inputs = [
            helper.make_tensor_value_info(f"{name}_at", TensorProto.INT64, []),
            helper.make_tensor_value_info(f"{name}_on", TensorProto.BOOL, []),
            helper.make_value_info(f"{name}_before", _type(wanted)),
        ]
        nodes = [helper.make_node("Identity", [f"{name}_on"], [f"{name}_still"])]
        outputs = [helper.make_tensor_value_info(f"{name}_still", TensorProto.BOOL, [])]
    elif definition.operator == "Scan":
        inputs = [helper.make_value_info(f"{name}_item", _type(wanted))]
    outputs.append(helper.make_value_info(f"{name}_made", _type(wanted)))
    nodes += _value_nodes(wanted, f"{name}_made", f"{name}_value")
    value = _tensor(f"{name}_value", element_of(wanted))
    return helper.make_graph(nodes, f"{name}_body", inputs, outputs, [value])


def _value_nodes(spelled: str, name: str, value: str) -> list[NodeProto]:
    """Return the nodes that make ``name``, of the type ``spelled``, from the tensor ``value``."""
    kind, _, rest = spelled.partition("(")
    if kind == "optional":
        return [
            *_value_nodes(rest[:-1], f"{name}_in", value),
            helper.make_node("Optional", [f"{name}_in"], [name]),
        ]
    return [helper.make_node("SequenceConstruct" if kind == "seq" else "Identity", [value], [name])]
