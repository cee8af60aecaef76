"""The step check reads a package's libraries and compares their contents with the variant.

Our reader finds out which GPUs each library runs on, and unpacks all images of libraries that we compiled;
cuobjdump, if an ``Inspector`` is given, must count the same images. ``binary.pe_macho`` reads libraries for
Windows and macOS. All findings are collected; callers raise by ``require_checked``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

from builder.binary.coverage import LibraryCoverage, Support, as_stated, combine
from builder.binary.elf import Elf
from builder.binary.fatbin_format import SECTIONS
from builder.binary.file_kinds import FileKind
from builder.binary.library import HostNeeds, Library, Reading
from builder.binary.verdict import X86_64
from builder.config.variants import Limits, Variant
from builder.console import Reporter
from builder.contents.cuobjdump import CuobjdumpError, Inspector, count_images, disagreements, parse_listings
from builder.contents.package_manifest import BUILT, BinaryReport, Member
from builder.contents.reading import read_file, read_foreign_file
from builder.contents.rules.dependencies import check_closure, needs, report_unneeded, unneeded
from builder.contents.rules.device_code import (
    by_jit,
    check_has_code,
    check_image_kinds,
    check_promised_gpus,
    check_provider,
    names,
    native_in,
)
from builder.contents.rules.foreign_libraries import check_foreign, check_imports
from builder.contents.rules.payloads import check_own_kernels
from builder.contents.rules.symbols import check_linkage
from builder.errors import CommandError, IntegrityError
from builder.facts.gpu.architectures import Arch
from builder.facts.ort.units import UnitSet
from builder.files.digest import file_digest
from builder.finding import Code, Finding, Severity, errors, require_no_errors
from builder.formats.package_names import CUDA, LIB, LINUX, LINUX_ARM64, PROVIDER_LIBRARIES

_MACHINES = {LINUX: X86_64, LINUX_ARM64: "aarch64"}
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
    leave_out: bool = False,
    stated: Sequence[UnitSet] | None = None,
) -> BinaryReport:
    """Read every library of a package and compare it with ``variant``.

    Without ``inspector`` only our own reader reads them. The inspector caches its answers by the sha256 of a
    member's actual bytes, which is computed where the member has none. With ``leave_out`` the report is on
    the package without the libraries that nothing in it needs; its ``unneeded`` has their paths. ``stated``:
    the provider's sets of units, as its build states them; ``None``: those of its version. Raises what
    the inspector raises if it cannot run; a wrong answer of it is a finding. A library of another platform
    that cannot be read raises ``IntegrityError``.
    """
    with reporter.step(f"check {variant.name}"):
        libraries = [member for member in members if member.path.startswith(LIB)]
        if variant.platform not in _MACHINES:
            return _judge_foreign(libraries, variant, limits)
        readings = (read_file(one.path, one.file, deep=one.source == BUILT) for one in libraries)
        seen = [
            (library, replace(reading, coverage=as_stated(reading.coverage, stated)))
            for library, reading in zip(libraries, readings, strict=True)
        ]
        disputed: list[Finding] = []
        for member, reading in seen if inspector else ():
            disputed += _cross_check(member, reading, cast("Inspector", inspector))
        report = _judge(seen, disputed, variant, limits)
        if leave_out and report.unneeded:
            kept = [one for one in seen if one[0].path not in report.unneeded]
            report = replace(_judge(kept, disputed, variant, limits), unneeded=report.unneeded)
        return report


_Seen = tuple[Member, Reading]
"""A library of a package, and what was read of it."""


def _judge(
    seen: Sequence[_Seen], disputed: Sequence[Finding], variant: Variant, limits: Limits
) -> BinaryReport:
    """Return the report on libraries for Linux; ``disputed`` are the differences from cuobjdump."""
    libraries = [_library(member, reading) for member, reading in seen]
    readings = [reading for _, reading in seen]
    paths = {reading.path for reading in readings}
    coverage = tuple(one.coverage for one in readings if one.coverage is not None)
    left_over = unneeded(libraries)
    findings = (
        *(finding for one in seen for finding in _problems(*one, _MACHINES[variant.platform])),
        *(finding for finding in disputed if finding.path in paths),
        *_check_device_code(readings, variant, limits),
        *check_closure(libraries, limits, variant.form),
        *check_linkage(libraries),
        *report_unneeded(left_over),
    )
    return BinaryReport(
        coverage=coverage,
        capabilities=combine(coverage) if variant.provider == CUDA else {},
        elf={one.path: one.elf for one in readings if one.elf is not None},
        needs=needs(libraries),
        findings=findings,
        unneeded=left_over,
    )


def _judge_foreign(members: Sequence[Member], variant: Variant, limits: Limits) -> BinaryReport:
    """Return the report on libraries for another system: on their headers and, with CUDA, on their code."""
    headers = [read_foreign_file(member.path, member.source, member.file) for member in members]
    cuda = variant.provider == CUDA
    readings = [read_file(member.path, member.file) for member in members] if cuda else []
    coverage = tuple(reading.coverage for reading in readings if reading.coverage is not None)
    return BinaryReport(
        coverage=coverage,
        capabilities=combine(coverage) if cuda else {},
        elf={reading.path: reading.dll for reading in readings if reading.dll is not None},
        needs=HostNeeds(None, None),
        findings=(
            *check_foreign(headers, variant.provider, variant.platform),
            *(reading.problem for reading in readings if reading.problem is not None),
            *_check_device_code(readings, variant, limits),
            *check_imports(readings),
        ),
    )


def native_sm(library: Path) -> tuple[Arch, ...]:
    """Return the architectures for which a provider has SASS in every container that counts.

    Raises ``IntegrityError`` for a file that cannot be read.
    """
    reading = read_file(library.name, library)
    if reading.problem is not None:
        why = reading.problem.message
        raise IntegrityError(f"{library} cannot be read", cause=why, advice="Remove it and fetch it again.")
    return native_in(reading.containers, reading.embedded_version)


def _problems(member: Member, reading: Reading, machine: str) -> Iterator[Finding]:
    """Yield E001 or A004 for a file that is no whole library for ``machine``; a broken link has E010."""
    elf = reading.elf
    if reading.kind is not FileKind.LIBRARY:
        message = f"{reading.kind.value}, and no library for Linux"
        yield Finding(code=Code.E001, path=member.path, message=message)
    elif elf and elf.machine != machine:
        yield Finding(code=Code.E001, path=member.path, message=f"for {elf.machine}, not for {machine}")
    elif reading.problem and (member.file.exists() or not member.file.is_symlink()):
        yield reading.problem


def _library(member: Member, reading: Reading) -> Library:
    """Return the library for the rules.

    A file that cannot be read counts as present; it has its own finding.
    """
    return Library(
        path=member.path,
        vendor=member.vendor,
        elf=reading.elf or _NOTHING,
        source=member.source,
        embedded_version=reading.embedded_version,
        dlopens=reading.dlopens,
        link=str(member.file.readlink()) if member.file.is_symlink() else None,
    )


def _cross_check(member: Member, reading: Reading, inspector: Inspector) -> Iterator[Finding]:
    if reading.problem or reading.elf is None:
        return  # an unreadable file has nothing to compare
    path, tool = member.path, f"cuobjdump {inspector.version}"
    try:
        sha256 = member.sha256 or file_digest(member.file).sha256
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


def _check_device_code(readings: Sequence[Reading], variant: Variant, limits: Limits) -> Iterator[Finding]:
    """Yield findings on the device code of each library; a missing provider counts as one without code."""
    if variant.provider != CUDA:
        return
    path = f"{LIB}{PROVIDER_LIBRARIES[variant.platform]}"
    provider = next((one for one in readings if one.path == path), Reading(path=path))
    unit_sets = provider.coverage.unit_sets if provider.coverage else ()
    extra = limits.extra_sm
    if extra is Severity.WARNING and provider.deep is None:
        extra = Severity.NOTE  # an official build: nobody here can make it smaller
    yield from check_provider(path, provider.containers, variant, extra, unit_sets)
    for reading in readings:
        if reading.deep is not None:
            yield from check_own_kernels(reading.path, reading.deep)
        if reading.coverage is not None:
            yield from check_image_kinds(reading.coverage)
        if reading.path != path and reading.problem is None:
            yield from check_has_code(reading.path, reading.coverage)
            yield from check_promised_gpus(reading.coverage, variant) if reading.coverage else ()


def say_report(report: BinaryReport, variant: Variant, reporter: Reporter) -> None:
    """Report each library with device code, the GPUs by support, and every warning, a line each."""
    for library in report.coverage:
        reporter.say(_line(library, variant))
    for support in (Support.NATIVE, Support.JIT, Support.PARTIAL):
        devices = [
            str(device) for device, device_support in report.capabilities.items() if device_support is support
        ]
        if devices:
            reporter.say(f"{support.value:<8} on {' '.join(devices)}")
    if variant.platform in _MACHINES:
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
