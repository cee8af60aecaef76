"""This module prepares the files of a release: it checks and hashes packages, then writes the other files.

The other files are SBOMs, licences page (the licence of every library, and each text once), index, checksums
and signatures. The module also has publishing's options, ports and result. Nothing here contacts the host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from jinja2 import BaseLoader

from builder.config.variants import Project
from builder.console import Reporter
from builder.contents.integrity import read_checksums, update_checksums
from builder.contents.required_files import NOTICE, SBOM
from builder.errors import BuilderError, IntegrityError
from builder.files.atomic_write import write_file
from builder.files.digest import LocalFile
from builder.finding import Code, Finding, require_no_errors
from builder.formats.index import Index, build_index
from builder.formats.json_values import json_text
from builder.formats.manifest import Manifest
from builder.formats.package_names import CHECKSUMS, CLIENT, INDEX, LIB
from builder.formats.trust import TARGETS, root_name
from builder.io.archive.unpacking import manifest_of, texts_of
from builder.io.templates import template_environment
from builder.publish.assets import AssetRow, ReleaseHost, ReleasePlan, Repository
from builder.publish.locations import archives_in, stored, tag_of, versions_of
from builder.publish.preflight import (
    Candidate,
    Leniency,
    check_complete,
    check_count,
    check_files,
    check_index,
    check_packages,
)
from builder.publish.signing import Signing, require_signatures, signed_targets

LICENCES_PAGE = "licences.html"

SBOM_SUFFIX = ".cdx.json"

ROOTS = "trust"
"""Name of the project's folder of roots."""


@dataclass(frozen=True, kw_only=True)
class PublishPorts:
    """The ports of publishing."""

    host: ReleaseHost
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


def prepare(
    directory: Path, project: Project, ports: PublishPorts, options: PublishOptions
) -> tuple[ReleasePlan, Index]:
    """Check the packages in ``directory``, write the release's other files there, and return the release.

    The plan has no notes yet. ``SHA256SUMS`` names all its files except itself and those of the signature.

    Raises ``NothingToDoError`` (no packages) or ``CheckFailedError`` (every finding).
    """
    what = f"{directory} cannot be released"
    files, candidates, findings = look_at(directory, project, options.allow, ports.verify)
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
    return ReleasePlan(tag, title, "", tuple(files)), index


def look_at(
    directory: Path, project: Project, allow: Leniency, verify: Callable[[Path], object] | None = None
) -> tuple[list[LocalFile], list[Candidate], list[Finding]]:
    """Return the release's files in ``directory``, its packages, and the findings against them.

    The files are the packages, the client, and every other file that ``SHA256SUMS`` names. Without ``verify``
    only manifests are read: digests are those that ``SHA256SUMS`` states. Raises ``NothingToDoError``.
    """
    archives = archives_in(directory)
    anew = {INDEX, CHECKSUMS, LICENCES_PAGE}  # every publish writes these itself, and SBOMs
    sums = read_checksums(directory).items()
    listed = {name: digest for name, digest in sums if name not in anew and not name.endswith(SBOM_SUFFIX)}
    named = [directory / name for name in {*listed, CLIENT}]
    files = [
        LocalFile.of(path) if verify else LocalFile(path, path.stat().st_size, listed.get(path.name, ""))
        for path in sorted({*archives, *(path for path in named if path.is_file())})
    ]
    # The client's line in SHA256SUMS may be of an older client.
    listed |= {file.name: file.sha256 for file in files if file.name == CLIENT}
    candidates, findings = _candidates([file for file in files if file.path in archives], verify)
    of_all = [variant for variant in project.packages.values() if variant.in_all]
    findings += [
        *check_files(files, listed),
        *check_packages(candidates, allow),
        *([] if allow.partial else check_complete(candidates, of_all)),
    ]
    return files, candidates, findings


def _candidates(
    files: Iterable[LocalFile], verify: Callable[[Path], object] | None
) -> tuple[list[Candidate], list[Finding]]:
    candidates: list[Candidate] = []
    findings: list[Finding] = []
    for file in files:
        try:
            manifest = manifest_of(file.path)
            candidates.append(Candidate(manifest, file))
            if verify:
                verify(file.path)
        except BuilderError as error:
            findings.append(Finding(Code.R012, file.name, "; ".join(str(error).split("\n"))))
    return candidates, findings


