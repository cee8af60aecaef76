"""Differences between ONNX Runtime's releases that do not follow from a source (``known_rules``).

Sources: the pull requests that are named, the official wheels 1.21.0, 1.23.2 and 1.31.1.
"""

from __future__ import annotations

from collections.abc import Iterable

from builder.facts.gpu.architectures import Arch
from builder.facts.gpu.compatibility import version_of
from builder.facts.ort.known_rules import read_lines, rules_for, standing_for

CMAKE_READ = "3.31.6"
"""The newest CMake whose ``Modules/Internal/CMakeCUDAArchitecturesValidate.cmake`` was read."""


def known_line(version: str) -> str:
    """Return the release line of the source that stands for a version: ``1.23`` for 1.23.2 and 1.24.0."""
    return ".".join(map(str, version_of(standing_for(version).rules.version)[:2]))


def is_known(version: str) -> bool:
    """Return whether a source of this version's release line was read."""
    return ".".join(map(str, version_of(version)[:2])) in read_lines()


_OPENED = {
    "12": ("libcudnn.so.9", "libcufft.so.11", "libnvrtc.so.12"),
    "13": ("libcudnn.so.9", "libcufft.so.12", "libnvrtc.so.13"),
}
"""The libraries that a provider opens at run time, by CUDA's major version."""


def opened_at_run_time(version: str, cuda: str = "12") -> tuple[str, ...]:
    """Return the libraries that a full provider of this version opens at run time instead of by NEEDED.

    ``cuda``: ``12`` or ``13``; for another version the result is empty.
    """
    return _OPENED.get(cuda, ()) if opens_libraries(version) else ()


def opens_libraries(version: str) -> bool:
    """Return whether a full provider of this version opens cuDNN, cuFFT and NVRTC at run time.

    NEEDED names none of them, and of their names its bytes hold NVRTC's alone (pull requests 29252, 29808 and
    29705; readelf and strings of the wheels 1.21.0, 1.23.2 and 1.31.1). ORT's CMake files link none of them.
    """
    return not any(name.startswith("CUDNN::") for name in rules_for(version).linked)


def sm_names(arches: Iterable[Arch]) -> str:
    """Return architectures as text: ``sm_103, sm_121``."""
    return ", ".join(f"sm_{arch}" for arch in arches)
