"""The command ``prove`` runs the self-test's models on this machine's card, and writes what it saw.

A message of ONNX Runtime, which may have paths and the host's name, is shown and not written.
"""

from __future__ import annotations

import re
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator, Mapping, Optional, Tuple

from builder.client.commands.hosts import found_host
from builder.client.commands.recommend import verified_package
from builder.client.context import CommandAnswer, CommandContext, require_yes
from builder.client.install.prefix import Prefix, read_info
from builder.client.install.source import locate
from builder.client.install.unpack import extract, manifest_in, open_tar
from builder.client.probe.detect import detect
from builder.client.selection.forms import host_refusal
from builder.client.selection.reasons import RUNS
from builder.client.trials.try_out import OrtTrials, TryOut, require_host
from builder.errors import (
    CheckFailedError,
    ConfigError,
    NoCompatiblePackageError,
    NothingToDoError,
)
from builder.files.atomic_write import write_file
from builder.files.digest import Digest, sha256_of
from builder.files.disk import absolute
from builder.formats.json_values import json_text, read_document, to_json
from builder.formats.manifest import Manifest
from builder.formats.package_names import form_of
from builder.formats.proof import FORMAT, ModelResult, Proof, SampleModel, SampleSet, finding_of
from builder.formats.session_log import CUDA_PROVIDER

_HARMLESS = re.compile(r"the process died of \w+|no answer within \d+ s")
"""Reasons of a failure that are written as they are."""

_NO_FIGURES: Mapping[str, Optional[float]] = {"difference": None, "gpu_ms": None, "cpu_ms": None}


def answer_prove(
    context: CommandContext, prefix: Prefix, package: Optional[Path], samples: Optional[Path]
) -> CommandAnswer:
    """Run each model on the card and on the CPU and write a proof. Exit code 6 where something is wrong.

    ``package`` is an archive that is run instead of the installed package.
    """
    beside = context.program.parent if context.program else Path()
    place = absolute((samples or beside / "models") / "models.json")
    if not place.is_file():
        raise ConfigError(f"{place}: no such file.", advice="--samples names a folder that ./run kit makes.")
    detection = detect(context.around)
    device = next((one for one in detection.devices if one.capability), None)
    if device is None:
        raise NothingToDoError("No NVIDIA GPU is in reach, so nothing can be proved. `doctor` says why.")
    capability = str(device.capability)
    models = read_document(SampleSet, place.read_bytes(), str(place), [FORMAT]).models
    trials = OrtTrials(context.around.ask, context.around.python)
    with _opened(context, prefix, package) as (folder, info):
        manifest = manifest_in(folder)
        if manifest.capabilities.get(capability) not in RUNS:
            raise NoCompatiblePackageError(f"{manifest.name} does not claim to run on {capability}.")
        host, provider, tried = *_host(context, folder, manifest, info), {}
        for model in models:
            tried[model] = trials.measure(host, provider, place, model.name)
            context.say(f"{model.name}: {tried[model].failure or 'ran on the card and on the CPU'}")
    proof = Proof(
        format=FORMAT,
        date=context.now().date().isoformat(),
        card=device.name,
        capability=capability,
        driver=detection.driver or "",
        package=manifest.name,
        sha256=str(info.get("sha256")),
        host=next((one.version for one in tried.values() if one.version), ""),
        models=tuple(_result(model, place, one) for model, one in tried.items()),
    )
    file = absolute(Path(f"ortpacks-proof-{capability}.json"))
    context.say(json_text(proof))
    require_yes(context, f"Write this to {file}?")
    write_file(file, json_text(proof).encode())
    wrong = [f"{one.name}: {one.finding}" for one in proof.models if one.finding]
    lines = (*wrong, f"{len(models) - len(wrong)} of {len(models)} models are right", str(file))
    value = {"file": str(file), "proof": to_json(proof)}
    return CommandAnswer(value, lines, CheckFailedError.exit_code if wrong else 0)


@contextmanager
def _opened(
    context: CommandContext, prefix: Prefix, archive: Optional[Path]
) -> Iterator[Tuple[Path, Mapping[str, object]]]:
    """Yield a package's folder, with every file verified, and what is known of it: its archive's sha256."""
    if archive is None:
        folder = verified_package(prefix).folder
        yield folder, read_info(folder)
        return
    (entry,) = locate(absolute(archive), context.web).index.packages
    with tempfile.TemporaryDirectory(prefix="ortpacks-prove-") as name:
        with open_tar(archive, form_of(entry.file), Digest(entry.size, entry.sha256)) as stream:
            extract(stream, entry.name, Path(name), entry.unpacked_size)
        yield Path(name), {"sha256": entry.sha256}


def _host(
    context: CommandContext, folder: Path, manifest: Manifest, info: Mapping[str, object]
) -> Tuple[Path, str]:
    """Return a host library and the provider to run: a package's own host, or a stock one for a plug-in."""
    if manifest.plugin is None:
        return require_host(folder, manifest), manifest.provider
    stock = found_host(context, info)
    refusal = host_refusal(stock, manifest.plugin)
    if refusal or stock is None or stock.library is None:
        raise NothingToDoError(
            f"{manifest.name}: {refusal or 'its host has no library of its own'}.",
            advice="Name a stock host library in ORT_DYLIB_PATH.",
        )
    return Path(stock.library), str(folder / manifest.plugin.library)


def _result(model: SampleModel, samples: Path, tried: TryOut) -> ModelResult:
    counts = tried.placement.counts if tried.placement else {}
    cuda, figures = counts.get(CUDA_PROVIDER, 0), {**_NO_FIGURES, **tried.figures}
    finding = finding_of(cuda, figures["difference"], model.tolerance)
    if tried.failure is not None:
        finding = tried.failure if _HARMLESS.fullmatch(tried.failure) else "it failed"
        finding = f"CUDA error {tried.code}" if tried.code else finding
    sha256 = sha256_of(samples.with_name(f"{model.name}.onnx"))
    return ModelResult(model.name, sha256, sum(counts.values()), cuda, finding=finding, **figures)
