"""The files of a package before it is packed, and ports for archives and their checksums."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from builder.errors import IntegrityError
from builder.files.digest import Digest, LocalFile
from builder.formats.manifest import Manifest, loads
from builder.formats.package_names import Form
from builder.project.variants import Preset

BUILT = "built"
"""``source`` of what we compiled or wrote."""


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
    member: str | None = None
    """Path inside the wheel; ``None`` for what we compiled or wrote."""
    packed: bool = True
    """Whether the archive holds it; not so NVIDIA's libraries in layout thin."""


class ChangedFileError(IntegrityError):
    """A member's file is not the bytes it must be. ``got`` is ``None`` when it has more than it should."""

    def __init__(self, member: Member, wanted: Digest, got: Digest | None) -> None:
        self.member, self.wanted, self.got = member, wanted, got
        found = f"{got.size} bytes, sha256 {got.sha256}" if got else "more bytes"
        super().__init__(
            f"{member.file} changed while {member.path} was packed, or before: it should have "
            f"{wanted.size} bytes, sha256 {wanted.sha256}, and has {found}. "
            "Build again, and let nothing else write there."
        )


@dataclass(frozen=True)
class Content:
    """All that a package is made of: the manifest's bytes, the members, and what their bytes must be."""

    manifest: bytes
    members: tuple[Member, ...]
    digests: Mapping[str, Digest]
    """By member path."""

    @property
    def packed(self) -> tuple[Member, ...]:
        """The members that the archive holds besides the manifest, sorted by path."""
        return tuple(sorted((one for one in self.members if one.packed), key=lambda member: member.path))

    @property
    def size(self) -> int:
        """Bytes of what the archive holds, the manifest included."""
        return len(self.manifest) + sum(self.digests[member.path].size for member in self.packed)


class Archive(Protocol):
    """Reads and writes package archives: one folder named like the package, ``manifest.json`` first.

    The kind of an archive follows from its file name (``formats.package_names.form_of``). A reader also takes
    the ``.parts.json`` of an archive that was split.
    """

    def digests(self, members: Iterable[Member]) -> Mapping[str, Digest]:
        """Size and sha256 of every member's bytes, by member path."""

    def write(
        self,
        dest: Path,
        content: Content,
        preset: Preset,
        accept: Callable[[LocalFile], None],
    ) -> LocalFile:
        """Write the package whole or not at all: ``accept`` sees it before it gets its name, and may raise.

        Only ``content.packed`` goes in. Each file is read once: it is hashed while it is packed. Raises
        ``ChangedFileError`` when its bytes are not those of its digest, ``IntegrityError`` when it cannot be
        read or is written to meanwhile, and ``DiskError``.
        """

    def split(self, package: Path, most: int) -> tuple[Path, ...]:
        """Cut an archive into parts of at most ``most`` bytes: the parts in order, then the ``.parts.json``.

        The archive goes when all of them are there; one that fits stays, alone in the answer. What an earlier
        split left is replaced. Raises ``IntegrityError`` (the archive changed meanwhile) and ``DiskError``.
        """

    def estimate(self, members: Iterable[Member], form: Form, preset: Preset) -> int:
        """About how many bytes an archive of ``members`` would have, by compressing samples of them."""

    def read_manifest(self, package: Path) -> bytes:
        """The manifest's bytes, read from the head of the archive. Raises ``IntegrityError``."""

    def read(self, package: Path, paths: Collection[str]) -> Mapping[str, bytes]:
        """The bytes of a few small members by path; one that is not there is left out.

        Raises ``IntegrityError``, also for a member of more than 16 MiB.
        """

    def extract(self, package: Path, folder: Path) -> Mapping[str, Digest]:
        """Unpack into a new ``folder``: what was written, by member path, in the archive's order.

        Only regular files under the package's own top folder; anything else raises ``IntegrityError`` and
        nothing is written outside ``folder``. Of a split package, the part that is missing or damaged is
        named.
        """

    def whole(self, package: Path) -> Digest:
        """Size and sha256 of the archive; of a split package, of what its parts join to.

        Raises ``IntegrityError``.
        """


def manifest_of(package: Path, archive: Archive) -> Manifest:
    """The manifest of a package. Raises ``IntegrityError`` or, for a wrong value in it, ``ConfigError``."""
    return loads(archive.read_manifest(package), package.name)


class Checksums(Protocol):
    """The ``SHA256SUMS`` of an output folder."""

    def read(self, folder: Path) -> Mapping[str, str]:
        """Hex sha256 by file name; empty when there is no such file."""

    def update(self, folder: Path, *, put: Mapping[str, str], drop: tuple[str, ...] = ()) -> None:
        """Merge into the file, under a lock: several variants finish side by side."""
