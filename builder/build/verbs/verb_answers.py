"""The JSON answers of verbs for scripts. ``./run docs`` makes their schemas from these classes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Literal

from builder.build.runtime_image import VariantImages
from builder.config import document
from builder.config.fields import ProjectSection
from builder.errors import CheckFailedError
from builder.files.digest import file_digest
from builder.formats.proof import Proof
from builder.publish.prepare import ReleaseState, ReleaseStatus


@dataclass(frozen=True, kw_only=True)
class PackageFile(ProjectSection):
    """A package in ``dist``."""

    path: str
    size: int
    """Size of the file in bytes."""
    sha256: str
    verified: bool
    """Whether every check of it passed."""
    problems: tuple[str, ...]
    """The findings of the checks, as text."""


@dataclass(frozen=True, kw_only=True)
class PackagesAnswer(ProjectSection):
    """The packages that were built or verified."""

    format: Literal[1]
    packages: tuple[PackageFile, ...]


@dataclass(frozen=True, kw_only=True)
class Checked(ProjectSection):
    """One comparison: of a package with a variant, or of a released package with the one built again."""

    variant: str | None
    """The variant; null for the one that the package's manifest names."""
    package: str
    """The package or folder."""
    ok: bool
    problems: tuple[str, ...]
    """The findings of the check, as text."""


@dataclass(frozen=True, kw_only=True)
class ChecksAnswer(ProjectSection):
    """What ``verify --read-only`` or ``rebuild`` compared. The exit code is 6 unless all of it is ok."""

    format: Literal[1]
    checks: tuple[Checked, ...]


@dataclass(frozen=True, kw_only=True)
class ReleaseFile(ProjectSection):
    """A file of the release, of ``dist``, or of both."""

    name: str
    status: str
    """Result of the comparison: equal, missing, differs, broken (not completed) or extra."""


@dataclass(frozen=True, kw_only=True)
class StatusAnswer(ProjectSection):
    """The release compared with ``dist``.

    The exit code of ``release-status`` is 1 unless the release is public and equal.
    """

    format: Literal[1]
    tag: str
    state: ReleaseState
    url: str | None
    files: tuple[ReleaseFile, ...]


@dataclass(frozen=True, kw_only=True)
class Result(ProjectSection):
    """A file or folder that our verbs made."""

    path: str
    size: int
    """The bytes that its removal frees."""


@dataclass(frozen=True, kw_only=True)
class EngineThing(ProjectSection):
    """A container, an image or a cache on the engine that our verbs made."""

    kind: str
    name: str
    size: int
    """The bytes that the engine says it takes."""


@dataclass(frozen=True, kw_only=True)
class CleanAnswer(ProjectSection):
    """What ``clean`` removes."""

    format: Literal[1]
    removed: bool
    """Whether it was removed: false with ``--dry-run``."""
    paths: tuple[Result, ...]
    engine: tuple[EngineThing, ...]


@dataclass(frozen=True, kw_only=True)
class ImagesAnswer(ProjectSection):
    """The images that ``image`` made."""

    format: Literal[1]
    images: tuple[VariantImages, ...]


class PointState(StrEnum):
    """The states of one point of a release."""

    SET = "set"
    OPEN = "open"
    """Not set: a dry run of publish fails with it."""
    OPTIONAL = "optional"
    """A release is possible with it and without it."""
    UNKNOWN = "unknown"
    """This machine cannot tell."""


@dataclass(frozen=True, kw_only=True)
class ReleasePoint(ProjectSection):
    """One thing that a release needs, or may have."""

    name: str
    state: PointState
    found: str
    """What is there now, in words."""
    purpose: str
    """What it is for."""
    do: str
    """The next command or setting; empty for a point that is set."""


@dataclass(frozen=True, kw_only=True)
class ReadinessAnswer(ProjectSection):
    """What a release still needs, in the order of the work. The exit code is 6 if a point is open."""

    format: Literal[1]
    points: tuple[ReleasePoint, ...]


SCHEMAS: Mapping[str, tuple[type[object], str]] = {
    "packages": (PackagesAnswer, "ortpacks build --json, verify --json"),
    "checks": (ChecksAnswer, "ortpacks verify --read-only --json, rebuild --json"),
    "release-status": (StatusAnswer, "ortpacks release-status --json, publish --json, mirror --json"),
    "clean": (CleanAnswer, "ortpacks clean --json"),
    "images": (ImagesAnswer, "ortpacks image --json"),
    "proof": (Proof, "<card>.json, which ortpacks prove writes, format 1"),
    "doctor-release": (ReadinessAnswer, "ortpacks doctor --release --json"),
}
"""The class and the title of each schema, by its name."""


def schema_file(name: str) -> str:
    """Return the text of a schema's file in ``docs/schemas``."""
    kind, title = SCHEMAS[name]
    return document.schema_file(kind, title)


def dumps(answer: object) -> str:
    """Return the JSON text of an answer."""
    return json.dumps(asdict(answer), indent=2)  # type: ignore[call-overload]


def problems_of(work: Callable[[], object]) -> tuple[str, ...]:
    """Run a check and return its findings as text; empty if it passed."""
    try:
        work()
    except CheckFailedError as error:
        return error.findings or (error.headline,)
    return ()


def packages_answer(problems: Mapping[Path, tuple[str, ...]]) -> PackagesAnswer:
    """Return the answer for packages with the problems of each."""
    files = (
        PackageFile(path=str(path), **asdict(file_digest(path)), verified=not wrong, problems=wrong)
        for path, wrong in problems.items()
    )
    return PackagesAnswer(format=1, packages=tuple(files))


def checked(variant: str | None, package: str, problems: tuple[str, ...]) -> Checked:
    """Return the comparison that found ``problems``."""
    return Checked(variant=variant, package=package, ok=not problems, problems=problems)


def checks_answer(works: Mapping[tuple[str, str | None], Callable[[], object]]) -> ChecksAnswer:
    """Run the checks in ``works``, which has them by package and variant, and return their results."""
    checks = (checked(variant, package, problems_of(work)) for (package, variant), work in works.items())
    return ChecksAnswer(format=1, checks=tuple(checks))


def status_answer(status: ReleaseStatus) -> StatusAnswer:
    """Return the answer for a release compared with ``dist``."""
    files = tuple(ReleaseFile(name=row.name, status=row.status.name.lower()) for row in status.rows)
    return StatusAnswer(format=1, tag=status.tag, state=status.state, url=status.url, files=files)


def require_no_problems(answer: PackagesAnswer | ChecksAnswer) -> None:
    """Raise ``CheckFailedError`` with every problem of an answer."""
    parts = answer.packages if isinstance(answer, PackagesAnswer) else answer.checks
    failed = [part.problems for part in parts if part.problems]
    if failed:
        raise CheckFailedError(
            f"{len(failed)} of {len(parts)} failed", [line for problems in failed for line in problems]
        )
