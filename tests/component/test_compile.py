"""compile: what lies in the build context, and what a build leaves when it ends well, badly or not at all."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from builder.core.inputs import Input
from builder.core.ports import EngineFacts, ImageBuild
from builder.core.rendered import Rendered
from builder.core.workplace import Workplace
from builder.errors import CommandError
from builder.stages.compile import export, jobs, lay_out
from tests import packages
from tests.fakes import FakeEngine, FakeReporter, FakeRootfs, FakeStore

NVCC = Input.debian("pool/non-free/n/nvidia-cuda-toolkit/nvcc.deb")
RE2 = Input.debian("pool/main/r/re2/re2.orig.tar.gz")
CUDNN = Input.wheel("nvidia-cudnn-cu12==9.10.2.21")
RENDERED = Rendered(
    dockerfile="FROM scratch AS artifact\n",
    runtime_dockerfile="FROM scratch AS runtime\n",
    contexts={"cudnn": CUDNN},
    debs=(NVCC,),
    sources=(RE2,),
    network=False,
    toolchain_key="01234567",
)


class Yard:
    """A workplace, a cache and an engine that writes a library into what it exports."""

    def __init__(self, folder: Path) -> None:
        self.cache = folder / "cache"
        self.templates = folder / "templates"
        self.cache.mkdir()
        self.templates.mkdir()
        (self.templates / "smoke.c").write_text("int main(void) { return 0; }\n")
        self.place = Workplace(folder / "dist" / "legacy")
        self.store = FakeStore(self.cache)
        self.rootfs = FakeRootfs(self.cache)
        self.engine = FakeEngine(on_build=self.compile)
        self.reporter = FakeReporter()
        self.lines = ["#1 [toolchain 1/9] FROM scratch", "#2 done"]
        self.failure: Exception | None = None
        self.log_meanwhile = ""

    def lay_out(self, base: str = "assembled") -> None:
        plan = packages.plan(base=base)
        assembled = replace(plan.project.bases.assembled, packages=("ccache", "g++-12"))
        project = replace(plan.project, bases=replace(plan.project.bases, assembled=assembled))
        lay_out(
            replace(plan, project=project),
            RENDERED if base == "assembled" else replace(RENDERED, debs=(), sources=()),
            self.place,
            store=self.store,
            rootfs=self.rootfs,
            templates=self.templates,
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
            engine=self.engine,
            store=self.store,
            reporter=self.reporter,
            builder=builder,
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
    """A workplace with the artifact of an earlier build."""
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
        "rootfs-bare.tar",
        "rootfs-build.tar",
        "smoke.c",
        "sources/re2.orig.tar.gz",
    ]
    assert yard.rootfs.asked == [("bookworm", ("ccache", "g++-12")), ("bookworm", ())]
    assert (yard.place.context / "rootfs-bare.tar").read_text() == "bookworm with nothing"
    assert yard.place.dockerfile.read_text() == RENDERED.dockerfile
    assert yard.place.runtime_dockerfile.read_text() == RENDERED.runtime_dockerfile


def test_the_context_of_an_nvidia_base_holds_no_debian(yard: Yard) -> None:
    yard.lay_out("nvidia")
    assert yard.holds() == ["smoke.c"]
    assert yard.rootfs.asked == []


def test_the_context_is_made_afresh(yard: Yard) -> None:
    yard.lay_out()
    (yard.place.context / "debs" / "stale.deb").write_text("from an older lock")
    (yard.place.context / "smoke.c").unlink()
    yard.lay_out()
    assert "debs/stale.deb" not in yard.holds()
    assert (yard.place.context / "smoke.c").read_text() == (yard.templates / "smoke.c").read_text()


def test_the_artifact_of_an_earlier_build_outlives_a_new_context(yard: Yard) -> None:
    built(yard).lay_out()
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
    yard.export(builder="remote")
    (request,) = yard.engine.builds
    assert (request.dockerfile, request.context) == (yard.place.dockerfile, yard.place.context)
    assert (request.target, request.builder, request.args) == ("artifact", "remote", {"JOBS": "2"})
    assert request.contexts == {"cudnn": yard.cache / CUDNN.spec}
    assert request.output is not None
    assert request.output != yard.place.artifact


@pytest.mark.parametrize("network", [True, False])
def test_only_a_base_that_asks_for_it_gets_a_network(yard: Yard, network: bool) -> None:
    yard.lay_out()
    yard.export(rendered=replace(RENDERED, network=network))
    assert [request.network for request in yard.engine.builds] == [network]


def test_a_build_replaces_what_the_last_one_left(yard: Yard) -> None:
    built(yard)
    (yard.place.artifact / "gone.so").write_text("no longer made")
    yard.export()
    assert [path.name for path in yard.place.artifact.iterdir()] == ["provider.so"]
    assert (yard.place.artifact / "provider.so").read_text() == "new"


@pytest.mark.parametrize(
    "failure",
    [CommandError("stage artifact exited with 1"), KeyboardInterrupt(), OSError(errno.ENOSPC, "full")],
)
def test_a_build_that_fails_leaves_the_last_artifact_and_nothing_half_made(
    yard: Yard, failure: Exception
) -> None:
    built(yard).failure = failure
    with pytest.raises(type(failure)):
        yard.export()
    assert (yard.place.artifact / "provider.so").read_text() == "old"
    assert left(yard) == {"Dockerfile", "runtime.Dockerfile", "context", "artifact", "build.log"}


def test_a_failed_build_names_its_log(yard: Yard) -> None:
    built(yard).failure = CommandError("stage artifact exited with 1")
    with pytest.raises(CommandError):
        yard.export()
    assert yard.reporter.lines == [f"! the whole log: {yard.place.log}"]


def test_what_a_killed_build_left_is_removed_by_the_next(yard: Yard) -> None:
    built(yard)
    for pid in (1, 99999):
        (yard.place.root / f"artifact.part-{pid}").mkdir()
    yard.export()
    assert not [name for name in left(yard) if ".part-" in name]


def test_the_log_holds_every_line_of_every_stage(yard: Yard) -> None:
    yard.lay_out()
    yard.lines = ["#1 ünicode", "", "#9 [1/2] Building CUDA object"]
    yard.export()
    yard.lines = ["#1 smoke"]
    yard.export("kit", yard.place.kit)
    assert yard.place.log.read_text(encoding="utf-8") == (
        "#1 ünicode\n\n#9 [1/2] Building CUDA object\n#1 smoke\n"
    )


def test_a_line_is_in_the_log_before_the_next_is_compiled(yard: Yard) -> None:
    """So that a kill takes none with it, and `tail -f` shows a long compilation."""
    yard.lay_out()
    yard.export()
    assert yard.log_meanwhile == "#1 [toolchain 1/9] FROM scratch\n#2 done\n"


def test_the_next_build_begins_a_new_log(yard: Yard) -> None:
    for _ in range(2):
        yard.lay_out()
        yard.export()
    assert yard.place.log.read_text() == "#1 [toolchain 1/9] FROM scratch\n#2 done\n"


def test_one_line_of_progress_per_tenth(yard: Yard) -> None:
    yard.lay_out()
    yard.lines = [f"#23 {unit}.5 [{unit}/40] Building CXX object" for unit in range(1, 41)]
    yard.export()
    counts = (1, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40)
    assert yard.reporter.lines == [f"{done} of 40 units" for done in counts]


@pytest.mark.parametrize(
    "line", ["[0/1] Re-running CMake...", "[0/0]", "#5 [build 3/12] RUN", "[1/x]", "1/40"]
)
def test_what_counts_no_units_is_no_progress(yard: Yard, line: str) -> None:
    yard.lay_out()
    yard.lines = [line]
    yard.export()
    assert yard.reporter.lines == []


GIB = 1 << 30


@pytest.mark.parametrize(
    ("cpus", "memory", "wanted"),
    [
        (2, 24 * GIB, 2),
        (16, 16 * GIB, 4),
        (16, 16 * GIB - 1, 3),
        (8, 64 * GIB, 8),
        (4, 2 * GIB, 1),
        (1, 0, 1),
    ],
)
def test_jobs_neither_idle_cores_nor_run_out_of_memory(cpus: int, memory: int, wanted: int) -> None:
    facts: EngineFacts = replace(FakeEngine().facts(), cpus=cpus, memory=memory)
    assert jobs(facts) == wanted
