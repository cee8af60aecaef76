"""A package's files before they are packed, and its manifest, which is made from plan and readings.

``describe`` makes a manifest, ``compare`` compares it with a whole package; ``supported_gpus.promise_of``
compares it with any libraries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from builder.binary.coverage import LibraryCoverage, Support
from builder.binary.elf import Elf
from builder.binary.library import HostNeeds
from builder.binary.library_names import is_provider
from builder.binary.pe import Pe
from builder.config.build_plan import NO_BASE, BuildPlan, package_name
from builder.config.repairs import cannot_run_below
from builder.config.variants import Origin, SuiteSystem, Variant
from builder.contents.diff import difference
from builder.contents.supported_gpus import coverage_entry
from builder.errors import IntegrityError
from builder.facts.gpu.architectures import Arch, Capability
from builder.facts.gpu.compatibility import driver_window
from builder.facts.gpu.drivers import windows_floor
from builder.files.digest import Digest
from builder.finding import Code, Finding
from builder.formats.manifest import (
    FORMAT,
    BaseEntry,
    CompiledSource,
    Driver,
    FileEntry,
    Manifest,
    OrtEntry,
    PluginEntry,
    WheelEntry,
)
from builder.formats.package_names import LIB, PROVIDER_LIBRARIES, WINDOWS, Layout, Profile
from builder.formats.session_log import CUDA_PROVIDER

BUILT = "built"
"""The ``source`` of files that we compiled or wrote."""


@dataclass(frozen=True, kw_only=True)
class Member(FileEntry):
    """One file of a package on this machine: its entry in the manifest, and the file itself.

    Until the bytes are hashed, size and sha256 are empty; SONAME and NEEDED come with the manifest.
    """

    file: Path
    """The regular file whose bytes are packed."""
    size: int = 0
    sha256: str = ""
    member: str | None = None
    packed: bool = True
    modified: bool = False
    soname: str | None = None
    needed: tuple[str, ...] = ()

    @property
    def digest(self) -> Digest:
        """Size and sha256 that the file's bytes must have."""
        return Digest(self.size, self.sha256)

    def of_bytes(self, digest: Digest) -> Member:
        """Return a copy of the member with this size and sha256 of its bytes."""
        return replace(self, size=digest.size, sha256=digest.sha256)


class ChangedFileError(IntegrityError):
    """A member's file does not have the bytes it must have.

    ``got`` is ``None`` for a file that is too long.
    """

    def __init__(self, member: Member, got: Digest | None) -> None:
        self.member, self.got = member, got
        super().__init__(
            f"{member.file} changed while {member.path} was packed, or before",
            cause=f"it should have {member.digest}, and has {got or 'more bytes'}",
            advice="Build again, and let nothing else write there.",
        )


@dataclass(frozen=True)
class Content:
    """All that a package is made of: the manifest's bytes, and the members with their digests."""

    manifest: bytes
    members: tuple[Member, ...]

    @property
    def packed(self) -> tuple[Member, ...]:
        """The members that the archive holds besides the manifest, sorted by path."""
        return tuple(
            sorted(
                (candidate for candidate in self.members if candidate.packed), key=lambda member: member.path
            )
        )

    @property
    def size(self) -> int:
        """Bytes of all files in the archive, the manifest included."""
        return len(self.manifest) + sum(member.size for member in self.packed)


OFFICIAL = "official"


@dataclass(frozen=True, kw_only=True)
class BinaryReport:
    """Contents of a package's libraries, read from their own bytes, and the findings on them."""

    coverage: tuple[LibraryCoverage, ...]
    """The libraries with device code, in the members' order."""
    capabilities: Mapping[Capability, Support]
    """Support of the whole package for each capability; empty without CUDA."""
    elf: Mapping[str, Elf | Pe]
    """SONAME, NEEDED and other facts by member path; for a DLL for CUDA, its name and imports."""
    needs: HostNeeds
    """The newest GLIBC and GLIBCXX that any library needs of its host."""
    findings: tuple[Finding, ...]
    unneeded: tuple[str, ...] = ()
    """Paths of the libraries that nothing in the package needs or opens, each with a finding E016."""

    @property
    def provider_sass(self) -> tuple[Arch, ...]:
        """Architectures of the CUDA provider's SASS, which determine ``compatibility.driver_window``."""
        return next((library.sass for library in self.coverage if is_provider(library.path)), ())

    @property
    def compressed(self) -> bool:
        """Whether images for GPUs before Blackwell are packed with zstd."""
        return any(library.zstd for library in self.coverage)


