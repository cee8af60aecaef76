"""Tests of building one variant: which files dist has, and when.

Only the engine and the inputs are stand-ins.
"""

import hashlib
import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from builder.compile.builders import Builders
from builder.compile.compile_cache import CompileCaches, FolderCache
from builder.compile.plan import PlanOptions
from builder.errors import (
    BuilderError,
    CheckFailedError,
    CommandError,
    ConfigError,
    DiskError,
    NothingToDoError,
    ToolMissingError,
    ValidationError,
    VariantsFailedError,
)
from builder.formats.package_names import Host, Profile
from builder.io.docker.engine import ContainerRun, ImageBuild
from builder.io.process import Completed
from tests.support.factories.project_copy import copied_to
from tests.support.factories.workplace import GZIPPED, PACKAGE, THIN, WISHES, Site, variant_build, with_tools
from tests.support.messages import Refused

BESIDE = {
    PACKAGE.replace(".tar.zst", ".build.json"),
    *(f"{archive}.provenance.json" for archive in (PACKAGE, THIN, GZIPPED)),
}


@pytest.fixture
def own_site(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """Return a site over a copy of the project, with a patch to ORT, which a test may edit."""
    project = tmp_path / "project"
    project.mkdir()
    place = copied_to(project)
    place.edit("    patches:\n", "    patches:\n      - own.patch\n")
    (project / "own.patch").write_text("a patch")
    return with_tools(Site(project, tmp_path), monkeypatch)


def packages(site: Site) -> list[str]:
    """Return the file names of the packages in dist."""
    return [path.name for path in sorted(site.dist.glob("*.tar.zst"))]


def sums(site: Site) -> str:
    path = site.dist / "SHA256SUMS"
    return path.read_text(encoding="utf-8") if path.exists() else ""


def holds(site: Site) -> set[str]:
    """Return the names in dist, without the files from which the next run continues."""
    return {path.name for path in site.dist.iterdir()} - {"legacy", ".locks", "SHA256SUMS"}


def test_a_package_stands_in_dist_when_all_is_well(site: Site) -> None:
    assert variant_build(site).build() == tuple(site.dist / name for name in (PACKAGE, THIN, GZIPPED))
    listed = [line.split() for line in sums(site).splitlines()]
    archives = (PACKAGE, THIN, GZIPPED)
    names = [*archives, *(f"{archive}.provenance.json" for archive in archives)]
    assert sorted(name for _, name in listed) == sorted(names)
    for digest, name in listed:
        assert hashlib.sha256((site.dist / name).read_bytes()).hexdigest() == digest
    assert holds(site) == {*archives, *BESIDE}
    assert site.built() == ["artifact"]
    assert [run.image for run in site.engine.runs] == ["ortpacks/bare"]
    assert f"models ran on the same 18 libraries in {PACKAGE}" in site.reporter.lines


def test_what_compiling_takes_is_told_before_it_begins_and_not_when_nothing_is_to_do(site: Site) -> None:
    for kinds in (["time", "room", "render"], []):
        site.reporter.lines.clear()
        variant_build(site).build()
        words = [line.partition(" ")[0] for line in site.reporter.lines]
        assert [word for word in words if word in ("time", "room", "render")] == kinds


def test_what_does_not_fit_is_refused_before_anything_is_fetched(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=10**8))
    with pytest.raises(DiskError, match=r"^legacy does not fit: about \S+ GB \(compiled 0\.3, "):
        variant_build(site).build()
    assert (site.engine.builds, packages(site)) == ([], [])
    with pytest.raises(DiskError, match=r"^legacy does not fit: about \S+ GB \(compiled 0\.3\)"):
        variant_build(site, caches=CompileCaches(into=FolderCache(site.dist / "store"))).compile(["50"])
    assert site.engine.builds == []


def test_the_second_build_is_up_to_date_and_bundle_packs_what_was_compiled(
    built: Site, legacy_dist: Path
) -> None:
    names = (PACKAGE, THIN, GZIPPED)
    first = [(built.dist / name).stat().st_ino for name in names]
    assert [package.stat().st_ino for package in variant_build(built).build()] == first
    assert built.reporter.lines[-3:] == [f"{name} is up to date" for name in names]
    for name in packages(built):
        (built.dist / name).unlink()
    made = variant_build(built).bundle()
    assert [package.read_bytes() for package in made] == [(legacy_dist / name).read_bytes() for name in names]
    assert built.built() == []


@pytest.mark.parametrize("error", [CheckFailedError, KeyboardInterrupt])
def test_what_was_not_proved_does_not_stand_in_dist(site: Site, error: type[BaseException]) -> None:
    """Nor does an earlier package stand for it."""
    seen: list[object] = []

    def look(request: ContainerRun) -> Completed:
        hosts = [name for name in request.files if name.endswith("/lib/libonnxruntime.so.1")]
        seen.append((packages(site), sums(site), len(hosts)))
        if error is KeyboardInterrupt:
            raise KeyboardInterrupt
        return Completed(code=139, stdout="", stderr="Segmentation fault")

    for force in (False, True):
        site.engine.on_run = look
        with pytest.raises(error):
            variant_build(site, force=force).build()
        assert (packages(site), sums(site), holds(site)) == ([], "", set())
        site.engine.on_run = None
        variant_build(site).build()
        assert packages(site) == [PACKAGE, THIN]
    assert seen == [([], "", 1)] * 2


