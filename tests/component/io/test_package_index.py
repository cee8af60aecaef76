"""Tests of reading a package index whose pages a loopback server serves in PyPI's form."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from builder.config.inputs import Input, Pin
from builder.errors import CommandError, TransferError, ValidationError
from builder.io.package_index import PackageIndex
from builder.io.process import Completed
from tests.doubles.loopback import LoopbackServer, QuietHandler, listening
from tests.support.fakes.ports import FakeRunner
from tests.support.messages import Refused
from tests.support.tables import data_text, table

JSON = "application/vnd.pypi.simple.v1+json"

LINUX = "manylinux_2_27_x86_64.manylinux_2_28_x86_64"

NAMES = data_text("formats/index-names.txt").split()


def listed(name: str, **changes: object) -> dict[str, object]:
    return {"filename": name, "url": name, "size": len(name), "hashes": {"sha256": name[-1] * 64}, **changes}


class Page(QuietHandler):
    """The page of one project, as JSON for clients that accept it and as HTML for others."""

    files: ClassVar[list[object]] = []
    other: ClassVar[bytes] = b"<!DOCTYPE html>"
    asked: ClassVar[list[tuple[str, str]]] = []

    def do_GET(self) -> None:  # noqa: N802 as http.server calls it
        self.asked.append((self.path, self.headers["Accept"]))
        body = json.dumps({"meta": {"api-version": "1.1"}, "name": "gpu-thing", "files": self.files}).encode()
        if self.headers["Accept"] != JSON or not self.path.startswith("/simple/"):
            body = self.other
        self.respond(404 if "/none/" in self.path else 200, body)


@pytest.fixture
def server() -> Iterator[str]:
    Page.files, Page.asked, Page.other = [listed(name) for name in NAMES], [], b"<!DOCTYPE html>"
    with listening(LoopbackServer(Page)) as url:
        yield url


def index(url: str | None, configured: Completed | None = None) -> PackageIndex:
    runner = FakeRunner(answers={sys.executable: configured or Completed(code=1, stdout="", stderr="")})
    env = {} if url is None else {"PIP_INDEX_URL": url}
    return PackageIndex(runner, env, sys.executable, lambda _: None)


def test_the_wheels_of_a_version_for_linux_are_found_by_their_python(server: str) -> None:
    """Without a variable, the index of pip's configuration is asked; a yanked wheel is not taken."""
    assert index(f"{server}/simple").python_wheels("gpu-thing==1.0") == {
        Input.wheel("gpu-thing==1.0", python): Pin(filename=name, size=len(name), sha256="l" * 64)
        for python, name in zip(("cp312-cp312", "cp313-cp313t"), NAMES, strict=False)
    }
    assert Page.asked == [("/simple/gpu-thing/", JSON)]
    Page.files[0] = listed(NAMES[0], yanked="broken")
    configured = Completed(code=0, stdout=f"{server}/simple/\n", stderr="")
    (left,) = index(None, configured).python_wheels("gpu-thing==1.0")
    assert left.spec == "gpu-thing==1.0@cp313-cp313t"


@pytest.mark.parametrize(
    ("path", "body", "files"),
    [
        # PEP 700 adds sizes; an index may serve PEP 691 without them
        *(
            ("simple", b"", [changes])
            for changes in ({"hashes": {"md5": "0"}}, {"size": None}, {"yanked": "broken"})
        ),
        ("other", Page.other, []),
        ("other", b"[" * 100_000, []),
        ("simple", b"", [None]),
        ("simple", b"", [{}]),
    ],
    ids=["no sha256", "no size", "yanked", "HTML", "nested", "no object", "no name"],
)
def test_an_index_of_something_else_or_that_does_not_say_which_bytes_is_told(
    server: str, refused: Refused, path: str, body: bytes, files: list[Any]
) -> None:
    name = f"gpu_thing-1.0-cp311-cp311-{LINUX}.whl"
    Page.other, Page.files = body, [listed(name, **one) if one else one for one in files]
    with refused(TransferError):
        index(f"{server}/{path}".replace("://", "://ada:secret@")).python_wheels("gpu-thing==1.0")


GPU = data_text("formats/onnxruntime-gpu-names.txt").split()
"""Wheels like those of the real project, of which 1.22.1 has none."""


@pytest.mark.parametrize(("requirement", "platform"), table("formats/not-in-the-index.txt"))
def test_the_nearest_version_is_told(server: str, refused: Refused, requirement: str, platform: str) -> None:
    """``--host source`` is advised for ONNX Runtime on linux-x64 alone; no login is shown."""
    Page.files = [listed(name) for name in GPU]
    address = f"{server}/simple".replace("://", "://ada:secret@")
    with refused(ValidationError):
        index(address).require_version(Input.wheel(requirement, platform))


@pytest.mark.parametrize(
    ("wheel", "name", "yanked"),
    [
        (Input.wheel("onnxruntime-gpu==1.22.1", "win-x64"), GPU[3], False),
        (Input.wheel("thing==1.0"), "thing-1.0-py3-none-any.whl", "broken"),
        (Input.wheel("thing==1.0"), f"thing-1-cp38-abi3-{LINUX}.whl", False),
        (Input.wheel("thing==1.0", "macos-arm64"), "thing-1.0-cp311-cp311-macosx_11_0_universal2.whl", False),
        (Input.wheel("thing==1.0", "cp313-cp313t"), "other-1.0-py3-none-any.whl", False),
    ],
)
def test_a_version_that_the_index_has_is_there(server: str, wheel: Input, name: str, yanked: object) -> None:
    """pip takes these wheels, also yanked ones; a wheel for one Python is pinned from the index itself."""
    Page.files = [listed(name, yanked=yanked)]
    index(f"{server}/simple").require_version(wheel)


@pytest.mark.parametrize("more", [{}, {"PIP_NO_INDEX": "1"}])
def test_missing_and_out_of_reach_are_two_outcomes(server: str, tmp_path: Path, more: dict[str, str]) -> None:
    Page.files = [listed(name) for name in GPU]
    absent, there = (Input.wheel(f"onnxruntime-gpu=={version}") for version in ("1.22.1", "1.22.0"))
    pip = FakeRunner(
        answers={sys.executable: CommandError("pip failed", tail=["ERROR: No matching distribution found"])}
    )
    for url, wheel, error in (
        (f"{server}/simple", absent, TransferError if more else ValidationError),
        (f"{server}/simple", there, TransferError),
        (f"{server}/other", absent, TransferError),
        ("http://127.0.0.1:1", absent, TransferError),
    ):
        fetching = PackageIndex(pip, {"PIP_INDEX_URL": url, **more}, sys.executable, pytest.fail)
        with pytest.raises(error):
            fetching.download(wheel, None, tmp_path)
    with pytest.raises(ValidationError, match=r"onnxruntime-gpu==1\.22\.2 is not on"):
        index(f"{server}/simple").python_wheels("onnxruntime-gpu==1.22.2")
