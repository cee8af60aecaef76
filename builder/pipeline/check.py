"""The step check reads a package's libraries and compares their contents with the variant.

Our reader finds out which GPUs each library runs on, and unpacks all images of libraries that we compiled;
cuobjdump, if an ``Inspector`` is given, must count the same images. ``binary.pe_macho`` reads libraries for
Windows and macOS. All findings are collected; callers raise by ``require_checked``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from builder.binary.coverage import LibraryCoverage, Support, combine
from builder.binary.cuobjdump import CuobjdumpError, count_images, disagreements, parse_listings
from builder.binary.elf import Elf
from builder.binary.fatbin_format import SECTIONS
from builder.binary.kinds.file_kinds import FileKind
from builder.binary.library import HostNeeds, Library, Reading
from builder.binary.verdict import X86_64
from builder.errors import CommandError, IntegrityError
from builder.files.digest import Digest, file_digest
from builder.findings.finding import Code, Finding, Severity, errors, require_no_errors
from builder.formats.package_names import CUDA, LIB, LINUX, LINUX_ARM64, PROVIDER_LIBRARIES
from builder.gpu.architectures import Arch
from builder.package.archive import BUILT, Member
from builder.package.describe import BinaryReport
from builder.pipeline.inspect import read_file, read_foreign_file
from builder.ports import Inspector, Reporter
from builder.project.variants import Limits, Variant
from builder.rules.dependencies import check_closure, needs
from builder.rules.device_code import (
    by_jit,
    check_has_code,
    check_image_kinds,
    check_promised_gpus,
    check_provider,
    names,
    native_in,
)
from builder.rules.dlopen import report_unneeded, unneeded
from builder.rules.foreign_libraries import check_foreign
from builder.rules.payloads import check_own_kernels
from builder.rules.symbols import check_linkage
from builder.rules.windows_imports import ImportingLibrary, check_imports

MACHINES = {LINUX: X86_64, LINUX_ARM64: "aarch64"}
"""ELF machine of libraries, by Linux platform."""

_NOTHING = Elf(sections=(), soname=None, needed=(), runpath="$ORIGIN", rpath=None, glibc=None, glibcxx=None)
"""ELF facts that stand for a file that cannot be read."""


def check(
    members: Sequence[Member],
    variant: Variant,
    limits: Limits,
    inspector: Inspector | None,
    reporter: Reporter,
    *,
    digests: Mapping[str, Digest] = MappingProxyType({}),
    leave_out: bool = False,
) -> BinaryReport:
    """Read every library of a package and compare it with ``variant``; without ``inspector`` only natively.

    ``digests`` are of the actual bytes of members, by path: the inspector caches its answers by them, so a
    RECORD's digests are not enough. Missing digests are computed. With ``leave_out`` the report is on the
    package without the libraries that nothing in it needs; its ``unneeded`` has their paths. Raises what the
    inspector raises if it cannot run; a wrong answer of it is a finding. A library of another platform that
    cannot be read raises ``IntegrityError``.
    """
    with reporter.step(f"check {variant.name}"):
        libraries = [member for member in members if member.path.startswith(LIB)]
        if variant.platform not in MACHINES:
            report = _judge_foreign(libraries, variant)
            return report if variant.provider != CUDA else _judge_dlls(libraries, variant, limits, report)
        machine = MACHINES[variant.platform]
        seen = [_read_member(member, machine, inspector, digests.get(member.path)) for member in libraries]
        report = _judge(seen, variant, limits)
        if leave_out and report.unneeded:
            kept = [one for one in seen if one.member.path not in report.unneeded]
            report = replace(_judge(kept, variant, limits), unneeded=report.unneeded)
        return report


def _judge(seen: Sequence[_ReadMember], variant: Variant, limits: Limits) -> BinaryReport:
    libraries = [_library(one) for one in seen]
    coverage = tuple(one.reading.coverage for one in seen if one.reading.coverage is not None)
    left_over = unneeded(libraries)
    findings = (
        *(one.problem for one in seen if one.problem is not None),
        *(finding for one in seen for finding in one.disputed),
        *_hold(seen, variant, limits),
        *check_closure(libraries, limits),
        *check_linkage(libraries),
        *report_unneeded(left_over),
    )
    return BinaryReport(
        coverage=coverage,
        capabilities=combine(coverage) if variant.provider == CUDA else {},
        elf={one.member.path: one.reading.elf for one in seen if one.reading.elf is not None},
        needs=needs(libraries),
        findings=findings,
        unneeded=left_over,
    )


def _judge_foreign(members: Sequence[Member], variant: Variant) -> BinaryReport:
    """Return the report on libraries for another system: findings on their headers, and no CUDA."""
    found = [read_foreign_file(member.path, member.source, member.file) for member in members]
    return BinaryReport(
        coverage=(),
        capabilities={},
        elf={},
        needs=HostNeeds(None, None),
        findings=tuple(check_foreign(found, variant.provider, variant.platform)),
    )


def _judge_dlls(
    members: Sequence[Member], variant: Variant, limits: Limits, headers: BinaryReport
) -> BinaryReport:
    """Return the report on DLLs for CUDA; ``headers`` is the report on their headers and versions."""
    seen = [_ReadMember(member=one, reading=read_file(one.path, one.file), link=None) for one in members]
    dlls = {one.member.path: one.reading.dll for one in seen if one.reading.dll is not None}
    opened = {one.member.path: one.reading.dlopens for one in seen}
    coverage = tuple(one.reading.coverage for one in seen if one.reading.coverage is not None)
    findings = (
        *headers.findings,
        *(one.reading.problem for one in seen if one.reading.problem is not None),
        *_hold(seen, variant, limits),
        *check_imports([ImportingLibrary(path, dll, opened[path]) for path, dll in dlls.items()]),
    )
    return replace(headers, coverage=coverage, capabilities=combine(coverage), elf=dlls, findings=findings)


def native_sm(library: Path) -> tuple[Arch, ...]:
    """Return the architectures for which a provider has SASS in every container that counts.

    Raises ``IntegrityError`` for a file that cannot be read.
    """
    reading = read_file(library.name, library)
    if reading.problem is not None:
        why = reading.problem.message
        raise IntegrityError(f"{library} cannot be read", cause=why, advice="Remove it and fetch it again.")
    return native_in(reading.containers, reading.embedded_version)


@dataclass(frozen=True, kw_only=True)
class _ReadMember:
    """One member and its reading."""

    member: Member
    reading: Reading
    link: str | None
    """Target of the member's file if it is a symbolic link, else ``None``."""
    machine: str = X86_64
    """Machine that an ELF file must be for."""
    disputed: tuple[Finding, ...] = ()
    """Findings on differences from cuobjdump."""

    @property
    def problem(self) -> Finding | None:
        """E001 or A004; ``None`` for a valid file, and for a broken link, which is E010 already."""
        if self.reading.kind is not FileKind.LIBRARY:
            message = f"{self.reading.kind.value}, and no library for Linux"
            return Finding(code=Code.E001, path=self.member.path, message=message)
        elf = self.reading.elf
        if elf and elf.machine != self.machine:
            message = f"for {elf.machine}, not for {self.machine}"
            return Finding(code=Code.E001, path=self.member.path, message=message)
        return None if self.link and not self.member.file.exists() else self.reading.problem


