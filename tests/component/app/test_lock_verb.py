"""./run lock: the file is replaced whole by a lock that is complete, or stays as it was."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from builder.app import verbs
from builder.builds.wiring import Wiring
from builder.config.project import parse_lock, render_lock
from builder.errors import CommandError, ConfigError, TransferError
from builder.ports import Completed
from builder.project.inputs import Input, Lock, Pin
from builder.project.variants import wanted_inputs
from tests.support.fakes.ports import FakeEngine, FakeReporter, FakeRunner

COMMIT = "c" * 40

DIGEST = f"sha256:{'d' * 64}"

IMAGE = "image:nvidia/cuda:12.9.1-devel-ubuntu22.04"


class Intake:
    """A store that knows the size of everything, until it is out of reach."""

    def __init__(self, reachable: int = 1000) -> None:
        self.reachable = reachable
        self.taken: list[str] = []

    def pin(self, item: Input) -> Pin:
        if len(self.taken) == self.reachable:
            raise TransferError(f"{item.key} cannot be fetched: no route to host. Check the network.")
        self.taken.append(item.key)
        return Pin(filename="file", size=1, sha256="0" * 64)


@pytest.fixture
def shop(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> Wiring:
    """A project without a lock, on a machine that reaches everything."""
    shutil.copy(root / "variants.yaml", tmp_path)
    made = Wiring(tmp_path, reporter=FakeReporter())
    images = (made.project.bases.nvidia.image, made.project.bases.nvidia.runtime)
    engine = FakeEngine(digests={image.spec: DIGEST for image in images})
    git = Completed(code=0, stdout=f"{COMMIT}\trefs/tags/v1.23.2\n", stderr="")
    for name, value in (("engine", engine), ("runner", FakeRunner(answers={"git": git}))):
        monkeypatch.setitem(made.__dict__, name, value)
    take(monkeypatch, made, Intake())
    return made


def take(monkeypatch: pytest.MonkeyPatch, shop: Wiring, intake: Intake) -> Intake:
    monkeypatch.setattr(shop, "store", lambda _: intake)
    return intake


def pins(shop: Wiring) -> Lock:
    return parse_lock(shop.lock_file.read_text(encoding="utf-8"), "inputs.lock")


def test_a_first_lock_pins_every_input(shop: Wiring) -> None:
    verbs.lock_inputs(shop, refresh=False)
    made = pins(shop).pins
    assert set(made) == {item.key for item in wanted_inputs(shop.project)}
    assert made[IMAGE] == Pin(revision=DIGEST)
    assert made["git:https://github.com/microsoft/onnxruntime@v1.23.2"] == Pin(revision=COMMIT)
    assert all(pin.sha256 or pin.revision for pin in made.values())


def test_a_second_lock_changes_no_byte_and_fetches_nothing(
    shop: Wiring, monkeypatch: pytest.MonkeyPatch
) -> None:
    verbs.lock_inputs(shop, refresh=False)
    before = shop.lock_file.read_bytes()
    again = take(monkeypatch, shop, Intake())
    verbs.lock_inputs(shop, refresh=False)
    assert (shop.lock_file.read_bytes(), again.taken) == (before, [])


def test_only_a_refresh_takes_everything_in_anew(shop: Wiring, monkeypatch: pytest.MonkeyPatch) -> None:
    verbs.lock_inputs(shop, refresh=False)
    again = take(monkeypatch, shop, Intake())
    verbs.lock_inputs(shop, refresh=True)
    assert len(again.taken) == len(pins(shop).pins) - 3  # a git tag and two images have no bytes here


def test_a_lock_that_fails_midway_leaves_the_old_file(shop: Wiring, monkeypatch: pytest.MonkeyPatch) -> None:
    old = render_lock(Lock(pins={IMAGE: Pin(revision=DIGEST)}))
    shop.lock_file.write_text(old, encoding="utf-8")
    take(monkeypatch, shop, Intake(reachable=3))
    with pytest.raises(TransferError, match="no route to host"):
        verbs.lock_inputs(shop, refresh=False)
    assert shop.lock_file.read_text(encoding="utf-8") == old
    assert sorted(path.name for path in shop.root.iterdir()) == ["inputs.lock", "variants.yaml"]


def test_a_broken_lock_is_told_and_not_overwritten(shop: Wiring) -> None:
    shop.lock_file.write_text('{"format": 1,', encoding="utf-8")
    with pytest.raises(ConfigError, match=r"^inputs\.lock:"):
        verbs.lock_inputs(shop, refresh=False)
    assert shop.lock_file.read_text(encoding="utf-8") == '{"format": 1,'


def test_what_is_out_of_reach_stays_open_and_is_told(shop: Wiring, monkeypatch: pytest.MonkeyPatch) -> None:
    unreachable = CommandError("git exited with 128", tail=["Could not resolve host"])
    monkeypatch.setitem(shop.__dict__, "engine", FakeEngine())
    monkeypatch.setitem(shop.__dict__, "runner", FakeRunner(answers={"git": unreachable}))
    verbs.lock_inputs(shop, refresh=False)
    assert [key for key, pin in pins(shop).pins.items() if pin == Pin()] == [
        "git:https://github.com/microsoft/onnxruntime@v1.23.2",
        IMAGE,
        "image:ubuntu:22.04",
    ]
    assert isinstance(shop.reporter, FakeReporter)
    assert len([line for line in shop.reporter.lines if line.startswith("! ")]) == 3
