"""The step selftest runs an unpacked package in a bare container without network and GPU libraries.

The container has the package's files and none of the build tree. ``judge`` returns the findings B010 to B013
on the models' outputs for fixed inputs.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from builder.binary.library_names import HOST
from builder.contents.rules.dependencies import check_ldd, waits_for_driver
from builder.finding import Code, Finding
from builder.formats.manifest import Manifest
from builder.formats.package_names import CUDA, REDUCED, Host
from builder.formats.proof import largest_difference
from builder.formats.session_log import CUDA_PROVIDER
from builder.io.docker.engine import OVERTIME, ContainerRun, DockerEngine
from builder.io.process import Completed

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


TOLERANCE = 1e-4
"""Difference that releases' CPU kernels may have in single precision. Outputs are in -1 … 1."""

_DTYPES = {"f32": "<f4", "i32": "<i4", "i64": "<i8"}

Outputs = Mapping[str, Sequence[float]]
"""A model's outputs by name, flattened."""

_FOLDER = "/selftest"

_SECONDS = 300
"""Time for all models in the container; they take 2 s on two cores."""

_UNLOADED = "Failed to load shared library"

_SMOKE = "smoke\n"
"""Line in the output after which the smoke program's own output begins."""


@dataclass(frozen=True)
class Tensor:
    """An input tensor in the smoke program's form: raw little-endian bytes."""

    name: str
    type: str
    """Element type: ``f32``, ``i32`` or ``i64``."""
    dims: tuple[int, ...]
    data: bytes

    @property
    def argument(self) -> str:
        """``NAME:TYPE:DIMS:`` for the smoke program, to be followed by the file's path."""
        dims = "x".join(map(str, self.dims)) or "scalar"
        return f"{self.name}:{self.type}:{dims}:"

    def array(self) -> NDArray[np.generic]:
        """Return the tensor for Python."""
        import numpy as np  # noqa: PLC0415 - slow to import, and every verb imports this module

        return np.frombuffer(self.data, _DTYPES[self.type]).reshape(self.dims)


@dataclass(frozen=True)
class SelftestTrial:
    """A model and its inputs."""

    name: str
    """Name in findings, and part of file names."""
    model: Path
    inputs: tuple[Tensor, ...]
    blind: tuple[Tensor, ...] = ()
    """Inputs for a virtual card, whose kernels compute nothing; empty: ``inputs`` are used."""
    contrib: bool = False
    """Whether the model's file has nodes of com.microsoft."""
    on_cpu: float = TOLERANCE
    """Largest absolute difference from the stock CPU build."""
    on_gpu: float = 1e-3
    """Largest absolute difference between a GPU and the CPU: TF32, other orders of summation."""


def stock_outputs(model: Path, inputs: Sequence[Tensor]) -> Outputs:
    """Return the outputs of ``model`` on the stock build's CPU provider."""
    import onnxruntime  # noqa: PLC0415 - the import writes an id into the user's home

    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    values = session.run(names, {item.name: item.array() for item in inputs})
    return {name: value.ravel().tolist() for name, value in zip(names, values, strict=True)}


@dataclass(frozen=True, kw_only=True)
class SelftestBench:
    """The engine, image, programs and models with which packages are tried."""

    engine: DockerEngine
    image: str
    """Tag of a bare image: a C library, nothing of CUDA."""
    script: Path
    """Path of ``selftest.sh``."""
    smoke: Path
    """Path of the ``ortpacks-smoke`` program."""
    trials: tuple[SelftestTrial, ...]
    stock_outputs: Callable[[Path, Sequence[Tensor]], Outputs]
    """Returns the stock CPU build's outputs of a model for inputs."""


def selftest(manifest: Manifest, files: Mapping[str, Path], bench: SelftestBench) -> tuple[Finding, ...]:
    """Resolve every library's dependencies, request CUDA, and run each model, in one container.

    ``files`` are the package's, by their paths in it. Findings: B018 for the loader, B010 to B013 for the
    models. A plug-in has no host library to run a model with.
    """
    top = manifest.name
    bench = replace(bench, trials=trials_for(manifest, bench.trials))
    with tempfile.TemporaryDirectory(prefix="ortpacks-selftest-") as folder:
        done = bench.engine.run(_request(manifest, files, bench, Path(folder)))
    listing, smoked, answers = done.stdout.partition(f"\n{_SMOKE}")
    loaded = check_ldd(listing, top) if smoked else ()
    if done.code != 0 or not smoked:
        return (*loaded, _crash(top, done))
    if manifest.plugin:
        return loaded
    references = {trial.name: bench.stock_outputs(trial.model, trial.inputs) for trial in bench.trials}
    verdict = judge(
        answers,
        references,
        manifest.onnxruntime.version,
        top,
        cuda=manifest.provider == CUDA,
        waits=waits_for_driver(listing),
        within={trial.name: trial.on_cpu for trial in bench.trials},
    )
    return (*loaded, *verdict)


def trials_for(manifest: Manifest, trials: Sequence[SelftestTrial]) -> tuple[SelftestTrial, ...]:
    """Return the trials whose models the host library opens.

    A host library that was compiled with less than profile ``full`` has no contrib operators.
    """
    entry = manifest.onnxruntime
    bare = entry.host == Host.SOURCE.value and entry.profile in REDUCED
    return tuple(trial for trial in trials if not (bare and trial.contrib))


