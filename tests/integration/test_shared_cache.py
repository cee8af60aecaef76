"""Engines with data of their own share a Redis: ORT's real source, legacy's profile minimal."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from redis import Redis

from builder.adapters.compile_cache import compile_cache, served
from builder.adapters.docker.engine import DockerEngine
from builder.adapters.process import ProcessRunner
from builder.binary.library_names import BRIDGE, PROVIDER
from builder.builds.variant_build import BuildOptions, VariantBuild
from builder.builds.wiring import Wiring
from builder.errors import ToolMissingError
from builder.formats.package_names import Profile
from builder.inside.drive import SHARED
from builder.package.build_record import CompileRecord, loads_compile
from builder.pipeline.compile import StageBuild, export
from builder.pipeline.plan import Wishes
from builder.ports import CompileCache, CompileCaches
from builder.project.build_plan import Workplace
from tests.integration.faults_world import Engine, dying_engine, replace
from tests.support import ROOT
from tests.support.cache_servers import PASSWORD, Server, redis_server
from tests.support.fakes.ports import FakeReporter

pytestmark = pytest.mark.integration


PROTOBUF = "libprotobuf"
"""A target of some 100 units."""


class Watching(FakeReporter):
    """Calls ``act`` once, when a share of the compile is done."""

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


def compile_on(
    engine: Engine, caches: CompileCaches, folder: Path, reporter: Watching, target: str | None = None
) -> Path:
    """The compiled libraries; with ``target`` none, but what Ninja makes for it."""
    shop = Wiring(ROOT, dist=folder / "dist", reporter=reporter)
    wishes = Wishes(base="assembled", profile=Profile.MINIMAL)
    build = VariantBuild(shop, shop.project.variants["legacy"], BuildOptions(wishes=wishes), reporter)
    place = Workplace(folder / "legacy")
    place.root.mkdir(parents=True)
    rendered = build.lay_out(place.root)
    assert rendered is not None
    if target is not None:
        replace(
            place.dockerfile, " onnxruntime_providers_cuda onnxruntime_providers_shared\n", f" {target}\n"
        )
        replace(place.dockerfile, f"in {PROVIDER} {BRIDGE}; do", "in; do")
    env = {**os.environ, "DOCKER_HOST": engine.host}
    means = StageBuild(
        engine=DockerEngine(ProcessRunner(env), env),
        store=shop.store(shop.lock),
        reporter=reporter,
        served=partial(served, caches, reporter),
    )
    export("artifact", place.artifact, rendered, place, means)
    return place.artifact


def record(artifact: Path) -> CompileRecord:
    return loads_compile((artifact / "record.json").read_bytes(), "record.json")


def test_what_one_engine_compiled_no_other_does(tmp_path: Path) -> None:
    """The first is killed, the second goes on, the third finds everything: of protobuf's units."""
    with redis_server() as server:
        caches = CompileCaches(shared=on(server))
        with dying_engine() as one, pytest.raises(ToolMissingError, match="went away"):
            compile_on(one, caches, tmp_path / "one", Watching(0.6, one.kill), target=PROTOBUF)
        with dying_engine() as two:
            after = record(compile_on(two, caches, tmp_path / "two", Watching(), target=PROTOBUF))
        assert after.units - after.cache_hits <= 0.45 * after.units, str(after)
        with dying_engine() as three:
            artifact = compile_on(three, caches, tmp_path / "three", Watching(), target=PROTOBUF)
        last = record(artifact)
        assert last.cache_hits >= 0.95 * last.units == 0.95 * after.units
        assert (artifact / SHARED).exists(), "so provenance says so"
        keys = keys_on(server)
        assert len(keys) == on(server).usage()[0] > last.units
        assert all(re.fullmatch(r"ortpacks/[0-9a-z]{2}/[0-9a-z]{31}", key) for key in keys), keys[:3]


def test_a_server_that_is_cut_off_in_mid_build_is_gone_without(tmp_path: Path) -> None:
    with redis_server() as server, dying_engine() as engine:
        reporter = Watching(0.3, server.kill)
        made = compile_on(engine, CompileCaches(shared=on(server)), tmp_path, reporter, target=PROTOBUF)
        assert record(made).units > 50
    (warned,) = [line for line in reporter.lines if line.startswith("! redis")]
    assert re.fullmatch(r"! redis://\S+ does not answer: .* The build goes on without it\.", warned)


def on(server: Server) -> CompileCache:
    return compile_cache(f"redis://127.0.0.1:{server.port}", "test", {"REDISCLI_AUTH": PASSWORD})


def keys_on(server: Server) -> list[str]:
    with Redis(port=server.port, password=PASSWORD) as client:
        return [key.decode() for key in client.scan_iter("*")]
