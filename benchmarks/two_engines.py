"""This benchmark compiles a variant on engines that share a Redis server; one of them is killed in mid-build.

    python -m benchmarks.two_engines --variant legacy [--profile full] [--json FILE]

Engines ``one`` and ``two`` start with empty data, as ``--context one,two --compile-cache redis://…``. ``one``
is killed when 60 % of its compile is done, and ``two`` goes on with the objects on the server. Engine
``three`` then begins with empty data too and finds all objects there. Each engine makes its toolchain and
its Ninja tree anew. The program needs root, dockerd, and some 5 GB below ``TMPDIR`` for each engine.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from benchmarks.pieces import ROOT, result_file
from builder.adapters.docker.engine import DockerEngine
from builder.adapters.process import ProcessRunner
from builder.adapters.shared_cache.cache_server import served
from builder.binary.library_names import PROVIDER
from builder.builds.builders import Builders
from builder.builds.variant_build import BuildOptions, VariantBuild
from builder.builds.wiring import Wiring
from builder.console import Console
from builder.errors import BuilderError
from builder.formats.package_names import Profile
from builder.inside import costs
from builder.pipeline.compile import StageBuild, export
from builder.pipeline.plan import PlanOptions
from builder.ports import CompileCaches, Reporter
from builder.project.build_plan import Rendered, Workplace
from builder.project.variants import Origin
from tests.integration.faults_world import Engine, dying_engine, narrow
from tests.support.cache_servers import Server, redis_cache, redis_server

_SHARE = 0.6
"""The share of the compile after which engine ``one`` is killed."""

_WITHOUT = ("DOCKER_HOST", "DOCKER_CONTEXT", "BUILDX_BUILDER", "BUILDX_CONFIG")
"""Variables that would name another engine, or another configuration, than the trial's own."""

_DEVICE_CODE = re.compile(
    r"^# CMakeFiles/onnxruntime_\S+\.pieces/compute_\S+\n(direct_cache_hit|cache_miss)$", re.MULTILINE
)
"""An entry for PTX, by its text, or for SASS, by its PTX, in ccache's log of pieces."""

_FIGURES = ("units", "cache_hits", "cpu_s")

Row = Mapping[str, object]


def main() -> None:
    """Print a line for each engine; the exit status is 1 if a compile failed or its provider differs."""
    asked = arguments(Wiring(ROOT).project.variants)
    rows: list[Row] = []

    def note(row: Row) -> None:
        rows.append(row)
        print(line(row), flush=True)
        if asked.json:
            asked.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")

    with (
        tempfile.TemporaryDirectory(prefix="ortpacks-engines-", ignore_cleanup_errors=True) as folder,
        redis_server() as server,
    ):
        trial = Trial(asked, Path(folder), server, note)
        trial.hand_over()
        trial.all_from_the_cache()
    if faults := wrong(rows):
        sys.exit("\n".join(faults))


