"""The manifest of a package: made from what was planned, packed and read, and compared with libraries again.

``describe`` makes it, ``compare`` compares it with a whole package, ``promise_of`` with any libraries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from builder.binary.coverage import LibraryCoverage, Support, combine, worst
from builder.binary.elf import Elf
from builder.binary.library import HostNeeds, Inspected
from builder.binary.library_names import PROVIDER, is_named_like_a_library
from builder.errors import ConfigError
from builder.files.digest import Digest
from builder.findings.finding import Code, Finding
from builder.formats.manifest import (
    FORMAT,
    MANIFEST,
    BaseEntry,
    CoverageEntry,
    Driver,
    FileEntry,
    Manifest,
    OrtEntry,
    WheelEntry,
    loads,
)
from builder.formats.missing_kernels import cannot_run
from builder.formats.package_names import CUDA, Layout
from builder.gpu.architectures import Arch, Capability
from builder.gpu.cuda_toolkits import driver_window
from builder.package.archive import Member
from builder.project.build_plan import BuildPlan, package_name
from builder.project.variants import Origin, Variant

OFFICIAL = "official"


@dataclass(frozen=True, kw_only=True)
class BinaryReport:
    """Contents of a package's libraries, read from their own bytes, and the findings on them."""

    coverage: tuple[LibraryCoverage, ...]
    """The libraries with device code, in the members' order."""
    capabilities: Mapping[Capability, Support]
    """How the whole package runs on each; empty without CUDA."""
    elf: Mapping[str, Elf]
    """SONAME, NEEDED and the rest by member path; a file that is no ELF file is not in it."""
    needs: HostNeeds
    """The newest GLIBC and GLIBCXX that any library asks of its host."""
    findings: tuple[Finding, ...]
    unneeded: tuple[str, ...] = ()
    """Paths of the libraries that nothing in the package needs or opens, E016 each."""

    @property
    def provider_sass(self) -> tuple[Arch, ...]:
        """Architectures of the CUDA provider's SASS, from which ``gpu.toolkits.driver_window`` follows."""
        return next((library.sass for library in self.coverage if library.path.endswith(f"/{PROVIDER}")), ())

    @property
    def compressed(self) -> bool:
        """Whether images for GPUs before Blackwell are packed with zstd."""
        return any(library.zstd for library in self.coverage)


@dataclass(frozen=True)
class _Claims:
    """The part of a manifest that follows from the package's binaries."""

    needs: HostNeeds
    driver: Driver | None
    capabilities: Mapping[str, str]
    coverage: tuple[CoverageEntry, ...]


@dataclass(frozen=True)
class Packed:
    """The members, what their bytes are, and the wheels they come from."""

    members: tuple[Member, ...]
    digests: Mapping[str, Digest]
    wheels: tuple[WheelEntry, ...]
    layout: Layout


def describe(plan: BuildPlan, packed: Packed, report: BinaryReport, revision: str | None) -> Manifest:
    """The manifest of a plan's package. ``revision`` is the base image's digest, ``None`` where unknown."""
    name = package_name(plan, packed.layout)
    cuda, cudnn = _nvidia_versions(plan)
    claims = _claims(report, plan.variant.sm, cuda)
    return Manifest(
        format=FORMAT,
        name=str(name),
        layout=packed.layout.value,
        variant=plan.variant.name,
        sm=tuple(map(str, plan.variant.sm)),
        generations=plan.variant.generations,
        platform=name.platform,
        provider=plan.variant.provider,
        glibc=claims.needs.glibc,
        glibcxx=claims.needs.glibcxx,
        onnxruntime=_ort(plan),
        base=BaseEntry(name=plan.base, reason=plan.base_reason, revision=revision),
        cuda=cuda,
        cudnn=cudnn,
        toolkit=_toolkit(plan),
        driver=claims.driver,
        capabilities=claims.capabilities,
        coverage=claims.coverage,
        models=plan.project.models,
        wheels=packed.wheels,
        files=tuple(
            _entry(member, packed.digests[member.path], report.elf.get(member.path))
            for member in sorted(packed.members, key=lambda member: member.path)
        ),
    )


