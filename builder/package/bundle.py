"""The steps gather and bundle make one variant's packages: an archive for each layout and form.

Gather finds every file of a package at the path that the plan names; no pattern is searched. Bundle packs the
files with NOTICE, SBOM and manifest. Old packages of the same names are removed first; new ones get their
names only after all checks pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from builder.binary.library_names import NVIDIA, PROVIDER, TENSORRT
from builder.config.build_plan import BuildPlan, package_name
from builder.config.inputs import Input, Lock
from builder.config.variants import Origin
from builder.console import Reporter
from builder.contents.build_record import record_name
from builder.contents.check import require_checked
from builder.contents.integrity import update_checksums
from builder.contents.notice import notice
from builder.contents.package_manifest import BUILT, BinaryReport, ChangedFileError, Content, Member, describe
from builder.contents.provenance import provenance_name
from builder.contents.required_files import (
    DIRECTML_LICENCE,
    NOTICE,
    ORTPACKS,
    OUR_LICENCE,
    PLUGIN_VERSION,
    SBOM,
    RequiredFile,
    required_files,
)
from builder.contents.rules.wheel_records import check_recorded, recorded
from builder.contents.sbom import describe_bom, source_entry
from builder.errors import CheckFailedError, ConfigError, IntegrityError
from builder.files.atomic_write import write_file
from builder.files.digest import LocalFile, file_digest
from builder.finding import Code, Finding, require_no_errors
from builder.formats.json_values import json_text
from builder.formats.manifest import WheelEntry
from builder.formats.package_names import CUDA, DIRECTML, LIB, WINDOWS, Form, Layout, PackageName
from builder.io.archive.package_writer import PackageWriter
from builder.io.archive.unpacking import digests_of
from builder.io.cyclonedx import render_bom


@dataclass(frozen=True, kw_only=True)
class PackageSources:
    """The places of a package's files on this machine."""

    tree: Callable[[Input], Path]
    """Returns a wheel's unpacked tree: ``FileStore.unpack``."""
    artifact: Path | None
    """Folder of the compile stage's output; ``None`` for origin wheel."""
    licence: Path
    """Path of our own licence file."""
    directml: Path
    """Path of our text on the terms for ``DirectML.dll``."""
    relocate: Callable[[Path], Path]
    """Returns a copy of one of ORT's libraries that finds libraries in its folder: RUNPATH ``$ORIGIN``."""


def gather(plan: BuildPlan, sources: PackageSources) -> tuple[Member, ...]:
    """Return the libraries and licence texts of the plan's package.

    Raises ``IntegrityError`` naming each missing file and what needs it.
    """
    found = locate(required_files(plan), sources.tree, sources.artifact)
    members = [
        replace(member, file=sources.relocate(member.file), modified=True)
        if _looks_elsewhere(plan, member)
        else member
        for member in found
    ]
    texts = [our_licence(sources.licence)]
    if plan.variant.provider == DIRECTML:
        texts.append(_ours(DIRECTML_LICENCE, sources.directml, DIRECTML_LICENCE))
    return tuple(sorted([*members, *texts], key=lambda member: member.path))


def originals(
    plan: BuildPlan, members: Sequence[Member], tree: Callable[[Input], Path]
) -> tuple[Member, ...]:
    """Return the unmodified originals of the modified files among ``members``."""
    changed = {member.path for member in members if member.modified}
    return locate([file for file in required_files(plan) if file.path in changed], tree, None)


def locate(
    files: Sequence[RequiredFile], tree: Callable[[Input], Path], artifact: Path | None
) -> tuple[Member, ...]:
    """Return every wanted file, with links followed; each is a regular file that is not empty.

    ``tree`` and ``artifact`` are as in ``PackageSources``. Raises ``IntegrityError`` naming each missing file
    and what needs it.
    """
    wheels = {file.source for file in files if file.source}
    roots: Mapping[Input | None, Path | None] = {
        None: artifact,
        **{wheel: tree(wheel) for wheel in sorted(wheels)},
    }
    located = [_find(file, roots[file.source]) for file in files]
    problems = [item for item in located if isinstance(item, str)]
    if problems:
        raise IntegrityError(problems[0], details=problems[1:])
    return tuple(item for item in located if isinstance(item, Member))


