"""Where one variant is built."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Workplace:
    """The folder ``dist/<variant>`` and what lies in it."""

    root: Path

    @property
    def dockerfile(self) -> Path:
        """The rendered Dockerfile."""
        return self.root / "Dockerfile"

    @property
    def runtime_dockerfile(self) -> Path:
        """The rendered Dockerfile of the runtime image."""
        return self.root / "runtime.Dockerfile"

    @property
    def context(self) -> Path:
        """The main build context."""
        return self.root / "context"

    @property
    def artifact(self) -> Path:
        """ORT's libraries as compiled."""
        return self.root / "artifact"

    @property
    def artifact_key(self) -> Path:
        """What the libraries in ``artifact`` were compiled for."""
        return self.root / "artifact.key"

    @property
    def unverified(self) -> Path:
        """Where a package lies until it is verified."""
        return self.root / "unverified"

    @property
    def kit(self) -> Path:
        """What a package is tried out with: ``ortpacks-smoke``."""
        return self.root / "kit"

    @property
    def log(self) -> Path:
        """The whole log of the last build."""
        return self.root / "build.log"
