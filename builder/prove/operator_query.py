"""This module finds the operators that a CUDA provider has kernels for by opening models on a virtual card.

No API lists kernels, and official providers are stripped. But before ONNX Runtime places a node, its
``CUDAExecutionProvider::GetCapability`` looks the node up in its own registry, by operator, opset and types,
and logs each node without a kernel. The provider may later leave shape computations to the CPU although it
has kernels for them; this happens after the lookup and does not change what is logged.

ONNX Runtime refuses a model as a whole. Each model is therefore about one definition of one operator, and has
a node for each combination of types that the operator's schema allows; no node is connected with another. The
schemas are those of the pinned onnxruntime, which is newer than any host library that is asked; an older one
refuses the definitions that it does not know.
"""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path

import onnx
import onnxruntime
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, TypeProto, helper
from onnxruntime.capi import onnxruntime_pybind11_state as stock

from builder.binary.library_names import HOST, PROVIDER
from builder.console import Reporter
from builder.errors import CheckFailedError, ConfigError
from builder.facts.ort.operators import FORMAT, ONNX, OperatorTable, ranges
from builder.files.atomic_write import write_file
from builder.files.digest import file_digest
from builder.formats.json_values import from_json, parse_json, to_json
from builder.io.wiring import Wiring
from builder.prove.virtualcard.sessions import (
    DISABLED,
    CardRuntime,
    CardSession,
    ModelToOpen,
    VirtualCard,
    open_models,
)

Binding = Mapping[str, str]
"""Type parameter → type, as schemas spell them."""

_ELEMENTS = {name.lower(): number for name, number in TensorProto.DataType.items() if number}
"""Element type's number, by the name that schemas spell."""

_ELEMENT_ATTRIBUTES = frozenset({"to", "dtype", "output_dtype", "output_datatype"})
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


class Definition:
    """One operator as ONNX or ONNX Runtime defines it from one opset on."""

    def __init__(self, schema: stock.schemadef.OpSchema) -> None:
        """Take ``schema``, an element of ``get_all_operator_schema``; a variadic parameter is in it once."""
        self.domain: str = schema.domain
        self.operator: str = schema.name
        self.since: int = schema.since_version
        self.types: Mapping[str, tuple[str, ...]] = {
            item.type_param_str: tuple(sorted(filter(_exists, item.allowed_type_strs)))
            for item in schema.type_constraints
        }
        """The types that the schema allows and ONNX Runtime has, sorted, by type parameter."""
        self._inputs = tuple(schema.inputs)
        self._outputs = tuple(schema.outputs)
        self._attributes = {name: (item.type.name, item.required) for name, item in schema.attributes.items()}
        given = {item.typeStr for item in self._inputs}
        of_outputs = [item.typeStr for item in self._outputs if item.typeStr in self.types]
        self._free = [name for name in of_outputs if name not in given]
        """The type parameters of outputs that no input has."""
        chosen = any(_decides(name, kind) for name, (kind, _) in self._attributes.items())
        self._following = frozenset(self._free[1:] if chosen else self._free)
        """Those of them that no attribute decides."""

    def __str__(self) -> str:
        return f"{self.domain or ONNX}:{self.operator}-{self.since}"

    def bindings(self) -> tuple[Binding, ...]:
        """Return every combination of types that a node of the plain form can have.

        Types of outputs are left out where they follow from those of the inputs.
        """
        filled = self.filled(PLAIN_FORM)
        names = [name for name in self.types if name in filled and name not in self._following]
        possible = (
            dict(zip(names, some, strict=True)) for some in product(*(self.types[name] for name in names))
        )
        return tuple(binding for binding in possible if self._is_possible(binding))

    def _is_possible(self, binding: Binding) -> bool:
        """Return whether the schema's code allows the types together; its list of types lacks some rules."""
        if self.operator == "SequenceInsert":
            return element_of(binding["S"]) == element_of(binding["T"])
        if any(kind == "GRAPH" for kind, _ in self._attributes.values()):
            made = binding.get("V", "tensor(float)")
            return made.startswith("tensor(") or element_of(made) in _SEQUENCED
        return True

    def slots(self, side: str, form: NodeForm) -> list[str]:
        """Return the types of a node's ``inputs`` or ``outputs`` by position; empty for an omitted one."""
        parameters = self._inputs if side == "inputs" else self._outputs
        fewest, most = form.inputs if side == "inputs" else form.outputs
        required = [at for at, item in enumerate(parameters) if form.whole or item.option.name != "Optional"]
        others = self._inputs if side == "outputs" else ()
        met = {item.typeStr for item in [*others, *(parameters[at] for at in required)]}
        wanted = {*required, *range(min(fewest, len(parameters)))}
        for at, item in enumerate(parameters):
            if item.typeStr in self.types and item.typeStr not in met | self._following:
                met.add(item.typeStr)
                wanted.add(at)
        wanted = {at for at in wanted if at < most}
        return [parameters[at].typeStr if at in wanted else "" for at in range(max(wanted, default=-1) + 1)]

    def filled(self, form: NodeForm) -> frozenset[str]:
        """Return the type parameters of the inputs and outputs that a node of ``form`` has."""
        return frozenset([*self.slots("inputs", form), *self.slots("outputs", form)]) - {""}

    def attributes(self, binding: Binding, form: NodeForm, body: GraphProto) -> Iterator[AttributeProto]:
        """Yield the attributes that the schema requires, ``form`` names, or an output's type depends on.

        They have any value of their kind, since no node runs.
        """
        decided = [binding[name] for name in self._free if name in binding]
        element = element_of(decided[0]) if decided else TensorProto.FLOAT
        for name, (kind, required) in self._attributes.items():
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
            if kind in values and (required or name in form.attributes or (decided and _decides(name, kind))):
                yield helper.make_attribute(name, values[kind])


