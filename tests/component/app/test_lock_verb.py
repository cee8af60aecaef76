"""Tests of ``lock``: each input gets a pin, existing pins stay, and the file is replaced whole or
not at all."""

from __future__ import annotations

import io
import json
import re
import shutil
import tarfile
from pathlib import Path

import pytest

from builder.app import locking
from builder.builds.wiring import Wiring
from builder.config.project import parse_lock, render_lock
from builder.errors import CheckFailedError, CommandError, ConfigError, TransferError, ValidationError
from builder.ports import Completed
from builder.project.inputs import Input, Lock, Pin
from builder.project.required_inputs import all_inputs, python_wheel_requirements
from builder.project.variants import Project
from builder.rules.nvidia_libraries import DATA, MISSING
from tests.support.factories.binaries import elf, sass
from tests.support.fakes.ports import FakeEngine, FakeReporter, FakeRunner, NoEngine, reported

COMMIT = "c" * 40

DIGEST = f"sha256:{'d' * 64}"

IMAGE = "image:nvidia/cuda:12.9.1-devel-ubuntu22.04"

GIT = "git:https://github.com/microsoft/onnxruntime@v1.23.2"

CUDNN = "wheel:nvidia-cudnn-cu12==9.10.2.21"


NEEDED = (
    *("abseil_cpp", "cudnn_frontend", "cutlass", "date", "eigen", "flatbuffers", "json", "microsoft_gsl"),
    *("mp11", "onnx", "protobuf", "pytorch_cpuinfo", "re2", "safeint", "utf8_range"),
)
"""Dependencies that ONNX Runtime 1.21's cmake/external declares for Linux without tests, listed by hand."""

DEPS = "".join(
    f"{name};https://github.com/some/{name}/archive/v1.zip;0123\n" for name in (*NEEDED, "googletest", "dawn")
).encode()


FILES = tuple(f"https://github.com/some/{name}/archive/v1.zip" for name in sorted(NEEDED))


class Intake:
    """A store that gives a size for its first ``reachable`` inputs and fails for all later ones."""

    folder: Path

    def __init__(self, reachable: int = 1000, sha256: str = "0" * 64) -> None:
        self.reachable, self.sha256 = reachable, sha256
        self.taken: list[str] = []

    def tree(self, item: Input, revision: str) -> Path:
        """Return a tar of ONNX Runtime's tree with the one file that ``lock`` reads."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / "tree.tar"
        with tarfile.open(path, "w") as tar:
            info = tarfile.TarInfo("cmake/deps.txt")
            info.size = len(DEPS)
            tar.addfile(info, io.BytesIO(DEPS))
        return path

    def pin(self, item: Input) -> Pin:
        if len(self.taken) == self.reachable:
            raise TransferError(f"{item.key} cannot be fetched: no route to host. Check the network.")
        self.taken.append(item.key)
        return Pin(filename="file", size=1, sha256=self.sha256)

    def unpack(self, item: Input) -> Path:
        """Return a folder with one library, which serves 7.5 alone."""
        folder = self.folder / item.spec
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "libx.so.12").write_bytes(elf({".nv_fatbin": sass(75)}))
        return folder


PYTHONS = ("cp312-cp312", "cp313-cp313t")


class Listing:
    """A package index that lists wheels of every project for two Pythons."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def python_wheels(self, requirement: str) -> dict[Input, Pin]:
        self.asked.append(requirement)
        pin = Pin(filename="x.whl", size=1, sha256="4" * 64)
        return {Input.for_python(requirement, python): pin for python in PYTHONS}


def with_pythons(project: Project) -> list[str]:
    """Return the sorted keys of this project's lock if ``Listing`` is the index."""
    pythons = (f"wheel:{one}@{python}" for one in python_wheel_requirements(project) for python in PYTHONS)
    return sorted([*(item.key for item in all_inputs(project, Lock(pins={GIT: Pin(files=FILES)}))), *pythons])


