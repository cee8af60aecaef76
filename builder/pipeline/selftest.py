"""selftest: prove a package where it is unpacked: a bare container with no network and no GPU libraries.

The package is streamed into the container: nothing of the build tree can help it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from builder.binary.library_names import HOST
from builder.findings.finding import Code, Finding
from builder.pipeline.selftest_models import Outputs, SelftestTrial, Tensor, judge
from builder.ports import Completed, ContainerRun, Engine
from builder.rules.dependencies import judge_loader

_FOLDER = "/selftest"

_SMOKE = "smoke\n"
"""Behind it in the output, what the smoke program said."""


@dataclass(frozen=True, kw_only=True)
class SelftestBench:
    """Where and with what packages are tried."""

    engine: Engine
    image: str
    """A bare image: a C library, nothing of CUDA."""
    script: Path
    """``selftest.sh``."""
    smoke: Path
    """The ``ortpacks-smoke`` program."""
    trials: tuple[SelftestTrial, ...]
    stock_outputs: Callable[[Path, Sequence[Tensor]], Outputs]
    """The stock CPU build's answer."""


def selftest(
    top: str,
    stream: Callable[[], Iterable[bytes]],
    ort_version: str,
    bench: SelftestBench,
    *,
    cuda: bool = True,
) -> tuple[Finding, ...]:
    """Let the loader find every library's needs, ask for CUDA, run each model on what is there.

    ``cuda``: whether the package is for CUDA, so that its provider must be there. ``stream`` opens an
    uncompressed tar of all the package's files below the folder ``top``, its name. One container does it all.
    Findings: B018 of the loader, B010 to B013 of the models.
    """
    with tempfile.TemporaryDirectory(prefix="ortpacks-selftest-") as folder:
        done = bench.engine.run(_request(top, stream, bench, Path(folder)))
    listing, smoked, answers = done.stdout.partition(f"\n{_SMOKE}")
    loaded = judge_loader(listing, top) if smoked else ()
    if done.code != 0 or not smoked:
        return (*loaded, _crash(top, done))
    references = {trial.name: bench.stock_outputs(trial.model, trial.inputs) for trial in bench.trials}
    return (*loaded, *judge(answers, references, ort_version, top, cuda=cuda))


def _request(
    top: str, stream: Callable[[], Iterable[bytes]], bench: SelftestBench, folder: Path
) -> ContainerRun:
    library = f"/opt/{top}/lib"
    script, smoke = f"{_FOLDER}/selftest.sh", f"{_FOLDER}/ortpacks-smoke"
    return ContainerRun(
        image=bench.image,
        argv=("/bin/sh", script, library, smoke, f"{library}/{HOST}", *_arguments(bench.trials)),
        files={
            script: bench.script,
            smoke: bench.smoke,
            **{_model(trial): trial.model for trial in bench.trials},
            **_inputs(bench.trials, folder),
        },
        archives={"/opt": stream},
    )


def _arguments(trials: Sequence[SelftestTrial]) -> list[str]:
    """``MODEL INPUT...`` of each, ``--`` between two."""
    groups = [
        ["--", _model(trial), *(f"{item.argument}{_place(trial, item)}" for item in trial.inputs)]
        for trial in trials
    ]
    return [argument for group in groups for argument in group][1:]


def _inputs(trials: Sequence[SelftestTrial], folder: Path) -> Mapping[str, Path]:
    """The input tensors, written to ``folder``, by their places in the container."""
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
    said = (done.stderr.strip() or done.stdout.strip())[-2000:]
    return Finding(
        Code.B010,
        top,
        "the smoke program failed in a bare container",
        wanted="exit 0: clean CPU fallback and every model run",
        got=f"exit {done.code}: {said}",
    )
