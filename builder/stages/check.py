"""check: what a package's libraries really hold, read from their bytes and held to the variant.

Native reading says which GPUs each library runs on; cuobjdump, where a toolchain image is at hand, must count
the same images. All findings are collected; the caller decides with ``core.checks.require``.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from builder.core.arch import Arch, Capability
from builder.core.checks import Code, Finding
from builder.core.closure import Library, check_closure
from builder.core.content import NVIDIA, PROVIDER
from builder.core.coverage import LibraryCoverage, Support, combine, cover, lacking, sass_everywhere
from builder.core.cuobjdump import CuobjdumpError, count_images, disagreements, parse_listings
from builder.core.elf import Buffer, Elf, ElfError, read_elf
from builder.core.fatbin import Container, FatbinError, read_containers
from builder.core.package import Member
from builder.core.ports import Inspector, Reporter
from builder.core.variant import Variant
from builder.errors import IntegrityError

_LIBRARIES = "lib/"


@dataclass(frozen=True, kw_only=True)
class CheckReport:
    """What was found, and what is wrong with it."""

    coverage: tuple[LibraryCoverage, ...]
    """The libraries with device code, in the members' order."""
    capabilities: Mapping[Capability, Support]
    """Of the whole package."""
    elf: Mapping[str, Elf]
    """SONAME, NEEDED and the rest by member path; a file that is no ELF file is not in it."""
    findings: tuple[Finding, ...]

    @property
    def provider_sass(self) -> tuple[Arch, ...]:
        """Architectures of the CUDA provider's SASS: what ``core.support.driver_window`` asks for."""
        return next((library.sass for library in self.coverage if library.path.endswith(f"/{PROVIDER}")), ())

    @property
    def compressed(self) -> bool:
        """Whether images for GPUs before Blackwell are packed with zstd."""
        return any(library.zstd for library in self.coverage)


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One library as read. ``coverage`` is ``None`` when it has no device code, or none that can be read."""

    member: Member
    elf: Elf | None
    containers: tuple[Container, ...]
    coverage: LibraryCoverage | None
    findings: tuple[Finding, ...]


def check(
    members: Sequence[Member], variant: Variant, inspector: Inspector | None, reporter: Reporter
) -> CheckReport:
    """Read every library of a package and hold it to ``variant``; without ``inspector`` natively only.

    Raises what the inspector raises when it cannot be asked at all; what it says wrongly is a finding.
    """
    with reporter.step(f"check {variant.name}"):
        seen = [look_at(member) for member in members if member.path.startswith(_LIBRARIES)]
        coverage = tuple(one.coverage for one in seen if one.coverage is not None)
        findings = (
            *(finding for one in seen for finding in one.findings),
            *(finding for one in seen if inspector for finding in _cross_check(one, inspector)),
            *_hold_provider(seen, variant),
            *_hold_nvidia(seen, variant),
            *check_closure(_libraries(seen)),
        )
    return CheckReport(
        coverage=coverage,
        capabilities=combine(coverage),
        elf={one.member.path: one.elf for one in seen if one.elf is not None},
        findings=findings,
    )


def native_sm(library: Path) -> tuple[Arch, ...]:
    """The architectures a library holds SASS for in every container. Raises ``IntegrityError``."""
    try:
        with _mapped(library) as buffer:
            return sass_everywhere(read_containers(buffer))
    except (ElfError, FatbinError, OSError) as error:
        raise IntegrityError(f"{library} cannot be read: {error}. Remove it and fetch it again.") from error


@contextmanager
def _mapped(path: Path) -> Iterator[Buffer]:
    with path.open("rb") as file:
        if path.stat().st_size == 0:
            yield b""
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            yield mapped


def look_at(member: Member) -> Seen:
    """Read one library. What cannot be read is a finding: E001 for the ELF file, A004 for its device code."""
    elf: Elf | None = None
    containers: tuple[Container, ...] = ()
    findings: tuple[Finding, ...] = ()
    try:
        with _mapped(member.file) as buffer:
            elf = read_elf(buffer)
            containers = read_containers(buffer)
    except FatbinError as error:
        findings = (Finding(code=Code.A004, path=member.path, message=str(error)),)
    except (ElfError, OSError) as error:
        findings = (Finding(code=Code.E001, path=member.path, message=str(error)),)
    coverage = cover(member.path, containers, specialised=member.vendor == NVIDIA)
    return Seen(member=member, elf=elf, containers=containers, coverage=coverage, findings=findings)


def _cross_check(seen: Seen, inspector: Inspector) -> Iterator[Finding]:
    if seen.findings:
        return  # it cannot be read: there is nothing to compare with
    tool = f"cuobjdump {inspector.version}"
    try:
        listed = parse_listings(*inspector.list_images(seen.member.file))
    except CuobjdumpError as error:
        yield Finding(code=Code.A102, path=seen.member.path, message=f"{tool} gave no listing: {error}")
        return
    differing = disagreements(count_images(seen.containers), listed)
    if differing:
        yield Finding(
            code=Code.A101,
            path=seen.member.path,
            message=f"{tool} and the native reader count different images",
            wanted="the same counts",
            got="; ".join(differing),
        )


def _hold_provider(seen: Sequence[Seen], variant: Variant) -> Iterator[Finding]:
    path = f"{_LIBRARIES}{PROVIDER}"
    containers = next((one.containers for one in seen if one.member.path == path), ())
    if not containers:
        yield Finding(code=Code.A002, path=path, message="no fatbin container in it, or no such library")
        return
    for arch in variant.sm:
        missing = lacking(containers, arch.number)
        if missing:
            yield Finding(
                code=Code.A001,
                path=path,
                message=f"no SASS for sm_{arch} in {len(missing)} of {len(containers)} containers, the first "
                f"at offset {missing[0].offset:#x}",
                wanted=f"sm_{arch} in each container (variants.{variant.name}.sm)",
                got=_names(sass_everywhere(containers)) + " in each container",
            )


def _hold_nvidia(seen: Sequence[Seen], variant: Variant) -> Iterator[Finding]:
    promised = [Capability(arch.major, arch.minor) for arch in variant.sm]
    for one in seen:
        coverage = one.coverage
        if one.member.vendor != NVIDIA or coverage is None or coverage.opaque:
            continue
        fails = [device for device in promised if coverage.support[device] in (Support.NONE, Support.PARTIAL)]
        if fails:
            yield Finding(
                code=Code.A003,
                path=one.member.path,
                message=f"does not run on compute capability {', '.join(map(str, fails))}",
                wanted=f"code for each of {_names(variant.sm)}",
                got=f"SASS {_names(coverage.sass)}; PTX {_names(coverage.ptx)}",
            )


def _libraries(seen: Sequence[Seen]) -> list[Library]:
    """A broken file still counts as being there: its own finding says what is wrong with it."""
    nothing = Elf(
        sections=(), soname=None, needed=(), runpath="$ORIGIN", rpath=None, glibc=None, glibcxx=None
    )
    return [Library(path=one.member.path, vendor=one.member.vendor, elf=one.elf or nothing) for one in seen]


def tell(report: CheckReport, reporter: Reporter) -> None:
    """What was found: a line a library with device code, then the GPUs by how they are served."""
    for library in report.coverage:
        ptx = f"  PTX {_names(library.ptx)}" if library.ptx else ""
        name = library.path.removeprefix(_LIBRARIES)
        reporter.say(f"{name:<42} containers {library.containers:>4}  SASS {_names(library.sass)}{ptx}")
    for support in (Support.NATIVE, Support.JIT, Support.PARTIAL):
        devices = [str(device) for device, found in report.capabilities.items() if found is support]
        if devices:
            reporter.say(f"{support.value:<8} on {' '.join(devices)}")


def _names(arches: Sequence[Arch]) -> str:
    return " ".join(str(arch) for arch in arches) or "none"
