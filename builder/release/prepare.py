"""This module prepares the files of a release: it checks and hashes packages, then writes the other files.

The other files are SBOMs, licences page, index, checksums and signatures. The module also has publishing's
options, ports and result. Nothing here contacts the host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from jinja2 import BaseLoader

from builder.errors import BuilderError, IntegrityError
from builder.files.atomic_write import write_file
from builder.files.digest import LocalFile
from builder.findings.finding import Code, Finding, require_no_errors
from builder.formats.index import Index, build_index
from builder.formats.json_values import json_text
from builder.formats.package_names import CHECKSUMS, CLIENT, INDEX
from builder.formats.trust import TARGETS, root_name
from builder.package.archive import Archive, manifest_of
from builder.package.checksums import read_checksums, update_checksums
from builder.package.contents import NOTICE, SBOM
from builder.ports import Reporter
from builder.project.variants import Project
from builder.release.addresses import tag_of, versions_of
from builder.release.assets import AssetRow, ReleaseHost, Repository
from builder.release.dist_files import archives_in, stored
from builder.release.licences_page import LICENCES_PAGE, licences_page
from builder.release.preflight import (
    Candidate,
    Leniency,
    check_complete,
    check_count,
    check_files,
    check_index,
    check_packages,
)
from builder.release.signing import Signing, signed_targets

SBOM_SUFFIX = ".cdx.json"

ROOTS = "trust"
"""Name of the project's folder of roots."""


@dataclass(frozen=True, kw_only=True)
class PublishPorts:
    """The ports of publishing."""

    host: ReleaseHost
    archive: Archive
    reporter: Reporter
    verify: Callable[[Path], object]
    """Raises a ``BuilderError`` for a package that must not be released."""
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


class ReleaseState(StrEnum):
    """The state of a release."""

    PUBLISHED = "published"
    UNCHANGED = "unchanged"
    """Public before, and equal."""
    DRAFT = "draft"
    DRY_RUN = "dry-run"
    DIFFERS = "differs"
    """Public, and different from the local files. Only ``publish.read_release_status`` returns it."""
    ABSENT = "absent"


@dataclass(frozen=True, kw_only=True)
class ReleaseStatus:
    """The state of the release at the end, with every file of both sides."""

    tag: str
    state: ReleaseState
    url: str | None
    rows: tuple[AssetRow, ...]


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
    sums = read_checksums(directory)
    listed = {name: digest for name, digest in sums.items() if not _made_anew(name)}
    files = [LocalFile.of(path) for path in _release_files(directory, archives, listed)]
    of_all = [name for name, variant in project.packages.items() if variant.in_all]
    candidates, findings = _candidates([file for file in files if file.path in archives], ports)
    findings += check_files(files, {**listed, **_client_line(files)})
    findings += check_packages(candidates, options.allow)
    findings += [] if options.allow.partial else check_complete(candidates, of_all)
    require_no_errors(findings, what)
    versions = versions_of(item.manifest for item in candidates)
    tag = tag_of(project, options.tag, versions)
    index = build_index(tag, [(item.manifest, stored(item.file)) for item in candidates], project.models)
    require_no_errors(check_index(index, files), what)
    pages = write_pages(directory, candidates, ports)
    files += [LocalFile.of(path) for path in pages]
    files += _write_index(directory, index, files)
    try:
        files += _sign(directory, files, ports)
    except IntegrityError as error:
        if not options.dry_run:
            advice = f"{error} Sign with --sign KEY or $ORTPACKS_SIGNING_KEY."
            require_no_errors([Finding(Code.R016, TARGETS, advice)], what)
        ports.reporter.warn(f"not signed: {error}")
    require_no_errors(check_count(files), what)  # with those that were written here
    title = f"ONNX Runtime {', '.join(sorted(versions))} for every GPU generation"
    return PreparedRelease(tag=tag, title=title, index=index, files=tuple(files))


def _release_files(directory: Path, archives: Iterable[Path], listed: Mapping[str, str]) -> list[Path]:
    """Return the packages, the client, and every other file that ``SHA256SUMS`` names."""
    named = [directory / name for name in {*listed, CLIENT}]
    return sorted({*archives, *(path for path in named if path.is_file())})


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


def _write_index(directory: Path, index: Index, files: Sequence[LocalFile]) -> list[LocalFile]:
    """Write ``index.json`` and ``SHA256SUMS``, before the host is contacted, and return both files."""
    write_file(directory / INDEX, json_text(index).encode())
    written = LocalFile.of(directory / INDEX)
    update_checksums(directory, put={file.name: file.sha256 for file in (*files, written)})
    return [written, LocalFile.of(directory / CHECKSUMS)]


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
        write_file(directory / name, content)
    return [LocalFile.of(directory / name) for name in contents]


def write_pages(directory: Path, candidates: Sequence[Candidate], ports: PublishPorts) -> list[Path]:
    """Write SBOMs and the licences page from the packages' bytes and return them; remove stale SBOMs.

    Raises ``IntegrityError`` for a package without SBOM, NOTICE or one of its licences.
    """
    texts = {one.file.name: _texts(one, ports) for one in candidates}
    sboms = {
        directory / f"{one.manifest.name}{SBOM_SUFFIX}": texts[one.file.name][SBOM] for one in candidates
    }
    page = licences_page(candidates, texts, ports.loader)
    pages = {**sboms, directory / LICENCES_PAGE: page.encode()}
    for path, content in pages.items():
        write_file(path, content)
    _remove([path for path in directory.glob(f"*{SBOM_SUFFIX}") if path not in pages], directory)
    return sorted(pages)


def _remove(stale: Sequence[Path], directory: Path) -> None:
    for path in stale:
        path.unlink()
    update_checksums(directory, put={}, drop=tuple(path.name for path in stale))


def _texts(one: Candidate, ports: PublishPorts) -> Mapping[str, bytes]:
    """Return the package's SBOM, NOTICE and licence texts, by their paths in the package."""
    wanted = {SBOM, NOTICE, *(entry.licence for entry in one.manifest.files)}
    found = ports.archive.read(one.file.path, wanted)
    missing = ", ".join(sorted(wanted - found.keys()))
    if missing:
        raise IntegrityError(
            f"{one.file.name} lacks {missing}: no release without them", advice="Build it again."
        )
    return found
