"""A release folder with small packages, not written by the code that writes real ones; and its server."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from backports import zstd

FILES: dict[str, bytes] = {
    "LICENSE": b"MIT\n",
    "lib/libonnxruntime.so.1": b"host" * 1000,
    "lib/libonnxruntime_providers_cuda.so": bytes(range(256)) * 1200,
    "licenses/onnxruntime.txt": b"text\n",
}
NATIVE = {"legacy": ["5.0", "5.2", "6.0", "6.1", "7.0"], "modern": ["7.5", "8.0", "8.6"]}
CAPABILITIES = [
    "5.0",
    "5.2",
    "5.3",
    "6.0",
    "6.1",
    "6.2",
    "7.0",
    "7.2",
    "7.5",
    "8.0",
    "8.6",
    "8.7",
    "8.9",
    "9.0",
    "10.0",
    "10.3",
    "11.0",
    "12.0",
    "12.1",
]
MODELS = [
    {"model": "big", "device": "gpu", "vram_mib": 6000, "cores": 0, "ram_gib": 0},
    {"model": "tiny", "device": "cpu", "vram_mib": 0, "cores": 0, "ram_gib": 0},
]


def name_of(variant: str, version: str = "1.23.2") -> str:
    return f"ortpacks-{variant}-{version}-cuda12.9-linux-x64"


def manifest_of(variant: str, files: Mapping[str, bytes], version: str = "1.23.2") -> dict[str, object]:
    return {
        "format": 1,
        "name": name_of(variant, version),
        "variant": variant,
        "sm": ["75", "80", "86"],
        "generations": ["Ampere"],
        "platform": "linux-x64",
        "onnxruntime": {
            "version": version, "origin": "wheel", "origin_reason": "test", "profile": None, "host": "wheel",
        },
        "base": {"name": "assembled", "reason": "test", "revision": None},
        "cuda": "12.9",
        "cudnn": "9.10.2.21",
        "toolkit": "official",
        "driver": {"floor": "525.60.13", "ceiling": "580" if variant == "legacy" else None},
        "capabilities": capabilities(variant),
        "coverage": [
            {
                "path": "lib/libonnxruntime_providers_cuda.so",
                "containers": 3,
                "sass": ["75", "80", "86"],
                "ptx": [],
            }
        ],
        "models": MODELS,
        "files": [
            {
                "path": path, "size": len(content), "sha256": hashlib.sha256(content).hexdigest(),
                "source": "built", "licence": "LICENSE", "vendor": "ortpacks", "modified": False,
                "soname": None, "needed": [],
            }
            for path, content in sorted(files.items())
        ],
    }  # fmt: skip


def capabilities(variant: str) -> dict[str, str]:
    return {item: "native" if item in NATIVE[variant] else "none" for item in CAPABILITIES}


def member(
    name: str, content: bytes = b"", kind: bytes = tarfile.REGTYPE, link: str = ""
) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    info.type = kind
    info.linkname = link
    return info, content


def archive(members: list[tuple[tarfile.TarInfo, bytes]]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for info, content in members:
            tar.addfile(info, io.BytesIO(content))
    return zstd.compress(buffer.getvalue())


def package(variant: str, files: Mapping[str, bytes], version: str = "1.23.2") -> bytes:
    top = name_of(variant, version)
    manifest = json.dumps(manifest_of(variant, files, version)).encode()
    return archive(
        [member(f"{top}/manifest.json", manifest)]
        + [member(f"{top}/{path}", content) for path, content in sorted(files.items())]
    )


def entry(variant: str, content: bytes, unpacked: int, version: str = "1.23.2") -> dict[str, object]:
    return {
        "name": name_of(variant, version),
        "file": f"{name_of(variant, version)}.tar.zst",
        "variant": variant,
        "platform": "linux-x64",
        "layout": "full",
        "size": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
        "unpacked_size": unpacked,
        "onnxruntime": {"version": version, "origin": "wheel", "profile": None},
        "capabilities": capabilities(variant),
        "driver": {"floor": "525.60.13", "ceiling": "580" if variant == "legacy" else None},
        "generations": ["Ampere"],
    }


def write_release(folder: Path, *, version: str = "1.23.2", files: Mapping[str, bytes] = FILES) -> Path:
    """legacy and modern with an index; returns the index's path."""
    folder.mkdir(parents=True, exist_ok=True)
    entries = []
    for variant in ("legacy", "modern"):
        content = package(variant, files, version)
        (folder / f"{name_of(variant, version)}.tar.zst").write_bytes(content)
        entries.append(entry(variant, content, sum(map(len, files.values())), version))
    return write_index(folder, entries)


def write_index(folder: Path, entries: list[dict[str, object]]) -> Path:
    path = folder / "index.json"
    path.write_text(json.dumps({"format": 1, "tag": "t", "packages": entries, "models": MODELS}))
    return path


class Handler(BaseHTTPRequestHandler):
    """A static server with Range and ETag, as GitHub's asset host has them, and faults in a queue."""

    protocol_version = "HTTP/1.1"

    @property
    def host(self) -> Server:
        assert isinstance(self.server, Server)
        return self.server

    def do_GET(self) -> None:
        self.host.requests.append((self.path, dict(self.headers)))
        fault = self.host.faults.pop(0) if self.host.faults and self.path.endswith(".zst") else None
        content = (self.host.folder / self.path.lstrip("/")).read_bytes() if self._exists() else None
        if fault is not None:
            fault(self, content or b"")
        elif content is None:
            self.answer(404, b"no such asset")
        else:
            self.serve(content)

    def serve(self, content: bytes) -> None:
        tag = f'"{hashlib.md5(content, usedforsecurity=False).hexdigest()}"'
        asked = self.headers.get("Range")
        if asked and self.headers.get("If-Range", tag) == tag:
            start = int(asked.removeprefix("bytes=").rstrip("-"))
            headers = {"ETag": tag, "Content-Range": f"bytes {start}-{len(content) - 1}/{len(content)}"}
            self.answer(206, content[start:], headers)
        else:
            self.answer(200, content, {"ETag": tag})

    def answer(
        self, status: int, content: bytes, headers: Mapping[str, str] | None = None, *, cut: int | None = None
    ) -> None:
        """``cut`` closes the connection after that many bytes of the body."""
        self.send_response(status)
        for key, value in {"Content-Length": str(len(content)), **(headers or {})}.items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(content[:cut])
        self.close_connection = cut is not None or self.close_connection

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 the base class's name
        """Quiet."""

    def _exists(self) -> bool:
        return (self.host.folder / self.path.lstrip("/")).is_file()


Fault = Callable[[Handler, bytes], None]


class Server(ThreadingHTTPServer):
    """What was asked, and what to answer wrongly next."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.folder = folder
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.faults: list[Fault] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def serving(folder: Path) -> Iterator[Server]:
    with Server(folder) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
