"""inspect --operators and --model: which operators a package's CUDA provider has, where a model's nodes run.

Where a package's ONNX Runtime would run the nodes of a model: as text and as JSON.
"""

from __future__ import annotations

import json
import mmap
import re
import tempfile
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from builder.adapters.untrusted.opener import shown
from builder.app.inspection import opener, stderr_console
from builder.binary.coverage import Support
from builder.builds.check_tools import CheckTools
from builder.builds.wiring import Wiring
from builder.console import Console
from builder.errors import CheckFailedError, ValidationError
from builder.formats.json_values import to_json
from builder.formats.missing_kernels import cannot_run, cause
from builder.formats.onnx_file import read_onnx
from builder.formats.package_names import Profile
from builder.formats.session_log import EVERY_NODE, explained
from builder.formats.text import printable, shortened
from builder.gpu.architectures import Capability
from builder.onnxruntime.operators import OperatorTable, text
from builder.pipeline.library_file import read_file
from builder.pipeline.plan import Wishes, choose_base
from builder.ports import Reporter
from builder.virtualcard.opening import (
    CPU,
    HOST,
    PROVIDER,
    CardRuntime,
    ModelToOpen,
    VirtualCard,
    open_models,
)

_NO_CARD = Capability(8, 6)
"""Stands in for the card of a provider that runs on none."""

_LONGEST = 500
"""Characters of ONNX Runtime's own words, whose end has the reason."""

_BRIDGE = "libonnxruntime_providers_shared.so"

_HOST = re.compile(r"libonnxruntime\.so(?:\.[\d.]+)?\Z")

_VERSION = re.compile(rb"\0VERS_(\d+\.\d+\.\d+)\0")
"""The symbol version that every host library defines."""


@dataclass(frozen=True, kw_only=True)
class _Provider:
    """Host library and CUDA provider of a package, side by side."""

    label: str
    folder: Path
    ort_version: str


def require_alone(*others: object) -> None:
    """Raise ``ValidationError`` for flags that say nothing about operators or a model."""
    if any(others):
        raise ValidationError(
            "--operators and --model take one package, go without each other, and write no --html and no "
            "--svg. Use --json for programs."
        )


def show_operators(wiring: Wiring, source: str, wishes: Wishes, *, as_json: bool) -> None:
    """Print which operators have CUDA kernels in ``source``, a package, folder, wheel or URL."""
    console = stderr_console(wiring)
    with _provider(wiring, console, source) as provider:
        runtime = _runtime(wiring, console, wishes)
        table = _table(wiring, provider, runtime, console)
    wiring.console.show(json.dumps(to_json(table), indent=2) if as_json else text(provider.label, table))


def show_model(wiring: Wiring, source: str, model: Path, wishes: Wishes, *, as_json: bool) -> None:
    """Print which nodes of ``model`` would run on the CPU with the package ``source``, and why.

    Raises as ``read_onnx``, and ``CheckFailedError`` where ONNX Runtime refuses the model.
    """
    file, console, name = read_onnx(model), stderr_console(wiring), shortened(model.name)
    with _provider(wiring, console, source) as provider:
        runtime = _runtime(wiring, console, wishes)
        with console.step(f"open {name} on a virtual card"):
            asked = [ModelToOpen(model=model.absolute())]
            (opening,) = open_models(provider.folder, asked, _card(provider), runtime=runtime)
        if opening.error:
            why = _why(opening.error, provider)
            raise CheckFailedError(f"{name} does not open with {provider.label}: {why}")
        on_cpu = opening.nodes.get(CPU, Counter())
        table: OperatorTable | None = None
        if opening.no_kernel if EVERY_NODE in on_cpu else opening.no_kernel & on_cpu.keys():
            table = _table(wiring, provider, runtime, console)
    plan = ModelPlan(
        model=name,
        package=provider.label,
        ort_version=provider.ort_version,
        opsets=file.opsets,
        counts=opening.counts,
        on_cpu=tuple(
            OnCpu(
                operator,
                name,
                count,
                reason((operator, name), opening.no_kernel, opening.unsupported, opening.cheaper, table),
            )
            for (operator, name), count in sorted(on_cpu.items())
        ),
    )
    wiring.console.show(json.dumps(plan_document(plan), indent=2) if as_json else plan_text(plan))


@contextmanager
def _provider(wiring: Wiring, console: Console, source: str) -> Iterator[_Provider]:
    """ONNX Runtime's libraries of ``source``, by the names it looks for. Raises as ``Opener.files``."""
    label = shown(source)
    with opener(wiring, console).files(source) as found, tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for name, path in found.libraries:
            file = name.rpartition("/")[2]
            wanted = HOST if _HOST.match(file) else file
            if wanted in {HOST, PROVIDER, _BRIDGE} and not (folder / wanted).exists():
                (folder / wanted).symlink_to(path.resolve())
        missing = [wanted for wanted in (HOST, PROVIDER, _BRIDGE) if not (folder / wanted).exists()]
        if missing:
            raise ValidationError(
                f"{label} has no {' and no '.join(missing)}: only ONNX Runtime with its CUDA provider can be "
                "asked. Name a package for CUDA, its folder, or the wheel onnxruntime-gpu."
            )
        yield _Provider(label=label, folder=folder, ort_version=_version(folder / HOST, label))


