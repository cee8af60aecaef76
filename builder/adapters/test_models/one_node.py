"""Maker of models of single nodes, for every operator that ONNX Runtime has a schema for.

ONNX Runtime refuses a model as a whole. Each model is therefore about one definition of one operator, and has
a node for each combination of types that the operator's schema allows; no node is connected with another.
The schemas are those of the pinned onnxruntime, which is newer than any host library that loads the models;
an older host library refuses the definitions that it does not know.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

import onnx
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, TypeProto, helper
from onnxruntime.capi import onnxruntime_pybind11_state as stock

from builder.onnxruntime.operators import ONNX

Binding = Mapping[str, str]
"""Type parameter → type, as schemas spell them."""

LAST = "ortpacks_last"
"""The name of each model's last node, for which no CUDA provider has a kernel."""

_ELEMENTS = {name.lower(): number for name, number in TensorProto.DataType.items() if number}

_ABSENT = re.compile(r"complex(64|128)")
"""Element types that no ONNX Runtime has a data type for."""

_PLAIN_OPSET, _IR_VERSION = 17, 8

_REPLACED = {("", "Constant"), ("", "SequenceMap")}

_SEQUENCED = frozenset(range(TensorProto.FLOAT, TensorProto.UINT64 + 1))
"""Element types that ``SequenceConstruct`` and ``Optional`` accept, which make the values of a subgraph."""

_FUTURE = 9999

_MANY = 99

_NEXT_RANK = {None: 2, 2: 3, 3: 4, 4: 1}

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

_ELEMENT_ATTRIBUTES = frozenset({"to", "dtype", "output_dtype", "output_datatype"})


@dataclass(frozen=True)
class NodeForm:
    """The inputs, outputs and attributes that a node has; after a refusal another form is tried."""

    inputs: tuple[int, int] = (0, _MANY)
    """Fewest and most inputs."""
    outputs: tuple[int, int] = (0, _MANY)
    attributes: frozenset[str] = frozenset()
    """The names of optional attributes that are given."""
    whole: bool = False
    """Whether a node has all optional inputs and outputs; if not, only those of a type that no other has."""
    rank: int | None = None
    """The rank of all inputs; ``None`` leaves their shapes open."""

    def mended(self, refusal: str) -> NodeForm | None:
        """Return the form that the text of a refusal asks for; ``None`` if the text asks for none."""
        if found := _SIZE.search(refusal):
            allowed = int(found[2]), int(found[3])
            return replace(self, inputs=allowed) if found[1] == "input" else replace(self, outputs=allowed)
        if found := _REQUIRED.search(refusal):
            return replace(self, attributes=self.attributes | {found[1]})
        return None

    def other(self) -> NodeForm | None:
        """Return the form to try next, if any: some schemas need a rank, or values that are optional."""
        if not self.whole and self.rank is None:
            return replace(self, whole=True)
        return replace(self, whole=False, rank=_NEXT_RANK[self.rank]) if self.rank in _NEXT_RANK else None


@dataclass(frozen=True)
class Parameter:
    """An input or output of an operator, as its schema has it."""

    type: str
    """A type parameter, or a type."""
    optional: bool


