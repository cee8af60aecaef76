"""This module writes ``ortpacks.pyz``, the client, and ``ortpacks-inspect.pyz``, each one file of Python.

The same sources give the same bytes. The client has all modules of the folders in ``SHIPPED``; ``inspect``
has the modules that its entry point imports, directly or not.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from io import BytesIO
from modulefinder import ModuleFinder
from pathlib import Path

from builder.adapters.archive.zip_file import PLAIN, ZipWriter
from builder.files.atomic_write import part_file

INSPECTOR = "ortpacks-inspect.pyz"

SHIPPED = ("client", "files", "findings", "formats", "gpu", "selection")
"""The folders of ``builder`` that run on the user's machine, with Python 3.9's standard library."""

_SHEBANG = b"#!/usr/bin/env python3\n"

_START = """\
import sys

if sys.version_info < (3, 9):
    sys.exit("ortpacks needs Python 3.9 or newer, this is " + sys.version.split()[0])

try:
    from builder.client.__main__ import run
    sys.exit(run())
except ImportError as error:
    if (error.name or "builder").startswith("builder"):
        raise
    sys.stderr.write(
        "ortpacks: this Python lacks the module " + error.name + " of its standard library. "
        "Install python3; python3-minimal is not enough.\\n"
    )
    sys.exit(4)
except KeyboardInterrupt:
    sys.exit(130)
"""

_START_INSPECTOR = """\
import sys

if sys.version_info < (3, 10):
    sys.exit("ortpacks-inspect needs Python 3.10 or newer, this is " + sys.version.split()[0])

if sys.version_info >= (3, 14):
    import compression.zstd
    sys.modules["backports.zstd"] = compression.zstd

from builder.inspector.__main__ import main
sys.exit(main(sys.argv[1:]))
"""

_DEFAULT_INDEX, _ROOT = "builder/client/default_index.txt", "builder/client/root.json"


def build_client(source: Path, target: Path, index_url: str | None, root: bytes | None = None) -> Path:
    """Write the client and return its path, ``target``. Raises ``DiskError``.

    ``source`` is the folder of the package ``builder``; ``index_url`` is the client's default index; ``root``
    names the keys that the client trusts; without ``root`` it verifies no signature.
    """
    members = {name: (source / name).read_bytes() for name in _modules(source)}
    members["__main__.py"] = _START.encode()
    if index_url is not None:
        members[_DEFAULT_INDEX] = f"{index_url}\n".encode()
    if root is not None:
        members[_ROOT] = root
    return _write(target, members)


def build_inspector(source: Path, target: Path) -> Path:
    """Write ``inspect`` as one file and return its path, ``target``. Raises ``DiskError``."""
    members = {
        name: (source / name).read_bytes() for name in _imported(source, "builder/inspector/__main__.py")
    }
    return _write(target, {**members, "__main__.py": _START_INSPECTOR.encode()})


def _write(target: Path, members: Mapping[str, bytes]) -> Path:
    archive = BytesIO()
    with ZipWriter(archive) as writer:
        for name, content in sorted(members.items()):
            writer.compress(name, [content], PLAIN)
    with part_file(target) as file:
        file.write(_SHEBANG + archive.getvalue())
        os.fchmod(file.fileno(), 0o755)
    return target


def _imported(source: Path, entry: str) -> list[str]:
    """Return ``entry`` and all our modules that it imports, directly or not, as paths below ``source``."""
    finder = ModuleFinder([str(source)])
    finder.run_script(str(source / entry))
    files = (vars(module)["__file__"] for module in finder.modules.values())
    return sorted({Path(file).relative_to(source).as_posix() for file in files if file})


def _modules(source: Path) -> list[str]:
    """Return the modules of the shipped folders and the two files above them, as paths below ``source``."""
    rooms = (path for room in SHIPPED for path in (source / "builder" / room).rglob("*.py"))
    above = (source / "builder" / name for name in ("__init__.py", "errors.py"))
    return sorted(path.relative_to(source).as_posix() for path in (*rooms, *above))
