"""Tests of variants that are built in parallel: each one is built to its end, and every failure
is reported."""

import errno
import shutil
import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from builder.build.all_variants import build_all, joint_disk_needs
from builder.errors import (
    CheckFailedError,
    CommandError,
    DiskError,
    TransferError,
    ValidationError,
    VariantsFailedError,
)
from builder.io.docker.engine import ImageBuild
from builder.io.process import side_by_side
from tests.support.factories.workplace import Site, variant_build, with_tools
from tests.support.messages import Refused, Told

FAR = 10
"""Seconds after which a build that waits for another one fails."""


def walk(*roads: Callable[[], object], interrupt: Callable[[], None] = lambda: None) -> list[object]:
    names = ("legacy", "modern", "latest")
    return side_by_side(dict(zip(names, roads, strict=False)), interrupt)


@pytest.mark.parametrize("error", [None, CommandError("nvcc exited with 1")], ids=["none", "one"])
def test_roads_go_to_their_ends_although_one_fails_and_packages_have_the_order_asked_for(
    error: CommandError | None,
) -> None:
    later, arrived = threading.Event(), list[bool]()

    def second() -> Path:
        later.set()
        if error:
            raise error
        return Path("second")

    with pytest.raises(VariantsFailedError) if error else nullcontext():
        assert walk(lambda: arrived.append(later.wait(FAR)), second) == [None, Path("second")]
    assert arrived == [True]


def test_a_single_road_is_walked_here_and_its_failure_needs_no_name() -> None:
    def failing() -> Path:
        raise CommandError(threading.current_thread().name)

    with pytest.raises(CommandError, match=f"^{threading.main_thread().name}$"):
        walk(failing)


def test_several_failures_are_told_together_with_the_first_ones_exit_code() -> None:
    first, second = TransferError("offline"), CheckFailedError("1 error", ["error A001"])
    with pytest.raises(VariantsFailedError) as caught:
        walk(Mock(side_effect=first), Mock(), Mock(side_effect=second))
    assert caught.value.failures == {"legacy": first, "latest": second}
    assert caught.value.exit_code == 10
    assert str(caught.value) == "legacy: offline\n\nlatest: 1 error\nerror A001"


@pytest.mark.parametrize("bug_first", [True, False])
def test_a_bug_is_not_hidden_behind_a_message(bug_first: bool) -> None:
    bug, told = ZeroDivisionError("a bug of ours"), CommandError("nvcc exited with 1")
    failures = (bug, told) if bug_first else (told, bug)
    with pytest.raises(ZeroDivisionError, match="a bug of ours"):
        walk(*(Mock(side_effect=error) for error in failures))


def test_ctrl_c_ends_what_the_roads_run_and_waits_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    told = threading.Event()
    ended: list[str] = []

    def compiling() -> Path:
        assert told.wait(FAR)
        ended.append("legacy")
        raise KeyboardInterrupt

    def pressed(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("builder.io.process.wait", pressed)
    with pytest.raises(KeyboardInterrupt):
        walk(compiling, Mock(), interrupt=told.set)
    assert ended == ["legacy"]


def build_two(site: Site) -> tuple[Path, ...]:
    """Build legacy and modern at once."""
    builds = {name: variant_build(site, name) for name in ("legacy", "modern")}
    return build_all(builds, lambda: None, "./run build --all")


def test_memory_is_checked_for_all_variants_before_the_first_compiles(site: Site) -> None:
    """A unit of ``latest`` took 4,174 MiB, one of ``legacy`` 1,946 (builder/farm/costs.tsv).

    Defect: with 1 GiB the message named the need of ``legacy``, which was too little for ``latest``.
    """
    builds = {name: variant_build(site, name, memory=1 << 30) for name in ("legacy", "latest")}
    with pytest.raises(ValidationError, match=r"^--memory: 1024 MiB .* latest: .* --memory 4174M or more"):
        build_all(builds, lambda: None, "./run build --all")
    assert site.engine.builds == []


NVCC = CommandError("nvcc exited with 1", tail=["x.cu(3): error", "ortpacks: 1 unit failed"])


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NVCC, 5),
        (OSError(errno.ENOSPC, "No space left on device"), 11),
        (PermissionError(errno.EACCES, "Permission denied", "/x"), 11),
    ],
    ids=["nvcc", "full", "denied"],
)
def test_of_several_variants_the_last_lines_tell_what_was_made_and_what_was_not(
    site: Site, told: Told, refused: Refused, error: Exception, code: int
) -> None:
    export = site.engine.on_build

    def fail_modern(request: ImageBuild, on_line: Callable[[str], None]) -> None:
        if "modern" in str(request.output):
            raise error
        export(request, on_line)

    site.engine.on_build = fail_modern
    with refused(VariantsFailedError) as caught:
        build_two(site)
    assert caught.value.exit_code == code
    told("\n".join(line for line in site.reporter.lines if line.startswith("! ") and "warning" not in line))


def test_variants_that_do_not_fit_together_are_not_begun(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    every_sm = (50, 52, 60, 61, 70, 75, 80, 86, 89)
    site = with_tools(Site(root, tmp_path, code=every_sm), monkeypatch)
    site.compiles = every_sm
    builds = {name: variant_build(site, name) for name in ("legacy", "modern")}
    sizes = {name: sum(need.size for need in build.disk_needs()) for name, build in builds.items()}
    assert min(sizes.values()) > 10**8
    needed = sum(need.size for need in joint_disk_needs(builds))

    def build(free: int) -> tuple[Path, ...]:
        monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free))
        return build_two(site)

    with pytest.raises(
        DiskError,
        match=r"legacy, modern do not fit together: .* \(legacy \d.*, modern \d.* Build fewer at once",
    ):
        build(needed - 1)
    assert site.built() == []
    assert site.reporter.lines.count("plan legacy") == 2, "one build has planned once"
    assert len(build(needed)) == 2 * 3
    assert len(build(max(sizes.values()))) == 2 * 3, "both are up to date"
    for package in site.dist.glob("ortpacks-modern-*"):
        package.unlink()
    with pytest.raises(VariantsFailedError, match=r"modern +modern does not fit: about") as caught:
        build(0)
    assert caught.value.exit_code == 11
    assert len(build(sizes["modern"])) == 2 * 3, "legacy takes nothing"


def test_a_room_that_cannot_be_reckoned_is_told_by_the_variants_own_build(site: Site) -> None:
    def out_of_reach(*_: object) -> None:
        raise TransferError("nothing answers")

    site.shop.__dict__["store"] = out_of_reach
    with pytest.raises(VariantsFailedError, match="not made: 2 of 2 variants"):
        build_two(site)
    told = ["! nothing answers", "plan legacy", "plan modern"]
    assert [site.reporter.lines.count(line) for line in told] == [2, 1, 1]
