"""Names of packages and release assets: made from plain values, and read back.

``ortpacks-legacy-1.21.0-cuda12.9-lean-linux-x64``: variant, ORT version, CUDA version, the profile where less
than the official build was compiled, platform. Only ``[A-Za-z0-9._+-]``: GitHub rewrites anything else in an
asset's name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Optional

from builder.core.variant import BuildPlan, Profile
from builder.errors import ValidationError

ARCHIVE_SUFFIX = ".tar.zst"
PLATFORM = "linux-x64"
REDUCED = (Profile.LEAN.value, Profile.MINIMAL.value)
"""Profiles that a name tells."""

_VARIANT = r"[A-Za-z0-9][A-Za-z0-9._+-]*"
_VERSION = r"\d+\.\d+\.\d+[A-Za-z0-9.+]*"
_NAME = re.compile(
    rf"ortpacks-(?P<variant>{_VARIANT})-(?P<ort>{_VERSION})-cuda(?P<cuda>\d+\.\d+)"
    r"(?:-(?P<profile>lean|minimal))?-(?P<platform>linux-x64)"
)
_RULE = "ortpacks-<variant>-<ORT version>-cuda<X.Y>[-lean|-minimal]-linux-x64"


@dataclass(frozen=True)
class PackageName:
    """What a package's name says. ``profile`` is ``None`` for ``full`` and for repacked wheels."""

    variant: str
    ort: str
    cuda: str
    profile: Optional[str] = None
    platform: str = PLATFORM

    def __post_init__(self) -> None:
        if _NAME.fullmatch(str(self)) is None:
            raise ValidationError(
                f"{self} cannot be a package's name. Names look like {_RULE}, in [A-Za-z0-9._+-]."
            )

    def __str__(self) -> str:
        reduced = f"-{self.profile}" if self.profile else ""
        return f"ortpacks-{self.variant}-{self.ort}-cuda{self.cuda}{reduced}-{self.platform}"

    @property
    def archive(self) -> str:
        """File name of the package, and name of the asset on a release."""
        return f"{self}{ARCHIVE_SUFFIX}"

    @classmethod
    def parse(cls, text: str) -> PackageName:
        """Read a package's name or its archive's file name; ``ValidationError`` on anything else."""
        match = _NAME.fullmatch(text.removesuffix(ARCHIVE_SUFFIX))
        if match is None:
            raise ValidationError(
                f"{text!r} is not a package's name. Names look like {_RULE}{ARCHIVE_SUFFIX}."
            )
        return cls(match["variant"], match["ort"], match["cuda"], match["profile"], match["platform"])


def package_name(plan: BuildPlan) -> PackageName:
    """The name a plan's package will have."""
    profile = plan.profile.value if plan.profile else None
    return PackageName(
        variant=plan.variant.name,
        ort=plan.ort_version,
        cuda=plan.project.cuda.version,
        profile=profile if profile in REDUCED else None,
    )
