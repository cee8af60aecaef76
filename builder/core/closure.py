"""Whether a package finds every library it needs, in itself or on any host, and nothing by a path of ours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import AbstractSet, Callable, Iterator, List, Mapping, Optional, Sequence, Tuple

from builder.core.checks import Code, Finding, Severity
from builder.core.content import BRIDGE, CUDNN, CUDNN_PARTS, NVIDIA, ONNXRUNTIME, PROVIDER
from builder.core.elf import Elf

HOST_LIBRARIES = frozenset(
    {
        *("libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "ld-linux-x86-64.so.2"),
        *("libstdc++.so.6", "libgcc_s.so.1"),
        "libcuda.so.1",  # the driver's, never bundled
        "libz.so.1",  # six of cuDNN 9.10's libraries need it; dpkg and rpm need it too, so every host has it
    }
)
"""What a package may expect of a host."""

OPENED: Mapping[str, Tuple[str, ...]] = {
    CUDNN: CUDNN_PARTS,
    "libcudnn_engines_runtime_compiled.so.9": ("libnvrtc.so.12",),
    "libnvrtc.so.12": ("libnvrtc-builtins.so.12.9",),
    PROVIDER: (BRIDGE,),
}
"""What a library opens at run time and names in no NEEDED. Source: the names in the libraries of CUDA 12.9
and cuDNN 9.10.2, and ORT's provider_bridge_ort.cc."""

_ORIGIN = "$ORIGIN"


@dataclass(frozen=True)
class Library:
    """One library of a package: its path inside, whose it is, and what it asks of the loader."""

    path: str
    vendor: str
    elf: Elf

    @property
    def name(self) -> str:
        """Its file name, by which the loader finds it."""
        return self.path.rsplit("/", 1)[-1]

    @property
    def search(self) -> Optional[str]:
        """Where it looks for its neighbours; RPATH is ignored beside RUNPATH."""
        return self.elf.rpath if self.elf.runpath is None else self.elf.runpath


def check_closure(libraries: Sequence[Library]) -> List[Finding]:
    """E002 to E006 over all libraries of a package."""
    names = {library.name for library in libraries}
    return [finding for library in libraries for rule in _RULES for finding in rule(library, names)]


def _needed(library: Library, names: AbstractSet[str]) -> Iterator[Finding]:
    for needed in library.elf.needed:
        if needed not in names and needed not in HOST_LIBRARIES:
            yield Finding(
                code=Code.E002,
                path=library.path,
                message=f"needs {needed}, which nothing will provide",
                wanted=f"{needed} in the package's lib/, or a build without it",
            )


def _opened(library: Library, names: AbstractSet[str]) -> Iterator[Finding]:
    for opened in OPENED.get(library.name, ()):
        if opened not in names:
            yield Finding(
                code=Code.E003,
                path=library.path,
                message=f"opens {opened} at run time, and the package does not hold it",
                wanted=f"lib/{opened}",
            )


def _soname(library: Library, _names: AbstractSet[str]) -> Iterator[Finding]:
    if library.elf.soname not in (None, library.name):
        yield Finding(
            code=Code.E004,
            path=library.path,
            message="stands under a name the loader does not ask for",
            wanted=f"lib/{library.elf.soname}",
            got=library.path,
        )


def _beside_itself(library: Library, names: AbstractSet[str]) -> Iterator[Finding]:
    """ORT's official provider has no RUNPATH, and that of the library that opens it is not inherited."""
    uses_neighbours = any(needed in names for needed in library.elf.needed)
    wrong = library.search != _ORIGIN if uses_neighbours else library.search not in (None, _ORIGIN)
    if library.vendor == ONNXRUNTIME and wrong:
        yield Finding(
            code=Code.E005,
            path=library.path,
            message="will not find the libraries that lie beside it",
            wanted=f"RUNPATH {_ORIGIN}",
            got=f"RUNPATH {library.search}" if library.search else "no RUNPATH",
        )


def _absolute(library: Library, _names: AbstractSet[str]) -> Iterator[Finding]:
    """Only a warning for NVIDIA's files: they may not be changed."""
    absolute = [folder for folder in (library.search or "").split(":") if folder.startswith("/")]
    if absolute:
        yield Finding(
            code=Code.E006,
            path=library.path,
            message="looks for libraries in a folder of the machine it was built on",
            wanted=f"RUNPATH {_ORIGIN}",
            got=f"RUNPATH {library.search}",
            severity=Severity.WARNING if library.vendor == NVIDIA else Severity.ERROR,
        )


_RULES: Tuple[Callable[[Library, AbstractSet[str]], Iterator[Finding]], ...] = (
    _needed,
    _opened,
    _soname,
    _beside_itself,
    _absolute,
)