def compare(manifest: Manifest, report: BinaryReport) -> tuple[Finding, ...]:
    """B007 for each claim of a manifest that its binaries do not hold."""
    claims = _claims(report, tuple(map(Arch.parse, manifest.sm)), manifest.cuda)
    claimed = _lines(_promised_claims(manifest))
    seen = _lines(claims)
    for entry in manifest.files:
        elf = report.elf.get(entry.path)
        claimed[f"files.{entry.path}"] = _linkage(entry.soname, entry.needed)
        seen[f"files.{entry.path}"] = _linkage(elf.soname, elf.needed) if elf else _linkage(None, ())
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


@dataclass(frozen=True)
class Promise:
    """The device code that one package's manifest promises, and findings where the bytes differ."""

    package: str
    """Its name; empty when the manifest cannot be read."""
    folder: str
    """Where the manifest lies in what was inspected: empty, or with a slash at its end."""
    sm: tuple[str, ...] = ()
    capabilities: Mapping[Capability, Support] = field(default_factory=dict)
    """What the manifest says of each; it is silent of GPUs that came later, and without CUDA of all."""
    elsewhere: int = 0
    """Libraries that the package leaves to NVIDIA's wheels and that are not here."""
    findings: tuple[Finding, ...] = ()
    """B004 and B007."""

    @property
    def path(self) -> str:
        """Where the manifest is."""
        return f"{self.folder}{MANIFEST}"


@dataclass(frozen=True)
class InspectedSource:
    """One thing that ``inspect`` was given: its name for readers, its libraries, its packages' promises."""

    label: str
    libraries: Sequence[Inspected]
    promises: tuple[Promise, ...] = ()


def promise_of(text: bytes, folder: str, libraries: Iterable[Inspected]) -> Promise:
    """The promise of the manifest in ``folder``, compared with the libraries that lie below it.

    Never raises: a manifest that cannot be read is a finding.
    """
    try:
        manifest = loads(text, folder.rstrip("/") or "this package")
        promised = {
            Capability.parse(device): Support(found) for device, found in manifest.capabilities.items()
        }
    except (ConfigError, ValueError) as error:
        return Promise("", folder, findings=(Finding(Code.B007, f"{folder}{MANIFEST}", str(error)),))
    here = {item.name[len(folder) :]: item for item in libraries if item.name.startswith(folder)}
    return Promise(
        package=manifest.name,
        folder=folder,
        sm=manifest.sm,
        capabilities=promised,
        elsewhere=sum(entry.path not in here for entry in manifest.absent),
        findings=tuple(
            replace(finding, path=f"{folder}{finding.path}")
            for finding in (
                *_coverage_findings(manifest, here),
                *_capability_findings(manifest, promised, here),
            )
        ),
    )


def _coverage_findings(manifest: Manifest, here: Mapping[str, Inspected]) -> Iterator[Finding]:
    """B004 and B007 for each library; one that is not here need not be if a wheel brings it."""
    claimed = {entry.path: _line(entry) for entry in manifest.coverage}
    for entry in manifest.packed:
        if entry.path not in here and is_named_like_a_library(entry.path):
            yield Finding(Code.B004, entry.path, f"{entry.path} comes from {entry.source} and is not here")
    for path, item in here.items():
        found = _line(_coverage_entry(path, item.coverage)) if item.coverage else "no device code"
        wanted = claimed.get(path, "no device code")
        if wanted != found and not item.problem:
            message = f"{path} holds other device code than the manifest says"
            yield Finding(Code.B007, path, message, wanted=wanted, got=found)


def _capability_findings(
    manifest: Manifest, promised: Mapping[Capability, Support], here: Mapping[str, Inspected]
) -> Iterator[Finding]:
    """B007 where the package as a whole runs on other GPUs than its manifest promises.

    While a library is missing or cannot be read, only what is worse than promised is certain.
    """
    found = combine(item.runnable for item in here.values() if item.runnable)
    whole = all(entry.path in here and not here[entry.path].problem for entry in manifest.coverage)
    unlike: dict[tuple[Support, Support], list[str]] = {}
    for device, support in promised.items():
        held = found.get(device, Support.NONE)
        if held is not support and (whole or worst((held, support)) is held):
            unlike.setdefault((support, held), []).append(str(device))
    for (wanted, got), devices in unlike.items():
        message = f"on compute capability {', '.join(devices)} the package runs otherwise than promised"
        yield Finding(Code.B007, MANIFEST, message, wanted=wanted.value, got=got.value)


