"""What ``render`` hands on: text and names, no files yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping, Tuple

from builder.core.inputs import Input
from builder.core.ports import DebianPackage


@dataclass(frozen=True)
class Rendered:
    """A variant's Dockerfiles and what their build contexts hold."""

    dockerfile: str
    runtime_dockerfile: str
    contexts: Mapping[str, Input]
    """Named build contexts: name -> wheel whose unpacked tree it is."""
    debs: Tuple[Input, ...]
    """Debian packages of the main context, under ``debs/``."""
    sources: Tuple[Input, ...]
    """Source tarballs of the main context, under ``sources/``."""
    network: bool
    """Whether a step reaches a network: on NVIDIA's image, for packages and ORT's sources."""
    toolchain_key: str
    """Eight hex digits that change when anything in the toolchain changes."""
    system: Tuple[DebianPackage, ...] = ()
    """The packages of the root file system that compiles, where one is assembled."""


NOTHING_RENDERED = Rendered(
    dockerfile="",
    runtime_dockerfile="",
    contexts={},
    debs=(),
    sources=(),
    network=False,
    toolchain_key="",
)
"""Of a package that no image has a part in."""
