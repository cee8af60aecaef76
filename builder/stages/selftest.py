"""selftest: run a real model on a package, unpacked in a bare container with no network and no GPU libraries.

The archive itself is streamed into the container: nothing of the build tree can help it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from builder.core.checks import Code, Finding
from builder.core.ports import Completed, ContainerRun, Engine
from builder.core.selftest import Tensor, judge, silero_inputs

_HOST_LIBRARY = "lib/libonnxruntime.so.1"


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Where and with what packages are tried."""

    engine: Engine
    image: str
    """A bare image: a C library, nothing of CUDA."""
    smoke: Path
    """The ``ortpacks-smoke`` program."""
    model: Path
    """``silero_vad.onnx``."""
    tar_stream: Callable[[Path], Iterable[bytes]]
    """Opens a package as an uncompressed tar stream."""
    stock_outputs: Callable[[Path, Sequence[Tensor]], Mapping[str, list[float]]]
    """The stock CPU build's answer."""


def selftest(package: Path, ort_version: str, bench: Bench) -> tuple[Finding, ...]:
    """Load the package's host library, ask for CUDA, run the model on what is there, compare the numbers."""
    inputs = silero_inputs()
    with tempfile.TemporaryDirectory(prefix="ortpacks-selftest-") as folder:
        files = {f"/selftest/{item.name}": _write(Path(folder) / item.name, item.data) for item in inputs}
        done = bench.engine.run(_request(package, bench, inputs, files))
    if done.code != 0:
        return (_crash(package, done),)
    return judge(done.stdout, bench.stock_outputs(bench.model, inputs), ort_version, package.name)


def _request(
    package: Path, bench: Bench, inputs: Sequence[Tensor], files: Mapping[str, Path]
) -> ContainerRun:
    top = package.name.removesuffix(".tar.zst")
    arguments = [f"{item.argument}/selftest/{item.name}" for item in inputs]
    return ContainerRun(
        image=bench.image,
        argv=(
            "/selftest/ortpacks-smoke",
            f"/opt/{top}/{_HOST_LIBRARY}",
            "/selftest/model.onnx",
            *arguments,
        ),
        files={**files, "/selftest/ortpacks-smoke": bench.smoke, "/selftest/model.onnx": bench.model},
        archives={"/opt": lambda: bench.tar_stream(package)},
    )


def _write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def _crash(package: Path, done: Completed) -> Finding:
    said = (done.stderr.strip() or done.stdout.strip())[-2000:]
    return Finding(
        Code.B010,
        package.name,
        "the smoke program failed in a bare container",
        wanted="exit 0: clean CPU fallback and a model run",
        got=f"exit {done.code}: {said}",
    )
