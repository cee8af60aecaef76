"""The distributions of ONNX Runtime in Python environments, judged by the files that they own.

Of a distribution's name little follows: ``ort-nightly-gpu`` owns ``onnxruntime/__init__.py``,
``onnxruntime-ep-webgpu`` has a folder of its own. ``RECORD`` lists a distribution's files. Whether the module
can be imported, only an import tells, in a child process of the environment's own interpreter.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import Iterable, Iterator, List, Optional, Sequence

from builder.client.doctor.observations import BrokenImport, Distribution
from builder.client.install.complete import folders_of
from builder.client.probe.processes import Ask

_FOLDER = re.compile(r"(.+)-(\d[^-]*)\.dist-info")

_OWNS = re.compile(rb"^\"?onnxruntime/__init__\.py\"?,", re.MULTILINE)

_BY_NAME = re.compile(r"(?:ortpacks_)?onnxruntime(?:_(?!extensions|genai|tools|ep_)[a-z0-9_]+)?")
"""Names of distributions that own the module, where a ``RECORD`` cannot be read."""

_PLUGINS = re.compile(r"onnxruntime_ep_cuda[a-z0-9_]*")
"""Names of distributions with a plug-in for CUDA: the official ones, and this project's."""

_OURS = "ortpacks_"

_REQUIRED = re.compile(r"^Requires-Dist: (nvidia-[a-z0-9-]+)==([0-9.]+)$", re.MULTILINE)
"""The requirements for NVIDIA's wheels in the ``METADATA`` of a wheel of this project."""

_SECONDS = 60.0
"""Time limit of an import: the first time, the module and numpy are read from the disk."""

_IMPORT = """
import os, sys
sys.path.insert(0, sys.argv[1])
import onnxruntime
onnxruntime.InferenceSession
if os.path.realpath(os.path.dirname(os.path.dirname(onnxruntime.__file__))) != os.path.realpath(sys.argv[1]):
    raise ImportError("partially initialized module 'onnxruntime': its folder is not there")
"""
"""Python imports a folder without ``__init__.py`` as a module without contents."""


def distributions(environments: Iterable[Path]) -> Iterator[Distribution]:
    """Yield each distribution in ``environments`` that brings the module ``onnxruntime``.

    ``environments`` are environments or their ``site-packages``.
    """
    for place in _sites(environments):
        for folder in sorted(place.glob("*.dist-info")):
            match = _FOLDER.fullmatch(folder.name)
            if match and _owns_module(folder, match[1]):
                lacks = tuple(_lacking(folder)) if match[1].startswith(_OURS) else ()
                yield Distribution(match[1].replace("_", "-"), match[2], str(place), lacks)


def plugin_wheels(environments: Iterable[Path]) -> Iterator[Distribution]:
    """Yield each distribution in ``environments`` that brings a plug-in for CUDA."""
    for place in _sites(environments):
        for folder in sorted(place.glob("*.dist-info")):
            match = _FOLDER.fullmatch(folder.name)
            if match and _PLUGINS.fullmatch(match[1]):
                yield Distribution(match[1].replace("_", "-"), match[2], str(place))


def _sites(environments: Iterable[Path]) -> List[Path]:
    return list(dict.fromkeys(path for folder in environments for path in folders_of(folder)))


def _owns_module(folder: Path, name: str) -> bool:
    try:
        return bool(_OWNS.search((folder / "RECORD").read_bytes()))
    except OSError:
        return bool(_BY_NAME.fullmatch(name))


def broken_imports(
    environments: Iterable[Path], found: Sequence[Distribution], ask: Ask, running: str
) -> Iterator[BrokenImport]:
    """Yield each environment whose ``onnxruntime`` cannot be imported, with Python's message.

    ``running`` is the interpreter for ``site-packages`` outside of an environment. Where an environment's
    interpreter cannot be started, nothing is known.
    """
    owners = {one.folder for one in found}
    for place in _sites(environments):
        if str(place) in owners or (place / "onnxruntime").is_dir():
            failure = _failure(place, ask, running)
            if failure:
                yield BrokenImport(str(place), failure)


def _failure(place: Path, ask: Ask, running: str) -> Optional[str]:
    programs = ("bin/python", "Scripts/python.exe")
    own = (parent / program for parent in list(place.parents)[:3] for program in programs)
    python = next((str(path) for path in own if path.is_file()), running)
    try:
        answer = ask([python, "-I", "-c", _IMPORT, str(place)], _SECONDS)
    except (OSError, TimeoutError):
        return None
    if answer.code == 0:
        return None
    last = next((line for line in reversed(answer.stderr.splitlines()) if line.strip()), "")
    return f"the process died of {answer.killed_by}" if answer.killed_by else last.strip() or None


def _lacking(record: Path) -> Iterator[str]:
    """Yield the wheels of NVIDIA's that a wheel of this project requires and its environment lacks."""
    with suppress(OSError):
        text = (record / "METADATA").read_text(encoding="utf-8", errors="replace")
        for name, version in _REQUIRED.findall(text.partition("\n\n")[0]):
            if not (record.parent / f"{name.replace('-', '_')}-{version}.dist-info").is_dir():
                yield f"{name}=={version}"