@pytest.fixture
def shop(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> Wiring:
    """Return the wiring of a project without a lock, with stand-ins that answer every request."""
    shutil.copy(root / "variants.yaml", tmp_path)
    made = Wiring(tmp_path, reporter=FakeReporter())
    images = ("nvidia/cuda:12.9.1-devel-ubuntu22.04", "ubuntu:22.04")
    engine = FakeEngine(digests=dict.fromkeys(images, DIGEST))
    git = Completed(code=0, stdout=f"{COMMIT}\trefs/tags/v1.23.2\n", stderr="")
    runner = FakeRunner(answers={"git": git})
    for name, value in (("engine", engine), ("runner", runner), ("package_index", Listing())):
        monkeypatch.setitem(made.__dict__, name, value)
    take(monkeypatch, made, Intake())
    return made


def take(monkeypatch: pytest.MonkeyPatch, shop: Wiring, intake: Intake) -> Intake:
    monkeypatch.setattr(shop, "store", lambda _: intake)
    intake.folder = shop.root.parent / "unpacked"
    return intake


def pins(shop: Wiring) -> Lock:
    return parse_lock(shop.lock_file.read_text(encoding="utf-8"), "inputs.lock")


def test_a_first_lock_pins_every_input(shop: Wiring) -> None:
    locking.lock_inputs(shop, refresh=False)
    made = pins(shop).pins
    assert list(made) == with_pythons(shop.project)
    assert made[IMAGE] == Pin(revision=DIGEST)
    assert made[GIT] == Pin(revision=COMMIT, files=FILES)
    assert {f"url:{url}" for url in FILES} <= made.keys()
    assert all(pin.sha256 or pin.revision for pin in made.values())


def test_a_link_to_the_lock_stays_one(shop: Wiring) -> None:
    locking.lock_inputs(shop, refresh=False)
    elsewhere = shop.lock_file.rename(shop.lock_file.with_name("elsewhere.lock"))
    shop.lock_file.symlink_to(elsewhere.name)
    elsewhere.write_text(render_lock(Lock(pins={})))
    locking.lock_inputs(shop, refresh=False)
    assert shop.lock_file.is_symlink()
    assert GIT in elsewhere.read_text()


def test_a_second_lock_changes_no_byte_and_fetches_nothing(
    shop: Wiring, monkeypatch: pytest.MonkeyPatch
) -> None:
    locking.lock_inputs(shop, refresh=False)
    before = shop.lock_file.read_bytes()
    again = take(monkeypatch, shop, Intake())
    locking.lock_inputs(shop, refresh=False)
    assert (shop.lock_file.read_bytes(), again.taken) == (before, [])


def test_only_a_refresh_takes_everything_in_anew(shop: Wiring, monkeypatch: pytest.MonkeyPatch) -> None:
    locking.lock_inputs(shop, refresh=False)
    (shop.root / DATA).parent.mkdir(parents=True)
    again = take(monkeypatch, shop, Intake(sha256="2" * 64))
    locking.lock_inputs(shop, refresh=True)
    wanted = all_inputs(shop.project, pins(shop))
    assert len(again.taken) == len(wanted) - 3  # a git tag and two images have no bytes here
    assert pins(shop).pins[CUDNN].sha256 == "2" * 64
    read = json.loads((shop.root / DATA).read_text())
    assert sorted(read) == sorted(MISSING)
    assert {"7.5"}.isdisjoint(read["nvidia-cudnn-cu12==9.10.2.21"])
    assert {"5.0", "8.0", "12.0"} <= set(read["nvidia-cudnn-cu12==9.10.2.21"])


def test_a_pin_of_nvidias_that_moves_is_read(shop: Wiring) -> None:
    """Wheels that were read before are not read again."""
    project = shop.root / "variants.yaml"
    project.write_text(project.read_text().replace("curand-cu12==10.3.10.19", "curand-cu12==10.3.9.90"))
    shop.__dict__.pop("project", None)
    (shop.root / DATA).parent.mkdir(parents=True)
    locking.lock_inputs(shop, refresh=False)
    read = json.loads((shop.root / DATA).read_text())
    assert "nvidia-curand-cu12==10.3.10.19" not in read
    assert "8.0" in read["nvidia-curand-cu12==10.3.9.90"]
    assert read["nvidia-cudnn-cu12==9.10.2.21"] == ["5.3", "6.2", "7.2", "8.7", "11.0"]


@pytest.mark.parametrize(
    ("contents", "told"),
    [
        ({"libx.so.12": elf({".nv_fatbin": sass(75)})[:100]}, r"(?s)error E001 libx\.so\.12: "),
        ({"README": b""}, r"it holds no library\. Name the wheel that has them"),
    ],
)
def test_a_wheel_that_cannot_be_read_does_not_serve_every_gpu(
    shop: Wiring, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, contents: dict[str, bytes], told: str
) -> None:
    """Defect: libraries that could not be read were skipped, and the wheel recorded as one for all GPUs."""

    class Unread(Intake):
        def unpack(self, item: Input) -> Path:
            folder = self.folder / item.spec
            folder.mkdir(parents=True)
            for name, data in contents.items():
                (folder / name).write_bytes(data)
            return folder

    take(monkeypatch, shop, Unread()).folder = tmp_path / "unpacked"
    (shop.root / DATA).parent.mkdir(parents=True)
    with pytest.raises(CheckFailedError, match=r"==\S+ serves is not known, so nothing is re") as caught:
        locking.lock_inputs(shop, refresh=True)
    assert re.search(told, str(caught.value))
    assert not (shop.root / DATA).exists()


def test_what_nobody_needs_any_more_is_dropped(shop: Wiring) -> None:
    old = Pin(filename="g", size=1, sha256="3" * 64)
    shop.lock_file.write_text(render_lock(Lock(pins={"wheel:gone==1": old})), encoding="utf-8")
    locking.lock_inputs(shop, refresh=False)
    assert "wheel:gone==1" not in pins(shop).pins
    assert "dropped wheel:gone==1: no variant needs it any more" in reported(shop)


def test_a_lock_that_fails_midway_leaves_the_old_file(shop: Wiring, monkeypatch: pytest.MonkeyPatch) -> None:
    old = render_lock(Lock(pins={IMAGE: Pin(revision=DIGEST)}))
    shop.lock_file.write_text(old, encoding="utf-8")
    take(monkeypatch, shop, Intake(reachable=3))
    with pytest.raises(TransferError, match="no route to host"):
        locking.lock_inputs(shop, refresh=False)
    assert shop.lock_file.read_text(encoding="utf-8") == old
    assert sorted(path.name for path in shop.root.iterdir()) == ["inputs.lock", "variants.yaml"]


@pytest.mark.parametrize(
    ("broken", "told"),
    [(b'{"format": 1,', r"^inputs\.lock:1:14: not JSON"), (b"\xff\xfe{", r"inputs\.lock cannot be read: ")],
)
def test_a_broken_lock_is_told_and_not_overwritten(shop: Wiring, broken: bytes, told: str) -> None:
    shop.lock_file.write_bytes(broken)
    with pytest.raises(ConfigError, match=told):
        locking.lock_inputs(shop, refresh=False)
    assert shop.lock_file.read_bytes() == broken


def test_what_is_out_of_reach_stays_open_is_told_and_is_tried_again(
    shop: Wiring, monkeypatch: pytest.MonkeyPatch
) -> None:
    git, engine = shop.runner, shop.engine
    unreachable = CommandError("git exited with 128", tail=["Could not resolve host"])
    monkeypatch.setitem(shop.__dict__, "engine", FakeEngine())
    monkeypatch.setitem(shop.__dict__, "runner", FakeRunner(answers={"git": unreachable}))
    locking.lock_inputs(shop, refresh=False)
    assert [key for key, pin in pins(shop).pins.items() if pin == Pin()] == [
        GIT,
        IMAGE,
        "image:ubuntu:22.04",
    ]
    warnings = [line for line in reported(shop) if line.startswith("! ")]
    assert [line.split()[1] for line in warnings] == [GIT, IMAGE, "image:ubuntu:22.04"]
    assert all("a release needs `./run lock --missing`" in line for line in warnings)
    monkeypatch.setitem(shop.__dict__, "engine", engine)
    monkeypatch.setitem(shop.__dict__, "runner", git)
    locking.lock_inputs(shop, refresh=False)
    assert (pins(shop).pins[GIT].revision, pins(shop).pins[IMAGE].revision) == (COMMIT, DIGEST)


def test_a_refresh_out_of_reach_loses_no_pin(shop: Wiring, monkeypatch: pytest.MonkeyPatch) -> None:
    """Defect: a refresh replaced pins that only another machine can make by null."""
    locking.lock_inputs(shop, refresh=False)
    before = pins(shop).pins
    (shop.root / DATA).parent.mkdir(parents=True)
    monkeypatch.setitem(shop.__dict__, "engine", FakeEngine())
    unreachable = CommandError("git exited with 128", tail=["Could not resolve host"])
    monkeypatch.setitem(shop.__dict__, "runner", FakeRunner(answers={"git": unreachable}))
    take(monkeypatch, shop, Intake(sha256="2" * 64))
    locking.lock_inputs(shop, refresh=True)
    for key in (GIT, IMAGE):
        assert pins(shop).pins[key] == before[key]
        assert any(line.startswith(f"! {key} keeps its pin, because ") for line in reported(shop))
    assert pins(shop).pins[CUDNN].sha256 == "2" * 64


def test_missing_pins_only_what_has_none_and_is_in_reach(
    shop: Wiring, monkeypatch: pytest.MonkeyPatch
) -> None:
    locking.lock_inputs(shop, refresh=False)
    whole = dict(pins(shop).pins)
    stale = {"wheel:gone==1": Pin(filename="g", size=1, sha256="3" * 64)}
    holes = {**whole, **stale, GIT: Pin(), IMAGE: Pin()}
    del holes[CUDNN]
    shop.lock_file.write_text(render_lock(Lock(pins=holes)))
    shop.__dict__.pop("lock", None)
    monkeypatch.setitem(shop.__dict__, "engine", FakeEngine())
    intake = take(monkeypatch, shop, Intake(reachable=0))
    locking.lock_missing(shop)
    assert pins(shop).pins == {**holes, GIT: Pin(revision=COMMIT, files=FILES)}, (
        "the rest is another machine's"
    )
    assert reported(shop)[-3:] == [
        "1 pinned, 2 for another machine",
        f"unpinned {IMAGE}",
        f"unpinned {CUDNN}",
    ]
    intake.reachable = 1
    shop.__dict__.pop("lock", None)
    locking.lock_missing(shop)
    assert intake.taken == [CUDNN]
    assert reported(shop)[-1] == f"unpinned {IMAGE}"


def test_missing_writes_nothing_where_nothing_is_found(shop: Wiring, monkeypatch: pytest.MonkeyPatch) -> None:
    text = render_lock(Lock(pins={IMAGE: Pin()})).replace("  ", " ")
    shop.lock_file.write_text(text)
    monkeypatch.setitem(shop.__dict__, "engine", FakeEngine())
    monkeypatch.setitem(shop.__dict__, "runner", FakeRunner(answers={"git": CommandError("git exited")}))
    take(monkeypatch, shop, Intake(reachable=0))
    locking.lock_missing(shop)
    assert shop.lock_file.read_text() == text


def test_a_base_is_checked_by_its_own_inputs(root: Path) -> None:
    """inputs.lock has no pins of base nvidia: only a machine that reaches its registries can make them."""
    shop = Wiring(root, reporter=FakeReporter())
    locking.check_lock(shop, "assembled")
    with pytest.raises(CheckFailedError, match=re.escape(f"R009 {IMAGE}: no pin in inputs.lock")) as caught:
        locking.check_lock(shop, "nvidia")
    assert "./run lock --missing" in str(caught.value)
    for none in ("other", "auto"):  # defect: auto was reported as pinned without a look at any base
        with pytest.raises(ValidationError, match=f"--check '{none}' is none of nvidia, assembled, redist"):
            locking.check_lock(shop, none)


def test_without_an_engine_images_stay_open(shop: Wiring, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(shop.__dict__, "engine", NoEngine())
    locking.lock_inputs(shop, refresh=False)
    assert (pins(shop).pins[GIT].revision, pins(shop).pins[IMAGE]) == (COMMIT, Pin())
    assert any(IMAGE in line and "No Docker engine answers" in line for line in reported(shop))


def test_the_repositorys_lock_holds_exactly_what_the_project_needs(root: Path) -> None:
    shop = Wiring(root)
    found = [key for key in pins(shop).pins if "@cp" not in key]
    assert sorted(found) == [item.key for item in all_inputs(shop.project, pins(shop))]


def test_the_repositorys_lock_has_every_python_of_the_wheels_that_are_taken(root: Path) -> None:
    """PyPI's "Download files" of 1.21.0 and 1.23.2 list wheels for Python 3.10 to 3.13 and 3.13t."""
    shop = Wiring(root)
    official = ("cp310-cp310", "cp311-cp311", "cp312-cp312", "cp313-cp313", "cp313-cp313t")
    kinds = ("onnxruntime", "onnxruntime-gpu")
    wanted = {
        f"wheel:{one}=={of}@{python}" for one in kinds for of in ("1.21.0", "1.23.2") for python in official
    }
    assert {key for key in pins(shop).pins if "@cp" in key} == wanted


def test_the_index_is_asked_once_for_what_no_pin_is_of(shop: Wiring) -> None:
    locking.lock_inputs(shop, refresh=False)
    shop.__dict__.pop("lock", None)
    locking.lock_inputs(shop, refresh=False)
    assert isinstance(shop.package_index, Listing)
    assert shop.package_index.asked == list(python_wheel_requirements(shop.project))


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
    assert pins(Wiring(root)).pins[key].sha256 == sha256