def installed_members(manifest: Manifest, files: Mapping[str, Path]) -> tuple[Member, ...]:
    """The members of a package whose files lie where ``files`` says, by path, as its manifest tells them."""
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
    """The variant a manifest promises to be."""
    return Variant(
        name=manifest.variant,
        sm=tuple(map(Arch.parse, manifest.sm)),
        generations=manifest.generations,
        provider=manifest.provider,
        platform=manifest.platform,
    )


def _promised_claims(manifest: Manifest) -> _Claims:
    needs = HostNeeds(manifest.glibc, manifest.glibcxx)
    return _Claims(needs, manifest.driver, manifest.capabilities, manifest.coverage)


def _driver(report: BinaryReport, sm: Sequence[Arch], cuda: str) -> Driver:
    jit = any(report.capabilities.get(Capability(arch.major, arch.minor)) is Support.JIT for arch in sm)
    floor, ceiling = driver_window(report.provider_sass, cuda, jit=jit, compressed=report.compressed)
    return Driver(floor=floor, ceiling=ceiling)


def _claims(report: BinaryReport, sm: Sequence[Arch], cuda: str | None) -> _Claims:
    """``cuda`` is ``None`` of a package without any of CUDA: it has no driver to ask for."""
    return _Claims(
        needs=report.needs,
        driver=_driver(report, sm, cuda) if cuda else None,
        capabilities={str(device): found.value for device, found in report.capabilities.items()},
        coverage=tuple(
            _coverage_entry(library.path, library)
            for library in sorted(report.coverage, key=lambda library: library.path)
        ),
    )


def _lines(claims: _Claims) -> dict[str, str]:
    """Every claim by its key path, one line each, so that two sides can be compared and printed."""
    lines = {f"capabilities.{device}": support for device, support in claims.capabilities.items()}
    if claims.driver is not None:
        lines["driver"] = f"floor {claims.driver.floor}, ceiling {claims.driver.ceiling or 'none'}"
    lines["glibc"] = claims.needs.glibc or "none"
    lines["glibcxx"] = claims.needs.glibcxx or "none"
    for entry in claims.coverage:
        lines[f"coverage.{entry.path}"] = _line(entry)
    return lines


def _coverage_entry(path: str, library: LibraryCoverage) -> CoverageEntry:
    return CoverageEntry(
        path=path,
        containers=library.containers,
        sass=tuple(map(str, library.sass)),
        ptx=tuple(map(str, library.ptx)),
    )


def _line(entry: CoverageEntry) -> str:
    return f"{entry.containers} containers, SASS [{' '.join(entry.sass)}], PTX [{' '.join(entry.ptx)}]"


def _linkage(soname: str | None, needed: Sequence[str]) -> str:
    return f"SONAME {soname or 'none'}, NEEDED [{' '.join(needed)}]"


def _nvidia_versions(plan: BuildPlan) -> tuple[str | None, str | None]:
    """Versions of CUDA and cuDNN in the package; ``None`` for each where there is nothing of NVIDIA's."""
    if plan.variant.provider != CUDA:
        return None, None
    return plan.project.cuda.version, plan.project.cudnn.version


def _ort(plan: BuildPlan) -> OrtEntry:
    return OrtEntry(
        version=plan.ort_version,
        origin=plan.origin.value,
        origin_reason=plan.origin_reason,
        profile=plan.profile.value if plan.profile else None,
        host=plan.host.value,
        cannot_run=cannot_run(plan.profile.value if plan.profile else None, plan.ort_version),
    )


def _toolkit(plan: BuildPlan) -> str:
    if plan.origin is Origin.WHEEL:
        return OFFICIAL
    return plan.project.bases.assembled.nvcc if plan.base == "assembled" else plan.project.cuda.version


def _entry(member: Member, digest: Digest, elf: Elf | None) -> FileEntry:
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
        soname=elf.soname if elf else None,
        needed=elf.needed if elf else (),
    )
