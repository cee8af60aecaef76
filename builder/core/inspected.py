"""What reading one library brought to light."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Sequence, Tuple

from builder.core.coverage import LibraryCoverage

Report = Tuple[str, Sequence["Inspected"]]
"""A source, as it is called in what is shown, and its libraries in their order."""


@dataclass(frozen=True)
class Inspected:
    """One library: its coverage, or ``None`` without device code, or what keeps it from being read."""

    name: str
    coverage: Optional[LibraryCoverage] = None
    problem: str = ""
    bare: bool = False
    """A fatbin by itself, as ``nvcc --fatbin`` writes it: no library, so no section and no SONAME."""
    soname: Optional[str] = None
    needed: Tuple[str, ...] = ()

    @property
    def runnable(self) -> Optional[LibraryCoverage]:
        """Its coverage if there is anything in it to run."""
        coverage = self.coverage
        return coverage if coverage and coverage.idle < coverage.containers else None
