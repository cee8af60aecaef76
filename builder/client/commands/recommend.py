"""The command ``recommend`` chooses a model by the index's table, and opens model files that are given."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Dict, Iterator, Mapping, Optional, Sequence

from builder.client.commands.select_package import (
    ModelVerdict,
    PackageSelection,
    choose,
    note_verdict,
    read_release_and_gpus,
)
from builder.client.commands.show_gpus import profile_value
from builder.client.context import CommandAnswer, CommandContext, ReleaseSource, Wish
from builder.client.install.current import installed
from builder.client.install.prefix import Prefix
from builder.client.install.unpack import Verification, verify
from builder.client.selection.reasons import limits
from builder.client.selection.select import PackageChoice, fitting, usable_vram
from builder.client.trials.try_out import OrtTrials, TryOut, model_file, no_host, require_host
from builder.errors import IntegrityError, ValidationError
from builder.formats.manifest import Manifest, ModelRule
from builder.formats.missing_kernels import missing_kernel_cause
from builder.formats.package_names import CPU
from builder.formats.session_log import CPU_PROVIDER, Placement, explanation_of
from builder.formats.text import printable

GPU = "gpu"


@dataclass(frozen=True)
class Attempt:
    """A model that was opened, or was to be opened."""

    model: str
    provider: str
    tried: TryOut
    cause: Optional[str] = None
    """The reason for which the model does not open and the remedy, where the package lacks a kernel that the
    model needs; ``None`` for any other reason."""


def answer_recommend(
    context: CommandContext, release: ReleaseSource, wish: Wish, models: Sequence[str]
) -> CommandAnswer:
    """Recommend a model for this machine.

    ``models``, each ``PATH`` or ``NAME=PATH``, are opened in the installed package, and ``gpu-info.json``
    gets the result.
    """
    selection = read_release_and_gpus(context, release, wish)
    choice = choose(selection, wish.variant)
    verdict = by_table(choice, selection, context)
    attempts: Sequence[Attempt] = ()
    if models:
        rules = tuple(fitting(selection.index.models, verdict.vram_mib, context.cores, context.ram_gib))
        trials = OrtTrials(context.around.ask, context.around.python)
        attempts = tuple(_try_models(rules, _files(models, rules, selection), release.prefix, trials))
        verdict = _by_trial(rules, attempts, verdict)
        note_verdict(context, release.prefix, selection, choice, verdict)
    notes = limits(choice.package, [choice.device] if choice.device else []) if choice.package else ()
    profile = profile_value(choice.device if choice.on_gpu else None)
    value = {
        "model": verdict.model,
        "device": verdict.device,
        "tested": verdict.tested,
        "attempts": [_attempt(attempt) for attempt in attempts],
        "vram_mib": verdict.vram_mib,
        "cores": context.cores,
        "ram_gib": context.ram_gib,
        "profile": profile,
        "notes": list(notes),
    }
    return CommandAnswer(value, (*map(_attempt_line, attempts), _summary(verdict, context), *notes))


def by_table(choice: PackageChoice, selection: PackageSelection, context: CommandContext) -> ModelVerdict:
    """Return the first model of the index's table whose minimums this machine meets."""
    own = choice.device.memory_mib if choice.on_gpu and choice.device else None
    vram = usable_vram(context.platform, context.ram_gib * 1024, own)
    rule = next(fitting(selection.index.models, vram, context.cores, context.ram_gib), None)
    return ModelVerdict(rule.model if rule else None, rule.device if rule else None, vram)


def _files(
    given: Sequence[str], rules: Sequence[ModelRule], selection: PackageSelection
) -> Mapping[str, Path]:
    """Return the path of each model.

    A path without a name belongs to the recommended model; where the table has none that fits, to a model of
    the file's own name. Raises ``ValidationError`` for two files of a model, and the errors of
    ``model_file``.
    """
    known = [rule.model for rule in selection.index.models]
    table = ", ".join(known) or "it is empty"
    advice = f"Give a model's path, or NAME=PATH with a name of the index's table: {table}."
    files: Dict[str, Path] = {}
    for text in given:
        name, _, path = text.partition("=")
        named = name in known and bool(path)
        model = name if named else rules[0].model if rules else ""
        file = model_file(path if named else text, text, advice)
        if model in files:
            raise ValidationError(f"--try {text}: {files[model]} is given for {model} too.", advice=advice)
        files[model or (str(file) if file.name in files else file.name)] = file
    return files