def _request(
    manifest: Manifest, package: Mapping[str, Path], bench: SelftestBench, folder: Path
) -> ContainerRun:
    top = f"/opt/{manifest.name}"
    script, smoke = f"{_FOLDER}/selftest.sh", f"{_FOLDER}/ortpacks-smoke"
    command = ["true"]
    files = {script: bench.script, **{f"{top}/{path}": file for path, file in package.items()}}
    if not manifest.plugin:
        command = [smoke, f"{top}/lib/{HOST}", *_arguments(bench.trials)]
        models = {_model(trial): trial.model for trial in bench.trials}
        files |= {smoke: bench.smoke, **models, **_inputs(bench.trials, folder)}
    argv = ("/bin/sh", script, f"{top}/lib", *command)
    return ContainerRun(image=bench.image, argv=argv, seconds=_SECONDS, files=files)


def _arguments(trials: Sequence[SelftestTrial]) -> list[str]:
    """Return ``MODEL INPUT...`` of each trial, with ``--`` between two trials."""
    groups = [
        ["--", _model(trial), *(f"{item.argument}{_place(trial, item)}" for item in trial.inputs)]
        for trial in trials
    ]
    return [argument for group in groups for argument in group][1:]


def _inputs(trials: Sequence[SelftestTrial], folder: Path) -> Mapping[str, Path]:
    files = {}
    for trial in trials:
        for item in trial.inputs:
            file = folder / f"{trial.name}-{item.name}"
            file.write_bytes(item.data)
            files[_place(trial, item)] = file
    return files


def _model(trial: SelftestTrial) -> str:
    return f"{_FOLDER}/{trial.name}/model.onnx"


def _place(trial: SelftestTrial, item: Tensor) -> str:
    return f"{_FOLDER}/{trial.name}/{item.name}"


def _crash(top: str, done: Completed) -> Finding:
    output = (done.stderr.strip() or done.stdout.strip())[-2000:]
    what = "the smoke program failed in a bare container"
    if done.code == OVERTIME:
        what = (
            f"the smoke program did not end within {_SECONDS} s in a bare container. Try it again on an idle "
            "machine; else the provider waits for a driver, which docs/quirks.md has a patch for"
        )
    return Finding(
        Code.B010,
        top,
        what,
        wanted="exit 0: clean CPU fallback and every model run",
        got=f"exit {done.code}: {output}",
    )


def judge(
    answers: str,
    references: Mapping[str, Outputs],
    ort_version: str,
    package: str,
    *,
    cuda: bool = True,
    waits: bool = False,
    within: Mapping[str, float] | None = None,
) -> tuple[Finding, ...]:
    """Return findings on the smoke program's lines of JSON, one per model, in the order of ``references``.

    ``references`` are the stock build's outputs by the model's name; ``cuda`` says whether the CUDA provider
    must be there, ``waits`` that it cannot be loaded without a driver, and ``within`` has the largest
    difference of a model's outputs by its name. A finding that holds for every model is returned once.
    """
    try:
        replies = [json.loads(line) for line in answers.splitlines()]
    except ValueError:
        replies = [None]
    if not all(isinstance(reply, dict) for reply in replies):
        return (Finding(Code.B010, package, "the smoke program printed no JSON", got=answers[:200]),)
    if len(replies) != len(references):
        what = "the smoke program gave not one answer a model"
        return (Finding(Code.B010, package, what, wanted=str(len(references)), got=str(len(replies))),)
    findings: list[Finding] = []
    for reply, (model, reference) in zip(replies, references.items(), strict=False):
        if (version := reply.get("version")) != ort_version:
            findings.append(Finding(Code.B011, package, "wrong ORT version", ort_version, str(version)))
        if cuda:
            findings += _judge_cuda(reply, package, waits=waits)
        findings += _judge_numbers(
            reply.get("outputs"), reference, package, model, (within or {}).get(model, TOLERANCE)
        )
    return tuple(dict.fromkeys(findings))


def _judge_cuda(reply: Mapping[str, object], package: str, *, waits: bool) -> Iterator[Finding]:
    """Yield B012 unless the provider is there, and either runs or fails with an error of CUDA's.

    A provider that links the driver's library fails to load without a driver, with the message ``_UNLOADED``.
    """
    providers = reply.get("providers")
    if not isinstance(providers, list) or CUDA_PROVIDER not in providers:
        what = f"the host library knows no {CUDA_PROVIDER}"
        yield Finding(Code.B012, package, what, got=str(providers))
        return
    cuda = reply.get("cuda")
    message = str(cuda.get("message")) if isinstance(cuda, dict) else ""
    ran = isinstance(cuda, dict) and cuda.get("ok") is True
    if not ran and "CUDA failure" not in message and not (waits and message.endswith(_UNLOADED)):
        yield Finding(Code.B012, package, "the CUDA provider does not load", got=message)


def _judge_numbers(
    outputs: object, reference: Outputs, package: str, model: str, within: float
) -> Iterator[Finding]:
    if not isinstance(outputs, dict) or outputs.keys() != reference.keys():
        got = sorted(outputs) if isinstance(outputs, dict) else outputs
        what = f"{model}: wrong outputs"
        yield Finding(Code.B013, package, what, wanted=str(sorted(reference)), got=str(got))
        return
    for name, wanted in reference.items():
        worst = largest_difference([outputs[name]], [wanted])
        if worst is None or worst > within:
            shown = "inf" if worst is None else f"{worst:.3g}"
            yield Finding(
                code=Code.B013,
                path=package,
                message=f"{model}: output {name} differs from the stock CPU build",
                wanted=f"{len(wanted)} numbers within {within:g}",
                got=f"{len(outputs[name])} numbers, worst difference {shown}",
            )