def _read_member(
    member: Member, machine: str, inspector: Inspector | None, digest: Digest | None
) -> _ReadMember:
    link = str(member.file.readlink()) if member.file.is_symlink() else None
    reading = read_file(member.path, member.file, deep=member.source == BUILT)
    disputed = tuple(_cross_check(member, reading, inspector, digest)) if inspector else ()
    return _ReadMember(member=member, reading=reading, link=link, machine=machine, disputed=disputed)


def _library(seen: _ReadMember) -> Library:
    """Return the library for the rules.

    A file that cannot be read counts as present; it has its own finding.
    """
    return Library(
        path=seen.member.path,
        vendor=seen.member.vendor,
        elf=seen.reading.elf or _NOTHING,
        source=seen.member.source,
        embedded_version=seen.reading.embedded_version,
        dlopens=seen.reading.dlopens,
        link=seen.link,
    )


def _cross_check(
    member: Member, reading: Reading, inspector: Inspector, digest: Digest | None
) -> Iterator[Finding]:
    """Yield A101 and A102 on the sections that cuobjdump lists."""
    if reading.problem or reading.elf is None:
        return  # an unreadable file has nothing to compare
    path, tool = member.path, f"cuobjdump {inspector.version}"
    try:
        sha256 = (digest or file_digest(member.file)).sha256
        listed = parse_listings(*inspector.list_images(member.file, sha256))
    except CuobjdumpError as error:
        yield Finding(code=Code.A102, path=path, message=f"{tool} could not read it: {error}")
        return
    differing = disagreements(count_images(reading.containers), listed)
    if differing:
        yield Finding(
            code=Code.A101,
            path=path,
            message=f"{tool} and the native reader count different images",
            wanted="the same counts",
            got="; ".join(differing),
        )


