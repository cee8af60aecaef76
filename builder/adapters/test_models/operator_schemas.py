"""Operators as the schemas of ONNX and ONNX Runtime define them: the nodes that a schema allows.

The schemas are those of the pinned onnxruntime, which is newer than any host library that is asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

from onnx import TensorProto
from onnxruntime.capi import onnxruntime_pybind11_state as stock

from builder.onnxruntime.operators import ONNX

Binding = Mapping[str, str]
"""Type parameter → type, as schemas spell them."""

ELEMENTS = {name.lower(): number for name, number in TensorProto.DataType.items() if number}
"""Element type's number, by the name that schemas spell."""

ELEMENT_ATTRIBUTES = frozenset({"to", "dtype", "output_dtype", "output_datatype"})
"""Attributes whose value is the element type of an output."""

_ABSENT = re.compile(r"complex(64|128)")
"""Element types that no ONNX Runtime has a data type for."""

_REPLACED = {("", "Constant"), ("", "SequenceMap")}

_SEQUENCED = frozenset(range(TensorProto.FLOAT, TensorProto.UINT64 + 1))
"""Element types that ``SequenceConstruct`` and ``Optional`` accept, which make the values of a subgraph."""

_MANY = 99

_NEXT_RANK = {None: 2, 2: 3, 3: 4, 4: 1}


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

    def other(self) -> NodeForm | None:
        """Return the form to try next, if any: some schemas need a rank, or values that are optional."""
        if not self.whole and self.rank is None:
            return replace(self, whole=True)
        return replace(self, whole=False, rank=_NEXT_RANK[self.rank]) if self.rank in _NEXT_RANK else None


PLAIN_FORM = NodeForm()
"""The form that is tried first."""


@dataclass(frozen=True)
class Parameter:
    """An input or output of an operator, as its schema has it."""

    type: str
    """A type parameter, or a type."""
    optional: bool


@dataclass(frozen=True)
class Attribute:
    """An attribute that a node is given."""

    name: str
    kind: str
    """Name of its type in schemas: ``INT``, ``GRAPH``."""
    element: int
    """The element type that its value names or has."""


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
        filled = self.filled(PLAIN_FORM)
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

    def attributes(self, binding: Binding, form: NodeForm) -> Iterator[Attribute]:
        """Yield the attributes that the schema requires, ``form`` names, or an output's type depends on."""
        element = self._output_element(binding)
        for name, item in self._schema.attributes.items():
            kind = item.type.name
            decides = element is not None and _decides(name, kind)
            if item.required or decides or name in form.attributes:
                yield Attribute(name, kind, TensorProto.FLOAT if element is None else element)

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


def known(spelled: str) -> bool:
    """Return whether the pinned ONNX has every element type in ``spelled``."""
    return all(name in ELEMENTS for name in re.findall(r"\w+(?=[,)])", spelled))


def element_of(spelled: str) -> int:
    """Return the innermost element type of a type: for ``seq(tensor(float))`` the number of ``float``."""
    return int(ELEMENTS[re.findall(r"\w+", spelled)[-1]])


def _parameter(item: stock.schemadef.OpSchema.FormalParameter) -> Parameter:
    return Parameter(type=item.typeStr, optional=item.option.name == "Optional")


def _decides(name: str, kind: str) -> bool:
    """Return whether the attribute of this name and kind decides the type of an output."""
    return kind == "GRAPH" or (name, kind) == ("value", "TENSOR") or name in ELEMENT_ATTRIBUTES
