"""ONNX Runtime's source as its own build sees it: CMake files, texts and the names of all files."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

from builder.errors import ParseError
from builder.facts.ort.cmake_commands import State, by_folder
from builder.facts.ort.cmake_language import Command, SourceLine
from builder.facts.ort.cmake_run import FOLDER, Parsed, configured, parsed
from builder.facts.ort.cmake_values import UNKNOWN

BELOW = "onnxruntime/"
"""The folder of a source with the C++ and CUDA sources."""

_VERSION = "VERSION_NUMBER"

_WANTED = re.compile(
    rf"{_VERSION}|{FOLDER}/(?:.*/)?(?:CMakeLists\.txt|[^/]*\.cmake)"
    rf"|{BELOW}(?:contrib_ops|core/providers)/cuda/(?!.*sm\d+(?:\.cubin)?\.cc$).*\.(?:cc|cu|cuh|h)"
)
"""The files that are read; not sources that hold compiled code as numbers (``_sm75.cubin.cc``)."""

_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)

_TOOLS: Mapping[str, str] = {
    **dict.fromkeys(("CMAKE_C_COMPILER_ID", "CMAKE_CXX_COMPILER_ID", "CMAKE_CUDA_HOST_COMPILER_ID"), "GNU"),
    **dict.fromkeys(("CMAKE_C_COMPILER_VERSION", "CMAKE_CXX_COMPILER_VERSION"), UNKNOWN),
    "CMAKE_CUDA_COMPILER": "nvcc",
    "CMAKE_LIBRARY_ARCHITECTURE": "x86_64-linux-gnu",
}
"""CMake's variables of the compilers of this project's builds, and of their system."""

_UNSET = ("CMAKE_CXX_STANDARD", "CMAKE_C_STANDARD", "CMAKE_CUDA_ARCHITECTURES", "ENV{CUDAARCHS}")
"""Variables without a value where CMake begins."""


def is_wanted(path: str) -> bool:
    """Return whether the rules of a source are read from the file of this path below its root."""
    return _WANTED.fullmatch(path) is not None


@dataclass(frozen=True)
class SourceTree:
    """A source of ONNX Runtime."""

    version: str
    scripts: Parsed
    texts: Mapping[str, str]
    """C++ and CUDA sources without their comments, by path below ``BELOW``; lines are as in the file."""
    folders: Mapping[str, Sequence[str]]
    """The names of all .cc and .cu files by folder, as for ``configured``."""

    @classmethod
    def read(cls, files: Mapping[str, str], listing: Collection[str]) -> SourceTree:
        """Return the source of texts by path below its root; ``listing`` has the paths of all its files.

        Raises ``ParseError`` if it has no version, or a CMake file cannot be read.
        """
        version = files.get(_VERSION, "").strip()
        if re.fullmatch(r"\d+\.\d+\.\d+\S*", version) is None:
            raise ParseError(
                f"{_VERSION} of ONNX Runtime's source has no version",
                cause=f"its text is {version!r}" if version else "there is no such file",
                advice="Name a folder or a commit with ONNX Runtime's source.",
            )
        scripts = {
            path.removeprefix(f"{FOLDER}/"): text
            for path, text in files.items()
            if path.startswith(f"{FOLDER}/")
        }
        texts = {
            path.removeprefix(BELOW): _COMMENT.sub(_blank, text)
            for path, text in files.items()
            if path.startswith(BELOW)
        }
        compiled = [path for path in listing if path.startswith(BELOW) and path.endswith((".cc", ".cu"))]
        with _whole_paths():
            return cls(version, parsed(scripts), texts, by_folder(compiled))

    @cached_property
    def commands(self) -> Sequence[Command]:
        """All commands of the CMake files."""
        return [command for path in sorted(self.scripts) for command in self.scripts[path]]

    def configured(
        self, architectures: str | None, cuda: str | None, options: Mapping[str, str] | None = None
    ) -> State:
        """Return what CMake makes of the source with a CMAKE_CUDA_ARCHITECTURES and options.

        ``None`` for ``architectures``: it is not set; for ``cuda``, the version of nvcc: it is unknown.
        """
        settings = {**_TOOLS, "CMAKE_CUDA_COMPILER_VERSION": cuda or UNKNOWN, **(options or {})}
        if architectures is not None:
            settings["CMAKE_CUDA_ARCHITECTURES"] = architectures
        unset = [name for name in _UNSET if name not in settings]
        with _whole_paths():
            return configured(self.scripts, settings, self.folders, unset=unset)


def whole(line: SourceLine) -> SourceLine:
    """Return the line of a CMake file by its path below the root of the source."""
    return SourceLine(f"{FOLDER}/{line.file}", line.number)


@contextmanager
def _whole_paths() -> Iterator[None]:
    """Name the file of a ``ParseError`` by its path below the root of the source."""
    try:
        yield
    except ParseError as error:
        error.what = f"{FOLDER}/{error.what}"
        raise


def _blank(match: re.Match[str]) -> str:
    return "\n" * match[0].count("\n")
