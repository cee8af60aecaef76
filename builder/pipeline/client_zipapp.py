"""Packs the client into one file: ``dist/ortpacks.pyz``, the same bytes from the same sources."""

from __future__ import annotations

import io
import os
import zipfile
from dataclasses import dataclass
from pathlib import Path

from builder.files.atomic_write import part_file

NAME = "ortpacks.pyz"

SHIPPED = ("client", "files", "findings", "formats", "gpu", "selection")
"""The rooms of ``builder`` that run on the user's machine: Python 3.9 and its standard library."""

_SHEBANG = b"#!/usr/bin/env python3\n"

_START = """\
import sys

if sys.version_info < (3, 9):
    sys.exit("ortpacks needs Python 3.9 or newer, this is " + sys.version.split()[0])

try:
    from builder.client.__main__ import run
except ImportError as error:
    if (error.name or "builder").startswith("builder"):
        raise
    sys.stderr.write(
        "ortpacks: this Python lacks the module " + error.name + " of its standard library. "
        "Install python3; python3-minimal is not enough.\\n"
    )
    sys.exit(4)

sys.exit(run())
"""

_DEFAULT_INDEX = "builder/client/default_index.txt"

_EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, kw_only=True)
class ClientRequest:
    """What the client is made from."""

    source: Path
    """The folder that holds the package ``builder``."""
    target: Path
    """Where ``ortpacks.pyz`` goes, name included."""
    index_url: str | None
    """The index it reads unless told otherwise; ``None`` leaves it without one."""


def build_client(request: ClientRequest) -> Path:
    """Write the client and return its path. Raises ``DiskError``."""
    members = {name: (request.source / name).read_bytes() for name in _modules(request.source)}
    members["__main__.py"] = _START.encode()
    if request.index_url is not None:
        members[_DEFAULT_INDEX] = f"{request.index_url}\n".encode()
    with part_file(request.target) as file:
        file.write(_SHEBANG + _zip(members))
        os.fchmod(file.fileno(), 0o755)
    return request.target


def _modules(source: Path) -> list[str]:
    """Every module of the rooms that ship, and the two files above them, as paths below ``source``."""
    rooms = (path for room in SHIPPED for path in (source / "builder" / room).rglob("*.py"))
    above = (source / "builder" / name for name in ("__init__.py", "errors.py"))
    return sorted(path.relative_to(source).as_posix() for path in (*rooms, *above))


def _zip(members: dict[str, bytes]) -> bytes:
    """Sorted, undated, and stored: what deflate makes differs from one zlib to the next."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(members):
            info = zipfile.ZipInfo(name, _EPOCH)
            info.create_system = 3
            info.external_attr = 0o100644 << 16
            archive.writestr(info, members[name])
    return buffer.getvalue()