def _hold(seen: Sequence[_ReadMember], variant: Variant, limits: Limits) -> Iterator[Finding]:
    """Yield findings on the device code of each library; a missing provider counts as one without code."""
    if variant.provider != CUDA:
        return
    path = f"{LIB}{PROVIDER_LIBRARIES[variant.platform]}"
    provider = next((one.reading for one in seen if one.member.path == path), Reading(path=path))
    yield from check_provider(path, provider.containers, variant, limits.extra_sm, provider.embedded_version)
    for one in seen:
        if one.reading.deep is not None:
            yield from check_own_kernels(one.member.path, one.reading.deep)
        coverage = one.reading.coverage
        if coverage is not None:
            yield from check_image_kinds(coverage)
        if one.member.path != path and one.reading.problem is None:
            yield from check_has_code(one.member.path, coverage)
            yield from check_promised_gpus(coverage, variant) if coverage else ()


def say_report(report: BinaryReport, variant: Variant, reporter: Reporter) -> None:
    """Report each library with device code, the GPUs by support, and every warning, a line each."""
    for library in report.coverage:
        reporter.say(_line(library, variant))
    for support in (Support.NATIVE, Support.JIT, Support.PARTIAL):
        devices = [str(device) for device, found in report.capabilities.items() if found is support]
        if devices:
            reporter.say(f"{support.value:<8} on {' '.join(devices)}")
    if variant.platform in MACHINES:
        glibc, glibcxx = report.needs.glibc or "none", report.needs.glibcxx or "none"
        reporter.say(f"needs    GLIBC {glibc}, GLIBCXX {glibcxx}")
    for finding in report.findings:
        if finding.severity is Severity.WARNING:
            reporter.warn(str(finding))


def _line(library: LibraryCoverage, variant: Variant) -> str:
    name = library.path.removeprefix(LIB)
    elsewhere = library.containers - sum(library.sections.get(section, 0) for section in SECTIONS)
    jit = by_jit(library, variant)
    parts = (
        f"{name:<42} containers {library.containers:>6,}",
        f"SASS {names(library.sass)}",
        f"PTX {names(library.ptx)}" if library.ptx else "",
        f"LTO IR {names(library.ltoir)}" if library.ltoir else "",
        f"{elsewhere:,} of them outside of .nv_fatbin" if elsewhere else "",
        f"by JIT on {' '.join(map(str, jit))}" if jit else "",
    )
    return "  ".join(part for part in parts if part)


def require_checked(findings: Sequence[Finding], what: str) -> None:
    """Raise ``CheckFailedError`` with every finding where any of them is an error.

    Raises ``CommandError`` instead where every error is a file that cuobjdump could not read: a failing tool
    says nothing about the file.
    """
    failed = errors(findings)
    if failed and all(finding.code is Code.A102 for finding in failed):
        raise CommandError(
            f"{what}, because cuobjdump could not read it: that says nothing about the package",
            tail=[str(finding) for finding in failed],
            advice="Run the same command again; what was compiled is kept. If cuobjdump fails again on this "
            "file, it is a limit of cuobjdump: please report the line above.",
        )
    require_no_errors(findings, what)
