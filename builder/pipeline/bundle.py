"""The step bundle makes one variant's packages: an archive for each layout and form, each with a manifest.

Old packages of the same names are removed first; new ones get their names only after all checks pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from builder.binary.library_names import NVIDIA
from builder.files.atomic_write import write_file
from builder.files.digest import Digest, LocalFile, file_digest
from builder.findings.finding import Code, Finding, require_no_errors
from builder.formats.json_values import json_text
from builder.formats.manifest import WheelEntry
from builder.formats.package_names import CUDA, LIB, PARTS_SUFFIX, Form, Layout, PackageName
from builder.package.archive import BUILT, Archive, ChangedFileError, Content, Member
from builder.package.build_record import record_name
from builder.package.checksums import update_checksums
from builder.package.contents import NOTICE, ORTPACKS, OUR_LICENCE, SBOM
from builder.package.describe import BinaryReport, Packed, describe
from builder.package.notice import notice
from builder.package.provenance import provenance_name
from builder.package.sbom import BomFormat, describe_bom
from builder.pipeline.check import require_checked
from builder.ports import Reporter
from builder.project.build_plan import BuildPlan, package_name
from builder.project.inputs import Lock
from builder.project.variants import Oversize, Preset
from builder.rules.wheel_records import check_unmodified, recorded

_BIGGEST = 5

_MB = 1_000_000


@dataclass(frozen=True, kw_only=True)
class BundlePorts:
    """The ports and folders of bundling."""

    archive: Archive
    bom: BomFormat
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


@dataclass(frozen=True, kw_only=True)
class Bundled:
    """One package in ``dist``: an archive, or its parts and the file that joins them."""

    package: LocalFile
    """The package; ``path`` is the file that a reader opens, size and sha256 are the whole archive's."""
    files: tuple[Path, ...]
    """All its files: the archive, or its parts and then the file that joins them."""
    sums: Mapping[str, str]
    """Hex sha256 of these files, by file name."""

    @property
    def archive(self) -> str:
        """The file name of the whole archive."""
        return self.package.path.name.removesuffix(PARTS_SUFFIX)


def discard(name: PackageName, ports: BundlePorts) -> None:
    """Remove a package in every form, with its checksums, record and provenance.

    The package is removed last, so that after a kill no file describes a package that does not exist.
    """
    for form in Form:
        archive = name.archive(form)
        pieces = sorted(path.name for path in ports.dist.glob(f"{archive}*"))
        update_checksums(ports.dist, put={}, drop=tuple(pieces))
        for file in (record_name(archive), provenance_name(archive), *reversed(pieces)):
            (ports.dist / file).unlink(missing_ok=True)


def bundle(checked: CheckedContent, ports: BundlePorts) -> tuple[Bundled, ...]:
    """Write the plan's packages and their lines in ``SHA256SUMS``, the full one first, and return them.

    Raises ``CheckFailedError`` (a finding of the check, a file that differs from its wheel's, over budget),
    ``IntegrityError`` (a file changed meanwhile) or ``DiskError``; then ``dist`` has no package of that name.
    """
    for layout in checked.plan.possible_layouts:
        discard(package_name(checked.plan, layout), ports)
    what = f"{checked.plan.variant.name} is not packed"
    require_checked(checked.report.findings, what)
    digests = _digests(checked, ports, what)
    return tuple(
        bundled for layout in checked.plan.layouts for bundled in _layout(layout, checked, digests, ports)
    )


def _digests(checked: CheckedContent, ports: BundlePorts, what: str) -> Mapping[str, Digest]:
    """Return the digest that each member must have. Packing compares files of wheels with their RECORD."""
    recorded_files = recorded(checked.members, checked.record)
    before = ports.archive.digests(checked.originals)
    require_no_errors(
        [*recorded_files.findings, *check_unmodified(checked.originals, before, checked.record)], what
    )
    rest = [member for member in checked.members if member.path not in recorded_files.digests]
    return {**recorded_files.digests, **ports.archive.digests(rest)}


def _layout(
    layout: Layout, checked: CheckedContent, digests: Mapping[str, Digest], ports: BundlePorts
) -> Iterator[Bundled]:
    """Yield the archives of one layout, which have the same content in each form."""
    content = _content(layout, checked, digests, ports)
    name = package_name(checked.plan, layout)
    for form in forms_of(layout, checked.plan):
        yield _archive(name.archive(form), content, checked, ports)


def forms_of(layout: Layout, plan: BuildPlan) -> tuple[Form, ...]:
    """Return the configured forms; for packages without NVIDIA's libraries also gzip.

    Every Python reads gzip.
    """
    forms = plan.project.bundle.forms
    small = layout is Layout.THIN or plan.variant.provider != CUDA
    return (*forms, Form.GZ) if small and Form.GZ not in forms else forms


