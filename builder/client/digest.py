"""Files by content: sha256, size, and the proof that they are what was promised."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import IO

from builder.errors import IntegrityError

CHUNK = 2**20


def require_bytes(path: Path, size: int, sha256: str, where: str) -> None:
    """``IntegrityError`` with wanted and got unless ``path`` is exactly these bytes."""
    got = size_of(path)
    if got != size:
        raise IntegrityError(f"{where}: size differs.\n    wanted: {size} bytes\n    got:    {got} bytes")
    digest = sha256_of(path)
    if digest != sha256:
        raise IntegrityError(
            f"{where}: sha256 differs, so it is not the file that was promised; nothing was unpacked.\n"
            f"    wanted: {sha256}\n    got:    {digest}"
        )


def sha256_of(path: Path) -> str:
    """Hex digest of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for chunk in iter(lambda: file.read(CHUNK), b""):
            digest.update(chunk)
    return digest.hexdigest()


def write_file(source: IO[bytes], target: Path, mode: int) -> str:
    """Copy to a new file, never through an existing name, and return the sha256 of what was written."""
    digest = hashlib.sha256()
    with target.open("xb") as file:
        for chunk in iter(lambda: source.read(CHUNK), b""):
            digest.update(chunk)
            file.write(chunk)
        file.flush()
        target.chmod(mode)
        os.fsync(file.fileno())
    return digest.hexdigest()


def size_of(path: Path) -> int:
    """Bytes of a file; 0 where there is none."""
    return path.stat().st_size if path.exists() else 0