def definitions() -> tuple[Definition, ...]:
    """Return every definition that is not deprecated, of every domain, sorted.

    ``Constant`` is left out, because ONNX Runtime turns it into an initializer before it asks any provider,
    and ``SequenceMap``, because it is a function whose body each model contains.
    """
    from_schemas = (
        Definition(schema)
        for schema in stock.get_all_operator_schema()
        if not schema.deprecated and (schema.domain, schema.name) not in _REPLACED
    )
    return tuple(sorted(from_schemas, key=lambda item: (item.domain, item.operator, item.since)))


def _exists(spelled: str) -> bool:
    """Return whether the pinned ONNX and ONNX Runtime have every element type in ``spelled``."""
    names = re.findall(r"\w+(?=[,)])", spelled)
    return not _ABSENT.search(spelled) and all(name in _ELEMENTS for name in names)


def element_of(spelled: str) -> int:
    """Return the innermost element type of a type: for ``seq(tensor(float))`` the number of ``float``."""
    return int(_ELEMENTS[re.findall(r"\w+", spelled)[-1]])


def _decides(name: str, kind: str) -> bool:
    return kind == "GRAPH" or (name, kind) == ("value", "TENSOR") or name in _ELEMENT_ATTRIBUTES


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
        definition, form = self.definition, self.form
        nodes: list[NodeProto] = []
        inputs: dict[str, TypeProto] = {}
        values: list[onnx.ValueInfoProto] = []
        for at, binding in enumerate(self.bindings):
            name = f"n{at}"
            taken, made = (
                [binding.get(kind, kind) for kind in definition.slots(side, form)]
                for side in ("inputs", "outputs")
            )
            # All nodes that need an input of one type share it.
            inputs |= {f"in_{kind}": _type(kind, form.rank) for kind in taken if kind}
            # The type of an output is declared if it was chosen, so that another type is refused.
            values += [
                helper.make_value_info(f"{name}_{place}", _type(kind))
                for place, kind in enumerate(made)
                if "(" in kind
            ]
            node = helper.make_node(
                definition.operator,
                [kind and f"in_{kind}" for kind in taken],
                [kind and f"{name}_{place}" for place, kind in enumerate(made)],
                name=name,
                domain=definition.domain,
            )
            node.attribute.extend(definition.attributes(binding, form, _body(definition, name, binding)))
            nodes.append(node)
        return _model(nodes, inputs, values, {definition.domain: definition.since})