@pytest.mark.parametrize(
    "wishes", [replace(WISHES, profile=Profile.MINIMAL), replace(WISHES, host=Host.SOURCE)]
)
def test_what_was_compiled_for_other_flags_is_not_packed(built: Site, wishes: PlanOptions) -> None:
    """Nor is what was not compiled at all."""
    for _ in range(2):
        with pytest.raises(CheckFailedError, match="was not compiled for this plan"):
            variant_build(built, plan=wishes).bundle()
        shutil.rmtree(built.dist / "legacy", ignore_errors=True)
    assert built.built() == []


def test_a_run_that_ended_after_the_compiler_goes_on_from_there(site: Site) -> None:
    site.engine.on_run = Mock(side_effect=KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        variant_build(site).build()
    site.engine.on_run = None
    variant_build(site).build()
    assert packages(site) == [PACKAGE, THIN]
    assert site.built().count("artifact") == 1
    variant_build(site, force=True).build()
    first, forced = (request for request in site.engine.builds if request.target == "artifact")
    assert (first.args, first.sockets) == ({}, {})
    assert {*forced.args} == {"ANEW"}, "also where BuildKit has it as a layer"


def test_what_was_compiled_and_is_lost_or_garbled_is_compiled_anew(built: Site) -> None:
    compiled = built.dist / "legacy"
    shutil.rmtree(compiled / "artifact")
    for number in (1, 2):
        (built.dist / PACKAGE).unlink()
        variant_build(built).build()
        assert packages(built) == [PACKAGE, THIN]
        assert built.built() == ["artifact"] * number
        (compiled / "artifact.key").write_bytes(b"\xff\xfe")


@pytest.mark.parametrize(("file", "compiled"), [("own.patch", 2), ("templates/release-notes.md.j2", 1)])
def test_what_is_compiled_follows_from_what_compiles_it(own_site: Site, file: str, compiled: int) -> None:
    package = variant_build(own_site).build()[0]
    with (own_site.shop.root / file).open("a") as edited:
        edited.write("\n")
    package.unlink()
    variant_build(own_site).build()
    assert own_site.built().count("artifact") == compiled


def test_a_patch_edited_while_the_compiler_runs_is_not_what_was_compiled(own_site: Site) -> None:
    export, patch = own_site.engine.on_build, own_site.shop.root / "own.patch"

    def edit(request: ImageBuild, on_line: Callable[[str], None]) -> None:
        patch.write_text("another patch")
        export(request, on_line)

    own_site.engine.on_build = edit
    variant_build(own_site).build()
    (own_site.dist / PACKAGE).unlink()
    with pytest.raises(CheckFailedError, match="was not compiled for this plan"):
        variant_build(own_site).bundle()


@pytest.mark.parametrize("name", ["own.patch", "LICENSE"])
def test_a_file_that_is_not_there_is_told_before_hours_of_compiling(
    own_site: Site, refused: Refused, name: str
) -> None:
    (own_site.shop.root / name).unlink()
    with refused(ConfigError):
        variant_build(own_site).build()
    assert "artifact" not in own_site.built()


def test_what_is_compiled_takes_jobs_and_memory_of_the_command_line(built: Site) -> None:
    """What a compile that failed has left is not packed."""
    built.engine.on_build = Mock(side_effect=CommandError("nvcc exited with 1"))
    with pytest.raises(CommandError):
        variant_build(built, force=True, jobs=7, memory=3 << 30).build()
    (request,) = built.engine.builds
    assert (request.args["JOBS"], request.args["MEMORY_MIB"]) == ("7", "3072")
    with pytest.raises(CheckFailedError, match="was not compiled for this plan"):
        variant_build(built).bundle()


def test_builders_that_fail_leave_nothing_half_made_and_another_one_goes_on(site: Site) -> None:
    export = site.engine.on_build

    def leave(request: ImageBuild, on_line: Callable[[str], None]) -> None:
        export(request, on_line)
        if request.builder == "one":
            raise ToolMissingError("Builder one went away", retry_after=0.0)

    site.engine.on_build = leave
    site.engine.deaf.add("two")
    with pytest.raises(ToolMissingError, match="one went away"):
        variant_build(site, builders=Builders(("one", "two"))).build()
    assert (packages(site), sums(site), holds(site)) == ([], "", set())
    left = {"Dockerfile", "runtime.Dockerfile", "context", "build.log"}
    assert {path.name for path in (site.dist / "legacy").iterdir()} <= left
    site.engine.deaf.clear()
    variant_build(site, builders=Builders(("one", "two"))).build()
    assert [request.builder for request in site.engine.builds] == ["one", "one", "two"]
    assert packages(site) == [PACKAGE, THIN]
    assert [run.image for run in site.engine.runs] == ["ortpacks/bare"], "on this machine's engine"


@pytest.mark.parametrize(
    ("names", "known"),
    [("default", (True, True)), ("default one", (True, False)), ("one", (False, False))],
)
def test_the_own_engine_is_counted_under_its_name_too(
    site: Site, monkeypatch: pytest.MonkeyPatch, names: str, known: tuple[bool, bool]
) -> None:
    """Defect: with ``--builder default`` its disk and its cores were not counted."""
    facts = replace(site.engine.facts(), folder=site.dist)
    monkeypatch.setattr(site.engine, "facts", lambda: facts)
    build = variant_build(site, builders=Builders(tuple(names.split())))
    steps = {need.step for need in build.disk_needs()}
    assert ("compile" in steps, build.jobs() is not None) == known


def test_libraries_that_failed_the_check_are_not_packed_and_are_compiled_anew(site: Site) -> None:
    site.compiles = (50, 52, 60, 61)
    with pytest.raises(CheckFailedError, match=r"A001 lib/\w+_cuda\.so: no SASS for sm_70"):
        variant_build(site).build()
    assert (packages(site), sums(site), site.engine.runs) == ([], "", [])
    site.compiles = (50, 52, 60, 61, 70)
    variant_build(site).build()
    assert packages(site) == [PACKAGE, THIN]


def test_architectures_are_compiled_ahead_into_one_folder(site: Site, tmp_path: Path) -> None:
    store = FolderCache(tmp_path / "store")
    variant_build(site, caches=CompileCaches(into=store)).compile(["50"])
    variant_build(site, caches=CompileCaches(into=store)).compile(["61", "70"])
    held = {file.name: file.read_text() for file in (tmp_path / "store").rglob("*") if file.is_file()}
    assert held == {"compiled50": "of 50", "compiled61": "of 61", "compiled70": "of 70"}
    assert f"{store.name}: 0 of 0 objects found, 2 new" in site.reporter.lines, "the second time"
    assert packages(site) == []
    variant_build(site, caches=CompileCaches(ahead=store)).build()
    *others, last = (build for build in site.engine.builds if build.target == "artifact")
    assert len({build.args["ANEW"] for build in others}) == 2, "layers have no objects"
    assert (last.args, [*last.sockets]) == ({}, ["compile-cache"])
    assert packages(site) == [PACKAGE, THIN]


def test_an_architecture_is_compiled_under_the_name_that_ort_gives_it(site: Site, tmp_path: Path) -> None:
    """1.30's CMake replaces 90 by 90a and 103 by 103a; ``latest`` is widened by 10.3 and 12.1 then."""
    caches = CompileCaches(into=FolderCache(tmp_path / "store"))
    latest = variant_build(site, "latest", plan=replace(WISHES, base="redist"), caches=caches)
    latest.compile(["89", "90", "103"])
    assert site.engine.builds[-1].args["AHEAD"] == "89-90a-103a"
    with pytest.raises(ValidationError, match=r"for 75\. It has 89, 90, 100, 103, 120, 121\."):
        latest.targets(["75"])


def test_architectures_are_spread_over_builders_and_one_that_fails_leaves_the_others(
    site: Site, tmp_path: Path
) -> None:
    together = threading.Barrier(3, timeout=60)
    export = site.engine.on_build

    def fail_61(request: ImageBuild, on_line: Callable[[str], None]) -> None:
        together.wait()
        if request.args["AHEAD"] == "61":
            raise CommandError("nvcc exited with 1")
        export(request, on_line)

    site.engine.on_build = fail_61
    caches = CompileCaches(into=FolderCache(tmp_path / "store"))
    with pytest.raises(VariantsFailedError, match=r"^legacy 61: nvcc exited with 1"):
        variant_build(site, caches=caches, builders=Builders(("one", "two"))).compile(["50", "61", "70"])
    on = {build.args["AHEAD"]: build.builder for build in site.engine.builds}
    assert set(on) == {"50", "61", "70"}
    assert sorted(map(str, on.values())) in (["one", "one", "two"], ["one", "two", "two"])
    held = {file.name for file in (tmp_path / "store").rglob("*") if file.is_file()}
    assert held == {"compiled50", "compiled70"}
    assert [path.name for path in (site.dist / "legacy").glob("ahead*")] == []


def test_a_store_that_fails_or_gets_nothing_is_an_error(site: Site, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BuilderError, match="file"):
        variant_build(site, caches=CompileCaches(into=FolderCache(tmp_path / "file"))).compile(["50"])
    site.engine.on_build = lambda request, _: (request.output or tmp_path).mkdir()
    with pytest.raises(CheckFailedError, match="ccache stored none of the compiled ones"):
        variant_build(site, caches=CompileCaches(into=FolderCache(tmp_path / "store"))).compile(["50"])


@pytest.mark.parametrize(("name", "kind"), [("legacy", ValidationError), ("cpu", NothingToDoError)])
def test_what_is_not_compiled_for_a_variant_is_refused_before_anything_is_done(
    site: Site, refused: Refused, name: str, kind: type[BuilderError]
) -> None:
    with refused(kind):
        variant_build(site, name).compile(["75", "50"])
    assert site.built() == []
