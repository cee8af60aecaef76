"""New machines for tests: cache mounts of their own on one engine, where BuildKit has no layer of theirs.

Each compiles targets of ONNX Runtime's real Ninja tree with the Dockerfile of variant ``legacy``, profile
minimal.
"""

import os
import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from builder.build.variant_build import BuildOptions, VariantBuild
from builder.compile.compile_cache import CompileCaches, served
from builder.compile.plan import PlanOptions
from builder.compile.stages import StageBuild, export
from builder.config.build_plan import Workplace
from builder.contents.build_record import CompileRecord, loads_compile
from builder.formats.package_names import Profile
from builder.io.docker.engine import DockerEngine
from builder.io.process import ProcessRunner
from builder.io.wiring import Wiring
from tests.integration.faults_world import configured_tree, narrow
from tests.support import ROOT
from tests.support.fakes.ports import FakeReporter

ABSEIL = "absl_strings"
"""A target: a library of Abseil and those that it needs, some 20 units."""


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
    """A machine with an empty ccache, whose Ninja tree has what CMake found out and never an object."""

    def __init__(self, folder: Path) -> None:
        self.name = f"ortpacks-test-{uuid.uuid4().hex[:8]}"
        self.runner = ProcessRunner(os.environ)
        self._engine = DockerEngine(self.runner, os.environ)
        self._folder = folder / self.name

    def compile(self, caches: CompileCaches, reporter: Watching) -> Path:
        """Compile ``ABSEIL``, and return the artifact's folder, which has a record alone."""
        shop = Wiring(ROOT, dist=self._folder / "dist", reporter=reporter)
        plan_options = PlanOptions(base="assembled", profile=Profile.MINIMAL)
        build = VariantBuild(
            shop, shop.project.variants["legacy"], BuildOptions(plan_options=plan_options), reporter
        )
        place = Workplace(self._folder / "legacy")
        place.root.mkdir(parents=True)
        rendered = build.lay_out(place.root)
        narrow(place.dockerfile, ABSEIL)
        text = configured_tree(place.dockerfile.read_text(encoding="utf-8"))
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


def record(artifact: Path) -> CompileRecord:
    return loads_compile((artifact / "record.json").read_bytes(), "record.json")


def finished(lines: list[str]) -> int:
    """Return how many units had been compiled when the last of the displayed lines was written."""
    return max(int(line.partition("/")[0]) for line in lines if re.match(r"\d+/\d+ units", line))
