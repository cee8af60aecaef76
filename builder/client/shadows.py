"""Libraries that the loader finds before the package's: by name, in ``LD_LIBRARY_PATH``."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Callable, Iterator, Mapping, Optional

from builder.client.digest import sha256_of
from builder.core.manifest import FileEntry, Manifest
from builder.core.seen import Shadow

VARIABLE = "LD_LIBRARY_PATH"
_LIB = "lib/"
_IN_NAME = re.compile(r"\.so\.(\d+(?:\.\d+)+)$")
_IN_FOLDER = re.compile(r".+-(\d[^-]*)\.dist-info")


def shadows(folder: Path, manifest: Manifest, env: Mapping[str, str]) -> Iterator[Shadow]:
    """Each library of the package in ``folder`` that a folder of the variable before the package's has too.

    The same bytes are no shadow.
    """
    entries = [entry for entry in manifest.files if entry.path.startswith(_LIB)]
    for place in _before(folder / _LIB, env):
        for entry in entries:
            path = place / entry.path[len(_LIB) :]
            if _is(path.is_file) and not _same(path, entry):
                yield Shadow(path.name, str(path), _version(path), _own(entry, manifest))


def _before(lib: Path, env: Mapping[str, str]) -> Iterator[Path]:
    """The variable's folders up to the package's own: the loader asks RUNPATH only after them."""
    for name in env.get(VARIABLE, "").split(os.pathsep):
        place = Path(name)
        if not name or not _is(place.is_dir):
            continue
        if place.resolve() == lib.resolve():
            return
        yield place


def _is(kind: Callable[[], bool]) -> bool:
    """What may not be looked at is not there."""
    try:
        return kind()
    except OSError:
        return False


def _same(path: Path, entry: FileEntry) -> bool:
    try:
        return path.stat().st_size == entry.size and sha256_of(path) == entry.sha256
    except OSError:
        return False


def _version(path: Path) -> Optional[str]:
    """By its name behind all links, else by the wheel it came in. It is not loaded: nobody vouches for it."""
    match = _IN_NAME.search(path.resolve().name)
    return match[1] if match else _of_wheel(path)


def _of_wheel(path: Path) -> Optional[str]:
    """``site-packages/nvidia/cudnn/lib/X`` is of ``site-packages/nvidia_cudnn_cu12-VERSION.dist-info``."""
    if len(path.parts) < 5 or path.parts[-4] != "nvidia":  # noqa: PLR2004 the parts that the docstring names
        return None
    records = path.parents[3].glob(f"nvidia_{path.parts[-3]}_*.dist-info")
    return next((match[1] for match in (_IN_FOLDER.fullmatch(item.name) for item in records) if match), None)


def _own(entry: FileEntry, manifest: Manifest) -> str:
    """``9.10.2.21`` of ``wheel:nvidia-cudnn-cu12==9.10.2.21``."""
    if entry.source.startswith("wheel:nvidia-"):
        return entry.source.partition("==")[2]
    return manifest.onnxruntime.version
