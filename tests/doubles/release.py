"""Factory and server of a release folder with small packages, independent of the real writers."""

import gzip
import hashlib
import io
import itertools
import json
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from posixpath import normpath
from typing import Any
from urllib.parse import unquote, urlsplit

from backports import zstd

from tests.doubles.library import library
from tests.doubles.loopback import LoopbackServer, QuietHandler, listening
from tests.doubles.wheels import Wheel
from tests.support.factories.archives import member

HOST, PROVIDER = "lib/libonnxruntime.so.1", "lib/libonnxruntime_providers_cuda.so"
FILES: dict[str, bytes] = {
    "LICENSE": b"MIT\n",
    HOST: library("1.23.2"),
    PROVIDER: bytes(range(256)) * 1200,
    "licenses/onnxruntime.txt": b"text\n",
}
NATIVE = {"legacy": ["5.0", "5.2", "6.0", "6.1", "7.0"], "modern": ["7.5", "8.0", "8.6"]}
CAPABILITIES = "5.0 5.2 5.3 6.0 6.1 6.2 7.0 7.2 7.5 8.0 8.6 8.7 8.9 9.0 10.0 10.3 11.0 12.0 12.1"
MODELS = [
    {"model": "big", "device": "gpu", "vram_mib": 6000, "cores": 0, "ram_gib": 0},
    {"model": "tiny", "device": "cpu", "vram_mib": 0, "cores": 0, "ram_gib": 0},
]


CANNOT_RUN = [{"domain": "com.microsoft", "operators": ["Attention", "BiasGelu"]}]

EXCLUDED = [{"domain": "com.microsoft", "operators": ["BeamSearch", "Sampling"]}]
"""Operators that ONNX Runtime leaves out of its plug-in."""


@dataclass(frozen=True)
class Build:
    """The profile of a release's packages, and the format of its manifests and index: 3 or 4."""

    profile: str | None = None
    format: int = 4
    plugin: bool = False
    """Whether it is a plug-in for hosts from 1.24.4 on, and so without a host library."""

    @property
    def suffix(self) -> str:
        """The part of a package's name that states the profile or form."""
        return "-plugin" if self.plugin else f"-{self.profile}" if self.profile in ("lean", "minimal") else ""

    @property
    def host(self) -> str:
        """The origin of the host library."""
        return "none" if self.plugin else "wheel"

    def ort(self, version: str) -> dict[str, object]:
        """Return the entries on ONNX Runtime that manifest and index share."""
        said: dict[str, object] = {
            "version": version, "origin": "source" if self.profile else "wheel", "profile": self.profile,
        }  # fmt: skip
        lacks = CANNOT_RUN if self.profile == "lean" else EXCLUDED if self.plugin else []
        return said if self.format == 3 else {**said, "host": self.host, "cannot_run": lacks}


REPACKED, PLUGINS = Build(), Build(plugin=True)

PLUGIN = {
    "library": PROVIDER, "names": ["CUDAExecutionProvider"],
    "oldest_host": "1.24.4", "api_version": 30, "contrib_schemas": None,
}  # fmt: skip

Spoil = Callable[[dict[str, Any]], object]
"""A function that changes a manifest before it is packed."""


def name_of(variant: str, version: str = "1.23.2", layout: str = "full", build: Build = REPACKED) -> str:
    thin = "-thin" if layout == "thin" else ""
    return f"ortpacks-{variant}-{version}-cuda12.9{build.suffix}{thin}-linux-x64"


