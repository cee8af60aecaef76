"""The tag of a release, and the addresses of its files."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from builder.errors import BuilderError
from builder.formats.manifest import Manifest
from builder.formats.package_names import INDEX
from builder.gpu.cuda_toolkits import version_of
from builder.package.archive import Archive, manifest_of
from builder.project.variants import Project, Publish
from builder.release.assets import require_tag
from builder.release.dist_files import archives_in


def release_tag(directory: Path, project: Project, archive: Archive, tag: str | None = None) -> str:
    """Return the release's tag: ``tag``, or ``publish.tag`` with the packages' ORT version.

    The client needs the tag before packages are checked, so a package that cannot be read is skipped here and
    reported by ``publish``. Raises ``NothingToDoError`` (no packages) or ``ConfigError`` (not a git tag).
    """
    paths = archives_in(directory)
    return require_tag(tag) if tag else tag_of(project, None, versions_of(readable(paths, archive)))


def readable(packages: Iterable[Path], archive: Archive) -> list[Manifest]:
    """Return the manifests of the packages that can be read."""
    found = []
    for package in packages:
        with suppress(BuilderError):
            found.append(manifest_of(package, archive))
    return found


def versions_of(manifests: Iterable[Manifest]) -> set[str]:
    """Return the ORT versions of a release's packages for its oldest CUDA, or of all if none is for CUDA."""
    found = list(manifests)
    oldest = min((version_of(manifest.cuda)[0] for manifest in found if manifest.cuda), default=None)
    of_it = (one for one in found if oldest is None or (one.cuda and version_of(one.cuda)[0] == oldest))
    return {manifest.onnxruntime.version for manifest in of_it}


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
