"""This module prepares the files of a release: it checks and hashes packages, then writes the other files.

The other files are SBOMs, licences page, index, checksums and signatures. The module also has publishing's
options, ports and result, and the addresses of a release. Nothing here contacts the host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import groupby
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from jinja2 import BaseLoader

from builder.errors import BuilderError, IntegrityError, NothingToDoError
from builder.files.digest import LocalFile, file_digest
from builder.findings.finding import Code, Finding, require
from builder.formats import index as index_format
from builder.formats import parts as parts_format
from builder.formats.index import Index, StoredArchive, build_index
from builder.formats.manifest import FileEntry, Manifest
from builder.formats.package_names import ARCHIVE_SUFFIXES, CHECKSUMS, CLIENT, INDEX, PARTS_SUFFIX
from builder.formats.trust import TARGETS, root_name
from builder.gpu.cuda_toolkits import version_of
from builder.package.archive import Archive, Checksums, manifest_of
from builder.package.contents import NOTICE, SBOM
from builder.pipeline.render import template_environment
from builder.ports import Reporter
from builder.project.variants import Project, Publish
from builder.release.assets import ReleaseHost, Repository, StatusRow, require_tag
from builder.release.preflight import (
    Candidate,
    Leniency,
    check_complete,
    check_files,
    check_index,
    check_packages,
)
from builder.release.signing import Signing, signed_targets

ROOTS = "trust"
"""Name of the project's folder of roots."""


@dataclass(frozen=True, kw_only=True)
class PublishPorts:
    """The ports of publishing."""

    host: ReleaseHost
    archive: Archive
    checksums: Checksums
    reporter: Reporter
    verify: Callable[[Path], object]
    """Raises a ``BuilderError`` for a package that must not be released."""
    write: Callable[[Path], AbstractContextManager[IO[bytes]]]
    """Opens a file that appears whole or not at all."""
    loader: BaseLoader
    """Loader of ``release-notes.md.j2`` and ``licences.html.j2``."""
    repository: Repository | None = None
    """The host's git repository; ``None`` for a mirror."""
    signing: Signing | None = None
    """Roots and signers; ``None`` if the project has no root, so that its releases are not signed."""


@dataclass(frozen=True, kw_only=True)
class PublishOptions:
    """The options of publishing; ``tag`` defaults to ``publish.tag`` with the packages' ORT version."""

    tag: str | None = None
    dry_run: bool = False
    """Whether to show what would be done and write nothing to the host."""
    commit: str | None = None
    """Commit on which a missing tag is made; ``None``: the host's choice."""
    draft: bool = False
    """Whether to stop before the release becomes public."""
    replace: bool = False
    """Whether a published release that differs becomes a draft, and public again once it is equal."""
    allow: Leniency = field(default_factory=Leniency)
    keys: tuple[Path, ...] = ()
    """Files of keys that sign."""


class State(StrEnum):
    """The state of a release."""

    PUBLISHED = "published"
    UNCHANGED = "unchanged"
    """Public before, and equal."""
    DRAFT = "draft"
    DRY_RUN = "dry-run"
    DIFFERS = "differs"
    """Public, and different from the local files. Only ``release_status`` returns it."""
    ABSENT = "absent"


@dataclass(frozen=True, kw_only=True)
class Published:
    """The state of the release at the end, with every file of both sides."""

    tag: str
    state: State
    url: str | None
    rows: tuple[StatusRow, ...]


def archives_in(directory: Path) -> list[Path]:
    """Return the packages in a folder, sorted: archives and ``.parts.json`` files.

    Raises ``NothingToDoError`` if there is none.
    """
    ends = [f"{suffix}{more}" for suffix in ARCHIVE_SUFFIXES for more in ("", PARTS_SUFFIX)]
    found = sorted(path for end in ends for path in directory.glob(f"*{end}"))
    if not found:
        raise NothingToDoError(f"{directory} holds no package. `./run build --all` makes them.")
    return found


def release_tag(directory: Path, project: Project, archive: Archive, tag: str | None = None) -> str:
    """Return the release's tag: ``tag``, or ``publish.tag`` with the packages' ORT version.

    The client needs the tag before packages are checked, so a package that cannot be read is skipped here and
    reported by ``publish``. Raises ``NothingToDoError`` (no packages) or ``ConfigError`` (not a git tag).
    """
    manifests = []
    for path in archives_in(directory):
        with suppress(BuilderError):
            manifests.append(manifest_of(path, archive))
    return tag_of(project, tag, versions_of(manifests))


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
    """Return the web address of an API's host: github.com for api.github.com, else the server itself."""
    split = urlsplit(api)
    return f"{split.scheme}://{split.netloc.removeprefix('api.')}"


