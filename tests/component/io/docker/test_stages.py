"""Tests of compile: the files of the build context, and those that a build leaves on success,
failure or a kill."""

import errno
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from builder.compile.stages import StageBuild, advice, export, lay_out
from builder.config.build_plan import Workplace
from builder.config.variants import Origin, SuiteSystem
from builder.errors import BuilderError, CommandError, ConfigError, DiskError
from builder.io.docker.engine import ImageBuild
from tests.support.factories import packages
from tests.support.factories.rendered import CUDNN, NVCC, RENDERED
from tests.support.fakes.ports import FakeEngine, FakeReporter, FakeRootfs, FakeStore
from tests.support.messages import Refused, Told
from tests.support.tables import data_text

PROJECT = (
    *("templates/smoke.c", "builder/farm/unit.c", "builder/farm/drive.py", "builder/farm/costs.tsv"),
    *("builder/farm/__pycache__/drive.pyc", "builder/prove/virtualcard/session.py"),
    *("builder/prove/virtualcard/compile.sh", "builder/prove/virtualcard/runtime.c"),
    *("patches/a.patch", "patches/b.patch", "other/a.patch"),
)
"""Files of a project, which hold their paths: those that go into a context, and three that do not."""


class Yard:
    """A workplace, a cache, and an engine that writes a library into the exported folder."""

    def __init__(self, folder: Path) -> None:
        self.cache = folder / "cache"
        self.project = folder / "project"
        self.cache.mkdir()
        for path in PROJECT:
            (self.project / path).parent.mkdir(parents=True, exist_ok=True)
            (self.project / path).write_text(path)
        self.place = Workplace(folder / "dist" / "legacy")
        self.store = FakeStore(self.cache)
        self.rootfs = FakeRootfs(self.cache)
        self.engine = FakeEngine(on_build=self.compile)
        self.reporter = FakeReporter()
        self.lines = ["#1 [toolchain 1/9] FROM scratch", "#2 done"]
        self.failure: BaseException | None = None
        self.jobs: int | None = 2
        self.log_meanwhile = ""

    def lay_out(
        self, base: str = "assembled", *, origin: Origin = Origin.SOURCE, patches: tuple[str, ...] = ()
    ) -> None:
        plan = packages.plan(base=base, origin=origin)
        bases = plan.project.bases
        system = SuiteSystem("bookworm", ("ccache", "g++-12"))
        assembled = replace(bases["assembled"], system=system, patches=patches)
        bases = {"assembled": assembled, "nvidia": replace(bases["nvidia"], patches=patches)}
        lay_out(
            replace(plan, project=replace(plan.project, bases=bases)),
            RENDERED if base == "assembled" else replace(RENDERED, debs=(), sources=()),
            self.place,
            store=self.store,
            rootfs=self.rootfs,
            root=self.project,
        )

    def export(self, target: str = "artifact", *, network: bool = False) -> None:
        means = StageBuild(
            engine=self.engine,
            store=self.store,
            reporter=self.reporter,
            builder="remote",
            jobs=self.jobs,
            memory=6 << 30,
        )
        export(target, self.place.root / target, replace(RENDERED, network=network), self.place, means)

    def compile(self, request: ImageBuild, on_line: Callable[[str], None]) -> None:
        assert request.output is not None
        request.output.mkdir()
        (request.output / "provider.so").write_text("half")
        for line in self.lines:
            on_line(line)
        self.log_meanwhile = self.place.log.read_text(encoding="utf-8")
        if self.failure:
            raise self.failure
        (request.output / "provider.so").write_text("new")

    def holds(self) -> list[str]:
        context = self.place.context
        return sorted(str(path.relative_to(context)) for path in context.rglob("*") if path.is_file())


@pytest.fixture
def yard(tmp_path: Path) -> Yard:
    return Yard(tmp_path)


def built(yard: Yard) -> Yard:
    """Return a workplace with the artifact of an earlier build."""
    yard.lay_out()
    yard.place.artifact.mkdir()
    (yard.place.artifact / "provider.so").write_text("old")
    return yard


