"""Tests of a compile cache on Redis that new machines share, with a part of ONNX Runtime's real source.

Each machine is a set of cache mounts on the same engine; ``test_builders`` tests several engines.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from redis import Redis

from builder.adapters.docker.engine import DockerEngine
from builder.adapters.process import ProcessRunner
from builder.adapters.shared_cache.cache_server import served
from builder.adapters.shared_cache.compile_cache import compile_cache
from builder.binary.library_names import BRIDGE, PROVIDER
from builder.builds.variant_build import BuildOptions, VariantBuild
from builder.builds.wiring import Wiring
from builder.formats.package_names import Profile
from builder.inside.drive import SHARED
from builder.package.build_record import CompileRecord, loads_compile
from builder.pipeline.compile import StageBuild, export
from builder.pipeline.plan import PlanOptions
from builder.ports import CompileCache, CompileCaches
from builder.project.build_plan import Workplace
from tests.integration.faults_world import configured_tree, replace
from tests.support import ROOT
from tests.support.cache_servers import PASSWORD, Server, redis_server
from tests.support.fakes.ports import FakeReporter

pytestmark = pytest.mark.integration


TARGET = "absl_strings"
"""Target of the compile: a library of Abseil and those that it needs, some 20 units."""


class Watching(FakeReporter):
    """A reporter that calls ``act`` once, when the share ``share`` of the compile is done."""

    def __init__(self, share: float = 2, act: Callable[[], None] | None = None) -> None:
        super().__init__()
        self._share, self._act = share, act

    @contextmanager
    def live(self, title: str) -> Iterator[Callable[[float, str], None]]:
        def see(share: float, words: str) -> None:
            self.lines.append(words)
            if share >= self._share and self._act:
                act, self._act = self._act, None
                act()

        yield see


class Machine:
    """A machine with an empty ccache that compiles the project in ``root`` on ``base``.

    Its Ninja tree has what CMake found out, or nothing if ``new`` is set, and never an object.
    """

    def __init__(
        self, folder: Path, root: Path = ROOT, base: str = "assembled", *, new: bool = False
    ) -> None:
        self.name = f"ortpacks-test-{uuid.uuid4().hex[:8]}"
        self.runner = ProcessRunner(os.environ)
        self._engine = DockerEngine(self.runner, os.environ)
        self._folder = folder / self.name
        self._root, self._base, self._new = root, base, new

    def compile(self, caches: CompileCaches, reporter: Watching) -> Path:
        """Compile ``TARGET`` and return the artifact's folder, which has a record and no libraries."""
        shop = Wiring(self._root, dist=self._folder / "dist", reporter=reporter)
        plan_options = PlanOptions(base=self._base, profile=Profile.MINIMAL)
        build = VariantBuild(
            shop, shop.project.variants["legacy"], BuildOptions(plan_options=plan_options), reporter
        )
        place = Workplace(self._folder / "legacy")
        place.root.mkdir(parents=True)
        rendered = build.lay_out(place.root)
        all_of_it = " onnxruntime_providers_cuda onnxruntime_providers_shared\n"
        replace(place.dockerfile, all_of_it, f" {TARGET}\n")
        replace(place.dockerfile, f"in {PROVIDER} {BRIDGE}; do", "in; do")
        text = place.dockerfile.read_text(encoding="utf-8")
        if not self._new:
            text = configured_tree(text)
        # BuildKit's key of a step has its command and environment, not the names of mounts.
        step = "RUN --mount=type=cache,id=ortpacks-ccache,"
        assert text.count(step) == 1
        text = text.replace(step, f"ENV MACHINE={self.name}\n{step}")
        text, mounts = re.subn(r"id=\S+?,target=/(ccache|build)\b", rf"id={self.name}-\1,target=/\1", text)
        assert mounts == 2
        place.dockerfile.write_text(text, encoding="utf-8")
        means = StageBuild(
            engine=self._engine,
            store=shop.store(shop.lock),
            reporter=reporter,
            served=partial(served, caches, reporter),
        )
        export("artifact", place.artifact, rendered, place, means)
        return place.artifact

    def forget(self) -> None:
        """Remove the machine's mounts by a new runner, as an interrupted runner starts no process."""
        engine = DockerEngine(ProcessRunner(os.environ), os.environ)
        mounts = [held for held in engine.resources() if held.name.startswith(self.name)]
        assert len(mounts) == 2, mounts
        for mount in mounts:
            engine.remove(mount)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Machine]]:
    made = []

    def make() -> Machine:
        made.append(Machine(tmp_path_factory.mktemp("machine")))
        return made[-1]

    yield make
    for one in made:
        one.forget()


@dataclass(frozen=True)
class CutOff:
    """A compile of all units whose cache server went away at 30 %, and what was reported."""

    record: CompileRecord
    lines: list[str]


@pytest.fixture(scope="module")
def cut_off(machine: Callable[[], Machine]) -> CutOff:
    with redis_server() as server:
        reporter = Watching(0.3, server.kill)
        made = machine().compile(CompileCaches(shared=on(server)), reporter)
        return CutOff(record(made), reporter.lines)


def record(artifact: Path) -> CompileRecord:
    return loads_compile((artifact / "record.json").read_bytes(), "record.json")


def test_a_server_that_is_cut_off_in_mid_build_is_gone_without(cut_off: CutOff) -> None:
    assert cut_off.record.units >= 20
    assert cut_off.record.cache_hits == 0
    (warned,) = [line for line in cut_off.lines if line.startswith("! redis")]
    assert re.fullmatch(r"! redis://\S+ does not answer: .* The build goes on without it\.", warned)


def test_what_one_machine_compiled_no_other_does(machine: Callable[[], Machine]) -> None:
    """The first machine is stopped, the second compiles the rest, the third finds all units in the cache."""
    one = machine()
    with redis_server() as server:
        caches = CompileCaches(shared=on(server))
        stopped = Watching(0.6, one.runner.interrupt)
        with pytest.raises(KeyboardInterrupt):
            one.compile(caches, stopped)
        after = record(machine().compile(caches, Watching()))
        assert 0.3 * after.units < finished(stopped.lines) <= after.cache_hits < after.units
        artifact = machine().compile(caches, Watching())
        last = record(artifact)
        assert last.cache_hits >= 0.95 * last.units == 0.95 * after.units
        assert (artifact / SHARED).exists(), "so provenance says so"
        keys = keys_on(server)
        assert len(keys) == on(server).usage()[0] > last.units
        assert all(re.fullmatch(r"ortpacks/[0-9a-z]{2}/[0-9a-z]{31}", key) for key in keys), keys[:3]


def finished(lines: list[str]) -> int:
    """Return how many units had been compiled when the last of the displayed lines was written."""
    return max(int(line.partition("/")[0]) for line in lines if re.match(r"\d+/\d+ units", line))


def on(server: Server) -> CompileCache:
    return compile_cache(f"redis://127.0.0.1:{server.port}", "test", {"REDISCLI_AUTH": PASSWORD})


def keys_on(server: Server) -> list[str]:
    with Redis(port=server.port, password=PASSWORD) as client:
        return [key.decode() for key in client.scan_iter("*")]