def _mended(form: NodeForm, refusal: str) -> NodeForm | None:
    """Return the form that the text of a refusal asks for; ``None`` if the text asks for none."""
    if match := _SIZE.search(refusal):
        allowed = int(match[2]), int(match[3])
        return replace(form, inputs=allowed) if match[1] == "input" else replace(form, outputs=allowed)
    if match := _REQUIRED.search(refusal):
        return replace(form, attributes=form.attributes | {match[1]})
    return None


def _absent_element(refusal: str) -> int | None:
    """Return the element type for which, by a refusal, there is no data type; ``None`` for other refusals."""
    if named := _NO_DATA_TYPE.search(refusal):
        return element_of(named[1])
    numbered = _NO_TENSOR_TYPE.search(refusal)
    return int(numbered[1]) if numbered else None


def future(domain: str) -> bytes:
    """Return a model that asks for an opset of ``domain`` newer than any; its refusal names the newest."""
    return _model([], {}, [], {domain: _FUTURE})


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


def _type(spelled: str, rank: int | None = None) -> TypeProto:
    """Return a type; ``rank`` is that of a tensor, ``None`` leaves its shape open."""
    made = TypeProto()
    kind, _, rest = spelled.partition("(")
    inner = rest[:-1]
    if kind == "tensor":
        made.tensor_type.elem_type = _ELEMENTS[inner]
        for _ in range(rank or 0):
            made.tensor_type.shape.dim.add()
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


_CARD = VirtualCard(capability="8.6")
"""The card of all queries. Any capability would do, since the registry is the same on all."""

_CONFIG = {
    # A node that stays on the CPU ends the session before any kernel is created.
    "session.disable_cpu_ep_fallback": "1",
    # An operator that is a function of other operators is looked up under its own name.
    "session.disable_aot_function_inlining": "1",
}

_KNOWN_TILL = re.compile(r"official support for domain (\S+) is till opset (\d+)")

_UNKNOWN = re.compile(r"is not a registered function/op|No Op registered for|official support for domain")

_FORMAT = 1

_CONTROL = "Relu"
"""An operator that every ONNX Runtime answers for: without an answer for it the log is not understood."""

Opener = Callable[[Sequence[ModelToOpen]], Iterable[CardSession]]
"""Opens models one after another."""


@dataclass(kw_only=True)
class _Answers:
    unknown: bool = False
    """Whether the host library lacks this definition."""
    answered: int = 0
    kernel: bool = False
    types: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))


def operator_table(
    wiring: Wiring,
    libraries: Path,
    runtime: CardRuntime,
    ort_version: str,
    reporter: Reporter,
    operators: Collection[str] = (),
) -> OperatorTable:
    """Return the table of the provider in ``libraries``, from the cache if it was made before.

    With names of ``operators``, only they are asked for where the cache has no table; that takes seconds, all
    take minutes. The cache key is made of the digests of provider and host library and of the version of
    onnx's schemas. Raises what ``open_models`` does, and ``CheckFailedError`` if the provider answers no
    question.
    """
    digests = [file_digest(libraries / name).sha256 for name in (PROVIDER, HOST)]
    asking = f"operators-{_FORMAT}-{onnxruntime.__version__}"
    kept = wiring.cache / asking / digests[0]
    few = hashlib.sha256(" ".join(sorted(operators)).encode()).hexdigest()[:16] if operators else ""
    files = [kept / f"{digests[1]}.json", *([kept / f"{digests[1]}-{few}.json"] if few else [])]
    if table := next(filter(None, map(_load, files)), None):
        return table
    asked = {*operators, _CONTROL}
    wanted = [item for item in definitions() if not operators or item.operator in asked]
    what = "the operators without a kernel" if operators else "every operator"
    with reporter.step(f"ask the CUDA provider for {what}"):
        table = ask(
            wanted, lambda models: open_models(libraries, models, _CARD, runtime=runtime), ort_version
        )
    write_file(files[-1], json.dumps(to_json(table), indent=1).encode())
    return table