def _find(file: RequiredFile, root: Path | None) -> Member | str:
    """Return the member, or a sentence on what is wrong."""
    for place in file.places if root else ():
        path = Path(root or "", place)
        if path.is_symlink() and not path.is_file():
            return f"{path} is a link that leads nowhere; {file.path}: {file.needed_by}."
        if path.is_file() and path.stat().st_size == 0:
            return f"{path} is empty; {file.path}: {file.needed_by}."
        if path.is_file():
            return _member(file, Path(root or ""), path.resolve())
    where = file.source.key if file.source else "what the compile stage left"
    looked = f"Looked for {' or '.join(file.places)} in {where} ({root or 'no folder'})."
    return f"{file.path} is missing: {file.needed_by}. {looked}"


def _member(file: RequiredFile, root: Path, path: Path) -> Member:
    return Member(
        path=file.path,
        file=path,
        source=file.source.key if file.source else BUILT,
        licence=file.licence,
        vendor=file.vendor,
        member=path.relative_to(root.resolve()).as_posix() if file.source else None,
    )


def _looks_elsewhere(plan: BuildPlan, member: Member) -> bool:
    """Return whether the member needs a RUNPATH: official providers lack one, compiled ones have it."""
    ours = plan.origin is Origin.SOURCE and member.path == f"{LIB}{PROVIDER}"
    return member.path in (f"{LIB}{PROVIDER}", f"{LIB}{TENSORRT}") and not ours


def our_licence(file: Path) -> Member:
    """Return our licence as a member. Raises ``ConfigError`` if ``file`` is no file."""
    if not file.is_file():
        raise ConfigError(
            f"variants.yaml: bundle.licence: {file} is not a file",
            advice="Name the licence that every package carries.",
        )
    return _ours(OUR_LICENCE, file)


def _ours(path: str, file: Path, licence: str = OUR_LICENCE) -> Member:
    return Member(path=path, file=file, source=BUILT, licence=licence, vendor=ORTPACKS)


_BIGGEST = 5

_MB = 1_000_000


@dataclass(frozen=True, kw_only=True)
class BundlePorts:
    """The ports and folders of bundling."""

    writer: PackageWriter
    reporter: Reporter
    dist: Path
    """Folder of the packages."""
    work: Path
    """Folder for files that are written before packing: ``NOTICE`` and the like."""


@dataclass(frozen=True, kw_only=True)
class CheckedContent:
    """The checked content of a variant's packages, the same for every layout and form."""

    plan: BuildPlan
    members: tuple[Member, ...]
    """Libraries and licence texts."""
    originals: tuple[Member, ...]
    """Unmodified originals of the modified files among ``members``."""
    report: BinaryReport
    """The check step's report on ``members``."""
    record: Callable[[str], str]
    """Returns the text of a wheel's RECORD by its ``Input.key``."""
    lock: Lock
    """The pins of the wheels."""
    revision: str | None = None
    """Revision of the base; ``None`` if it is not known."""


def discard(name: PackageName, dist: Path) -> None:
    """Remove a package of ``dist`` in every form, with its checksums, record and provenance.

    The package is removed last, so that after a kill no file describes a package that does not exist.
    """
    for form in Form:
        archive = name.archive(form)
        files = (record_name(archive), provenance_name(archive), archive)
        update_checksums(dist, put={}, drop=files)
        for file in files:
            (dist / file).unlink(missing_ok=True)


def bundle(checked: CheckedContent, ports: BundlePorts) -> tuple[LocalFile, ...]:
    """Write the plan's packages and their lines in ``SHA256SUMS``, the full one first, and return them.

    Raises ``CheckFailedError`` (a finding of the check, a file that differs from its wheel's, over budget),
    ``IntegrityError`` (a file changed meanwhile) or ``DiskError``; then ``dist`` has no package of that name.
    """
    for layout in checked.plan.possible_layouts:
        discard(package_name(checked.plan, layout), ports.dist)
    what = f"{checked.plan.variant.name} is not packed"
    require_checked(checked.report.findings, what)
    hashed = replace(checked, members=_hashed(checked, what))
    made = []
    for layout in checked.plan.layouts:
        name, content = package_name(checked.plan, layout), _content(layout, hashed, ports)
        made += [
            _archive(name.archive(form), content, hashed, ports) for form in forms_of(layout, checked.plan)
        ]
    return tuple(made)


def _hashed(checked: CheckedContent, what: str) -> tuple[Member, ...]:
    """Return the members with the digest that each must have: of wheels' files, that of their RECORD."""
    digests, findings = recorded(checked.members, checked.record)
    before = digests_of(checked.originals)
    originals = [member.of_bytes(before[member.path]) for member in checked.originals]
    records = {member.source: checked.record(member.source) for member in originals}
    require_no_errors([*findings, *check_recorded(originals, records)], what)
    rest = [member for member in checked.members if member.path not in digests]
    digests |= digests_of(rest)
    return tuple(member.of_bytes(digests[member.path]) for member in checked.members)


