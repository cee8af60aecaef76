"""What changed between two packages, as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Tuple


@dataclass(frozen=True)
class Change:
    """One thing that is not the same: its key, and its value in either; ``None`` where there is none."""

    what: str
    a: Optional[str]
    b: Optional[str]


@dataclass(frozen=True)
class FileSize:
    """A file that only one of them has; ``size`` in bytes."""

    path: str
    size: int


@dataclass(frozen=True)
class FileChange:
    """A file of both, and what of its entry differs: its size and sha256, where it comes from."""

    path: str
    changes: Tuple[Change, ...]


@dataclass(frozen=True)
class Size:
    """Bytes of both; ``None`` where nobody measured."""

    what: str
    """``archive``, ``unpacked`` (what travels in it) or ``installed`` (all files)."""
    a: Optional[int]
    b: Optional[int]


@dataclass(frozen=True)
class Difference:
    """All that differs between package ``a`` and package ``b``."""

    a: str
    b: str
    versions: Tuple[Change, ...]
    """ONNX Runtime, CUDA, cuDNN, the toolkit, the base, the wheels, and how the package is made."""
    architectures: Tuple[Change, ...]
    """What was promised, what runs on which device, each library's SASS and PTX, the drivers."""
    licences: Tuple[Change, ...]
    """Of files that both have: the licence text by the file's path, and the sha256 of such texts."""
    models: Tuple[Change, ...]
    """The model table's lines by their number."""
    added: Tuple[FileSize, ...]
    removed: Tuple[FileSize, ...]
    changed: Tuple[FileChange, ...]
    moved: Tuple[Change, ...]
    """Files that are ``packed`` in one and ``fetched`` from their wheel in the other."""
    sizes: Tuple[Size, ...]

    @property
    def equal(self) -> bool:
        """Whether nothing differs but, perhaps, the archives' bytes and the packages' names."""
        return not any(
            (
                *(self.versions, self.architectures, self.licences, self.models),
                *(self.added, self.removed, self.changed, self.moved),
            )
        )
