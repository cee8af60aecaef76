"""Where NVIDIA's wheels come from: folders that the user names, by their bytes; else pip."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Iterator, Optional, Tuple

from builder.client.digest import sha256_of
from builder.client.pip import Pip
from builder.core.manifest import WheelEntry
from builder.errors import TransferError


@dataclass(frozen=True)
class Wheels:
    """``pip`` is ``None`` where nothing may be fetched."""

    folders: Tuple[Path, ...]
    pip: Optional[Pip]

    def bring(self, wheel: WheelEntry, work: Path, say: Callable[[str], None]) -> Path:
        """The wheel, proved. ``work`` is an empty folder for what is fetched.

        Raises ``TransferError`` where it is in none of the folders and pip may not be asked, or as ``Pip``.
        """
        path = self.find(wheel)
        if path is not None:
            return path
        if self.pip is None:
            raise TransferError(
                f"{wheel.file}: not here, and --offline fetches nothing. Put it into a folder for --wheels, "
                "or take what has NVIDIA's libraries inside: --layout full."
            )
        say(f"Fetching {wheel.file} ({wheel.size / 2**20:.0f} MiB) through pip.")
        return self.pip.download(wheel, work)

    def find(self, wheel: WheelEntry) -> Optional[Path]:
        """A file with exactly the wheel's bytes, whatever its name; one that has it is looked at first."""
        return next((path for path in self._candidates(wheel) if _matches(path, wheel)), None)

    def _candidates(self, wheel: WheelEntry) -> Iterator[Path]:
        yield from (folder / wheel.file for folder in self.folders)
        for folder in self.folders:
            yield from sorted(path for path in folder.glob("*.whl") if path.name != wheel.file)


def _matches(path: Path, wheel: WheelEntry) -> bool:
    """By size, then sha256. What cannot be read does not match."""
    try:
        return path.is_file() and path.stat().st_size == wheel.size and sha256_of(path) == wheel.sha256
    except OSError:
        return False