def arguments(variants: Mapping[str, object]) -> argparse.Namespace:
    """Return the parsed command line; ``variants`` are the names that ``--variant`` may have."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.two_engines")
    parser.add_argument("--variant", required=True, choices=[*variants])
    parser.add_argument("--profile", choices=[one.value for one in Profile], default="full")
    parser.add_argument("--json", type=result_file)
    # A target of the Ninja tree in place of the libraries, for a short trial
    parser.add_argument("--target", help=argparse.SUPPRESS)
    return parser.parse_args()


class Trial:
    """The compiles of one variant, each on an engine of its own. ``note`` gets a row for each."""

    def __init__(
        self, asked: argparse.Namespace, folder: Path, server: Server, note: Callable[[Row], None]
    ) -> None:
        self._folder, self._note = folder, note
        self._env = {name: value for name, value in os.environ.items() if name not in _WITHOUT}
        self._env["DOCKER_CONFIG"] = str(folder / "docker")
        self._runner = ProcessRunner(self._env)
        self._engine = DockerEngine(self._runner, self._env)
        self._console = Console(env=self._env, stream=sys.stderr)
        self._caches = CompileCaches(shared=redis_cache(server))
        self._shop = Wiring(ROOT, dist=folder / "dist", reporter=self._console)
        self._place = Workplace(folder / asked.variant)
        self._rendered = self._laid_out(asked)
        self._reached: list[str] = []

    def _laid_out(self, asked: argparse.Namespace) -> Rendered:
        plan_options = PlanOptions(base="assembled", origin=Origin.SOURCE, profile=Profile(asked.profile))
        build = VariantBuild(
            self._shop,
            self._shop.project.variants[asked.variant],
            BuildOptions(plan_options=plan_options),
            self._console,
        )
        self._place.root.mkdir(parents=True)
        rendered = build.lay_out(self._place.root)
        if asked.target:
            narrow(self._place.dockerfile, asked.target)
        return rendered

    def hand_over(self) -> None:
        """Compile on ``one``, kill it, and go on on ``two``, by what ``--context one,two`` does."""
        with ExitStack() as stack:
            one, _ = (stack.enter_context(self._engine_named(name)) for name in ("one", "two"))
            stopping = StoppingConsole(self._env, one.kill)

            def work(name: str | None) -> None:
                assert name is not None  # noqa: S101 - both builders have names
                self._compile(stopping if name == "one" else self._console, name)

            with suppress(BuilderError):  # its row has it
                builders = Builders(["one", "two"])
                builders.compile(work, 0, engine=self._engine, reporter=self._console)
            if "two" not in self._reached:
                with suppress(BuilderError):
                    work("two")

    def all_from_the_cache(self) -> None:
        """Compile on ``three``."""
        with self._engine_named("three"), suppress(BuilderError):
            self._compile(self._console, "three")

    @contextmanager
    def _engine_named(self, name: str) -> Iterator[Engine]:
        """Run an engine with empty data, as the Docker context ``name``; its data are removed at the end."""
        data = self._folder / name
        try:
            with dying_engine(data) as engine:
                endpoint = f"host={engine.host}"
                self._runner.run(["docker", "context", "create", name, "--docker", endpoint])
                yield engine
        finally:
            shutil.rmtree(data, ignore_errors=True)

    def _compile(self, reporter: Reporter, name: str) -> None:
        """Compile on the engine ``name`` and note the row. Raises what ``export`` does."""
        self._reached.append(name)
        data = self._folder / name
        artifact = self._folder / f"artifact-{name}"
        means = StageBuild(
            engine=self._engine,
            store=self._shop.store(self._shop.lock, self._console),
            reporter=reporter,
            builder=name,
            served=partial(served, self._caches, self._console),
        )
        began, outcome = time.monotonic(), "interrupted"
        try:
            with self._console.step(f"compile on {name}"):
                export("artifact", artifact, self._rendered, self._place, means)
            outcome = "compiled"
        except BuilderError as error:
            outcome = str(error)
            raise
        finally:
            if isinstance(reporter, StoppingConsole) and reporter.stopped_at:
                outcome = f"killed at {reporter.stopped_at}"
            row = {"engine": name, "outcome": outcome, "seconds": round(time.monotonic() - began)}
            self._note(row | recorded(data) | sums(artifact))


class StoppingConsole(Console):
    """A console that calls ``stop`` once, when the share ``_SHARE`` of the compile is done."""

    def __init__(self, env: Mapping[str, str], stop: Callable[[], None]) -> None:
        super().__init__(env=env, stream=sys.stderr)
        self.stopped_at = ""
        self._stop = stop

    @contextmanager
    def live(self, title: str) -> Iterator[Callable[[float, str], None]]:
        """See ``ports.Reporter.live``."""
        with super().live(title) as show:

            def see(share: float, words: str) -> None:
                show(share, words)
                if share >= _SHARE and not self.stopped_at:
                    self.stopped_at = words
                    self._stop()

            yield see


def recorded(data: Path) -> dict[str, object]:
    """Return the record of the Ninja tree in an engine's data, and its device code; nothing without a tree.

    The tree of an engine that was killed has no record yet, so it is made here.
    """
    tree = next((Path(folder) for folder, _, files in os.walk(data) if "units.log" in files), None)
    if tree is None:
        return {}
    record = data / "record.json"
    costs.write_record(record, tree)
    pieces = tree / costs.PIECES_LOG
    text = pieces.read_text(encoding="utf-8", errors="replace") if pieces.exists() else ""
    results = _DEVICE_CODE.findall(text)
    found: dict[str, object] = json.loads(record.read_text(encoding="utf-8"))
    return found | {"device_code": len(results), "device_code_found": results.count("direct_cache_hit")}


def sums(artifact: Path) -> dict[str, object]:
    """Return the sha256 of the provider in ``artifact``; nothing if there is none."""
    provider = artifact / PROVIDER
    if not provider.is_file():
        return {}
    with provider.open("rb") as file:
        return {"provider": hashlib.file_digest(file, "sha256").hexdigest()}


def line(row: Row) -> str:
    """Return the line for a row: seconds, units, how many were found in the cache, and CPU seconds."""
    words = f"{row['engine']:<6} {row['seconds']:>6} s  "
    if not all(key in row for key in _FIGURES):
        return f"{words}nothing compiled  {row['outcome']}"
    units, hits, cpu = (row[key] for key in _FIGURES)
    return (
        f"{words}{units} units, {hits} from the cache in whole or in part, {cpu} CPU s, "
        f"{row['device_code_found']} of {row['device_code']} PTX and SASS found  {row['outcome']}"
    )


def wrong(rows: Sequence[Row]) -> list[str]:
    """Return a sentence for each expectation of the trial that the rows do not meet."""
    outcomes = {row["engine"]: str(row["outcome"]) for row in rows}
    faults = [
        f"{engine}: {outcomes.get(engine, 'not reached')}"
        for engine, expected in (("one", "killed at "), ("two", "compiled"), ("three", "compiled"))
        if not outcomes.get(engine, "").startswith(expected)
    ]
    if len({row["provider"] for row in rows if "provider" in row}) > 1:
        faults.append(f"{PROVIDER} differs from engine to engine")
    return faults


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that the engines end
    try:
        main()
    except BuilderError as error:
        sys.exit(f"error: {error}")
    except pytest.skip.Exception as skipped:  # of the helpers that the tests share
        sys.exit(f"error: {skipped}")