def _try_models(
    rules: Sequence[ModelRule], files: Mapping[str, Path], prefix: Prefix, trials: OrtTrials
) -> Iterator[Attempt]:
    """Open models in the table's order until one opens, or a model has no file.

    Where no line of the table fits, all files are opened with the package's provider. Raises
    ``IntegrityError`` or ``NothingToDoError`` where the installed package cannot be used.
    """
    verdict = verified_package(prefix)
    manifest = verdict.manifest
    if manifest.plugin:
        raise no_host(manifest, "--try")
    host = require_host(verdict.folder, manifest)
    if not rules:
        for model, file in files.items():
            yield _tried(trials, host, manifest, model, file, manifest.provider)
    for rule in rules:
        if rule.model not in files:
            return
        file, provider = files[rule.model], manifest.provider if rule.device == GPU else CPU
        attempt = _tried(trials, host, manifest, rule.model, file, provider)
        yield attempt
        if attempt.tried.failure is None or not attempt.tried.ran:
            return
        if provider != CPU:
            yield _tried(trials, host, manifest, rule.model, file, CPU)


def _tried(
    trials: OrtTrials, host: Path, manifest: Manifest, model: str, file: Path, provider: str
) -> Attempt:
    """Open a model and return the attempt; a known error of ONNX Runtime gets an explanation.

    The package's missing kernels are compared first: ONNX Runtime's message for such an operator is the same
    as for a custom operator whose library is not registered.
    """
    tried, ort = trials.open(host, provider, file), manifest.onnxruntime
    why = missing_kernel_cause(tried.failure or "", manifest.name, ort.cannot_run, ort.host)
    explanation = None if why else explanation_of(tried.failure or "", ort.version)
    return Attempt(
        model, provider, replace(tried, failure=explanation or tried.failure), str(why) if why else None
    )


def verified_package(prefix: Prefix) -> Verification:
    """Return the installed package, once the whole of it is verified.

    Raises ``IntegrityError`` where it is damaged, ``NothingToDoError`` where none is installed.
    """
    verdict = verify(installed(prefix))
    if verdict.problems:
        first, *others = verdict.problems
        raise IntegrityError(first, details=others, advice="Run install again.")
    return verdict


def _by_trial(rules: Sequence[ModelRule], attempts: Sequence[Attempt], verdict: ModelVerdict) -> ModelVerdict:
    """Return the model that opened on the device that the table names for it.

    Where none did, return the first line that did not fail, as not tested.
    """
    places = {rule.model: rule.device for rule in rules}
    failed = []
    for attempt in (tried for tried in attempts if tried.model in places):
        on_gpu = places[attempt.model] == GPU
        if attempt.tried.failure is None and on_gpu == (attempt.provider != CPU):
            return ModelVerdict(attempt.model, places[attempt.model], verdict.vram_mib, tested=True)
        if attempt.tried.ran:
            failed.append(attempt.model)
    rest = next((rule for rule in rules if rule.model not in failed), None)
    return ModelVerdict(rest.model if rest else None, rest.device if rest else None, verdict.vram_mib)


def _attempt_line(attempt: Attempt) -> str:
    what = f"{attempt.model} on {attempt.provider}"
    if attempt.tried.failure is not None:
        how = "does not open" if attempt.tried.ran else "not tried"
        return f"{what}: {how}: {printable(attempt.tried.failure)}" + (
            f" {attempt.cause}" if attempt.cause else ""
        )
    memory = attempt.tried.gpu_memory_mib
    nodes = _nodes(attempt.tried.placement)
    return f"{what}: opens" + (f", {memory} MiB of GPU memory" if memory is not None else "") + nodes


def _nodes(placement: Optional[Placement]) -> str:
    """Return the number of nodes per provider: ``; nodes: 188 on CUDAExecutionProvider, 3 on …``.

    Operators on the CPU are named. Empty where the placement is unknown.
    """
    if placement is None:
        return ""
    on_cpu = sorted({operator for provider, operator, _ in placement.nodes if provider == CPU_PROVIDER})
    names = f" ({', '.join(on_cpu)})" if on_cpu else ""
    return "; nodes: " + ", ".join(
        f"{count} on {provider}" + (names if provider == CPU_PROVIDER else "")
        for provider, count in sorted(placement.counts.items(), reverse=True)
    )


def _summary(verdict: ModelVerdict, context: CommandContext) -> str:
    memory = f"{verdict.vram_mib} MiB of GPU memory" if verdict.vram_mib else "no usable GPU memory"
    how = "tried out, " if verdict.tested else ""
    model = verdict.model or "no model of the table fits"
    return f"{model}: {how}{memory}, {context.cores} cores, {context.ram_gib} GiB of RAM"


def _attempt(attempt: Attempt) -> Dict[str, object]:
    return {
        "model": attempt.model,
        "provider": attempt.provider,
        "opens": attempt.tried.failure is None,
        "failure": attempt.tried.failure,
        "cause": attempt.cause,
        "nodes": dict(attempt.tried.placement.counts) if attempt.tried.placement else None,
        "gpu_memory_mib": attempt.tried.gpu_memory_mib,
    }
