"""Reader of ``cmake/deps.txt``, ORT's list of the archives that its build downloads.

Each line has a name, a URL and a SHA-1. ORT's CMake looks for each archive below ``mirror/<host>/<path>`` of
the source tree before it downloads it (``cmake/external/onnxruntime_external_deps.cmake``, from 1.15 on), so
a build with all archives there needs no network. CMake compares their SHA-1 and patches them as in the
official build.
"""

from __future__ import annotations

from collections.abc import Iterator

from builder.errors import ParseError

DEPENDENCY_LIST = "cmake/deps.txt"

_NEEDED = frozenset(
    (
        *("abseil_cpp", "cudnn_frontend", "cutlass", "date", "eigen", "flatbuffers", "json", "microsoft_gsl"),
        *("mp11", "onnx", "protobuf", "pytorch_cpuinfo", "re2", "safeint", "utf8_range"),
    )
)
"""The dependencies of the host library and the CUDA provider on Linux, without tests and Python."""


def dependency_urls(listed: str) -> tuple[str, ...]:
    """Return the sorted URLs of the archives that this project's builds need, from the text of ``deps.txt``.

    Raises ``ParseError`` where the text has no line for one of them.
    """
    found = dict(_rows(listed))
    missing = sorted(_NEEDED - found.keys())
    if missing:
        raise ParseError(f"ONNX Runtime's {DEPENDENCY_LIST} has no line for {', '.join(missing)}")
    return tuple(sorted(found[name] for name in _NEEDED))


def _rows(listed: str) -> Iterator[tuple[str, str]]:
    for line in listed.splitlines():
        name, _, rest = line.partition(";")
        if rest and not name.startswith("#"):
            yield name, rest.partition(";")[0]


def mirrored(url: str) -> str:
    """Return the path, below the source tree, where ORT's CMake looks for the archive of a URL."""
    return f"mirror/{url.removeprefix('https://')}"
