"""What goes into a package, file by file, before it is packed; and the archive that holds it, as a port."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Iterable, Mapping, Protocol, Tuple

from builder.core.variant import Preset

BUILT = "built"
"""``source`` of what we compiled or wrote."""
MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Member:
    """One file of a package: its name inside, its bytes here, where they come from and their licence."""

    path: str
    """Relative to the package's root: ``lib/libcudnn.so.9``. Libraries stand under the name the loader asks
    for, their SONAME."""
    file: Path
    """The regular file whose bytes go in."""
    source: str
    """``Input.key`` of the wheel it comes from, or ``built`` for what we compiled or wrote."""
    licence: str
    """Path of its licence text inside the package: ``licenses/nvidia-cudnn.txt``."""
    vendor: str
    """``nvidia`` (never modified), ``onnxruntime`` or ``ortpacks``."""
    modified: bool = False
    """Whether ``file`` differs from the source's bytes: RUNPATH set on ORT's own provider."""


@dataclass(frozen=True)
class Digest:
    """Size in bytes and hex sha256 of some bytes."""

    size: int
    sha256: str


@dataclass(frozen=True)
class Content:
    """All that goes into an archive: the manifest's bytes, the members, and what their bytes must be."""

    manifest: bytes
    members: Tuple[Member, ...]
    digests: Mapping[str, Digest]
    """By member path."""

    @property
    def size(self) -> int:
        """Bytes of all members, the manifest included."""
        return len(self.manifest) + sum(self.digests[member.path].size for member in self.members)


@dataclass(frozen=True)
class PackageFile:
    """A written package."""

    path: Path
    size: int
    sha256: str
    unpacked_size: int
    """Bytes of all members, the manifest included."""


class Archive(Protocol):
    """Reads and writes package archives: one folder named like the package, ``manifest.json`` first."""

    def digests(self, members: Iterable[Member]) -> Mapping[str, Digest]:
        """Size and sha256 of every member's bytes, by member path."""

    def write(
        self,
        dest: Path,
        content: Content,
        preset: Preset,
        accept: Callable[[PackageFile], None],
    ) -> PackageFile:
        """Write the package whole or not at all: ``accept`` sees it before it gets its name, and may raise.

        Raises ``IntegrityError`` when a member's bytes are not those of its digest and ``DiskError``.
        """

    def read_manifest(self, package: Path) -> bytes:
        """The manifest's bytes, read from the head of the archive. Raises ``IntegrityError``."""

    def extract(self, package: Path, folder: Path) -> Mapping[str, Digest]:
        """Unpack into a new ``folder``: what was written, by member path, in the archive's order.

        Only regular files under the package's own top folder; anything else raises ``IntegrityError`` and
        nothing is written outside ``folder``.
        """

    def scratch(self, path: Path, needed: int) -> AbstractContextManager[Path]:
        """A folder beside ``path`` that is there inside the block only, with ``needed`` bytes free.

        It does not exist yet when it is handed over. What a killed run left of it is removed first.
        """

    def digest(self, package: Path) -> Digest:
        """Size and sha256 of the archive itself."""


class Checksums(Protocol):
    """The ``SHA256SUMS`` of an output folder."""

    def read(self, folder: Path) -> Mapping[str, str]:
        """Hex sha256 by file name; empty when there is no such file."""

    def update(self, folder: Path, *, put: Mapping[str, str], drop: Tuple[str, ...] = ()) -> None:
        """Merge into the file, under a lock: several variants finish side by side."""
