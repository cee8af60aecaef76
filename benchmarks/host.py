"""This benchmark compares the CPU provider of a package's host library with the official wheel's.

    python -m benchmarks.host PACKAGE        a package of ours with host: source, as an archive

Both libraries have the same version of ONNX Runtime. Each is opened through the C API in a process of its own
with one thread, and both compute the self-test's models in turn. ``--level 1`` leaves out fusions into
com.microsoft operators, which a host library without these operators cannot run.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.measuring import answer
from builder.builds.wiring import Wiring
from builder.package.archive import manifest_of
from builder.pipeline.selftest import SelftestTrial
from builder.project.inputs import ort_wheel
from builder.virtualcard.capi import LoggedApi, Session, SessionSettings, tensor

ROOT = Path(__file__).resolve().parent.parent

ROUNDS, SECONDS = 5, 1.0

_KINDS = {"f32": 1, "i32": 6, "i64": 7}
"""ONNX's numbers of element types (``TensorProto.DataType``), by our names."""


def main() -> None:
    """Print each model's runs per second on both sides, the median of the rounds, and their ratio."""
    asked = _arguments()
    if asked.library:
        print(json.dumps(_measured(asked.library, asked.level)))
        return
    shop = Wiring(ROOT)
    store = shop.store(shop.lock)
    with tempfile.TemporaryDirectory(prefix="ortpacks-host-") as folder:
        archive = shop.archive(shop.reporter)
        version = manifest_of(asked.package, archive).onnxruntime.version
        archive.extract(asked.package, Path(folder) / "ours")
        official = store.unpack(ort_wheel(version)) / f"onnxruntime/capi/libonnxruntime.so.{version}"
        sides = {"ours": Path(folder) / "ours/lib/libonnxruntime.so.1", "official": official}
        found: dict[str, dict[str, list[float]]] = {}
        for _ in range(ROUNDS):
            for side, library in sides.items():
                argv = [sys.executable, "-m", "benchmarks.host", "--library", str(library)]
                told = json.loads(answer([*argv, "--level", str(asked.level)], ROOT).stdout)
                for model, rate in told.items():
                    found.setdefault(model, {}).setdefault(side, []).append(rate)
    for model, rates in found.items():
        ours, theirs = (statistics.median(rates[side]) for side in ("ours", "official"))
        print(f"{model:<12} ours {ours:9.2f}/s  official {theirs:9.2f}/s  ratio {ours / theirs:.3f}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.host", description=__doc__)
    parser.add_argument("package", nargs="?", type=Path)
    parser.add_argument("--level", type=int, default=99, help="GraphOptimizationLevel: 1 basic, 99 all")
    parser.add_argument("--library", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def _measured(library: Path, level: int) -> dict[str, float]:
    """Return the runs per second of each model, by the model's name."""
    shop = Wiring(ROOT)
    with LoggedApi(library, lambda _place, _message: None) as api:
        trials = shop.trials(shop.store(shop.lock))
        return {trial.name: _rate(api, trial, level) for trial in trials if trial.name != "decoder"}


def _rate(api: LoggedApi, trial: SelftestTrial, level: int) -> float:
    session = Session(api, trial.model, SessionSettings(cuda=False, level=level))
    by_name = {one.name: one for one in trial.inputs}
    arrays = [np.frombuffer(by_name[name].data, np.uint8).copy() for name in session.inputs]
    values = [
        tensor(api, array, by_name[name].dims, _KINDS[by_name[name].type])
        for array, name in zip(arrays, session.inputs, strict=True)
    ]
    _timed(api, session, values, SECONDS / 5)
    rate = _timed(api, session, values, SECONDS)
    session.close()
    return rate


def _timed(api: LoggedApi, session: Session, values: Sequence[ctypes.c_void_p], seconds: float) -> float:
    done, began = 0, time.perf_counter()
    while time.perf_counter() < began + seconds:
        for value in session.run(values):
            api.release("ReleaseValue", value)
        done += 1
    return done / (time.perf_counter() - began)


if __name__ == "__main__":
    main()
