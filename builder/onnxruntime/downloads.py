"""What ORT's own build downloads, as its ``cmake/deps.txt`` lists it: name, address and SHA-1, one a line.

Its CMake looks for each archive below ``mirror/<host>/<path>`` of the source tree before it asks a network
(``cmake/external/onnxruntime_external_deps.cmake``, from 1.15 on), so archives that lie there make a build
without one. It holds them to their SHA-1 and patches them as in the official build.
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
    """The addresses of the archives that our builds need. Raises ``ParseError`` where one is missing."""
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
    """Where ORT's CMake looks for an archive, below its source tree."""
    return f"mirror/{url.removeprefix('https://')}"