def manifest_of(
    variant: str,
    files: Mapping[str, bytes],
    version: str = "1.23.2",
    *,
    layout: str = "full",
    wheels: Sequence[Wheel] = (),
    build: Build = REPACKED,
) -> dict[str, object]:
    return {
        **shared(variant, version, layout, build),
        "format": build.format,
        "sm": ["75", "80", "86"],
        "glibcxx": "3.4.29",
        "onnxruntime": {**build.ort(version), "origin_reason": "test", "host": build.host},
        "base": {"name": "assembled", "reason": "test", "revision": None},
        "cuda": "12.9",
        "cudnn": "9.10.2.21",
        "toolkit": "official",
        "coverage": [{"path": PROVIDER, "containers": 3, "sass": ["75", "80", "86"], "ptx": []}],
        "models": MODELS,
        "wheels": [{"source": one.source, "file": one.file, **digest(one.content)} for one in wheels],
        "files": [
            *(file_of(path, content, "built", None) for path, content in sorted(files.items())),
            *(
                file_of(path_of(member), content, wheel.source, member, packed=layout == "full")
                for wheel in wheels
                for member, content in wheel.libraries.items()
            ),
        ],
    }  # fmt: skip


def file_of(
    path: str, content: bytes, source: str, member: str | None, *, packed: bool = True
) -> dict[str, object]:
    vendor = "ortpacks" if member is None else "nvidia"
    own = {"licence": "LICENSE", "vendor": vendor, "modified": False, "soname": None, "needed": []}
    return {"path": path, **digest(content), "source": source, "member": member, "packed": packed, **own}


def digest(content: bytes) -> dict[str, object]:
    return {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def path_of(member: str) -> str:
    """Return the path in a package of a wheel's library."""
    return f"lib/{member.rpartition('/')[2]}"


def shared(variant: str, version: str, layout: str, build: Build) -> dict[str, object]:
    """Return what a package's manifest and its entry in the index both say."""
    native = NATIVE[variant]
    return {
        "name": name_of(variant, version, layout, build),
        "variant": variant,
        "platform": "linux-x64",
        "provider": "cuda",
        "glibc": "2.34",
        "layout": layout,
        "capabilities": {item: "native" if item in native else "none" for item in CAPABILITIES.split()},
        "driver": {"floor": "525.60.13", "ceiling": "580" if variant == "legacy" else None},
        "generations": ["Ampere"],
        **({"plugin": PLUGIN} if build.plugin else {}),
    }


def archive(members: list[tuple[tarfile.TarInfo, bytes]], form: str = ".tar.zst") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for info, content in members:
            tar.addfile(info, io.BytesIO(content))
    return (zstd.compress if form == ".tar.zst" else gzip.compress)(buffer.getvalue())


def members(
    variant: str,
    files: Mapping[str, bytes],
    version: str = "1.23.2",
    *,
    spoil: Spoil = lambda manifest: None,
    **how: Any,  # noqa: ANN401 - of ``manifest_of``
) -> list[tuple[tarfile.TarInfo, bytes]]:
    """Return the members of a package's archive: the manifest first, then the files."""
    told = manifest_of(variant, files, version, **how)
    top, packed = (
        told["name"],
        {**files, **(libraries(how.get("wheels", ())) if told["layout"] == "full" else {})},
    )
    spoil(told)
    manifest = member(f"{top}/manifest.json", json.dumps(told).encode())
    return [manifest, *(member(f"{top}/{path}", content) for path, content in sorted(packed.items()))]


def libraries(wheels: Sequence[Wheel]) -> dict[str, bytes]:
    """Return the wheels' libraries by path in the package."""
    return {path_of(name): content for wheel in wheels for name, content in wheel.libraries.items()}


def entry(
    variant: str,
    content: bytes,
    unpacked: int,
    version: str = "1.23.2",
    *,
    layout: str = "full",
    form: str = ".tar.zst",
    installed: int | None = None,
    build: Build = REPACKED,
) -> dict[str, object]:
    return {
        **shared(variant, version, layout, build),
        "file": f"{name_of(variant, version, layout, build)}{form}",
        **digest(content),
        "parts": [],
        "unpacked_size": unpacked,
        "installed_size": unpacked if installed is None else installed,
        "onnxruntime": build.ort(version),
    }


def write_release(
    folder: Path,
    *,
    version: str = "1.23.2",
    files: Mapping[str, bytes] = FILES,
    layouts: Sequence[str] = ("full",),
    forms: Sequence[str] = (".tar.zst",),
    wheels: Sequence[Wheel] = (),
    builds: Sequence[Build] = (REPACKED,),
    spoil: Spoil = lambda manifest: None,
) -> Path:
    """Write packages of legacy and modern with an index, and return the index's path.

    The host library states ``version``, unless ``files`` has another one. ``spoil`` changes each manifest.
    """
    if files.get(HOST) == FILES[HOST]:
        files = {**files, HOST: library(version)}
    folder.mkdir(parents=True, exist_ok=True)
    entries = []
    for variant, layout, form, build in itertools.product(("legacy", "modern"), layouts, forms, builds):
        own_files = {path: data for path, data in files.items() if path != HOST or not build.plugin}
        packed = members(variant, own_files, version, layout=layout, wheels=wheels, build=build, spoil=spoil)
        content = archive(packed, form)
        (folder / f"{name_of(variant, version, layout, build)}{form}").write_bytes(content)
        own = sum(map(len, own_files.values()))
        whole = own + sum(map(len, libraries(wheels).values()))
        unpacked = whole if layout == "full" else own
        how = {"layout": layout, "form": form, "installed": whole, "build": build}
        entries.append(entry(variant, content, unpacked, version, **how))  # type: ignore[arg-type]
    return write_index(folder, entries, builds[0].format)


def write_index(folder: Path, entries: list[dict[str, object]], number: int = 4) -> Path:
    path = folder / "index.json"
    path.write_text(json.dumps({"format": number, "tag": "t", "packages": entries, "models": MODELS}))
    return path


def change_index(folder: Path, *variants: str, **keys: object) -> None:
    """Change ``keys`` of these variants' packages in a release's index."""
    index = json.loads((folder / "index.json").read_text())
    for package in index["packages"]:
        package.update(keys if package["variant"] in variants else {})
    (folder / "index.json").write_text(json.dumps(index))


def write_one(folder: Path, content: bytes, unpacked: int) -> Path:
    """Write a release of one package, modern, with this archive in a new folder; return the index's path."""
    folder.mkdir()
    (folder / f"{name_of('modern')}.tar.zst").write_bytes(content)
    return write_index(folder, [entry("modern", content, unpacked)])


def replace_host(folder: Path, content: bytes) -> None:
    """Replace the installed package's host library, and its size and hash in the manifest.

    This stands for a machine that changed after the install; only packages that match their manifest are run.
    """
    manifest = json.loads((folder / "manifest.json").read_text())
    for entry in manifest["files"]:
        if entry["path"] == HOST:
            entry.update(digest(content))
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / HOST).write_bytes(content)