def forms_of(layout: Layout, plan: BuildPlan) -> tuple[Form, ...]:
    """Return the configured forms; for small packages and those for Windows also gzip.

    Every Python reads gzip, and so does the ``tar.exe`` of Windows. Packages without NVIDIA's libraries are
    small.
    """
    forms = plan.project.bundle.forms
    small = layout is Layout.THIN or plan.variant.provider != CUDA
    gzipped = small or plan.variant.platform == WINDOWS
    return (*forms, Form.GZ) if gzipped and Form.GZ not in forms else forms


def _content(layout: Layout, checked: CheckedContent, ports: BundlePorts) -> Content:
    """Return members, NOTICE, SBOM and manifest; each of the last three describes the ones before it."""
    name = str(package_name(checked.plan, layout))
    work = ports.work / layout.value
    laid = tuple(replace(member, packed=_is_packed(member, layout)) for member in checked.members)
    texts, sbom = _ours(NOTICE, work / NOTICE), _ours(SBOM, work / SBOM)
    if plugin := checked.plan.rules.plugin if checked.plan.variant.is_plugin else None:
        version = json_text({"version": plugin.version.value}).encode()
        laid = (*laid, _write_member(_ours(PLUGIN_VERSION, work / PLUGIN_VERSION), version))
    members = (*laid, _write_member(texts, notice(name, [*laid, texts, sbom]).encode()))
    wheels = _wheels(members, checked.lock)
    bom = render_bom(describe_bom(checked.plan, name, members, wheels, checked.lock))
    members = (*members, _write_member(sbom, bom))
    source = source_entry(checked.plan, checked.lock)
    manifest = describe(checked.plan, layout, members, wheels, checked.report, checked.revision, source)
    return Content(manifest=json_text(manifest).encode(), members=members)


def _is_packed(member: Member, layout: Layout) -> bool:
    """Return whether a layout's archives hold the member; NVIDIA's libraries are not in layout thin."""
    theirs = member.vendor == NVIDIA and member.path.startswith(LIB)
    return layout is Layout.FULL or not theirs


def _archive(file: str, content: Content, checked: CheckedContent, ports: BundlePorts) -> LocalFile:
    limit = checked.plan.project.bundle

    def accept(package: LocalFile) -> None:
        if package.size > limit.budget:
            lines = [str(_too_large(package, checked)), *_sizes(content)]
            raise CheckFailedError(f"{package.path.name} is not kept: 1 error", lines)

    try:
        written = ports.writer.write(ports.dist / file, content, limit.preset, accept)
    except ChangedFileError as error:
        require_no_errors(list(_changed_file(error)), f"{file} is not packed")
        raise
    update_checksums(ports.dist, put={written.name: written.sha256})
    ports.reporter.say(f"{file}  {written.size / _MB:,.0f} MB  sha256 {written.sha256}")
    return written


def _changed_file(error: ChangedFileError) -> Iterator[Finding]:
    member = error.member
    if member.source != BUILT and not member.modified:
        yield Finding(
            code=Code.B001,
            path=member.path,
            message=f"{member.file} is not the file of {member.source}. Delete that folder and build again.",
            wanted=f"{member.digest} (RECORD)",
            got=str(error.got or "more bytes"),
        )


def _write_member(member: Member, data: bytes) -> Member:
    write_file(member.file, data)
    return member.of_bytes(file_digest(member.file))


def _wheels(members: Sequence[Member], lock: Lock) -> tuple[WheelEntry, ...]:
    sources = sorted({member.source for member in members} - {BUILT})
    pins = ((source, lock.pins[source]) for source in sources)
    return tuple(WheelEntry(source, pin.filename, pin.size, pin.sha256) for source, pin in pins)


def _too_large(package: LocalFile, checked: CheckedContent) -> Finding:
    limit = checked.plan.project.bundle
    return Finding(
        code=Code.B009,
        path=package.path.name,
        message="raise bundle.budget, or take another preset or layout",
        wanted=f"at most {limit.budget:,} bytes (bundle.budget)",
        got=f"{package.size:,} bytes",
    )


def _sizes(content: Content) -> Iterator[str]:
    packed = {member.path: member.size for member in content.packed}
    biggest = sorted(packed.items(), key=lambda item: -item[1])[:_BIGGEST]
    yield "    Its biggest files, unpacked:"
    yield from (f"    {size:>13,}  {path}" for path, size in biggest)
