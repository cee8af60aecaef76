"""``SHA256SUMS`` of an output folder: merged under a lock, because variants finish side by side."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from builder.adapters.partfile import disk_errors, part_file
from builder.core.release import CHECKSUMS, parse_checksums
from builder.errors import ParseError


class ChecksumFile:
    """Implements ``core.package.Checksums``."""

    def read(self, folder: Path) -> Mapping[str, str]:
        """See ``core.package.Checksums.read``."""
        path = folder / CHECKSUMS
        if not path.is_file():
            return {}
        try:
            return parse_checksums(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ParseError(f"{path}: {error}. Delete the file: the next build writes it anew.") from error

    def update(self, folder: Path, *, put: Mapping[str, str], drop: tuple[str, ...] = ()) -> None:
        """See ``core.package.Checksums.update``."""
        with disk_errors(folder / CHECKSUMS), _locked(folder):
            before = self.read(folder)
            after = {name: digest for name, digest in {**before, **put}.items() if name not in drop}
            if after != before:
                _write(folder / CHECKSUMS, after)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One writer at a time; the folder itself is the lock, so that none is left behind."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _write(path: Path, sums: Mapping[str, str]) -> None:
    with part_file(path) as file:
        file.write("".join(f"{digest}  {name}\n" for name, digest in sorted(sums.items())).encode())