def describe(
    plan: BuildPlan,
    layout: Layout,
    members: Sequence[Member],
    wheels: tuple[WheelEntry, ...],
    report: BinaryReport,
    revision: str | None,
    source: CompiledSource | None = None,
) -> Manifest:
    """Return the manifest of a plan's package.

    ``revision`` is the base's digest, ``None`` if unknown; ``source`` what was compiled, if anything was.
    """
    name = package_name(plan, layout)
    unread = Manifest(
        format=FORMAT,
        name=str(name),
        layout=layout.value,
        variant=plan.variant.name,
        sm=tuple(map(str, plan.variant.sm)),
        generations=plan.variant.generations,
        platform=name.platform,
        provider=plan.variant.provider,
        glibc=None,
        glibcxx=None,
        onnxruntime=_ort(plan, source),
        base=BaseEntry(name=plan.base, reason=_system(plan), revision=revision),
        cuda=name.cuda,
        cudnn=plan.project.cudnn.version if name.cuda else None,
        toolkit=OFFICIAL if plan.origin is Origin.WHEEL else plan.on.toolkit.version,
        driver=None,
        capabilities={},
        coverage=(),
        models=plan.project.models,
        wheels=wheels,
        files=tuple(_entry(member) for member in sorted(members, key=lambda member: member.path)),
        plugin=_plugin(plan),
    )
    return _as_read(unread, report)


def compare(manifest: Manifest, report: BinaryReport) -> tuple[Finding, ...]:
    """Return B007 for each statement of a manifest that does not hold for its binaries."""
    package_difference = difference(manifest, _as_read(manifest, report))
    of_files = (
        (f"{file.path} {change.what}", change)
        for file in package_difference.changed
        for change in file.changes
    )
    changes = [
        (change.what, change) for change in (*package_difference.versions, *package_difference.architectures)
    ]
    return tuple(
        Finding(
            code=Code.B007,
            path=key,
            message="the manifest and the binaries disagree",
            wanted=str(change.a or "nothing"),
            got=str(change.b or "nothing"),
        )
        for key, change in (*changes, *of_files)
    )


def installed_members(manifest: Manifest, files: Mapping[str, Path]) -> tuple[Member, ...]:
    """Return the members of an installed package from its manifest; ``files`` has their files by path."""
    return tuple(Member(**vars(entry), file=files[entry.path]) for entry in manifest.files)


def promised(manifest: Manifest) -> Variant:
    """Return the variant that a manifest promises."""
    return Variant(
        name=manifest.variant,
        sm=tuple(map(Arch.parse, manifest.sm)),
        generations=manifest.generations,
        provider=manifest.provider,
        platform=manifest.platform,
        form=manifest.form,
    )


def _as_read(manifest: Manifest, report: BinaryReport) -> Manifest:
    """Return the manifest with all that follows from the package's binaries taken from the report."""
    files = ((entry, report.elf.get(entry.path)) for entry in manifest.files)
    return replace(
        manifest,
        glibc=report.needs.glibc,
        glibcxx=report.needs.glibcxx,
        driver=_driver(report, manifest) if manifest.cuda else None,
        capabilities={str(device): support.value for device, support in report.capabilities.items()},
        coverage=tuple(
            coverage_entry(library.path, library)
            for library in sorted(report.coverage, key=lambda library: library.path)
        ),
        files=tuple(
            replace(entry, soname=elf.soname if elf else None, needed=elf.needed if elf else ())
            for entry, elf in files
        ),
    )


def _driver(report: BinaryReport, manifest: Manifest) -> Driver:
    devices = [Capability(arch.major, arch.minor) for arch in map(Arch.parse, manifest.sm)]
    compiled = [
        library.isa
        for library in report.coverage
        if library.isa and any(library.support.get(device) is Support.JIT for device in devices)
    ]
    isa = max(compiled, default=None)
    floor, ceiling = driver_window(
        report.provider_sass, str(manifest.cuda), isa=isa, compressed=report.compressed
    )
    return Driver(floor=windows_floor(floor) if manifest.platform == WINDOWS else floor, ceiling=ceiling)


def _system(plan: BuildPlan) -> str:
    """Return a description of the base.

    The reason why the plan chose it depends on the machine, and a package's bytes must not.
    """
    if plan.base == NO_BASE:
        return plan.base_reason
    system = plan.on.system
    name = f"Debian {system.suite}" if isinstance(system, SuiteSystem) else system.image.spec
    return f"its system is {name}"


def _ort(plan: BuildPlan, source: CompiledSource | None) -> OrtEntry:
    profile = plan.profile.value if plan.profile else None
    return OrtEntry(
        version=plan.ort_version,
        origin=plan.origin.value,
        origin_reason=plan.origin_reason,
        profile=profile,
        host=plan.host_origin,
        cannot_run=plan.cannot_run,
        cannot_run_below=cannot_run_below(plan.repairs if plan.profile is Profile.FULL else ()),
        source=source,
    )


def _plugin(plan: BuildPlan) -> PluginEntry | None:
    source = plan.rules.plugin if plan.variant.is_plugin else None
    if source is None:
        return None
    return PluginEntry(
        library=f"{LIB}{PROVIDER_LIBRARIES[plan.variant.platform]}",
        names=(CUDA_PROVIDER,),
        oldest_host=source.oldest_host.value,
        api_version=int(source.api_version.value),
        contrib_schemas=source.contrib_schemas.value if source.contrib_schemas else None,
    )


def _entry(member: Member) -> FileEntry:
    return FileEntry(**{field.name: getattr(member, field.name) for field in fields(FileEntry)})