def left(yard: Yard) -> set[str]:
    return {path.name for path in yard.place.root.iterdir()}


@pytest.mark.parametrize(
    ("base", "origin", "asked"),
    [
        ("assembled", Origin.SOURCE, [("bookworm", ("ccache", "g++-12")), ("bookworm", ())]),
        ("nvidia", Origin.SOURCE, []),
        ("nvidia", Origin.WHEEL, []),
    ],
)
def test_the_context_holds_what_its_base_needs(
    yard: Yard, base: str, origin: Origin, asked: list[tuple[str, tuple[str, ...]]], told: Told
) -> None:
    """An nvidia base needs no Debian, and a wheel that is repacked nothing that compiles."""
    yard.lay_out(base, origin=origin, patches=("patches/b.patch", "patches/a.patch"))
    told("\n".join(yard.holds()))
    assert yard.rootfs.asked == asked
    bare = yard.place.context / "rootfs-bare.tar"
    assert not asked or bare.read_text() == "bookworm with nothing"
    assert yard.place.dockerfile.read_text() == RENDERED.dockerfile
    assert yard.place.runtime_dockerfile.read_text() == RENDERED.runtime_dockerfile


@pytest.mark.parametrize("path", ["patches/a.patch", "builder/farm/drive.py", "templates/smoke.c"])
def test_what_is_edited_while_a_build_runs_does_not_change_under_it(yard: Yard, path: str) -> None:
    """Many editors write into the existing file, which changes every hard link to it."""
    yard.lay_out(patches=("patches/a.patch",))
    (yard.project / path).write_text("edited")
    (copied,) = yard.place.context.rglob(path.rpartition("/")[2])
    assert copied.read_text() == path


@pytest.mark.parametrize(
    ("base", "patches"),
    [
        ("assembled", ("patches/a.patch", "patches/lost.patch", "gone")),
        ("nvidia", ("gone",)),
        ("assembled", ("patches/a.patch", "other/a.patch")),
    ],
    ids=["two are lost", "on nvidia", "of one name"],
)
def test_unusable_patches_are_told(yard: Yard, refused: Refused, base: str, patches: tuple[str, ...]) -> None:
    with refused(ConfigError):
        yard.lay_out(base, patches=patches)
    assert not yard.place.context.exists()


def test_the_context_is_made_afresh_and_the_artifact_of_an_earlier_build_outlives_it(yard: Yard) -> None:
    built(yard)
    (yard.place.context / "debs" / "stale.deb").write_text("from an older lock")
    (yard.place.context / "smoke.c").unlink()
    yard.lay_out()
    assert "debs/stale.deb" not in yard.holds()
    assert (yard.place.context / "smoke.c").read_text() == "templates/smoke.c"
    assert (yard.place.artifact / "provider.so").read_text() == "old"


@pytest.mark.parametrize("linked", [True, False])
def test_inputs_are_linked_or_else_copied(yard: Yard, monkeypatch: pytest.MonkeyPatch, linked: bool) -> None:
    if not linked:
        monkeypatch.setattr(os, "link", Mock(side_effect=OSError(errno.EXDEV, os.strerror(errno.EXDEV))))
    yard.lay_out()
    file = yard.place.context / "debs/nvcc.deb"
    assert (file.read_text(), file.samefile(yard.cache / "nvcc.deb")) == (NVCC.spec, linked)


@pytest.mark.parametrize(("jobs", "network"), [(7, False), (None, True)])
def test_a_build_is_asked_for_with_everything_it_reads(yard: Yard, jobs: int | None, network: bool) -> None:
    yard.lay_out()
    yard.jobs = jobs
    yard.export(network=network)
    (request,) = yard.engine.builds
    assert (request.dockerfile, request.context) == (yard.place.dockerfile, yard.place.context)
    assert (request.target, request.builder, request.network) == ("artifact", "remote", network)
    assert request.args == {**({"JOBS": str(jobs)} if jobs else {}), "MEMORY_MIB": "6144"}
    assert request.contexts == {"cudnn": yard.cache / CUDNN.spec}
    assert request.output not in {None, yard.place.artifact}


