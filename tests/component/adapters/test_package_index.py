"""Tests of reading a package index whose pages a loopback server serves in PyPI's form."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from builder.adapters.package_index import PackageIndex
from builder.errors import TransferError
from builder.ports import Completed
from builder.project.inputs import Input, Pin
from tests.doubles.loopback import listening
from tests.support.fakes.ports import FakeRunner

JSON = "application/vnd.pypi.simple.v1+json"

LINUX = "manylinux_2_27_x86_64.manylinux_2_28_x86_64"

NAMES = (
    f"gpu_thing-1.0-cp312-cp312-{LINUX}.whl",
    f"gpu_thing-1.0-cp313-cp313t-{LINUX}.whl",
    f"gpu_thing-1.0.1-cp312-cp312-{LINUX}.whl",
    "gpu_thing-1.0-cp312-cp312-win_amd64.whl",
    "gpu_thing-1.0-cp312-cp312-manylinux_2_34_aarch64.whl",
    "gpu_thing-1.0-cp312-cp312-musllinux_1_2_x86_64.whl",
    "gpu_thing-1.0.tar.gz",
    "gpu_thing-broken.whl",
)


def listed(name: str, **changes: object) -> dict[str, object]:
    return {"filename": name, "url": name, "size": len(name), "hashes": {"sha256": name[-1] * 64}, **changes}


class Page(BaseHTTPRequestHandler):
    """The page of one project, as JSON for clients that accept it and as HTML for others."""

    files: ClassVar[list[object]] = []
    other: ClassVar[bytes] = b"<!DOCTYPE html>"
    asked: ClassVar[list[tuple[str, str]]] = []

    def do_GET(self) -> None:
        self.asked.append((self.path, self.headers["Accept"]))
        body = json.dumps({"meta": {"api-version": "1.1"}, "name": "gpu-thing", "files": self.files}).encode()
        if self.headers["Accept"] != JSON or self.path != "/simple/gpu-thing/":
            body = self.other
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def server() -> Iterator[str]:
    Page.files, Page.asked = [listed(name) for name in NAMES], []
    with listening(ThreadingHTTPServer(("127.0.0.1", 0), Page)) as url:
        yield url


def index(url: str | None, configured: Completed | None = None) -> PackageIndex:
    runner = FakeRunner(answers={sys.executable: configured or Completed(code=1, stdout="", stderr="")})
    env = {} if url is None else {"PIP_INDEX_URL": url}
    return PackageIndex(runner, env, sys.executable, lambda _: None)


def test_the_wheels_of_a_version_for_linux_are_found_by_their_python(server: str) -> None:
    assert index(f"{server}/simple").python_wheels("gpu-thing==1.0") == {
        Input.for_python("gpu-thing==1.0", python): Pin(filename=name, size=len(name), sha256="l" * 64)
        for python, name in zip(("cp312-cp312", "cp313-cp313t"), NAMES, strict=False)
    }
    assert Page.asked == [("/simple/gpu-thing/", JSON)]


def test_the_index_of_pips_configuration_is_asked(server: str) -> None:
    configured = Completed(code=0, stdout=f"{server}/simple/\n", stderr="")
    assert len(index(None, configured).python_wheels("gpu-thing==1.0")) == 2


def test_a_yanked_wheel_is_not_taken(server: str) -> None:
    Page.files[0] = listed(NAMES[0], yanked="broken")
    assert [item.spec for item in index(f"{server}/simple").python_wheels("gpu-thing==1.0")] == [
        "gpu-thing==1.0@cp313-cp313t"
    ]


@pytest.mark.parametrize(
    "file", [None, {}, listed(NAMES[0], hashes={"md5": "0"}), listed(NAMES[0], size=None), listed(NAMES[2])]
)
def test_an_index_that_does_not_say_which_bytes_is_told(server: str, file: object) -> None:
    """PEP 700 adds sizes; an index may serve PEP 691 without them."""
    Page.files = [file]
    with pytest.raises(TransferError, match=r"lists no wheel of gpu-thing==1\.0 .* with its size and sha256"):
        index(f"{server}/simple").python_wheels("gpu-thing==1.0")


@pytest.mark.parametrize("page", ["simple", "other"])
def test_the_login_of_an_index_is_in_no_message(server: str, page: str) -> None:
    Page.files = []
    with pytest.raises(TransferError, match=f"^http://…@.*/{page}/gpu-thing/ ") as caught:
        index(f"{server}/{page}".replace("://", "://ada:secret@")).python_wheels("gpu-thing==1.0")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("body", [Page.other, b"[" * 100_000], ids=["HTML", "nested"])
def test_an_index_of_something_else_is_told(
    server: str, monkeypatch: pytest.MonkeyPatch, body: bytes
) -> None:
    monkeypatch.setattr(Page, "other", body)
    with pytest.raises(TransferError, match=r"is no JSON of PEP 691"):
        index(f"{server}/other").python_wheels("gpu-thing==1.0")