def _content(
    layout: Layout, checked: CheckedContent, digests: Mapping[str, Digest], ports: BundlePorts
) -> Content:
    """Return members, NOTICE, SBOM and manifest; each of the last three describes the ones before it."""
    name = str(package_name(checked.plan, layout))
    work = ports.work / layout.value
    laid = tuple(replace(member, packed=_is_packed(member, layout)) for member in checked.members)
    text = notice(name, [*laid, _ours(NOTICE, work), _ours(SBOM, work)])
    members = (*laid, _write_member(_ours(NOTICE, work), text.encode()))
    known = {**digests, **ports.archive.digests(members[-1:])}
    wheels = _wheels(members, checked.lock)
    bom = ports.bom.render(describe_bom(checked.plan, name, members, known, wheels, checked.lock))
    members = (*members, _write_member(_ours(SBOM, work), bom))
    known = {**known, **ports.archive.digests(members[-1:])}
    packed = Packed(members=members, digests=known, wheels=wheels, layout=layout)
    manifest = json_text(describe(checked.plan, packed, checked.report, checked.revision))
    return Content(manifest=manifest.encode(), members=members, digests=known)


def _is_packed(member: Member, layout: Layout) -> bool:
    """Return whether a layout's archives hold the member; NVIDIA's libraries are not in layout thin."""
    theirs = member.vendor == NVIDIA and member.path.startswith(LIB)
    return layout is Layout.FULL or not theirs


def _archive(file: str, content: Content, checked: CheckedContent, ports: BundlePorts) -> Bundled:
    limit = checked.plan.project.bundle
    splits = limit.oversize is Oversize.SPLIT

    def accept(package: LocalFile) -> None:
        if package.size > limit.budget and not splits:
            require_no_errors(
                [_too_large(package, content, checked, ports)], f"{package.path.name} is not kept"
            )

    try:
        written = ports.archive.write(ports.dist / file, content, limit.preset, accept)
    except ChangedFileError as error:
        require_no_errors(list(_changed_file(error)), f"{file} is not packed")
        raise
    parts = ports.archive.split(written.path, limit.budget) if written.size > limit.budget else ()
    files = parts or (written.path,)
    sums = {part.name: file_digest(part).sha256 for part in parts} or {written.path.name: written.sha256}
    update_checksums(ports.dist, put=sums)
    ports.reporter.say(f"{file}  {written.size / _MB:,.0f} MB  sha256 {written.sha256}")
    if parts:
        ports.reporter.say(f"{files[-1].name} joins its {len(parts) - 1} parts")
    return Bundled(package=replace(written, path=files[-1]), files=files, sums=sums)


def _changed_file(error: ChangedFileError) -> Iterator[Finding]:
    """Yield the finding for a wheel's file that changed after it was unpacked."""
    member = error.member
    if member.source != BUILT and not member.modified:
        yield Finding(
            code=Code.B001,
            path=member.path,
            message=f"{member.file} is not the file of {member.source}. Delete that folder and build again.",
            wanted=f"{error.wanted.size} bytes, sha256 {error.wanted.sha256} (RECORD)",
            got=f"{error.got.size} bytes, sha256 {error.got.sha256}" if error.got else "more bytes",
        )


def _ours(path: str, work: Path) -> Member:
    return Member(path=path, file=work / path, source=BUILT, licence=OUR_LICENCE, vendor=ORTPACKS)


def _write_member(member: Member, data: bytes) -> Member:
    write_file(member.file, data)
    return member


def _wheels(members: Sequence[Member], lock: Lock) -> tuple[WheelEntry, ...]:
    """Return the wheels of the members, with their pins."""
    sources = sorted({member.source for member in members} - {BUILT})
    pins = ((source, lock.pins[source]) for source in sources)
    return tuple(WheelEntry(source, pin.filename, pin.size, pin.sha256) for source, pin in pins)


def _too_large(package: LocalFile, content: Content, checked: CheckedContent, ports: BundlePorts) -> Finding:
    limit = checked.plan.project.bundle
    packed = {member.path: content.digests[member.path].size for member in content.members if member.packed}
    biggest = sorted(packed.items(), key=lambda item: -item[1])[:_BIGGEST]
    return Finding(
        code=Code.B009,
        path=package.path.name,
        message="raise bundle.budget, or set bundle.oversize: split, or take another preset or layout.\n"
        + "\n".join(_table(biggest, _alternatives(content, checked, ports))),
        wanted=f"at most {limit.budget:,} bytes (bundle.budget)",
        got=f"{package.size:,} bytes",
    )


def _table(biggest: Sequence[tuple[str, int]], alternatives: Mapping[str, int]) -> Iterator[str]:
    yield "    Its biggest files, unpacked:"
    yield from (f"    {size:>13,}  {path}" for path, size in biggest)
    yield "    What it would come to, estimated from samples:"
    yield from (f"    {size:>13,}  {what}" for what, size in alternatives.items())


def _alternatives(content: Content, checked: CheckedContent, ports: BundlePorts) -> Mapping[str, int]:
    """Return the estimated bytes of each layout and preset, in the configured forms, by a description."""
    return {
        f"layout {layout.value}, preset {preset.value}, {form.value}": ports.archive.estimate(
            [member for member in content.members if _is_packed(member, layout)], form, preset
        )
        for form in checked.plan.project.bundle.forms
        for layout in checked.plan.possible_layouts
        for preset in Preset
    }
