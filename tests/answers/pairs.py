"""Pairs of a host library and a CUDA provider: those of a package, and those of official wheels."""

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from builder.config.inputs import Input, ort_wheel
from builder.errors import ConfigError
from builder.io.store import FileStore
from builder.io.wiring import Wiring
from tests.support import ROOT

HOST = "libonnxruntime.so"
PROVIDER = "libonnxruntime_providers_cuda.so"
CAPI_IN_WHEEL = "onnxruntime/capi"


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A host library and the CUDA provider in its folder, where ONNX Runtime looks for providers."""

    library: Path
    ort_version: str

    @property
    def provider(self) -> Path:
        """The path of the CUDA provider that ``library`` loads."""
        return self.library.with_name(PROVIDER)


@cache
def shop() -> Wiring:
    """Return the wiring that gives these tests their inputs."""
    return Wiring(ROOT)


@cache
def store() -> FileStore:
    """Return the store of pinned inputs, which fetches those that the cache lacks."""
    return shop().store(shop().lock)


def official(version: str) -> Pair:
    """Return the pair of the official wheel of ``version``, unpacked."""
    folder = store().unpack(ort_wheel(version)) / CAPI_IN_WHEEL
    return Pair(library=folder / f"{HOST}.{version}", ort_version=version)


def ours(given: Path, scratch: Path) -> Pair:
    """Return the pair of a package, of an unpacked package, or of a folder with a compiled provider.

    Libraries are unpacked or linked into ``scratch``, an empty folder. A folder with a provider but no
    manifest is assumed to have the assembled base's version, and the official host library completes it.
    Raises ``ConfigError`` for any other path.
    """
    if given.is_file():
        return _of_package(_unpacked(given, scratch))
    if (given / "manifest.json").is_file():
        return _of_package(given)
    if (given / PROVIDER).is_file():
        return _of_artifact(given, scratch)
    raise ConfigError(f"{given} is neither a package nor a folder with one or a {PROVIDER} in it: name one.")


def environment() -> dict[str, str]:
    """Return this process's environment with CUDA's libraries of ``variants.yaml`` in LD_LIBRARY_PATH.

    The libraries are those that a package has in its folder; the official wheel has none.
    """
    project = shop().project
    wheels = [*project.cuda.libraries.values(), project.cudnn.wheel]
    folders = [str(folder) for wheel in wheels for folder in store().unpack(wheel).glob("nvidia/*/lib")]
    return {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(folders)}


def python_can_import(version: str, wheel: Callable[[str], Input] = ort_wheel) -> bool:
    """Return whether the pinned official wheel of ``version`` is for this interpreter's version."""
    name = shop().lock.pins[wheel(version).key].filename
    return f"-cp{sys.version_info.major}{sys.version_info.minor}-" in name


@cache
def has_driver() -> bool:
    """Return whether NVIDIA's driver is installed on this machine."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def _of_package(folder: Path) -> Pair:
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    return Pair(library=folder / "lib" / f"{HOST}.1", ort_version=manifest["onnxruntime"]["version"])


def _unpacked(package: Path, scratch: Path) -> Path:
    """Unpack the manifest and ONNX Runtime's libraries with the system's tar, and return ``scratch``.

    NVIDIA's libraries, gigabytes, are left out, as their wheels have them.
    """
    decompress = ("--use-compress-program", "zstd --long=27")
    members = ("--wildcards", "*/manifest.json", "*/lib/libonnxruntime*")
    where = ("--strip-components=1", f"--directory={scratch}")
    subprocess.run(["tar", *decompress, "-xf", package, *where, *members], check=True)
    return scratch


def _of_artifact(folder: Path, scratch: Path) -> Pair:
    version = shop().project.bases["assembled"].ort_version
    wheel = official(version).library.parent
    for source in (wheel, folder):
        for library in (*source.glob(f"{HOST}*"), *source.glob("libonnxruntime_providers_[cs]*.so")):
            link = scratch / library.name
            link.unlink(missing_ok=True)
            link.symlink_to(library.resolve())
    return Pair(library=scratch / f"{HOST}.{version}", ort_version=version)