def test_a_build_replaces_what_the_last_one_or_a_killed_one_left(yard: Yard) -> None:
    built(yard)
    (yard.place.artifact / "gone.so").write_text("no longer made")
    for pid in (1, 99999):
        (yard.place.root / f"artifact.part-{pid}").mkdir()
    yard.export()
    assert [path.name for path in yard.place.artifact.iterdir()] == ["provider.so"]
    assert (yard.place.artifact / "provider.so").read_text() == "new"
    assert not [name for name in left(yard) if ".part-" in name]


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (CommandError("stage artifact exited with 1"), []),
        (KeyboardInterrupt(), ["what was compiled is kept"]),
        (OSError(errno.ENOSPC, "full"), []),
    ],
)
def test_a_failed_build_leaves_the_last_artifact(yard: Yard, failure: Exception, said: list[str]) -> None:
    built(yard).failure = failure
    with pytest.raises(type(failure)):
        yard.export()
    assert (yard.place.artifact / "provider.so").read_text() == "old"
    assert left(yard) == {"Dockerfile", "runtime.Dockerfile", "context", "artifact", "build.log"}
    assert yard.reporter.lines == said


def test_the_log_holds_every_line_of_every_stage_of_one_build(yard: Yard) -> None:
    """A line is there before the next one is compiled: a kill loses none, and `tail -f` shows progress."""
    for _ in range(2):
        yard.lay_out()
        yard.lines = ["#1 ünicode", "", "#9 [1/2] Building CUDA object"]
        yard.export()
        assert yard.log_meanwhile == "#1 ünicode\n\n#9 [1/2] Building CUDA object\n"
        yard.lines = ["#1 smoke"]
        yard.export("tools")
    assert yard.log_meanwhile == "#1 ünicode\n\n#9 [1/2] Building CUDA object\n#1 smoke\n"


def test_what_the_build_container_says_is_shown_and_all_but_its_status_logged(yard: Yard, told: Told) -> None:
    yard.lay_out()
    lines = data_text("docker/build-lines.txt").splitlines()
    status = (
        '#23 2.0 ortpacks-progress: {"done":55,"total":550,"share":0.25,"minutes":28,"at_most":true,'
        '"memory":3072,"cached":7}'
    )
    yard.lines = [*lines, status]
    yard.export()
    told("\n".join(yard.reporter.lines))
    assert yard.place.log.read_text().splitlines() == lines


def test_a_log_that_does_not_fit_is_named(yard: Yard) -> None:
    yard.lay_out()
    yard.place.log.symlink_to("/dev/full")
    with pytest.raises(DiskError, match=r"^\S+/build\.log does not fit: the disk or a quota was full"):
        yard.export()


@pytest.mark.parametrize(
    "failure",
    [
        CommandError("exited with 1", tail=["FAILED a.cu.o", "Killed"]),
        CommandError("exited with 1", tail=["error: expected ';'"]),
        DiskError("full\nKilled"),
    ],
    ids=["killed", "no known cause", "not the compiler"],
)
def test_advice_ends_the_error_of_a_compiler(yard: Yard, refused: Refused, failure: BuilderError) -> None:
    built(yard).failure = failure
    with refused(type(failure)) as caught:
        yard.export()
    assert caught.value.log == str(yard.place.log)


LOGS = [line.replace("\\n", "\n") for line in data_text("docker/compiler-logs.txt").splitlines()]
"""Messages of nvcc 12.4's shell, of g++ 12 and of cc1plus when they are killed, then after a crash; that of
``crt/host_config.h`` in CUDA 12.4; some that speak for themselves; and those of a log that was cut."""


@pytest.mark.parametrize("log", LOGS)
def test_the_advice_follows_from_the_message(told: Told, log: str) -> None:
    told(advice(f"[12/550] Building CUDA object a.cu.o\n{log}\nortpacks: 1 of the units failed"))