class Definition:
    """One operator as ONNX or ONNX Runtime defines it from one opset on."""

    def __init__(self, schema: stock.schemadef.OpSchema) -> None:
        """Take ``schema``, an element of ``get_all_operator_schema``."""
        self._schema = schema
        self.domain: str = schema.domain
        self.operator: str = schema.name
        self.since: int = schema.since_version

    def __str__(self) -> str:
        return f"{self.domain or ONNX}:{self.operator}-{self.since}"

    @cached_property
    def inputs(self) -> tuple[Parameter, ...]:
        """Return the inputs in the schema's order; a variadic input is there once."""
        return tuple(map(_parameter, self._schema.inputs))

    @cached_property
    def outputs(self) -> tuple[Parameter, ...]:
        """Return the outputs in the schema's order; a variadic output is there once."""
        return tuple(map(_parameter, self._schema.outputs))

    @cached_property
    def types(self) -> Mapping[str, tuple[str, ...]]:
        """Return the types that the schema allows and ONNX Runtime has, sorted, by type parameter."""
        return {
            item.type_param_str: tuple(
                sorted(one for one in item.allowed_type_strs if not _ABSENT.search(one) and known(one))
            )
            for item in self._schema.type_constraints
        }

    def bindings(self) -> tuple[Binding, ...]:
        """Return every combination of types that a node of the plain form can have.

        Types of outputs are left out where they follow from those of the inputs.
        """
        filled = self.filled(NodeForm())
        names = [name for name in self.types if name in filled and name not in self._following]
        found = (
            dict(zip(names, some, strict=True)) for some in product(*(self.types[name] for name in names))
        )
        return tuple(binding for binding in found if self._is_possible(binding))

    def _is_possible(self, binding: Binding) -> bool:
        """Return whether the schema's code allows the types together; its list of types lacks some rules."""
        if self.operator == "SequenceInsert":
            return element_of(binding["S"]) == element_of(binding["T"])
        if any(item.type.name == "GRAPH" for item in self._schema.attributes.values()):
            made = binding.get("V", "tensor(float)")
            return made.startswith("tensor(") or element_of(made) in _SEQUENCED
        return True

    def places(self, side: str, form: NodeForm) -> list[int]:
        """Return the positions of ``inputs`` or ``outputs`` that a node of ``form`` fills, sorted."""
        parameters: tuple[Parameter, ...] = getattr(self, side)
        fewest, most = form.inputs if side == "inputs" else form.outputs
        required = [at for at, item in enumerate(parameters) if not item.optional or form.whole]
        others = self.inputs if side == "outputs" else ()
        met = {item.type for item in [*others, *(parameters[at] for at in required)]}
        wanted = {*required, *range(min(fewest, len(parameters)))}
        for at, item in enumerate(parameters):
            if item.type in self.types and item.type not in met | self._following:
                met.add(item.type)
                wanted.add(at)
        return sorted(at for at in wanted if at < most)

    def filled(self, form: NodeForm) -> frozenset[str]:
        """Return the type parameters of the inputs and outputs that a node of ``form`` has."""
        return frozenset(
            [self.inputs[at].type for at in self.places("inputs", form)]
            + [self.outputs[at].type for at in self.places("outputs", form)]
        )

    def attributes(self, binding: Binding, form: NodeForm, body: GraphProto) -> Iterator[AttributeProto]:
        """Yield the attributes that the schema requires, ``form`` names, or an output's type depends on."""
        element = self._output_element(binding)
        for name, item in self._schema.attributes.items():
            kind = item.type.name
            decides = element is not None and _decides(name, kind)
            if not (item.required or decides or name in form.attributes):
                continue
            value = _attribute(name, kind, TensorProto.FLOAT if element is None else element, body)
            if value is not None:
                yield value

    @cached_property
    def _free(self) -> tuple[str, ...]:
        """Return the type parameters of outputs that no input has."""
        given = {item.type for item in self.inputs}
        return tuple(item.type for item in self.outputs if item.type in self.types and item.type not in given)

    @cached_property
    def _following(self) -> frozenset[str]:
        """Return the type parameters of ``_free`` that no attribute decides."""
        chosen = any(_decides(name, item.type.name) for name, item in self._schema.attributes.items())
        return frozenset(self._free[1:] if chosen else self._free)

    def _output_element(self, binding: Binding) -> int | None:
        """Return the element type that an attribute gives an output; ``None`` if no attribute decides one."""
        decided = [name for name in self._free if name in binding]
        return element_of(binding[decided[0]]) if decided else None


@dataclass(frozen=True)
class Question:
    """A model to try, with nodes of one definition and form, one for each binding."""

    definition: Definition
    bindings: tuple[Binding, ...]
    form: NodeForm = NodeForm()

    def again(self, refusal: str) -> Iterator[Question]:
        """Yield the questions that follow a refusal.

        They have fewer bindings if an element type is unknown, else a mended form, one binding each, or
        another form.
        """
        mended = self.form.mended(refusal)
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


def definitions() -> tuple[Definition, ...]:
    """Return every definition that is not deprecated, of every domain, sorted.

    ``Constant`` is left out, because ONNX Runtime turns it into an initializer before it asks any provider,
    and ``SequenceMap``, because it is a function whose body each model contains.
    """
    found = (
        Definition(schema)
        for schema in stock.get_all_operator_schema()
        if not schema.deprecated and (schema.domain, schema.name) not in _REPLACED
    )
    return tuple(sorted(found, key=lambda item: (item.domain, item.operator, item.since)))