def _write_index(directory: Path, index: Index, files: Sequence[LocalFile]) -> list[LocalFile]:
    """Write ``index.json`` and ``SHA256SUMS``, before the host is contacted, and return both files."""
    write_file(directory / INDEX, json_text(index).encode())
    written = LocalFile.of(directory / INDEX)
    update_checksums(directory, put={file.name: file.sha256 for file in (*files, written)})
    return [written, LocalFile.of(directory / CHECKSUMS)]


def _sign(directory: Path, files: Sequence[LocalFile], ports: PublishPorts) -> list[LocalFile]:
    """Write the project's roots and ``targets.json``, which names all ``files``; return these files.

    Without a root nothing is signed. Raises ``IntegrityError`` if ``targets.json``, which is written all the
    same, needs more signatures.
    """
    signing, file = ports.signing, directory / TARGETS
    if signing is None:
        ports.reporter.say(f"unsigned: {ROOTS}/ holds no root (docs/trust.md)")
        return []
    before = file.read_bytes() if file.is_file() else b""
    contents = {root_name(number): root for number, root in enumerate(signing.roots, start=1)}
    contents[TARGETS] = signed_targets(files, before, signing)
    for name, content in contents.items():
        write_file(directory / name, content)
    require_signatures(contents[TARGETS], signing)
    return [LocalFile.of(directory / name) for name in contents]


def write_pages(directory: Path, candidates: Sequence[Candidate], ports: PublishPorts) -> list[Path]:
    """Write SBOMs and the licences page from the packages' bytes and return them; remove stale SBOMs.

    Raises ``IntegrityError`` for a package without SBOM, NOTICE or one of its licences.
    """
    texts = {candidate.file.name: _texts(candidate) for candidate in candidates}
    sboms = {
        directory / f"{package.manifest.name}{SBOM_SUFFIX}": texts[package.file.name][SBOM]
        for package in candidates
    }
    page = licences_page(candidates, texts, ports.loader)
    pages = {**sboms, directory / LICENCES_PAGE: page.encode()}
    for path, content in pages.items():
        write_file(path, content)
    stale = [path for path in directory.glob(f"*{SBOM_SUFFIX}") if path not in pages]
    for path in stale:
        path.unlink()
    update_checksums(directory, put={}, drop=tuple(path.name for path in stale))
    return sorted(pages)


def _texts(candidate: Candidate) -> Mapping[str, bytes]:
    wanted = {SBOM, NOTICE, *(entry.licence for entry in candidate.manifest.files)}
    texts = texts_of(candidate.file.path, wanted)
    missing = ", ".join(sorted(wanted - texts.keys()))
    if missing:
        raise IntegrityError(
            f"{candidate.file.name} lacks {missing}: no release without them", advice="Build it again."
        )
    return texts


def licences_page(
    candidates: Sequence[Candidate], texts: Mapping[str, Mapping[str, bytes]], loader: BaseLoader
) -> str:
    """Return the page with the licence of every library; ``texts`` are by package and path in it."""
    packages = {candidate.manifest.name: _licence_rows(candidate.manifest) for candidate in candidates}
    template = template_environment(loader, html=True).get_template("licences.html.j2")
    return template.render(packages=packages, texts=_distinct_texts(candidates, texts))


def _licence_rows(manifest: Manifest) -> list[tuple[tuple[str, str, str], list[str]]]:
    """Return the paths of the package's libraries by source, vendor and licence, sorted.

    A source is a wheel, ``nvidia-cublas-cu12==12.9.1.4``, or ``compiled``.
    """
    rows: dict[tuple[str, str, str], list[str]] = {}
    for entry in manifest.files:
        if entry.path.startswith(LIB):
            source = entry.source.removeprefix("wheel:") if entry.member else "compiled"
            rows.setdefault((source, entry.vendor, entry.licence), []).append(entry.path)
    return sorted(rows.items())


def _distinct_texts(
    candidates: Sequence[Candidate], texts: Mapping[str, Mapping[str, bytes]]
) -> list[tuple[str, str]]:
    """Return each distinct licence text with its path; a path with two texts is listed twice."""
    found = {
        (path, content.decode("utf-8", errors="replace")): None
        for candidate in candidates
        for path, content in sorted(texts[candidate.file.name].items())
        if path not in {SBOM, NOTICE}
    }
    return sorted(found)
