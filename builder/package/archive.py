"""This module describes the files of a package before it is packed, and the port for archives."""

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
"""The ``source`` of files that we compiled or wrote."""


@dataclass(frozen=True)
class Member:
    """One file of a package: its path inside, its file on this machine, its source and its licence."""

    path: str
    """Path relative to the package's root: ``lib/libcudnn.so.9``.

    Libraries have the name that the loader looks for, their SONAME.
    """
    file: Path
    """The regular file whose bytes are packed."""
    source: str
    """``Input.key`` of the member's wheel, or ``built`` for files that we compiled or wrote."""
    licence: str
    """Path of its licence text inside the package: ``licenses/nvidia-cudnn.txt``."""
    vendor: str
    """``nvidia`` (never modified), ``onnxruntime`` or ``ortpacks``."""
    modified: bool = False
    """Whether ``file`` differs from the source's bytes: ORT's own provider with RUNPATH set."""
    member: str | None = None
    """Path inside the wheel; ``None`` for files that we compiled or wrote."""
    packed: bool = True
    """Whether the archive holds the member; false for NVIDIA's libraries in layout thin."""


class ChangedFileError(IntegrityError):
    """A member's file does not have the bytes it must have.

    ``got`` is ``None`` for a file that is too long.
    """

    def __init__(self, member: Member, wanted: Digest, got: Digest | None) -> None:
        self.member, self.wanted, self.got = member, wanted, got
        found = f"{got.size} bytes, sha256 {got.sha256}" if got else "more bytes"
        super().__init__(
            f"{member.file} changed while {member.path} was packed, or before",
            cause=f"it should have {wanted.size} bytes, sha256 {wanted.sha256}, and has {found}",
            advice="Build again, and let nothing else write there.",
        )


@dataclass(frozen=True)
class Content:
    """All that a package is made of: the manifest's bytes, the members, and the digests of their bytes."""

    manifest: bytes
    members: tuple[Member, ...]
    digests: Mapping[str, Digest]
    """Digest of each member, by its path."""

    @property
    def packed(self) -> tuple[Member, ...]:
        """The members that the archive holds besides the manifest, sorted by path."""
        return tuple(sorted((one for one in self.members if one.packed), key=lambda member: member.path))

    @property
    def size(self) -> int:
        """Bytes of all files in the archive, the manifest included."""
        return len(self.manifest) + sum(self.digests[member.path].size for member in self.packed)


class Archive(Protocol):
    """A reader and writer of package archives: one folder named like the package, ``manifest.json`` first.

    The kind of an archive follows from its file name (``formats.package_names.form_of``). A reader also
    accepts the ``.parts.json`` of an archive that was split.
    """

    def digests(self, members: Iterable[Member]) -> Mapping[str, Digest]:
        """Return size and sha256 of every member's bytes, by member path."""

    def write(
        self,
        dest: Path,
        content: Content,
        preset: Preset,
        accept: Callable[[LocalFile], None],
    ) -> LocalFile:
        """Write the package whole or not at all, and return it.

        ``accept`` gets the package before it is renamed to ``dest``, and may raise. Only ``content.packed``
        is written. Each file is read once, and hashed while it is packed. Raises ``ChangedFileError`` if a
        file's bytes differ from its digest, ``IntegrityError`` if a file cannot be read or is written to
        meanwhile, and ``DiskError``.
        """

    def split(self, package: Path, most: int) -> tuple[Path, ...]:
        """Cut an archive into parts of at most ``most`` bytes.

        Returns the parts in order, then the ``.parts.json``. The archive is removed when all parts are
        written. An archive of at most ``most`` bytes stays and is returned alone. Files of an earlier split
        are replaced. Raises ``IntegrityError`` (the archive changed meanwhile) and ``DiskError``.
        """

    def estimate(self, members: Iterable[Member], form: Form, preset: Preset) -> int:
        """Return about the size in bytes of an archive of ``members``, by compressing samples of them."""

    def read_manifest(self, package: Path) -> bytes:
        """Return the manifest's bytes, read from the head of the archive. Raises ``IntegrityError``."""

    def read(self, package: Path, paths: Collection[str]) -> Mapping[str, bytes]:
        """Return the bytes of a few small members by path; a member that does not exist is left out.

        Raises ``IntegrityError``, also for a member of more than 16 MiB.
        """

    def extract(self, package: Path, folder: Path) -> Mapping[str, Digest]:
        """Unpack into a new ``folder`` and return the digests of the files, by member path, in archive order.

        Only regular files below the package's own top folder are allowed; anything else raises
        ``IntegrityError``, and nothing is written outside ``folder``. For a split package, the error names
        the part that is missing or damaged.
        """

    def whole(self, package: Path) -> Digest:
        """Return size and sha256 of the archive; for a split package, of its joined parts.

        Raises ``IntegrityError``.
        """


def manifest_of(package: Path, archive: Archive) -> Manifest:
    """Return the manifest of a package.

    Raises ``IntegrityError``, and ``ConfigError`` for a wrong value in it.
    """
    return loads(archive.read_manifest(package), package.name)
