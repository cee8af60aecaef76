"""One library of a package, as the rules over a whole package see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Tuple

from builder.core.checks import Severity
from builder.core.elf import Elf
from builder.core.families import NVIDIA
from builder.core.versions import wheel_version


@dataclass(frozen=True)
class Library:
    """One library of a package: its path inside, whose it is, and what it asks of the loader."""

    path: str
    vendor: str
    elf: Elf
    source: str = ""
    """``Member.source``; anything that is no wheel's key where it is not known."""
    stamp: Optional[str] = None
    """The version in its bytes (``core.stamp``)."""
    opens: Tuple[str, ...] = ()
    """The names in its bytes of what it opens at run time (``core.opened_names``)."""
    link: Optional[str] = None
    """What it leads to, where it is a link and no file."""

    @property
    def name(self) -> str:
        """Its file name, by which the loader finds it."""
        return self.path.rsplit("/", 1)[-1]

    @property
    def search(self) -> Optional[str]:
        """Where it looks for its neighbours; RPATH is ignored beside RUNPATH."""
        return self.elf.rpath if self.elf.runpath is None else self.elf.runpath

    @property
    def version(self) -> Optional[str]:
        """Its version: the bytes are believed before a manifest. ``None`` where neither tells."""
        return self.stamp or wheel_version(self.source)

    @property
    def severity(self) -> Severity:
        """How bad a fault is that NVIDIA's files may have, because they may not be changed."""
        return Severity.WARNING if self.vendor == NVIDIA else Severity.ERROR
