"""lock: every input gets a pin, pins that stand stay, and the repository's own lock is whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from builder.config.project import load_project, parse_lock
from builder.errors import ToolMissingError, TransferError
from builder.pipeline.lock_inputs import lock
from builder.project.inputs import Input, InputKind, Lock, Pin, Resolver
from builder.project.variants import Project, wanted_inputs
from tests.support import ROOT
from tests.support.fakes.ports import FakeReporter

COMMIT = "c0ffee00" * 5

CUDNN = "wheel:nvidia-cudnn-cu12==9.10.2.21"

GIT = "git:https://github.com/microsoft/onnxruntime@v1.23.2"

IMAGE = "image:nvidia/cuda:12.9.1-devel-ubuntu22.04"


@dataclass
class FakeIntake:
    sha256: str = "1" * 64
    asked: list[str] = field(default_factory=list)

    def pin(self, item: Input) -> Pin:
        self.asked.append(item.key)
        return Pin(filename="f", size=1, sha256=self.sha256)


@pytest.fixture(scope="module")
def project() -> Project:
    return load_project((ROOT / "variants.yaml").read_text(encoding="utf-8"), "variants.yaml")


def unreachable(spec: str) -> str:
    raise TransferError(f"{spec} cannot be reached.")


def without_engine(spec: str) -> str:
    raise ToolMissingError("no engine answers.")


def resolvers(git: Resolver = lambda spec: COMMIT) -> Mapping[InputKind, Resolver]:
    return {InputKind.GIT: git, InputKind.IMAGE: without_engine}


def run(project: Project, known: Mapping[str, Pin], intake: FakeIntake, *, refresh: bool = False) -> Lock:
    return lock(
        project,
        Lock(pins=known),
        intake=intake,
        resolvers=resolvers(),
        reporter=FakeReporter(),
        refresh=refresh,
    )


def test_every_input_is_pinned_and_sorted(project: Project) -> None:
    intake = FakeIntake()
    made = run(project, {}, intake)
    assert list(made.pins) == sorted(item.key for item in wanted_inputs(project))
    assert made.pins[CUDNN].sha256 == "1" * 64
    assert made.pins[GIT].revision == COMMIT
    assert not any(key.startswith(("git:", "image:")) for key in intake.asked)


def test_pins_that_stand_stay_and_are_not_fetched(project: Project) -> None:
    first = run(project, {}, FakeIntake())
    intake = FakeIntake(sha256="2" * 64)
    assert run(project, first.pins, intake) == first
    assert intake.asked == []


def test_refresh_pins_anew(project: Project) -> None:
    first = run(project, {}, FakeIntake())
    again = run(project, first.pins, FakeIntake(sha256="2" * 64), refresh=True)
    assert again.pins[CUDNN].sha256 == "2" * 64


def test_what_nobody_needs_any_more_is_dropped(project: Project) -> None:
    old = {"wheel:gone==1": Pin(filename="g", size=1, sha256="3" * 64)}
    assert "wheel:gone==1" not in run(project, old, FakeIntake()).pins


def test_out_of_reach_leaves_the_revision_open_and_says_so(project: Project) -> None:
    reporter = FakeReporter()
    made = lock(
        project,
        Lock(pins={}),
        intake=FakeIntake(),
        resolvers=resolvers(unreachable),
        reporter=reporter,
    )
    assert made.pins[GIT] == Pin(revision=None)
    assert made.pins[IMAGE] == Pin(revision=None)
    warnings = [line for line in reporter.lines if line.startswith("! ")]
    assert any(GIT in line and "a release needs ./run lock" in line for line in warnings)
    assert any(IMAGE in line and "no engine answers" in line for line in warnings)


def test_an_open_revision_is_tried_again(project: Project) -> None:
    first = run(project, {}, FakeIntake())
    known = {**first.pins, GIT: Pin(revision=None)}
    assert run(project, known, FakeIntake()).pins[GIT].revision == COMMIT


def test_a_file_out_of_reach_stops_it(project: Project) -> None:
    class Offline(FakeIntake):
        def pin(self, item: Input) -> Pin:
            raise TransferError(f"{item.key} is not there")

    with pytest.raises(TransferError, match="is not there"):
        run(project, {}, Offline())


def test_the_repositorys_lock_holds_exactly_what_the_project_needs(project: Project, root: Path) -> None:
    pins = parse_lock((root / "inputs.lock").read_text(encoding="utf-8"), "inputs.lock").pins
    assert sorted(pins) == [item.key for item in wanted_inputs(project)]


@pytest.mark.parametrize(
    ("key", "sha256"),
    [  # as Debian's signed Packages and Sources of trixie list them
        (
            "debian:pool/main/o/onnxruntime/onnxruntime_1.21.0+dfsg.orig.tar.xz",
            "32df1f82bd6b07b18372c0f387133214905cbde7a586b3ad83f0ed0075f80273",
        ),
        (
            "debian:pool/non-free/n/nvidia-cuda-toolkit/nvidia-cuda-toolkit_12.4.131~12.4.1-2_amd64.deb",
            "cd5fe85aee38d108b315f408a688641478f2402622a10c677478eb7a6c4e5319",
        ),
    ],
)
def test_the_repositorys_lock_agrees_with_debian(root: Path, key: str, sha256: str) -> None:
    pins = parse_lock((root / "inputs.lock").read_text(encoding="utf-8"), "inputs.lock").pins
    assert pins[key].sha256 == sha256
