"""ONNX Runtime's source as text: its version, CMake files, and C++ and CUDA sources."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from builder.facts.ort.configured import FOLDER, SourceLine
from builder.facts.ort.source import VERSION_FILE

BELOW = "onnxruntime/"
"""The folder of a source with the C++ and CUDA sources."""

_WANTED = re.compile(
    rf"{VERSION_FILE}|{FOLDER}/(?:.*/)?(?:CMakeLists\.txt|[^/]*\.cmake)"
    rf"|{BELOW}(?:contrib_ops|core/providers)/cuda/(?!.*sm\d+(?:\.cubin)?\.cc$).*\.(?:cc|cu|cuh|h)"
)
"""The files that are read; not sources that hold compiled code as numbers (``_sm75.cubin.cc``)."""

_NUMBERS = re.compile(r"(?<![\w.])\d{1,2}(?:\.\d{1,2}){0,2}(?![\w.])")

_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)


def is_wanted(path: str) -> bool:
    """Return whether the rules of a source are read from the file of this path below its root."""
    return _WANTED.fullmatch(path) is not None


@dataclass(frozen=True)
class SourceTree:
    """A source of ONNX Runtime."""

    version: str
    versions: Collection[str]
    """What may be a version in its CMake files."""
    texts: Mapping[str, str]
    """C++ and CUDA sources without their comments, by path below ``BELOW``, sorted; lines are as in the
    file."""

    @classmethod
    def read(cls, files: Mapping[str, str]) -> SourceTree:
        """Return the source of texts by path below its root, those that ``is_wanted`` names."""
        scripts = "\n".join(text for path, text in files.items() if path.startswith(f"{FOLDER}/"))
        texts = {
            path.removeprefix(BELOW): _COMMENT.sub(_blank, text)
            for path, text in sorted(files.items())
            if path.startswith(BELOW)
        }
        return cls(files[VERSION_FILE].strip(), frozenset(_NUMBERS.findall(scripts)), texts)

    @property
    def units(self) -> Mapping[str, str]:
        """The texts of the CUDA units among them."""
        return {path: text for path, text in self.texts.items() if path.endswith(".cu")}

    def line(self, path: str, match: re.Match[str]) -> SourceLine:
        """Return the line in which the match of a pattern in a text begins."""
        return SourceLine.at(f"{BELOW}{path}", self.texts[path], match.start())


def _blank(match: re.Match[str]) -> str:
    return "\n" * match[0].count("\n")
