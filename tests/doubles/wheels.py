"""Doubles of NVIDIA's wheels, and a package index (PEP 503) on loopback for the real pip."""

import base64
import functools
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from tests.doubles.loopback import LoopbackServer, QuietHandler, listening
from tests.support.factories.archives import zipped


@dataclass(frozen=True)
class Wheel:
    """A wheel with ``libraries`` by path."""

    name: str
    version: str
    libraries: Mapping[str, bytes] = field(hash=False)
    platform: str = "manylinux2014_x86_64"

    @property
    def source(self) -> str:
        return f"wheel:{self.name}=={self.version}"

    @property
    def file(self) -> str:
        return f"{self._stem}-py3-none-{self.platform}.whl"

    @functools.cached_property
    def content(self) -> bytes:
        info = f"{self._stem}.dist-info"
        members = {
            **self.libraries,
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {self.name}\nVersion: {self.version}".encode(),
            f"{info}/WHEEL": f"Wheel-Version: 1.0\nTag: py3-none-{self.platform}\n".encode(),
        }
        lines = "".join(f"{record_row(path, data)}\n" for path, data in members.items())
        return zipped({**members, f"{info}/RECORD": lines.encode()})

    @property
    def _stem(self) -> str:
        return f"{self.name.replace('-', '_')}-{self.version}"


def unpacked(folder: Path, *wheels: Wheel) -> Path:
    """Write the wheels' libraries into ``folder``, like pip into ``site-packages``; return ``folder``."""
    for wheel in wheels:
        for member, content in wheel.libraries.items():
            path = folder / member
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    return folder


CUBLAS = Wheel(
    "nvidia-cublas-cu12",
    "12.9.1.4",
    {
        "nvidia/cublas/lib/libcublas.so.12": b"cublas" * 3000,
        "nvidia/cublas/lib/libcublasLt.so.12": b"cublasLt" * 5000,
    },
    platform="manylinux_2_27_x86_64",
)
CUDNN = Wheel("nvidia-cudnn-cu12", "9.10.2.21", {"nvidia/cudnn/lib/libcudnn.so.9": b"cudnn" * 2000})
WHEELS = (CUBLAS, CUDNN)


def record_row(path: str, data: bytes) -> str:
    """Return the row of a file in a wheel's ``RECORD``."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{path},sha256={digest},{len(data)}"


class _Handler(QuietHandler, BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, PackageIndex)
        self.server.requests.append(self.path)
        page = self.server.pages.get(self.path)
        kind = "text/html" if self.path.endswith("/") else "application/zip"
        self.respond(404 if page is None else 200, page or b"", {"Content-Type": kind})


class PackageIndex(LoopbackServer):
    """A package index of wheels. ``pages`` has the answers by path, which a test may change."""

    def __init__(self, wheels: Sequence[Wheel]) -> None:
        super().__init__(_Handler)
        self.requests: list[str] = []
        self.pages: dict[str, bytes] = {}
        for wheel in wheels:
            self.pages[f"/simple/{wheel.name}/"] = f'<a href="/files/{wheel.file}">{wheel.file}</a>'.encode()
            self.pages[f"/files/{wheel.file}"] = wheel.content
        self.url += "/simple"

    @property
    def fetched(self) -> list[str]:
        """The names of the wheels' files that were downloaded, in order."""
        return [path.rpartition("/")[2] for path in self.requests if path.startswith("/files/")]


@contextmanager
def indexing(wheels: Sequence[Wheel] = WHEELS) -> Iterator[PackageIndex]:
    server = PackageIndex(wheels)
    with listening(server):
        yield server
