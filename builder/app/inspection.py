"""The verb inspect shows which GPUs libraries run on, and what a CUDA provider runs.

``--operators`` lists the operators of a CUDA provider, ``--model`` the nodes of a model that run on the CPU.
Results on libraries are shown as a table, JSON, a page and a picture, results on operators and models as text
and JSON.
"""

from __future__ import annotations

import json
import mmap
import re
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from builder.adapters.transfer import HttpTransfer
from builder.adapters.untrusted.opener import Opener, shown
from builder.binary.comparison import compare
from builder.binary.coverage import Support
from builder.binary.library_names import BRIDGE, HOST, PROVIDER
from builder.builds.check_tools import tools_of
from builder.builds.wiring import Wiring
from builder.console import Console
from builder.errors import CheckFailedError, ValidationError
from builder.formats.json_values import to_json
from builder.formats.missing_kernels import cannot_run, missing_kernel_cause
from builder.formats.onnx_file import read_onnx
from builder.formats.package_names import Profile
from builder.formats.session_log import CPU_PROVIDER, EVERY_NODE, explanation_of
from builder.formats.text import abridged, printable, shortened
from builder.gpu.architectures import Capability
from builder.inspector.answers import InspectOptions
from builder.inspector.answers import show as show_answer
from builder.inspector.sources import inspect_sources as read_sources
from builder.onnxruntime import operators
from builder.onnxruntime.operators import OperatorTable
from builder.package.promise import InspectedSource
from builder.pipeline.inspect import read_file
from builder.pipeline.plan import PlanOptions
from builder.ports import Reporter
from builder.report.changes import changes_map
from builder.report.heatmap import heat_maps
from builder.report.pictures import page, svg
from builder.virtualcard.sessions import CardRuntime, CardSession, ModelToOpen, VirtualCard, open_models

_NO_CARD = Capability(8, 6)
"""The virtual card's capability for a provider that runs natively on no GPU."""

_LONGEST = 500
"""The most characters that are shown of ONNX Runtime's own message; its end has the reason."""

_HOST = re.compile(r"libonnxruntime\.so(?:\.[\d.]+)?\Z")

_VERSION = re.compile(rb"\0VERS_(\d+\.\d+\.\d+)\0")
"""The symbol version that every host library defines."""

_CHEAPER = "computes shapes: ONNX Runtime leaves that to the CPU, although there is a CUDA kernel"

_UNSUPPORTED = "its CUDA kernel does not do these attributes"

_UNSAID = "ONNX Runtime says no reason"

Node = tuple[str, str]
"""Operator and name of a node."""

_NAMED = 3
"""The most nodes that a line names."""


def _stderr_console(wiring: Wiring) -> Console:
    """Return a console for messages on standard error, since standard output is the report's."""
    return Console(env=wiring.env, stream=sys.stderr)


def opener(wiring: Wiring, reporter: Reporter) -> Opener:
    """Return an opener of sources, whose scratch folder is ``dist/inspect``."""
    return Opener(
        transfer=HttpTransfer(reporter=reporter, sleep=time.sleep, env=wiring.env),
        reporter=reporter,
        scratch=wiring.dist / "inspect",
    )


def inspect_sources(
    wiring: Wiring, sources: Sequence[str], *, deep: bool = False
) -> tuple[InspectedSource, ...]:
    """Inspect each source, a file, folder or URL, and return what was found.

    With ``deep`` also unpack images.

    Raises what ``Opener.files`` does.
    """
    return read_sources(opener(wiring, _stderr_console(wiring)), sources, deep=deep)


def show(
    wiring: Wiring,
    sources: Sequence[InspectedSource],
    options: InspectOptions,
    html: Path | None,
    picture: Path | None,
) -> None:
    """Show what ``answers.show`` shows, and write a page to ``html`` and a picture to ``picture``."""
    maps = heat_maps(sources)
    if options.diff:
        old, new = sources
        maps = (changes_map(old, new, compare(old.libraries, new.libraries)), *maps)
    views = ((html, page), (picture, svg))
    files = {path: view(maps, wiring.loader).encode() for path, view in views if path}
    show_answer(sources, options, files, wiring.console.show, wiring.reporter.say)


