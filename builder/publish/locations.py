"""Where a release is: its tag, its files in ``dist``, and their addresses on the host."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from builder.config.variants import Project, Publish
from builder.contents.integrity import read_checksums
from builder.errors import BuilderError, NothingToDoError
from builder.facts.gpu.compatibility import version_of
from builder.files.digest import LocalFile
from builder.formats.manifest import Manifest
from builder.formats.package_names import ARCHIVE_SUFFIXES, CHECKSUMS, INDEX, LINUX
from builder.formats.stored_file import StoredFile
from builder.formats.trust import TARGETS, root_name
from builder.io.archive.unpacking import manifest_of
from builder.publish.assets import require_tag


def archives_in(directory: Path) -> list[Path]:
    """Return the packages in a folder, sorted. Raises ``NothingToDoError`` if there is none."""
    archives = sorted(path for end in ARCHIVE_SUFFIXES for path in directory.glob(f"*{end}"))
    if not archives:
        raise NothingToDoError(f"{directory} holds no package", advice="`./run build --all` makes them.")
    return archives


def stored(file: LocalFile) -> StoredFile:
    """Return a package's archive as an index names it."""
    return StoredFile(file.name, file.size, file.sha256)


def files_there(directory: Path) -> list[LocalFile]:
    """Return a release's files in ``directory``: those of ``SHA256SUMS``, itself, roots, ``targets.json``."""
    names = {*read_checksums(directory), CHECKSUMS, TARGETS}
    names |= {path.name for path in directory.glob(root_name("*"))}
    paths = sorted(directory / name for name in names)
    return [LocalFile.of(path) for path in paths if path.is_file()]


def release_tag(directory: Path, project: Project, tag: str | None = None) -> str:
    """Return the release's tag: ``tag``, or ``publish.tag`` with the packages' ORT version.

    The client needs the tag before packages are checked, so a package that cannot be read is skipped here and
    reported by ``publish``. Raises ``NothingToDoError`` (no packages) or ``ConfigError`` (not a git tag).
    """
    paths = archives_in(directory)
    return require_tag(tag) if tag else tag_of(project, None, versions_of(readable(paths)))


def readable(packages: Iterable[Path]) -> list[Manifest]:
    """Return the manifests of the packages that can be read."""
    manifests = []
    for package in packages:
        with suppress(BuilderError):
            manifests.append(manifest_of(package))
    return manifests


def versions_of(manifests: Iterable[Manifest]) -> set[str]:
    """Return the ORT versions of a release's packages for its oldest CUDA, on Linux if it has such.

    Without packages for CUDA, those of all.
    """
    families = defaultdict(set)
    for manifest in manifests:
        number = version_of(manifest.cuda)[0] if manifest.cuda else sys.maxsize
        families[number, manifest.platform != LINUX].add(manifest.onnxruntime.version)
    return families[min(families)] if families else set()


def tag_of(project: Project, wanted: str | None, versions: set[str]) -> str:
    """Return ``wanted``, or ``publish.tag`` with the only version, else with ``onnxruntime.version``.

    Raises ``ConfigError`` for a tag that git refuses.
    """
    version = min(versions) if len(versions) == 1 else project.onnxruntime.version
    return require_tag(wanted or project.publish.tag.replace("{version}", version))


def index_url(publishing: Publish, tag: str) -> str:
    """Return the address of a release's index."""
    return f"{downloads(publishing, tag)}/{INDEX}"


def downloads(publishing: Publish, tag: str) -> str:
    """Return the address of a release's files, without a final slash."""
    return f"{web_root(publishing.api)}/{publishing.repository}/releases/download/{tag}"


def web_root(api: str) -> str:
    """Return the web address of an API's host: github.com for api.github.com, else the server itself.

    A server with ``/api/v3`` may be called ``api.…``.
    """
    split = urlsplit(api)
    host = split.netloc if split.path.strip("/") else split.netloc.removeprefix("api.")
    return f"{split.scheme}://{host}"