@dataclass(frozen=True, kw_only=True)
class PreparedRelease:
    """A release without its notes."""

    tag: str
    title: str
    index: Index
    files: tuple[LocalFile, ...]
    """Every asset. ``SHA256SUMS`` names all of them except itself and the files of the signature."""


def prepare(
    directory: Path, project: Project, ports: PublishPorts, options: PublishOptions
) -> PreparedRelease:
    """Check the packages in ``directory``, write the release's other files there, and return the release.

    Raises ``NothingToDoError`` (no packages) or ``CheckFailedError`` (every finding).
    """
    archives = archives_in(directory)
    what = f"{directory} cannot be released"
    sums = ports.checksums.read(directory)
    listed = {name: digest for name, digest in sums.items() if not _made_anew(name)}
    files = [_local_file(path) for path in _release_files(directory, archives, listed)]
    of_all = [name for name, variant in project.packages.items() if variant.in_all]
    candidates, findings = _candidates([file for file in files if file.path in archives], ports)
    findings += check_files(files, {**listed, **_client_line(files)})
    findings += check_packages(candidates, options.allow)
    findings += [] if options.allow.partial else check_complete(candidates, of_all)
    require(findings, what)
    versions = versions_of(item.manifest for item in candidates)
    tag = tag_of(project, options.tag, versions)
    index = build_index(tag, [(item.manifest, stored(item.file)) for item in candidates], project.models)
    require(check_index(index, files), what)
    pages = write_pages(directory, candidates, ports)
    files += [_local_file(path) for path in pages]
    files += _write_index(directory, index, files, ports)
    try:
        files += _sign(directory, files, ports)
    except IntegrityError as error:
        if not options.dry_run:
            require([_unsigned(error)], what)
        ports.reporter.warn(f"not signed: {error}")
    title = f"ONNX Runtime {', '.join(sorted(versions))} for every GPU generation"
    return PreparedRelease(tag=tag, title=title, index=index, files=tuple(files))


def files_there(directory: Path, ports: PublishPorts) -> list[LocalFile]:
    """Return the files of a release in ``directory``: ``SHA256SUMS``, those in it, and the signature's."""
    names = {*ports.checksums.read(directory), CHECKSUMS, TARGETS}
    names |= {path.name for path in directory.glob(root_name("*"))}
    found = sorted(directory / name for name in names)
    return [_local_file(path) for path in found if path.is_file()]


def stored(file: LocalFile) -> StoredArchive:
    """Return the archive that ``file`` is, or the archive whose parts it lists. Raises ``ConfigError``."""
    if not file.name.endswith(PARTS_SUFFIX):
        return StoredArchive(file.name, file.size, file.sha256)
    whole = parts_format.loads(file.path.read_bytes(), file.name)
    return StoredArchive(whole.file, whole.size, whole.sha256, whole.parts)


def _release_files(directory: Path, archives: Iterable[Path], listed: Mapping[str, str]) -> list[Path]:
    """Return the packages, the client, and every other file that ``SHA256SUMS`` names."""
    named = [directory / name for name in {*listed, CLIENT}]
    return sorted({*archives, *(path for path in named if path.is_file())})


def _local_file(path: Path) -> LocalFile:
    digest = file_digest(path)
    return LocalFile(path, digest.size, digest.sha256)


def _made_anew(name: str) -> bool:
    """Return whether every publish writes this file itself, so that an older one is ignored."""
    return name in {INDEX, CHECKSUMS, LICENCES_PAGE} or name.endswith(SBOM_SUFFIX)


def _client_line(files: Iterable[LocalFile]) -> dict[str, str]:
    """Return the client's digest by its name, since its line in ``SHA256SUMS`` may be of an older client."""
    return {file.name: file.sha256 for file in files if file.name == CLIENT}


def _candidates(files: Iterable[LocalFile], ports: PublishPorts) -> tuple[list[Candidate], list[Finding]]:
    candidates: list[Candidate] = []
    findings: list[Finding] = []
    for file in files:
        try:
            manifest = manifest_of(file.path, ports.archive)
            candidates.append(Candidate(manifest, file))
            ports.verify(file.path)
        except BuilderError as error:
            findings.append(Finding(Code.R012, file.name, str(error)))
    return candidates, findings


def _write_index(
    directory: Path, index: Index, files: Sequence[LocalFile], ports: PublishPorts
) -> list[LocalFile]:
    """Write ``index.json`` and ``SHA256SUMS``, before the host is contacted, and return both files."""
    with ports.write(directory / INDEX) as stream:
        stream.write(index_format.dumps(index).encode())
    written = _local_file(directory / INDEX)
    ports.checksums.update(directory, put={file.name: file.sha256 for file in (*files, written)})
    return [written, _local_file(directory / CHECKSUMS)]