@dataclass(frozen=True, kw_only=True)
class _Provider:
    """A folder with the host library and the CUDA provider of a package."""

    label: str
    folder: Path
    ort_version: str


def require_alone(*others: object) -> None:
    """Raise ``ValidationError`` if a flag is given that does not apply to operators or a model."""
    if any(others):
        raise ValidationError(
            "--operators and --model take one package, go without each other, and of the other flags with "
            "--json alone",
            advice="Use --json for programs.",
        )


def show_operators(wiring: Wiring, source: str, plan_options: PlanOptions, *, as_json: bool) -> None:
    """Print which operators have CUDA kernels in ``source``, a package, folder, wheel or URL."""
    console = _stderr_console(wiring)
    with _provider(wiring, console, source) as provider:
        runtime = tools_of(wiring, plan_options, console).card_runtime()
        table = _table(wiring, provider, runtime, console)
    wiring.console.show(
        json.dumps(to_json(table), indent=2) if as_json else operators.text(provider.label, table)
    )


def show_model(wiring: Wiring, source: str, model: Path, plan_options: PlanOptions, *, as_json: bool) -> None:
    """Print which nodes of ``model`` would run on the CPU with the package ``source``, and why.

    Raises what ``read_onnx`` does, and ``CheckFailedError`` if ONNX Runtime refuses the model.
    """
    file, console, name = read_onnx(model), _stderr_console(wiring), shortened(model.name)
    with _provider(wiring, console, source) as provider:
        runtime = tools_of(wiring, plan_options, console).card_runtime()
        with console.step(f"open {name} on a virtual card"):
            models = [ModelToOpen(model=model.absolute())]
            (opening,) = open_models(provider.folder, models, _card(provider), runtime=runtime)
        if opening.error:
            why = _why(opening.error, provider)
            raise CheckFailedError(f"{name} does not open with {provider.label}: {why}")
        on_cpu = opening.nodes.get(CPU_PROVIDER, Counter())
        table: OperatorTable | None = None
        if opening.no_kernel if EVERY_NODE in on_cpu else opening.no_kernel & on_cpu.keys():
            table = _table(wiring, provider, runtime, console)
    plan = ModelPlan(
        model=name,
        package=provider.label,
        onnxruntime=provider.ort_version,
        opsets=file.opsets,
        nodes=opening.counts,
        cpu=tuple(
            OnCpu(operator, name, count, _reason((operator, name), opening, table))
            for (operator, name), count in sorted(on_cpu.items())
        ),
    )
    wiring.console.show(json.dumps(plan.document(), indent=2) if as_json else "\n".join(_lines(plan)))


@contextmanager
def _provider(wiring: Wiring, console: Console, source: str) -> Iterator[_Provider]:
    """Yield ONNX Runtime's libraries of ``source`` in a folder, by the names that ONNX Runtime looks for.

    Raises ``ValidationError`` for a source without all of them, and what ``Opener.files`` does.
    """
    label = shown(source)
    with opener(wiring, console).files(source) as found, tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for name, path in found.libraries:
            file = name.rpartition("/")[2]
            wanted = HOST if _HOST.match(file) else file
            if wanted in {HOST, PROVIDER, BRIDGE} and not (folder / wanted).exists():
                (folder / wanted).symlink_to(path.resolve())
        missing = [wanted for wanted in (HOST, PROVIDER, BRIDGE) if not (folder / wanted).exists()]
        if missing:
            raise ValidationError(
                f"{label} has no {' and no '.join(missing)}",
                cause="only ONNX Runtime with its CUDA provider can be asked",
                advice="Name a package for CUDA, its folder, or the wheel onnxruntime-gpu.",
            )
        yield _Provider(label=label, folder=folder, ort_version=_version(folder / HOST, label))


def _card(provider: _Provider) -> VirtualCard:
    """Return the newest card that the provider runs on natively.

    Native code is needed, since some kernels run while a session is created.
    """
    coverage = read_file(PROVIDER, provider.folder / PROVIDER).coverage
    support = coverage.support if coverage else {}
    native = [device for device, how in support.items() if how is Support.NATIVE]
    return VirtualCard(capability=str(max(native, default=_NO_CARD)))