def _card(provider: _Provider) -> VirtualCard:
    """The newest card that the provider runs on natively: some kernels run while a session is made."""
    coverage = read_file(PROVIDER, provider.folder / PROVIDER).coverage
    support = coverage.support if coverage else {}
    native = [device for device, how in support.items() if how is Support.NATIVE]
    return VirtualCard(capability=str(max(native, default=_NO_CARD)))


def _table(wiring: Wiring, provider: _Provider, runtime: CardRuntime, told: Reporter) -> OperatorTable:
    # Imported late: onnx and onnxruntime are slow to import.
    from builder.builds.operator_query import operator_table  # noqa: PLC0415

    return operator_table(wiring, provider.folder, runtime, provider.ort_version, told)


def _why(said: str, provider: _Provider) -> str:
    """The reason why a model does not open; an operator that a smaller profile lacks comes first."""
    lean = cannot_run(Profile.LEAN.value, provider.ort_version)
    lacks = cause(said, provider.label, lean, None)
    known = str(lacks) if lacks else explained(said, provider.ort_version)
    own = printable(" ".join(said.split())[-_LONGEST:])
    return known or f"{own} Check it with onnx.checker, or export it again."


def _version(host: Path, label: str) -> str:
    with host.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        found = _VERSION.search(data)
        version = found[1].decode() if found else None
    if version is None:
        raise ValidationError(f"{label}: its {HOST} names no version of ONNX Runtime. Name another package.")
    return version


def _runtime(wiring: Wiring, console: Console, wishes: Wishes) -> CardRuntime:
    base = choose_base(wiring.project, wishes, wiring.engine).value
    with console.step("make the virtual card"):
        return CardRuntime(library=CheckTools(wiring, base, console).virtual_card(), runner=wiring.runner)


FORMAT = 1

CHEAPER = "computes shapes: ONNX Runtime leaves that to the CPU, although there is a CUDA kernel"

UNSUPPORTED = "its CUDA kernel does not do these attributes"

UNSAID = "ONNX Runtime says no reason"

Node = tuple[str, str]
"""Operator and name."""


@dataclass(frozen=True)
class OnCpu:
    """A node that the CPU runs."""

    operator: str
    name: str
    """Empty where the model gives none."""
    count: int
    """Nodes of this operator and name."""
    why: str


@dataclass(frozen=True)
class ModelPlan:
    """A model opened at ONNX Runtime's default level, on a card that the package serves."""

    model: str
    package: str
    ort_version: str
    opsets: Mapping[str, int]
    """Domain → opset that the model asks for."""
    counts: Mapping[str, int]
    """Provider → number of nodes, after ONNX Runtime's optimisations."""
    on_cpu: tuple[OnCpu, ...]


def reason(
    node: Node,
    no_kernel: Collection[Node],
    unsupported: Collection[Node],
    cheaper: Collection[str],
    table: OperatorTable | None,
) -> str:
    """Why ``node`` runs on the CPU: what ONNX Runtime said and, without a kernel, which ones there are.

    Of ``EVERY_NODE``, whose operators ONNX Runtime does not list, all that it said of any.
    """
    every = node == EVERY_NODE
    missing = {one[0] for one in no_kernel if every or one == node}
    plain = f"no CUDA kernel for {', '.join(sorted(missing))}"
    causes = (
        (table.why_missing(missing) if table else plain, bool(missing)),
        (UNSUPPORTED, bool(unsupported) if every else node in unsupported),
        (CHEAPER, bool(cheaper) if every else node[1] in cheaper),
    )
    said = [why for why, holds in causes if holds]
    return "; ".join(said if every else said[:1]) or UNSAID


def plan_document(plan: ModelPlan) -> dict[str, object]:
    """The JSON form; its schema is ``docs/schemas/inspect-model.schema.json``."""
    return {
        "format": FORMAT,
        "model": plan.model,
        "package": plan.package,
        "onnxruntime": plan.ort_version,
        "opsets": dict(plan.opsets),
        "nodes": dict(plan.counts),
        "cpu": [
            {"operator": item.operator, "name": item.name, "count": item.count, "why": item.why}
            for item in plan.on_cpu
        ],
    }


def plan_text(plan: ModelPlan) -> str:
    """For a terminal: one line a reason and operator."""
    return "\n".join(_lines(plan))


def _lines(plan: ModelPlan) -> Iterator[str]:
    total = sum(plan.counts.values())
    where = ", ".join(f"{count} on {provider}" for provider, count in sorted(plan.counts.items()))
    nodes = "node" if total == 1 else "nodes"
    yield f"{plan.model} with {plan.package}, ONNX Runtime {plan.ort_version}: {total} {nodes}, {where}"
    grouped: Counter[tuple[str, str]] = Counter()
    names: dict[tuple[str, str], list[str]] = {}
    for item in plan.on_cpu:
        key = (item.operator, item.why)
        grouped[key] += item.count
        names.setdefault(key, []).append(shortened(item.name) or "unnamed")
    for (operator, why), count in grouped.most_common():
        some = names[operator, why]
        more = f" and {len(some) - _NAMED} more" if len(some) > _NAMED else ""
        who = f"{count} {operator} ({', '.join(some[:_NAMED])}{more})"
        yield f"  CPU: {operator if operator == EVERY_NODE[0] else who}: {why}"
    if not plan.on_cpu:
        yield "  no node runs on the CPU"


_NAMED = 3
"""Nodes that are named in a line."""