def ask(known: Sequence[Definition], opener: Opener, ort_version: str) -> OperatorTable:
    """Query each definition and return the table.

    A model that is refused as a whole is split into its nodes, and then tried in other forms. Raises
    ``CheckFailedError`` if there is no answer at all.
    """
    answers = {definition: _Answers() for definition in known}
    questions = [Question(definition, definition.bindings()) for definition in known]
    while questions:
        openings = _open(opener, [question.model() for question in questions])
        questions = [
            again
            for question, opening in zip(questions, openings, strict=True)
            for again in _note_answers(question, opening, answers[question.definition])
        ]
    if not any(answer.answered for answer in answers.values()):
        raise CheckFailedError(
            "The CUDA provider answered for no operator at all: ONNX Runtime's log is not what it was. "
            "Report this with the version of ONNX Runtime."
        )
    return _table(answers, _opsets(opener, {definition.domain for definition in known}), ort_version)


def _open(opener: Opener, models: Sequence[bytes]) -> list[CardSession]:
    with tempfile.TemporaryDirectory(prefix="ortpacks-operators-") as name:
        files = []
        for at, model in enumerate(models):
            file = Path(name) / f"{at}.onnx"
            file.write_bytes(model)
            files.append(ModelToOpen(model=file, level=DISABLED, config=_CONFIG))
        return list(opener(files))


def _note_answers(question: Question, opening: CardSession, answers: _Answers) -> Iterator[Question]:
    if ("Identity", LAST) in opening.no_kernel:
        filled = question.definition.filled(question.form)
        answers.answered += len(question.bindings)
        for at, binding in enumerate(question.bindings):
            if (question.definition.operator, f"n{at}") not in opening.no_kernel:
                answers.kernel = True
                for name in filled & binding.keys():
                    answers.types[name].add(binding[name])
    elif _UNKNOWN.search(opening.error):
        answers.unknown = True
    else:
        yield from question.again(opening.error)


def _table(
    answers: Mapping[Definition, _Answers], opsets: Mapping[str, int], ort_version: str
) -> OperatorTable:
    served: dict[tuple[str, str], dict[int, Mapping[str, Iterable[str]] | None]] = defaultdict(dict)
    for definition, one in answers.items():
        if not one.unknown:
            key = (definition.domain or ONNX, definition.operator)
            served[key][definition.since] = one.types if one.kernel else None
    return OperatorTable(
        format=FORMAT,
        onnxruntime=ort_version,
        opsets=opsets,
        kernels=tuple(row for key, versions in sorted(served.items()) for row in ranges(*key, versions)),
        asked=sum(answer.answered for answer in answers.values()),
        unasked=tuple(
            str(definition) for definition, one in answers.items() if not (one.answered or one.unknown)
        ),
    )


def _opsets(opener: Opener, domains: Iterable[str]) -> dict[str, int]:
    """Return the newest opset that the host knows, by domain, from its refusals of a newer opset."""
    opsets = {}
    for opening in _open(opener, [future(domain) for domain in sorted(domains)]):
        if match := _KNOWN_TILL.search(opening.error):
            opsets[match[1]] = int(match[2])
    return opsets


def _load(file: Path) -> OperatorTable | None:
    try:
        return from_json(OperatorTable, parse_json(file.read_bytes(), file.name), file.name)
    except (OSError, ConfigError):
        return None
