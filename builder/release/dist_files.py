"""The files of a release in ``dist``: packages, and every file that ``SHA256SUMS`` names."""

from __future__ import annotations

from pathlib import Path

from builder.errors import NothingToDoError
from builder.files.digest import LocalFile
from builder.formats import parts as parts_format
from builder.formats.index import StoredArchive
from builder.formats.package_names import ARCHIVE_SUFFIXES, CHECKSUMS, PARTS_SUFFIX
from builder.formats.trust import TARGETS, root_name
from builder.package.checksums import read_checksums


def archives_in(directory: Path) -> list[Path]:
    """Return the packages in a folder, sorted: archives and ``.parts.json`` files.

    Raises ``NothingToDoError`` if there is none.
    """
    ends = [f"{suffix}{more}" for suffix in ARCHIVE_SUFFIXES for more in ("", PARTS_SUFFIX)]
    found = sorted(path for end in ends for path in directory.glob(f"*{end}"))
    if not found:
        raise NothingToDoError(f"{directory} holds no package", advice="`./run build --all` makes them.")
    return found


def stored(file: LocalFile) -> StoredArchive:
    """Return the archive that ``file`` is, or the archive whose parts it lists. Raises ``ConfigError``."""
    if not file.name.endswith(PARTS_SUFFIX):
        return StoredArchive(file.name, file.size, file.sha256)
    whole = parts_format.loads(file.path.read_bytes(), file.name)
    return StoredArchive(whole.file, whole.size, whole.sha256, whole.parts)


def files_there(directory: Path) -> list[LocalFile]:
    """Return the files of a release in ``directory``: ``SHA256SUMS``, those in it, and the signature's."""
    names = {*read_checksums(directory), CHECKSUMS, TARGETS}
    names |= {path.name for path in directory.glob(root_name("*"))}
    found = sorted(directory / name for name in names)
    return [LocalFile.of(path) for path in found if path.is_file()]