def future(domain: str) -> bytes:
    """Return a model of an opset of ``domain`` that no ONNX Runtime has; the refusal names the newest."""
    return _model([], {}, [], {domain: _FUTURE})


def known(spelled: str) -> bool:
    """Return whether the pinned ONNX has every element type in ``spelled``."""
    return all(name in _ELEMENTS for name in re.findall(r"\w+(?=[,)])", spelled))


def _absent_element(refusal: str) -> int | None:
    """Return the element type for which, by a refusal, there is no data type; ``None`` for other refusals."""
    if named := _NO_DATA_TYPE.search(refusal):
        return element_of(named[1])
    numbered = _NO_TENSOR_TYPE.search(refusal)
    return int(numbered[1]) if numbered else None


def element_of(spelled: str) -> int:
    """Return the innermost element type of a type: for ``seq(tensor(float))`` the number of ``float``."""
    return int(_ELEMENTS[re.findall(r"\w+", spelled)[-1]])


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
            self._filled(
                definition.places("inputs", form),
                lambda at: self._input(_bound(definition.inputs[at], binding)),
            ),
            self._filled(
                definition.places("outputs", form),
                lambda at: self._output(f"{name}_{at}", _bound(definition.outputs[at], binding)),
            ),
            name=name,
            domain=definition.domain,
        )
        node.attribute.extend(definition.attributes(binding, form, body))
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
    def _filled(places: Sequence[int], name: Callable[[int], str]) -> list[str]:
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


def _parameter(item: stock.schemadef.OpSchema.FormalParameter) -> Parameter:
    return Parameter(type=item.typeStr, optional=item.option.name == "Optional")


def _bound(item: Parameter, binding: Binding) -> str:
    """Return the type that ``binding`` gives a parameter, else the type that the schema names."""
    return binding.get(item.type, item.type)


def _type(spelled: str) -> TypeProto:
    made = TypeProto()
    kind, _, rest = spelled.partition("(")
    inner = rest[:-1]
    if kind == "tensor":
        made.tensor_type.elem_type = _ELEMENTS[inner]
    elif kind == "sparse_tensor":
        made.sparse_tensor_type.elem_type = _ELEMENTS[inner]
    elif kind == "seq":
        made.sequence_type.elem_type.CopyFrom(_type(inner))
    elif kind == "optional":
        made.optional_type.elem_type.CopyFrom(_type(inner))
    elif kind == "map":
        key, _, value = inner.partition(",")
        made.map_type.key_type = _ELEMENTS[key.strip()]
        value = value.strip()
        made.map_type.value_type.CopyFrom(_type(value if "(" in value else f"tensor({value})"))
    return made


def _decides(name: str, kind: str) -> bool:
    """Return whether the attribute of this name and kind decides the type of an output."""
    return kind == "GRAPH" or (name, kind) == ("value", "TENSOR") or name in _ELEMENT_ATTRIBUTES


def _attribute(name: str, kind: str, element: int, body: GraphProto) -> AttributeProto | None:
    """Return the attribute with any value of its kind, since no node runs; ``None`` for another kind."""
    values: dict[str, object] = {
        "INT": element if name in _ELEMENT_ATTRIBUTES else 1,
        "FLOAT": 1.0,
        "STRING": TensorProto.DataType.Name(element) if name == "to" else "a",
        "INTS": [1],
        "FLOATS": [1.0],
        "STRINGS": ["a"],
        "TENSOR": _tensor("value", element),
        "GRAPH": body,
    }
    return helper.make_attribute(name, values[kind]) if kind in values else None


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
    nodes += _made(wanted, f"{name}_made", f"{name}_value")
    value = _tensor(f"{name}_value", element_of(wanted))
    return helper.make_graph(nodes, f"{name}_body", inputs, outputs, [value])


def _made(spelled: str, name: str, value: str) -> list[NodeProto]:
    """Return the nodes that make ``name``, of the type ``spelled``, from the tensor ``value``."""
    kind, _, rest = spelled.partition("(")
    if kind == "optional":
        return [*_made(rest[:-1], f"{name}_in", value), helper.make_node("Optional", [f"{name}_in"], [name])]
    return [helper.make_node("SequenceConstruct" if kind == "seq" else "Identity", [value], [name])]
