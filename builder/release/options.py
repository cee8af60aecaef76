"""Publishing's options, ports and result, and the addresses of a release."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from jinja2 import BaseLoader

from builder.errors import BuilderError, NothingToDoError
from builder.formats import manifest as manifest_format
from builder.formats.manifest import Manifest
from builder.formats.package_names import ARCHIVE_SUFFIXES, CUDA, PARTS_SUFFIX
from builder.package.archive import Archive, Checksums
from builder.ports import Reporter
from builder.project.variants import Project, Publish
from builder.release.assets import INDEX, ReleaseHost, StatusRow, require_tag
from builder.release.preflight import Leniency

CLIENT = "ortpacks.pyz"


@dataclass(frozen=True, kw_only=True)
class PublishPorts:
    """The ports of publishing."""

    host: ReleaseHost
    archive: Archive
    checksums: Checksums
    reporter: Reporter
    verify: Callable[[Path], None]
    """Raises a ``BuilderError`` for a package that must not be released."""
    write: Callable[[Path], AbstractContextManager[IO[bytes]]]
    """Opens a file that appears whole or not at all."""
    loader: BaseLoader
    """Finds ``release-notes.md.j2`` and ``licences.html.j2``."""


@dataclass(frozen=True, kw_only=True)
class PublishOptions:
    """The options of publishing; ``tag`` defaults to ``publish.tag`` with the packages' ORT version."""

    tag: str | None = None
    dry_run: bool = False
    """Show what would be done; nothing is written to the host."""
    commit: str | None = None
    """Where a tag that is not there yet is made; by default the host's choice."""
    draft: bool = False
    """Stop before the release becomes public."""
    replace: bool = False
    """A published release that differs becomes a draft again, and public once it is equal."""
    allow: Leniency = field(default_factory=Leniency)


class State(StrEnum):
    """The state of a release."""

    PUBLISHED = "published"
    UNCHANGED = "unchanged"
    """It was there already, equal."""
    DRAFT = "draft"
    DRY_RUN = "dry-run"
    DIFFERS = "differs"
    """Public, and not what is here. Only ``release_status`` tells it; ``publish`` refuses or replaces."""
    ABSENT = "absent"


@dataclass(frozen=True, kw_only=True)
class Published:
    """The state at the end, with every file of both sides."""

    tag: str
    state: State
    url: str | None
    rows: tuple[StatusRow, ...]


def archives_in(directory: Path) -> list[Path]:
    """The packages in a folder: archives and ``.parts.json`` files. ``NothingToDoError`` if there is none."""
    ends = [f"{suffix}{more}" for suffix in ARCHIVE_SUFFIXES for more in ("", PARTS_SUFFIX)]
    found = sorted(path for end in ends for path in directory.glob(f"*{end}"))
    if not found:
        raise NothingToDoError(f"{directory} holds no package. `./run build --all` makes them.")
    return found


def release_tag(directory: Path, project: Project, archive: Archive, tag: str | None = None) -> str:
    """The release's tag: ``tag``, or ``publish.tag`` with the packages' ORT version.

    The client needs it before packages are checked, so a package that cannot be read is skipped here and
    reported by ``publish``. Raises ``NothingToDoError`` (no packages) or ``ConfigError`` (not a git tag).
    """
    manifests = []
    for path in archives_in(directory):
        with suppress(BuilderError):
            manifests.append(manifest_format.loads(archive.read_manifest(path), path.name))
    return tag_of(project, tag, versions_of(manifests))


def versions_of(manifests: Iterable[Manifest]) -> set[str]:
    """The ORT versions of a release's CUDA packages, or of all packages where none is for CUDA."""
    found = list(manifests)
    cuda = {manifest.onnxruntime.version for manifest in found if manifest.provider == CUDA}
    return cuda or {manifest.onnxruntime.version for manifest in found}


def tag_of(project: Project, wanted: str | None, versions: set[str]) -> str:
    """``wanted``, or ``publish.tag`` with the only version, else with ``onnxruntime.version``.

    Raises ``ConfigError`` for a tag that git refuses.
    """
    version = min(versions) if len(versions) == 1 else project.onnxruntime.version
    return require_tag(wanted or project.publish.tag.replace("{version}", version))


def index_url(publishing: Publish, tag: str) -> str:
    """The address of a release's index."""
    return f"{downloads(publishing, tag)}/{INDEX}"


def downloads(publishing: Publish, tag: str) -> str:
    """The address of a release's files, without a final slash."""
    return f"{web_root(publishing.api)}/{publishing.repository}/releases/download/{tag}"


def web_root(api: str) -> str:
    """The web address of an API's host: github.com for api.github.com, else the server itself."""
    split = urlsplit(api)
    return f"{split.scheme}://{split.netloc.removeprefix('api.')}"
