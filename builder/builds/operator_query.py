"""This module finds the operators that a CUDA provider has kernels for by opening models on a virtual card.

No API lists kernels, and official providers are stripped. But before ONNX Runtime places a node, its
``CUDAExecutionProvider::GetCapability`` looks the node up in its own registry, by operator, opset and types,
and logs each node without a kernel. The provider may later leave shape computations to the CPU although it
has kernels for them; this happens after the lookup and does not change what is logged.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import onnxruntime

from builder.adapters.test_models.one_node import LAST, Question, future
from builder.adapters.test_models.operator_schemas import Definition, definitions
from builder.binary.library_names import HOST, PROVIDER
from builder.builds.wiring import Wiring
from builder.errors import CheckFailedError, ConfigError
from builder.files.atomic_write import write_file
from builder.files.digest import file_digest
from builder.formats.json_values import from_json, parse_json, to_json
from builder.onnxruntime.operators import FORMAT, ONNX, OperatorTable, ranges
from builder.ports import Reporter
from builder.virtualcard.sessions import (
    DISABLED,
    CardRuntime,
    CardSession,
    ModelToOpen,
    VirtualCard,
    open_models,
)

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

Opener = Callable[[Sequence[ModelToOpen]], Iterable[CardSession]]
"""Opens models one after another."""


@dataclass(kw_only=True)
class _Answers:
    """The answers so far for one definition."""

    unknown: bool = False
    """Whether the host library lacks this definition."""
    answered: int = 0
    kernel: bool = False
    types: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))


def operator_table(
    wiring: Wiring, libraries: Path, runtime: CardRuntime, ort_version: str, reporter: Reporter
) -> OperatorTable:
    """Return the table of the provider in ``libraries``, from the cache if it was made before.

    The cache key is made of the digests of provider and host library and of the version of onnx's schemas.
    Raises what ``open_models`` does, and ``CheckFailedError`` if the provider answers no question.
    """
    digests = [file_digest(libraries / name).sha256 for name in (PROVIDER, HOST)]
    asking = f"operators-{_FORMAT}-{onnxruntime.__version__}"
    file = wiring.cache / asking / digests[0] / f"{digests[1]}.json"
    kept = _load(file)
    if kept is not None:
        return kept
    with reporter.step("ask the CUDA provider for every operator"):
        table = ask(
            definitions(), lambda models: open_models(libraries, models, _CARD, runtime=runtime), ort_version
        )
    write_file(file, json.dumps(to_json(table), indent=1).encode())
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
    if not any(one.answered for one in answers.values()):
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
    """Note the answers of an opening; yield the questions to ask next if there were none."""
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
        asked=sum(one.answered for one in answers.values()),
        unasked=tuple(
            str(definition) for definition, one in answers.items() if not (one.answered or one.unknown)
        ),
    )


def _opsets(opener: Opener, domains: Iterable[str]) -> dict[str, int]:
    """Return the newest opset that the host knows, by domain, from its refusals of a newer opset."""
    found = {}
    for opening in _open(opener, [future(domain) for domain in sorted(domains)]):
        if match := _KNOWN_TILL.search(opening.error):
            found[match[1]] = int(match[2])
    return found


def _load(file: Path) -> OperatorTable | None:
    """Return a table from the cache; ``None`` if there is none or it cannot be read."""
    try:
        return from_json(OperatorTable, parse_json(file.read_bytes(), file.name), file.name)
    except (OSError, ConfigError):
        return None
