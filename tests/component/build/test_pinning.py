"""Tests of the pins that a build makes by itself."""

from dataclasses import replace
from pathlib import Path

import pytest

from builder.build.pinning import pin_base, unpack_pinned
from builder.config.inputs import Input, InputKind, Lock, Pin, ort_wheel
from builder.config.load import parse_lock, render_lock
from builder.config.variants import open_inputs
from builder.errors import IntegrityError, TransferError
from builder.formats.package_names import Host
from builder.io.store import FileStore
from builder.io.wiring import Wiring
from tests.support.factories.intake import (
    COMMIT,
    DIGEST,
    FILES,
    GIT,
    IMAGE,
    READ,
    Intake,
    take,
    unlocked,
    use,
)
from tests.support.fakes.ports import FakeEngine, FakeReporter, FakeRunner, reported


@pytest.fixture
def shop(tmp_path: Path, root: Path) -> Wiring:
    """Return the project with a lock without pins."""
    made = unlocked(tmp_path, root)
    made.lock_file.write_text(render_lock(Lock({})))
    return made


def written(shop: Wiring) -> Lock:
    return parse_lock(shop.lock_file.read_text(encoding="utf-8"), "inputs.lock")


@pytest.mark.parametrize("base", ["nvidia", "redist"])
def test_what_is_open_of_a_base_is_pinned_written_and_told(shop: Wiring, base: str) -> None:
    before = {"wheel:other==1": Pin(filename="o", size=1, sha256="1" * 64)}
    shop.lock_file.write_text(render_lock(Lock(before)))
    assert GIT in open_inputs(shop.project, base, shop.lock)
    pin_base(shop, base, shop.reporter, Host.WHEEL)
    for lock in (shop.lock, written(shop)):
        assert open_inputs(shop.project, base, lock) == []
        assert lock.pins[GIT] == Pin(revision=COMMIT)
        assert [one.url for one in lock.sources[GIT].dependencies] == [*FILES]
        assert lock.pins.items() > before.items()
    assert f"pinned {GIT} {COMMIT}" in reported(shop)
    made = len(written(shop).pins) - 1
    assert reported(shop)[-1] == f"inputs.lock has these {made} pins now: commit it"


@pytest.mark.parametrize(("host", "is_pinned"), [(Host.WHEEL, True), (Host.SOURCE, False)])
def test_the_wheel_of_the_host_library_is_a_part(shop: Wiring, host: Host, is_pinned: bool) -> None:
    pin_base(shop, "redist", shop.reporter, host)
    assert (ort_wheel("1.30.0").key in written(shop).pins) is is_pinned


def test_a_base_that_is_pinned_asks_nobody(shop: Wiring) -> None:
    pin_base(shop, "nvidia", shop.reporter, Host.WHEEL)
    intake, text = take(shop, Intake(reachable=0)), shop.lock_file.read_bytes()
    said = len(reported(shop))
    pin_base(shop, "nvidia", shop.reporter, Host.WHEEL)
    assert (intake.taken, shop.lock_file.read_bytes(), len(reported(shop))) == ([], text, said)


def test_offline_asks_no_host_for_a_pin(shop: Wiring) -> None:
    """Defect: with ``--offline`` a git host and an image registry were asked for the open pins of a base."""
    intake, runner, engine = take(shop, Intake()), FakeRunner(), FakeEngine()
    use(shop, runner=runner, engine=engine, offline=True)
    with pytest.raises(TransferError, match=r" has no pin, .*--offline asks no host.*without it"):
        pin_base(shop, "nvidia", shop.reporter, Host.SOURCE)
    assert (intake.taken, runner.calls) == ([], [])


def test_an_image_that_the_engine_holds_is_pinned_where_its_registry_answers(shop: Wiring) -> None:
    """Defect: after `docker pull ubuntu:22.04` the base had no revision, and its packages no release."""
    digests = {IMAGE.removeprefix("image:"): "sha256:" + "a" * 64, "ubuntu:22.04": "sha256:" + "b" * 64}
    use(shop, engine=FakeEngine(images=set(digests)))
    pin_base(shop, "nvidia", shop.reporter, Host.WHEEL)
    assert open_inputs(shop.project, "nvidia", written(shop)) == [IMAGE, "image:ubuntu:22.04"]
    use(shop, engine=FakeEngine(images=set(digests), digests=digests))
    pin_base(shop, "nvidia", shop.reporter, Host.WHEEL)
    assert open_inputs(shop.project, "nvidia", written(shop)) == []


def test_pins_that_another_process_made_meanwhile_are_kept(shop: Wiring) -> None:
    assert shop.lock == Lock({})  # read before
    other = {IMAGE: Pin(revision=f"sha256:{'e' * 64}")}
    shop.lock_file.write_text(render_lock(Lock(other)))
    pin_base(shop, "nvidia", shop.reporter, Host.WHEEL)
    assert written(shop).pins[IMAGE] == other[IMAGE] != Pin(revision=DIGEST)


def test_a_wheel_without_a_pin_is_given_one_where_it_is_needed(shop: Wiring) -> None:
    wheel: Input = ort_wheel("1.22.0")
    tree = unpack_pinned(shop, shop.reporter, None, wheel)
    assert tree.is_dir()
    assert written(shop).pins[wheel.key].sha256


def test_an_archive_is_held_to_the_list_of_the_base_that_downloads_it(shop: Wiring) -> None:
    """Another base's source lists the same address with other bytes, and has something in its place."""
    bases = {name: shop.project.bases[name] for name in ("assembled", "redist")}
    use(shop, project=replace(shop.project, bases=bases))
    assembled = bases["assembled"]
    other = tuple(replace(one, sha1="4567" * 10) for one in READ.dependencies)
    assert {one.name for one in other} <= assembled.dependencies.keys()
    before = Lock({}, {assembled.source.item.key: replace(READ, dependencies=other)})
    shop.lock_file.write_text(render_lock(before))
    intake = take(shop, Intake())
    pin_base(shop, "redist", shop.reporter, Host.WHEEL)
    assert {intake.sha1[f"url:{url}"] for url in FILES} == {"0123" * 10}


def test_an_archive_that_is_not_of_its_lists_sha1_is_given_no_pin(tmp_path: Path) -> None:
    (tmp_path / "v1.zip").write_bytes(b"an archive")
    sources = {InputKind.URL: lambda *_: tmp_path / "v1.zip"}
    store = FileStore(cache=tmp_path, lock=Lock({}), sources=sources, reporter=FakeReporter())
    with pytest.raises(IntegrityError, match=f"SHA-1 {'0' * 40}, its host sent"):
        store.pin(Input(InputKind.URL, "https://x/v1.zip"), "0" * 40)
    assert not (tmp_path / "v1.zip").exists()