def _table(wiring: Wiring, provider: _Provider, runtime: CardRuntime, reporter: Reporter) -> OperatorTable:
    # Imported late: onnx and onnxruntime are slow to import.
    from builder.builds.operator_query import operator_table  # noqa: PLC0415

    return operator_table(wiring, provider.folder, runtime, provider.ort_version, reporter)


def _why(message: str, provider: _Provider) -> str:
    """Return the reason why a model does not open; an operator that a smaller profile lacks comes first."""
    lean = cannot_run(Profile.LEAN.value, provider.ort_version)
    lacks = missing_kernel_cause(message, provider.label, lean, None)
    known = str(lacks) if lacks else explanation_of(message, provider.ort_version)
    own = printable(" ".join(message.split())[-_LONGEST:])
    return known or f"{own} Check it with onnx.checker, or export it again."


def _version(host: Path, label: str) -> str:
    with host.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        found = _VERSION.search(data)
        version = found[1].decode() if found else None
    if version is None:
        raise ValidationError(
            f"{label}: its {HOST} names no version of ONNX Runtime", advice="Name another package."
        )
    return version


@dataclass(frozen=True)
class OnCpu:
    """A group of nodes that run on the CPU, with one operator and name."""

    operator: str
    name: str
    """The nodes' name; empty if the model gives none."""
    count: int
    """The number of nodes with this operator and name."""
    why: str


@dataclass(frozen=True)
class ModelPlan:
    """A model opened at ONNX Runtime's default level, on a card that the package serves."""

    model: str
    package: str
    onnxruntime: str
    """The package's version of ONNX Runtime."""
    opsets: Mapping[str, int]
    """The opset that the model asks for, by domain."""
    nodes: Mapping[str, int]
    """The number of nodes after ONNX Runtime's optimisations, by provider."""
    cpu: tuple[OnCpu, ...]

    def document(self) -> dict[str, object]:
        """Return the JSON form; its schema is ``docs/schemas/inspect-model.schema.json``."""
        return {"format": 1, **asdict(self)}


def _reason(node: Node, opening: CardSession, table: OperatorTable | None) -> str:
    """Return why ``node`` runs on the CPU: ONNX Runtime's reason and, without a kernel, the existing kernels.

    For ``EVERY_NODE``, whose operators ONNX Runtime does not list, all reasons that it gave for any node.
    """
    every = node == EVERY_NODE
    missing = {one[0] for one in opening.no_kernel if every or one == node}
    plain = f"no CUDA kernel for {', '.join(sorted(missing))}"
    causes = (
        (table.why_missing(missing) if table else plain, bool(missing)),
        (_UNSUPPORTED, bool(opening.unsupported) if every else node in opening.unsupported),
        (_CHEAPER, bool(opening.cheaper) if every else node[1] in opening.cheaper),
    )
    reasons = [why for why, holds in causes if holds]
    return "; ".join(reasons if every else reasons[:1]) or _UNSAID


def _lines(plan: ModelPlan) -> Iterator[str]:
    """Yield a line for the model, then a line for each operator and reason."""
    total = sum(plan.nodes.values())
    where = ", ".join(f"{count} on {provider}" for provider, count in sorted(plan.nodes.items()))
    yield (
        f"{plan.model} with {plan.package}, ONNX Runtime {plan.onnxruntime}: "
        f"{total} node{'s' * (total != 1)}, {where}"
    )
    counts: Counter[tuple[str, str]] = Counter()
    names = defaultdict[tuple[str, str], list[str]](list)
    for item in plan.cpu:
        counts[item.operator, item.why] += item.count
        names[item.operator, item.why].append(shortened(item.name) or "unnamed")
    for (operator, why), count in counts.most_common():
        who = f"{count} {operator} ({abridged(names[operator, why], _NAMED)})"
        yield f"  CPU: {operator if operator == EVERY_NODE[0] else who}: {why}"
    if not plan.cpu:
        yield "  no node runs on the CPU"