class Handler(QuietHandler, BaseHTTPRequestHandler):
    """A handler of files with Range and ETag, like GitHub's host of assets.

    Each request for an archive takes the first of ``Server.faults``, any other one that of its path.
    """

    answer = QuietHandler.respond

    @property
    def host(self) -> "Server":
        assert isinstance(self.server, Server)
        return self.server

    def do_GET(self) -> None:
        self.host.requests.append((self.path, dict(self.headers)))
        fault = self.host.faults.pop(0) if self.host.faults and ".tar." in self.path else None
        self.path = normpath("/" + unquote(urlsplit(self.path).path).lstrip("/"))
        fault = fault or self.host.always.get(self.path.lstrip("/"))
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

    def _exists(self) -> bool:
        return (self.host.folder / self.path.lstrip("/")).is_file()


Fault = Callable[[Handler, bytes], None]


class Server(LoopbackServer):
    """A server of a release folder, with a list of requests, a queue of faults, and faults by path."""

    def __init__(self, folder: Path) -> None:
        super().__init__(Handler)
        self.folder = folder
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.faults: list[Fault] = []
        self.always: dict[str, Fault] = {}
        self.flooded: list[int] = []


@contextmanager
def serving(folder: Path) -> Iterator[Server]:
    server = Server(folder)
    with listening(server):
        yield server
