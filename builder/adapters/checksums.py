"""``SHA256SUMS`` of an output folder: merged under a lock, because variants finish side by side."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from builder.errors import ParseError
from builder.files.atomic_write import part_file
from builder.files.disk import disk_errors
from builder.files.file_lock import exclusive
from builder.release.assets import CHECKSUMS, parse_checksums


class ChecksumFile:
    """Implements ``package.archive.Checksums``."""

    def read(self, folder: Path) -> Mapping[str, str]:
        """See ``package.archive.Checksums.read``."""
        path = folder / CHECKSUMS
        if not path.is_file():
            return {}
        try:
            return parse_checksums(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ParseError(f"{path}: {error}. Delete the file: the next build writes it anew.") from error

    def update(self, folder: Path, *, put: Mapping[str, str], drop: tuple[str, ...] = ()) -> None:
        """See ``package.archive.Checksums.update``."""
        path = folder / CHECKSUMS
        with disk_errors(path):
            folder.mkdir(parents=True, exist_ok=True)
        with exclusive(folder, lambda: None):  # the folder is the lock, so that no lock file is left behind
            before = self.read(folder)
            after = {name: digest for name, digest in {**before, **put}.items() if name not in drop}
            if after != before:
                with part_file(path) as file:
                    file.write("".join(f"{sum_}  {name}\n" for name, sum_ in sorted(after.items())).encode())