def _sign(directory: Path, files: Sequence[LocalFile], ports: PublishPorts) -> list[LocalFile]:
    """Write the project's roots and ``targets.json``, which names all ``files``; return these files.

    Without a root nothing is signed.
    """
    signing, file = ports.signing, directory / TARGETS
    if signing is None:
        ports.reporter.say(f"unsigned: {ROOTS}/ holds no root (docs/security.md)")
        return []
    before = file.read_bytes() if file.is_file() else b""
    contents = {root_name(number): root for number, root in enumerate(signing.roots, start=1)}
    contents[TARGETS] = signed_targets(files, before, signing)
    for name, content in contents.items():
        with ports.write(directory / name) as stream:
            stream.write(content)
    return [_local_file(directory / name) for name in contents]


def _unsigned(error: IntegrityError) -> Finding:
    return Finding(Code.R016, TARGETS, f"{error} Sign with --sign KEY or $ORTPACKS_SIGNING_KEY.")


LICENCES_PAGE = "licences.html"

SBOM_SUFFIX = ".cdx.json"


@dataclass(frozen=True, kw_only=True)
class Component:
    """The files of one package with the same source, vendor and licence."""

    source: str
    """A wheel, ``nvidia-cublas-cu12==12.9.1.4``; or ``compiled``."""
    vendor: str
    licence: str
    """Path of the licence's text in the package."""
    files: tuple[str, ...]


def write_pages(directory: Path, candidates: Sequence[Candidate], ports: PublishPorts) -> list[Path]:
    """Write SBOMs and the licences page from the packages' bytes and return them; remove stale SBOMs.

    Raises ``IntegrityError`` for a package without SBOM, NOTICE or one of its licences.
    """
    texts = {one.file.name: _texts(one, ports) for one in candidates}
    sboms = {
        directory / f"{one.manifest.name}{SBOM_SUFFIX}": texts[one.file.name][SBOM] for one in candidates
    }
    page = _licences(candidates, texts, ports.loader)
    pages = {**sboms, directory / LICENCES_PAGE: page.encode()}
    for path, content in pages.items():
        with ports.write(path) as stream:
            stream.write(content)
    _remove([path for path in directory.glob(f"*{SBOM_SUFFIX}") if path not in pages], directory, ports)
    return sorted(pages)


def _remove(stale: Sequence[Path], directory: Path, ports: PublishPorts) -> None:
    for path in stale:
        path.unlink()
    ports.checksums.update(directory, put={}, drop=tuple(path.name for path in stale))


def _texts(one: Candidate, ports: PublishPorts) -> Mapping[str, bytes]:
    """Return the package's SBOM, NOTICE and licence texts, by their paths in the package."""
    wanted = {SBOM, NOTICE, *(entry.licence for entry in one.manifest.files)}
    found = ports.archive.read(one.file.path, wanted)
    missing = ", ".join(sorted(wanted - found.keys()))
    if missing:
        raise IntegrityError(f"{one.file.name} lacks {missing}: no release without them. Build it again.")
    return found


def _licences(
    candidates: Sequence[Candidate], texts: Mapping[str, Mapping[str, bytes]], loader: BaseLoader
) -> str:
    environment = template_environment(loader, html=True)
    packages = {one.manifest.name: components(one.manifest) for one in candidates}
    return environment.get_template("licences.html.j2").render(
        packages=packages, texts=_distinct_texts(candidates, texts)
    )


def components(manifest: Manifest) -> tuple[Component, ...]:
    """Return the package's libraries grouped by source, vendor and licence."""

    def key(entry: FileEntry) -> tuple[str, str, str]:
        source = entry.source.removeprefix("wheel:") if entry.member else "compiled"
        return (source, entry.vendor, entry.licence)

    files = sorted((entry for entry in manifest.files if entry.path.startswith("lib/")), key=key)
    return tuple(
        Component(source=source, vendor=vendor, licence=licence, files=tuple(entry.path for entry in group))
        for (source, vendor, licence), group in groupby(files, key=key)
    )


def _distinct_texts(
    candidates: Sequence[Candidate], texts: Mapping[str, Mapping[str, bytes]]
) -> list[tuple[str, str]]:
    """Return each distinct licence text with its path; a path with two texts is listed twice."""
    found = {
        (path, content.decode("utf-8", errors="replace")): None
        for one in candidates
        for path, content in sorted(texts[one.file.name].items())
        if path not in {SBOM, NOTICE}
    }
    return sorted(found)
