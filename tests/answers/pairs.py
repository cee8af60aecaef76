"""Host library and CUDA provider as they lie together: a package's, and its version's official wheel's."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from builder.adapters.store import FileStore
from builder.builds.wiring import Wiring
from builder.errors import ConfigError
from builder.project.inputs import ort_wheel
from tests.support import ROOT

HOST = "libonnxruntime.so"
PROVIDER = "libonnxruntime_providers_cuda.so"
CAPI_IN_WHEEL = "onnxruntime/capi"


@dataclass(frozen=True, kw_only=True)
class Pair:
    """The library to open; ORT looks for its provider in the same folder."""

    library: Path
    ort_version: str

    @property
    def provider(self) -> Path:
        """The CUDA provider that ``library`` will load."""
        return self.library.with_name(PROVIDER)


@cache
def shop() -> Wiring:
    """The workplace these tests take their inputs from."""
    return Wiring(ROOT)


@cache
def store() -> FileStore:
    """The input cache; what is not in it is fetched, and all of it is pinned."""
    return shop().store(shop().lock)


def official(version: str) -> Pair:
    """The pair of the official wheel, as pip would install it."""
    folder = store().unpack(ort_wheel(version)) / CAPI_IN_WHEEL
    return Pair(library=folder / f"{HOST}.{version}", ort_version=version)


def ours(given: Path, scratch: Path) -> Pair:
    """The pair of a package, of a package's folder, or of a folder with a compiled provider in it.

    Libraries are unpacked or linked together in ``scratch``, which is empty. A folder without a host library
    (``host: wheel``, before bundling) is taken for the assembled base's version. Raises ``ConfigError``.
    """
    if given.is_file():
        return _of_package(_unpacked(given, scratch))
    if (given / "manifest.json").is_file():
        return _of_package(given)
    if (given / PROVIDER).is_file():
        return _of_artifact(given, scratch)
    raise ConfigError(f"{given} is neither a package nor a folder with one or a {PROVIDER} in it: name one.")


def environment() -> dict[str, str]:
    """This process's, with CUDA's libraries of ``variants.yaml`` where the loader looks.

    They are the files a package has beside its provider; the official wheel comes without any.
    """
    project = shop().project
    wheels = [*project.cuda.libraries.values(), project.cudnn.wheel]
    folders = [str(folder) for wheel in wheels for folder in store().unpack(wheel).glob("nvidia/*/lib")]
    return {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(folders)}


def python_can_import(version: str) -> bool:
    """Whether the pinned official wheel of ``version`` is one for this interpreter."""
    name = shop().lock.pins[ort_wheel(version).key].filename
    return f"-cp{sys.version_info.major}{sys.version_info.minor}-" in name


@cache
def has_driver() -> bool:
    """Whether NVIDIA's driver is installed here."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def _of_package(folder: Path) -> Pair:
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    return Pair(library=folder / "lib" / f"{HOST}.1", ort_version=manifest["onnxruntime"]["version"])


def _unpacked(package: Path, scratch: Path) -> Path:
    """Manifest and ORT's own libraries, by the system's tar. NVIDIA's are gigabytes, and in the wheels."""
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
