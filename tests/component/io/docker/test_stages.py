"""Tests of compile: the files of the build context, and those that a build leaves on success,
failure or a kill."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from builder.compile.stages import StageBuild, export, lay_out
from builder.config.build_plan import Rendered, Workplace
from builder.config.variants import Origin, SuiteSystem
from builder.errors import BuilderError, CommandError, ConfigError, DiskError
from builder.io.docker.engine import ImageBuild
from tests.support.factories import packages
from tests.support.factories.rendered import CUDNN, NVCC, RENDERED
from tests.support.fakes.ports import FakeEngine, FakeReporter, FakeRootfs, FakeStore
from tests.support.messages import Refused

PROJECT = {
    "templates/smoke.c": "int main(void) { return 0; }\n",
    "builder/farm/unit.c": "/* unit */\n",
    "builder/farm/drive.py": "# drive\n",
    "builder/farm/costs.tsv": "# output\n",
    "builder/farm/__pycache__/drive.pyc": "compiled",
    "builder/prove/virtualcard/session.py": "# stays\n",
    "builder/prove/virtualcard/compile.sh": "gcc\n",
    "builder/prove/virtualcard/runtime.c": "/* runtime */\n",
    "patches/a.patch": "--- a\n",
    "patches/b.patch": "--- b\n",
    "other/a.patch": "--- another a\n",
}
"""Files of a project: those that go into a context, and three that do not."""

CARD = ("virtualcard/compile.sh", "virtualcard/runtime.c")


class Yard:
    """A workplace, a cache, and an engine that writes a library into the exported folder."""

    def __init__(self, folder: Path) -> None:
        self.cache = folder / "cache"
        self.project = folder / "project"
        self.cache.mkdir()
        for path, text in PROJECT.items():
            (self.project / path).parent.mkdir(parents=True, exist_ok=True)
            (self.project / path).write_text(text)
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

    def export(
        self,
        target: str = "artifact",
        dest: Path | None = None,
        builder: str | None = None,
        rendered: Rendered = RENDERED,
    ) -> None:
        export(
            target,
            dest or self.place.artifact,
            rendered,
            self.place,
            StageBuild(
                engine=self.engine,
                store=self.store,
                reporter=self.reporter,
                builder=builder,
                jobs=self.jobs,
                memory=6 << 30,
            ),
        )

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


def test_the_context_of_an_assembled_base(yard: Yard) -> None:
    yard.lay_out()
    assert yard.holds() == [
        "debs/nvcc.deb",
        "farm/costs.tsv",
        "farm/drive.py",
        "farm/unit.c",
        "rootfs-bare.tar",
        "rootfs-build.tar",
        "smoke.c",
        "sources/re2.orig.tar.gz",
        *CARD,
    ]
    assert yard.rootfs.asked == [("bookworm", ("ccache", "g++-12")), ("bookworm", ())]
    assert (yard.place.context / "rootfs-bare.tar").read_text() == "bookworm with nothing"
    assert yard.place.dockerfile.read_text() == RENDERED.dockerfile
    assert yard.place.runtime_dockerfile.read_text() == RENDERED.runtime_dockerfile


def test_the_context_of_an_nvidia_base_holds_no_debian(yard: Yard) -> None:
    yard.lay_out("nvidia")
    assert yard.holds() == ["farm/costs.tsv", "farm/drive.py", "farm/unit.c", "smoke.c", *CARD]
    assert yard.rootfs.asked == []


def test_the_context_of_a_wheel_that_is_repacked_holds_nothing_that_compiles(yard: Yard) -> None:
    yard.lay_out("nvidia", origin=Origin.WHEEL, patches=("patches/a.patch",))
    assert yard.holds() == ["smoke.c", *CARD]


@pytest.mark.parametrize("base", ["assembled", "nvidia"])
def test_patches_come_along(yard: Yard, base: str) -> None:
    yard.lay_out(base, patches=("patches/b.patch", "patches/a.patch"))
    assert [file for file in yard.holds() if "patch" in file] == ["patches/a.patch", "patches/b.patch"]


@pytest.mark.parametrize("path", ["patches/a.patch", "builder/farm/drive.py", "templates/smoke.c"])
def test_what_is_edited_while_a_build_runs_does_not_change_under_it(yard: Yard, path: str) -> None:
    """Many editors write into the existing file, which changes every hard link to it."""
    yard.lay_out(patches=("patches/a.patch",))
    (yard.project / path).write_text("edited")
    (copied,) = yard.place.context.rglob(path.rpartition("/")[2])
    assert copied.read_text() == PROJECT[path]


@pytest.mark.parametrize("base", ["assembled", "nvidia"])
def test_a_patch_that_is_not_there_is_told_with_its_key(yard: Yard, base: str) -> None:
    with pytest.raises(ConfigError) as caught:
        yard.lay_out(base, patches=("patches/a.patch", "patches/lost.patch", "gone"))
    assert caught.value.problems == (
        f"variants.yaml: bases.{base}.patches: patches/lost.patch is not there.",
        f"variants.yaml: bases.{base}.patches: gone is not there.",
    )


def test_two_patches_of_one_name_are_refused_and_keep_their_bytes(yard: Yard) -> None:
    with pytest.raises(ConfigError, match=r"bases\.assembled\.patches: a\.patch stands in two folders"):
        yard.lay_out(patches=("patches/a.patch", "other/a.patch"))
    assert (yard.project / "patches/a.patch").read_text() == PROJECT["patches/a.patch"]


def test_the_context_is_made_afresh_and_the_artifact_of_an_earlier_build_outlives_it(yard: Yard) -> None:
    built(yard)
    (yard.place.context / "debs" / "stale.deb").write_text("from an older lock")
    (yard.place.context / "smoke.c").unlink()
    yard.lay_out()
    assert "debs/stale.deb" not in yard.holds()
    assert (yard.place.context / "smoke.c").read_text() == PROJECT["templates/smoke.c"]
    assert (yard.place.artifact / "provider.so").read_text() == "old"


def test_inputs_are_linked_and_cost_no_space(yard: Yard) -> None:
    yard.lay_out()
    assert (yard.place.context / "debs" / "nvcc.deb").samefile(yard.cache / "nvcc.deb")
    assert (yard.cache / "nvcc.deb").stat().st_nlink == 2


def test_inputs_on_another_file_system_are_copied(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(source: object, target: object) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    monkeypatch.setattr(os, "link", refuse)
    yard.lay_out()
    copied = yard.place.context / "debs" / "nvcc.deb"
    assert copied.read_text() == NVCC.spec
    assert not copied.samefile(yard.cache / "nvcc.deb")


def test_a_build_is_asked_for_with_everything_it_reads(yard: Yard) -> None:
    yard.lay_out()
    yard.jobs = 7
    yard.export(builder="remote")
    (request,) = yard.engine.builds
    assert (request.dockerfile, request.context) == (yard.place.dockerfile, yard.place.context)
    assert (request.target, request.builder, request.network) == ("artifact", "remote", False)
    assert request.args == {"JOBS": "7", "MEMORY_MIB": "6144"}
    assert request.contexts == {"cudnn": yard.cache / CUDNN.spec}
    assert request.output not in {None, yard.place.artifact}


def test_a_network_is_given_on_request_and_a_limit_is_else_left_to_the_machine_that_compiles(
    yard: Yard,
) -> None:
    yard.lay_out()
    yard.jobs = None
    yard.export(rendered=replace(RENDERED, network=True))
    (request,) = yard.engine.builds
    assert (request.args, request.network) == ({"MEMORY_MIB": "6144"}, True)


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
def test_a_build_that_fails_leaves_the_last_artifact_and_nothing_half_made(
    yard: Yard, failure: Exception, said: list[str]
) -> None:
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
        yard.export("tools", yard.place.tools)
    assert yard.log_meanwhile == "#1 ünicode\n\n#9 [1/2] Building CUDA object\n#1 smoke\n"


STATUS = '{"done":55,"total":550,"share":0.25,"minutes":28,"at_most":true,"memory":3072,"cached":7}'


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("#23 4.567 ortpacks: 550 units to compile, 2 at a time", ["550 units to compile, 2 at a time"]),
        ("#23 1234.567 ortpacks: 1 of the units failed", ["1 of the units failed"]),
        ("#23 90.1 [55/550] Building CUDA object CMakeFiles/a.dir/pool.cu.o", []),
        ("ortpacks: not from the container", []),
        ("#5 [build 3/12] RUN echo ortpacks: hello", []),
        ("#23 1.0 g++ -o ortpacks: x", []),
        ("#23 DONE 1.0s", []),
        ("#24 sha256:ab ortpacks: 1 / 2", []),
    ],
)
def test_what_the_build_container_says_to_the_user_is_shown(yard: Yard, line: str, shown: list[str]) -> None:
    yard.lay_out()
    yard.lines = [line]
    yard.export()
    assert yard.reporter.lines == shown
    assert yard.place.log.read_text() == f"{line}\n"


def test_a_status_of_the_build_container_is_shown_and_not_logged(yard: Yard) -> None:
    yard.lay_out()
    yard.lines = [
        "#23 1.0 [55/550] Building CUDA object CMakeFiles/a.dir/pool.cu.o",
        (
            '#23 2.0 ortpacks-progress: {"done":55,"total":550,"share":0.25,"minutes":28,"at_most":true,'
            '"memory":3072,"cached":7}'
        ),
    ]
    yard.export()
    assert yard.reporter.lines == ["compile 25% 55/550 units, at most 28 min left, 3.0 GiB, 7 from the cache"]
    assert yard.place.log.read_text() == f"{yard.lines[0]}\n"


def test_a_log_that_does_not_fit_is_named(yard: Yard) -> None:
    yard.lay_out()
    yard.place.log.symlink_to("/dev/full")
    with pytest.raises(DiskError, match=r"^\S+/build\.log does not fit: the disk or a quota was full"):
        yard.export()


def test_advice_ends_the_error(yard: Yard, refused: Refused) -> None:
    built(yard).failure = CommandError("stage artifact exited with 1", tail=["FAILED a.cu.o", "Killed"])
    with refused(CommandError):
        yard.export()


@pytest.mark.parametrize(
    ("failure", "what"),
    [
        (CommandError("exited with 1", tail=["error: expected ';'"]), "exited with 1"),
        (DiskError("full\nKilled"), r"full\nKilled"),
    ],
    ids=["no known cause", "not the compiler"],
)
def test_an_error_without_advice_stays_as_it_is(yard: Yard, failure: BuilderError, what: str) -> None:
    built(yard).failure = failure
    with pytest.raises(type(failure)) as caught:
        yard.export()
    assert caught.value is failure
    assert (caught.value.what, caught.value.advice) == (what, "")
    assert caught.value.log == str(yard.place.log)
