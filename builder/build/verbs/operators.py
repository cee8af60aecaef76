"""``inspect --operators`` and ``--model``: what the CUDA provider of a package runs, asked on a virtual card.

``--operators`` lists the operators that have kernels, ``--model`` the nodes of a model that run on the CPU.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from builder.binary.coverage import Support
from builder.binary.library_names import BRIDGE, HOST, PROVIDER
from builder.build.check_tools import tools_of
from builder.compile.plan import PlanOptions
from builder.contents.reading import manifest_bytes, read_file
from builder.contents.supported_gpus import promise_of
from builder.errors import CheckFailedError, ToolMissingError, ValidationError
from builder.facts.gpu.architectures import Capability
from builder.facts.ort import operators
from builder.facts.ort.operators import OperatorTable
from builder.formats.json_values import to_json
from builder.formats.manifest import Manifest
from builder.formats.missing_kernels import missing_kernel_cause
from builder.formats.onnx_file import read_onnx
from builder.formats.session_log import explanation_of
from builder.formats.text import printable, shortened
from builder.inspect.command import opener
from builder.inspect.opener import shown
from builder.io.wiring import Wiring
from builder.prove.virtualcard.sessions import (
    CardRuntime,
    ModelPlan,
    ModelToOpen,
    VirtualCard,
    nodes_on_cpu,
    open_models,
    without_kernel,
)

_NO_CARD = Capability(8, 6)
"""The virtual card's capability for a provider that runs natively on no GPU."""

_LONGEST = 500
"""The most characters that are shown of ONNX Runtime's own message; its end has the reason."""

_LOCALE = re.compile(r"Failed to construct locale with name:\s*([\w.@-]+?):?(?:\s|locale::|$)")
"""StringNormalizer's message (``onnxruntime/core/providers/cpu/nn/string_normalizer.cc``)."""

_LIBRARIES = (HOST, PROVIDER, BRIDGE)

_HOST = re.compile(r"libonnxruntime\.so(?:\.[\d.]+)?\Z")


@dataclass(frozen=True, kw_only=True)
class _Provider:
    label: str
    folder: Path
    ort_version: str
    manifest: Manifest | None
    """The package's manifest; ``None`` for other sources, or where it cannot be read."""


def require_alone(*others: object) -> None:
    """Raise ``ValidationError`` if a flag is given that does not apply to operators or a model."""
    if any(others):
        raise ValidationError(
            "--operators and --model take one package and cannot be combined; of the other flags only --json "
            "goes with them",
            advice="Use --json for programs.",
        )


def operators_report(wiring: Wiring, source: str, plan_options: PlanOptions, *, as_json: bool) -> str:
    """Return which operators have CUDA kernels in ``source``, a package, folder, wheel or URL."""
    with _provider(wiring, source) as provider:
        table = _table(wiring, provider, tools_of(wiring, plan_options).card_runtime())
    return json.dumps(to_json(table), indent=2) if as_json else operators.text(provider.label, table)


def model_report(
    wiring: Wiring, source: str, model: Path, plan_options: PlanOptions, *, as_json: bool
) -> str:
    """Return which nodes of ``model`` would run on the CPU with the package ``source``, and why.

    Raises what ``read_onnx`` does, and ``CheckFailedError`` if ONNX Runtime refuses the model.
    """
    file, name = read_onnx(model), shortened(model.name)
    with _provider(wiring, source, file.operators) as provider:
        runtime = tools_of(wiring, plan_options).card_runtime()
        with wiring.reporter.step(f"open {name} on a virtual card"):
            models, card = [ModelToOpen(model=model.absolute())], _card(provider)
            (opening,) = open_models(provider.folder, models, card, runtime=runtime)
        if opening.error:
            if locale := _LOCALE.search(opening.error):
                raise ToolMissingError(
                    f"this machine has no locale {locale[1]}, which {name} asks for",
                    advice=f"It is no fault of the model. `sudo locale-gen {locale[1]}` makes it.",
                )
            why = _why(opening.error, provider)
            raise CheckFailedError(f"{name} does not open with {provider.label}: {why}")
        lacking = without_kernel(opening)
        table = _table(wiring, provider, runtime, lacking) if lacking else None
    plan = ModelPlan(
        model=name,
        package=provider.label,
        onnxruntime=provider.ort_version,
        opsets=file.opsets,
        nodes=opening.counts,
        cpu=nodes_on_cpu(opening, table),
        card=card.capability,
    )
    return json.dumps(plan.document(), indent=2) if as_json else "\n".join(plan.lines())


