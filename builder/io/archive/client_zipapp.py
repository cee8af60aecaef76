"""This module writes ``ortpacks.pyz``, the client, and ``ortpacks-inspect.pyz``, each one file of Python.

The same sources give the same bytes. The client has all modules of the folders in ``SHIPPED``; ``inspect``
has the modules that its entry point imports, directly or not.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from functools import cache
from io import BytesIO
from modulefinder import ModuleFinder
from pathlib import Path

from builder.files.atomic_write import part_file
from builder.io.archive.zip_file import PLAIN, ZipWriter

INSPECTOR = "ortpacks-inspect.pyz"

SHIPPED = ("client", "errors.py", "facts/gpu", "files", "finding.py", "formats")
"""The parts of ``builder`` that run on the user's machine, with Python 3.9's standard library."""

_SHIPPED_KINDS = (".py", ".json", ".onnx")

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

from builder.inspect.__main__ import main
sys.exit(main(sys.argv[1:]))
"""

_DEFAULT_INDEX = "builder/client/default_index.txt"

_ROOT, _FIRST_ROOT = "builder/client/root.json", "builder/client/1.root.json"


def build_client(source: Path, target: Path, index_url: str | None, *roots: bytes) -> Path:
    """Write the client and return its path, ``target``. Raises ``DiskError``.

    ``source`` is the folder of the package ``builder``, ``index_url`` the client's default index. ``roots``
    are the project's, oldest first: the last one names the keys that the client trusts, the first one
    identifies the project. Without roots the client verifies no signature.
    """
    members = {name: (source / name).read_bytes() for name in _modules(source)}
    members["__main__.py"] = _START.encode()
    if index_url is not None:
        members[_DEFAULT_INDEX] = f"{index_url}\n".encode()
    if roots:
        members.update({_ROOT: roots[-1], _FIRST_ROOT: roots[0]})
    return _write(target, members)


def build_inspector(source: Path, target: Path) -> Path:
    """Write ``inspect`` as one file and return its path, ``target``. Raises ``DiskError``."""
    modules = imported_modules(source, "builder/inspect/__main__.py")
    members = {name: (source / name).read_bytes() for name in modules}
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


_FINDING = threading.Lock()
"""Held by the thread whose ``ModuleFinder`` runs, since it empties a cache of the import system."""


@cache
def imported_modules(source: Path, *entries: str) -> tuple[str, ...]:
    """Return ``entries`` and all our modules that they import, directly or not, as paths below ``source``.

    With a module come the JSON file and the script of its name, where there are any. A process looks once:
    that takes a second.
    """
    finder = ModuleFinder([str(source)])
    with _FINDING:
        for entry in entries:
            finder.run_script(str(source / entry))
    files = [Path(file) for module in finder.modules.values() if (file := vars(module)["__file__"])]
    data = [file.with_suffix(kind) for file in files for kind in (".json", ".sh")]
    return tuple(
        sorted({file.relative_to(source).as_posix() for file in (*files, *filter(Path.is_file, data))})
    )


def _modules(source: Path) -> list[str]:
    """Return what ships, and the packages that it lies in, as paths below ``source``."""
    places = [source / "builder" / name for name in SHIPPED]
    shipped = {
        path for place in places for path in (place, *place.rglob("*")) if path.suffix in _SHIPPED_KINDS
    }
    packages = {
        above / "__init__.py" for path in shipped for above in path.parents if source in above.parents
    }
    return sorted(path.relative_to(source).as_posix() for path in shipped | packages)
