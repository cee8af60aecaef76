"""This module makes a package's manifest from plan, members and readings, and compares it with libraries.

``describe`` makes a manifest, ``compare`` compares it with a whole package; ``promise.promise_of`` compares
it with any libraries.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from builder.binary.coverage import LibraryCoverage, Support
from builder.binary.elf import Elf
from builder.binary.kinds.pe import Pe
from builder.binary.library import HostNeeds
from builder.binary.library_names import is_provider
from builder.files.digest import Digest
from builder.findings.finding import Code, Finding
from builder.formats.manifest import (
    FORMAT,
    BaseEntry,
    Driver,
    FileEntry,
    Manifest,
    OrtEntry,
    WheelEntry,
)
from builder.formats.missing_kernels import cannot_run
from builder.formats.package_names import WINDOWS, Layout
from builder.gpu.architectures import Arch, Capability
from builder.gpu.cuda_toolkits import driver_window, windows_floor
from builder.onnxruntime.toolchain import tools
from builder.package.archive import Member
from builder.package.promise import coverage_entry, coverage_line
from builder.project.bases import SuiteSystem
from builder.project.build_plan import NO_BASE, BuildPlan, package_name
from builder.project.variants import Origin, Variant

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
        """Architectures of the CUDA provider's SASS, which determine ``cuda_toolkits.driver_window``."""
        return next((library.sass for library in self.coverage if is_provider(library.path)), ())

    @property
    def compressed(self) -> bool:
        """Whether images for GPUs before Blackwell are packed with zstd."""
        return any(library.zstd for library in self.coverage)


@dataclass(frozen=True)
class Packed:
    """The members of a package, the digests of their bytes, and their wheels."""

    members: tuple[Member, ...]
    digests: Mapping[str, Digest]
    wheels: tuple[WheelEntry, ...]
    layout: Layout


def describe(plan: BuildPlan, packed: Packed, report: BinaryReport, revision: str | None) -> Manifest:
    """Return the manifest of a plan's package. ``revision`` is the base's digest, ``None`` if unknown."""
    name = package_name(plan, packed.layout)
    unread = Manifest(
        format=FORMAT,
        name=str(name),
        layout=packed.layout.value,
        variant=plan.variant.name,
        sm=tuple(map(str, plan.variant.sm)),
        generations=plan.variant.generations,
        platform=name.platform,
        provider=plan.variant.provider,
        glibc=None,
        glibcxx=None,
        onnxruntime=_ort(plan),
        base=BaseEntry(name=plan.base, reason=_system(plan), revision=revision),
        cuda=name.cuda,
        cudnn=plan.project.cudnn.version if name.cuda else None,
        toolkit=OFFICIAL if plan.origin is Origin.WHEEL else tools(plan)[0],
        driver=None,
        capabilities={},
        coverage=(),
        models=plan.project.models,
        wheels=packed.wheels,
        files=tuple(
            _entry(member, packed.digests[member.path])
            for member in sorted(packed.members, key=lambda member: member.path)
        ),
    )
    return _as_read(unread, report)


def compare(manifest: Manifest, report: BinaryReport) -> tuple[Finding, ...]:
    """Return B007 for each statement of a manifest that does not hold for its binaries."""
    claimed, seen = _lines(manifest), _lines(_as_read(manifest, report))
    return tuple(
        Finding(
            code=Code.B007,
            path=key,
            message="the manifest and the binaries disagree",
            wanted=claimed.get(key, "nothing"),
            got=seen.get(key, "nothing"),
        )
        for key in sorted({*claimed, *seen})
        if claimed.get(key) != seen.get(key)
    )


def installed_members(manifest: Manifest, files: Mapping[str, Path]) -> tuple[Member, ...]:
    """Return the members of an installed package from its manifest; ``files`` has their files by path."""
    return tuple(
        Member(
            path=entry.path,
            file=files[entry.path],
            source=entry.source,
            licence=entry.licence,
            vendor=entry.vendor,
            modified=entry.modified,
            member=entry.member,
            packed=entry.packed,
        )
        for entry in manifest.files
    )


def promised(manifest: Manifest) -> Variant:
    """Return the variant that a manifest promises."""
    return Variant(
        name=manifest.variant,
        sm=tuple(map(Arch.parse, manifest.sm)),
        generations=manifest.generations,
        provider=manifest.provider,
        platform=manifest.platform,
    )


def _as_read(manifest: Manifest, report: BinaryReport) -> Manifest:
    """Return the manifest with all that follows from the package's binaries taken from the report."""
    files = ((entry, report.elf.get(entry.path)) for entry in manifest.files)
    return replace(
        manifest,
        glibc=report.needs.glibc,
        glibcxx=report.needs.glibcxx,
        driver=_driver(report, manifest) if manifest.cuda else None,
        capabilities={str(device): found.value for device, found in report.capabilities.items()},
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


def _lines(manifest: Manifest) -> dict[str, str]:
    """Return every statement on binaries by its key path, one line each, to compare two manifests."""
    lines = {f"capabilities.{device}": support for device, support in manifest.capabilities.items()}
    if manifest.driver is not None:
        lines["driver"] = f"floor {manifest.driver.floor}, ceiling {manifest.driver.ceiling or 'none'}"
    lines["glibc"] = manifest.glibc or "none"
    lines["glibcxx"] = manifest.glibcxx or "none"
    lines |= {f"coverage.{entry.path}": coverage_line(entry) for entry in manifest.coverage}
    for entry in manifest.files:
        linked = f"SONAME {entry.soname or 'none'}, NEEDED [{' '.join(entry.needed)}]"
        lines[f"files.{entry.path}"] = linked
    return lines


def _system(plan: BuildPlan) -> str:
    """Return a description of the base.

    The reason why the plan chose it depends on the machine, and a package's bytes must not.
    """
    if plan.base == NO_BASE:
        return plan.base_reason
    system = plan.on.system
    name = f"Debian {system.suite}" if isinstance(system, SuiteSystem) else system.image.spec
    return f"its system is {name}"


def _ort(plan: BuildPlan) -> OrtEntry:
    profile = plan.profile.value if plan.profile else None
    return OrtEntry(
        version=plan.ort_version,
        origin=plan.origin.value,
        origin_reason=plan.origin_reason,
        profile=profile,
        host=plan.host.value,
        cannot_run=cannot_run(profile, plan.ort_version),
    )


def _entry(member: Member, digest: Digest) -> FileEntry:
    return FileEntry(
        path=member.path,
        size=digest.size,
        sha256=digest.sha256,
        source=member.source,
        member=member.member,
        packed=member.packed,
        licence=member.licence,
        vendor=member.vendor,
        modified=member.modified,
        soname=None,
        needed=(),
    )