@contextmanager
def _provider(
    wiring: Wiring, source: str, needs: Mapping[str, Sequence[str]] | None = None
) -> Iterator[_Provider]:
    """Yield ONNX Runtime's libraries of ``source`` in a folder, by the names that ONNX Runtime looks for.

    ``needs``: the operators of a model by domain, for the message on a plug-in, which has no host.
    Raises ``ValidationError`` for a source without all of them, and what ``Opener.files`` does.
    """
    label = shown(source)
    with (
        opener(wiring, wiring.reporter).files(source, _is_wanted) as source_files,
        tempfile.TemporaryDirectory() as scratch,
    ):
        folder = Path(scratch)
        for name, path in source_files.libraries:
            wanted = _own_name(name)
            if wanted in _LIBRARIES and not (folder / wanted).exists():
                (folder / wanted).symlink_to(path.resolve())
        missing = [wanted for wanted in _LIBRARIES if not (folder / wanted).exists()]
        manifests = (promise_of(manifest_bytes(path), "", ()).manifest for _, path in source_files.manifests)
        manifest = next((manifest for manifest in manifests if manifest is not None), None)
        if missing and manifest and manifest.plugin:
            raise _no_host(label, manifest, needs)
        if missing:
            raise ValidationError(
                f"{label} has no {' and no '.join(missing)}",
                cause="only ONNX Runtime with its CUDA provider can be asked",
                advice="Name a package for CUDA, its folder, or the wheel onnxruntime-gpu.",
            )
        yield _Provider(
            label=label,
            folder=folder,
            ort_version=_version(folder / HOST, label),
            manifest=manifest,
        )


def _own_name(path: str) -> str:
    file = path.rpartition("/")[2]
    return HOST if _HOST.match(file) else file


def _is_wanted(path: str) -> bool:
    return _own_name(path) in _LIBRARIES or path.endswith(".json")


def _no_host(label: str, manifest: Manifest, needs: Mapping[str, Sequence[str]] | None) -> ValidationError:
    """Return the error for a plug-in, which says what of a model, or of all, it has no kernels for."""
    lacks = [
        name
        for missing in manifest.onnxruntime.cannot_run
        for name in missing.operators or (f"all of {missing.title}",)
        if needs is None
        or name.partition("(")[0] in needs.get(missing.title, ())
        or (missing.title in needs and not missing.operators)
    ]
    of = "" if needs is None else " of the model"
    return ValidationError(
        f"{label} is a plug-in: it has no host that could be asked",
        cause=f"operators{of} that it has no CUDA kernels for: {', '.join(lacks) or 'none'}",
        advice="Name a package of form provider of the same variant.",
    )


def _card(provider: _Provider) -> VirtualCard:
    """Return the newest card that the provider runs on natively: of a package, as its manifest states.

    Native code is needed, since some kernels run while a session is created. The bytes alone do not tell it
    of a provider some of whose units are compiled for a part of the set.
    """
    if provider.manifest:
        stated = provider.manifest.capabilities.items()
        native = [Capability.parse(device) for device, how in stated if how == Support.NATIVE.value]
    else:
        coverage = read_file(PROVIDER, provider.folder / PROVIDER).coverage
        support = coverage.support if coverage else {}
        native = [device for device, how in support.items() if how is Support.NATIVE]
    return VirtualCard(capability=str(max(native, default=_NO_CARD)))


def _table(
    wiring: Wiring, provider: _Provider, runtime: CardRuntime, of: Collection[str] = ()
) -> OperatorTable:
    # Imported late: onnx and onnxruntime are slow to import.
    from builder.prove.operator_query import operator_table  # noqa: PLC0415

    return operator_table(wiring, provider.folder, runtime, provider.ort_version, wiring.reporter, of)


def _why(message: str, provider: _Provider) -> str:
    """Return the reason why a model does not open; an operator that the package lacks comes first."""
    ort = provider.manifest.onnxruntime if provider.manifest else None
    lacks = missing_kernel_cause(message, provider.label, ort.cannot_run, ort.host) if ort else None
    known = str(lacks) if lacks else explanation_of(message, provider.ort_version)
    own = printable(" ".join(message.split())[-_LONGEST:])
    return known or f"{own} Check it with onnx.checker, or export it again."


def _version(host: Path, label: str) -> str:
    version = read_file(HOST, host).embedded_version
    if version is None:
        raise ValidationError(
            f"{label}: its {HOST} names no version of ONNX Runtime", advice="Name another package."
        )
    return version
