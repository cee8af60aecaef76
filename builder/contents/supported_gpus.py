"""This module compares the device code that manifests of our packages promise with the libraries found.

``promise_of`` compares one manifest with any libraries; ``package_manifest.compare`` compares it with a whole
package.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from builder.binary.coverage import LibraryCoverage, Support, as_stated, combine, worst
from builder.binary.library import Inspected
from builder.binary.library_names import is_named_like_a_library
from builder.errors import ConfigError
from builder.facts.gpu.architectures import Arch, Capability
from builder.facts.ort.units import UnitSet
from builder.finding import Code, Finding
from builder.formats.manifest import CoverageEntry, Manifest, UnitFacts, loads
from builder.formats.package_names import MANIFEST, PackageForm


@dataclass(frozen=True)
class Promise:
    """The device code that one package's manifest promises, and findings for differences from the bytes."""

    package: str
    """Name of the package; empty if the manifest cannot be read."""
    folder: str
    """Folder of the manifest in the inspected source: empty, or with a slash at its end."""
    sm: tuple[str, ...] = ()
    capabilities: Mapping[Capability, Support] = field(default_factory=dict)
    """Support by capability, as the manifest has it; later GPUs are missing, and without CUDA it is empty."""
    elsewhere: int = 0
    """Number of libraries that the package leaves to NVIDIA's wheels and that are not among those found."""
    findings: tuple[Finding, ...] = ()
    """Findings B004 and B007."""
    manifest: Manifest | None = None
    """The manifest; ``None`` if it cannot be read."""

    @property
    def path(self) -> str:
        """Path of the manifest."""
        return f"{self.folder}{MANIFEST}"


@dataclass(frozen=True)
class InspectedSource:
    """One argument of ``inspect``: its name in output, its libraries, and the promises of packages in it."""

    label: str
    libraries: Sequence[Inspected]
    promises: tuple[Promise, ...] = ()


def promise_of(text: bytes, folder: str, libraries: Iterable[Inspected]) -> Promise:
    """Return the promise of the manifest in ``folder``, compared with the libraries below this folder.

    Never raises: a manifest that cannot be read gives a finding.
    """
    try:
        manifest = loads(text, folder.rstrip("/") or "this package")
        capabilities = {
            Capability.parse(device): Support(found) for device, found in manifest.capabilities.items()
        }
    except (ConfigError, ValueError) as error:
        return Promise("", folder, findings=(Finding(Code.B007, f"{folder}{MANIFEST}", str(error)),))
    stated = as_stated_by(manifest, folder, libraries)
    here = {item.name[len(folder) :]: item for item in stated if item.name.startswith(folder)}
    return Promise(
        package=manifest.name,
        folder=folder,
        sm=manifest.sm,
        capabilities=capabilities,
        elsewhere=sum(entry.path not in here for entry in manifest.absent),
        findings=tuple(
            replace(finding, path=f"{folder}{finding.path}")
            for finding in (
                *_coverage_findings(manifest, here),
                *_capability_findings(manifest, capabilities, here),
            )
        ),
        manifest=manifest,
    )


def unit_facts(unit_set: UnitSet) -> UnitFacts:
    """Return a set of units with its architectures as text."""
    sass = " ".join(map(str, sorted(unit_set.sass)))
    return UnitFacts(unit_set.name, sass, unit_set.units, unit_set.launched)


def unit_set_of(facts: UnitFacts) -> UnitSet:
    """Return the set of units. Raises ``ValueError`` for what is no architecture."""
    launched = (facts.launched[0], facts.launched[1]) if facts.launched else None
    return UnitSet(facts.name, frozenset(map(Arch.parse, facts.sass.split())), facts.units, launched)


def stated_units(manifest: Manifest) -> tuple[UnitSet, ...] | None:
    """Return the sets of units that a manifest states; ``None`` if it does not name the source."""
    source = manifest.onnxruntime.source
    return tuple(map(unit_set_of, source.units)) if source else None


def as_stated_by(manifest: Manifest, folder: str, libraries: Iterable[Inspected]) -> tuple[Inspected, ...]:
    """Return the libraries; a provider below the manifest's ``folder`` gets the sets that this states.

    A plug-in without an oldest host in its bytes gets the manifest's.
    """
    units = stated_units(manifest)
    oldest = manifest.plugin.oldest_host if manifest.plugin else None
    return tuple(
        replace(
            item,
            coverage=as_stated(item.coverage, units),
            oldest_host=item.oldest_host or (oldest if item.form is PackageForm.PLUGIN else None),
        )
        if item.name.startswith(folder)
        else item
        for item in libraries
    )


def _coverage_findings(manifest: Manifest, here: Mapping[str, Inspected]) -> Iterator[Finding]:
    """Yield B004 for each packed library that is missing, and B007 for each with other device code."""
    claimed = {entry.path: coverage_line(entry) for entry in manifest.coverage}
    for entry in manifest.packed:
        if entry.path not in here and is_named_like_a_library(entry.path):
            yield Finding(Code.B004, entry.path, f"{entry.path} comes from {entry.source} and is not here")
    for path, item in here.items():
        read = coverage_line(coverage_entry(path, item.coverage)) if item.coverage else "no device code"
        wanted = claimed.get(path, "no device code")
        if wanted != read and not item.problem:
            message = f"{path} holds other device code than the manifest says"
            yield Finding(Code.B007, path, message, wanted=wanted, got=read)


def _capability_findings(
    manifest: Manifest, capabilities: Mapping[Capability, Support], here: Mapping[str, Inspected]
) -> Iterator[Finding]:
    """Yield B007 if the package as a whole runs on other GPUs than its manifest promises.

    While a library is missing or cannot be read, only support that is worse than promised is reported.
    """
    read = combine(item.runnable for item in here.values() if item.runnable)
    whole = all(entry.path in here and not here[entry.path].problem for entry in manifest.coverage)
    unlike: dict[tuple[Support, Support], list[str]] = {}
    for device, support in capabilities.items():
        held = read.get(device, Support.NONE)
        if held is not support and (whole or worst((held, support)) is held):
            unlike.setdefault((support, held), []).append(str(device))
    for (wanted, got), devices in unlike.items():
        message = f"on compute capability {', '.join(devices)} the package does not run as promised"
        yield Finding(Code.B007, MANIFEST, message, wanted=wanted.value, got=got.value)


def coverage_entry(path: str, library: LibraryCoverage) -> CoverageEntry:
    """Return the manifest's entry on a library's device code."""
    return CoverageEntry(
        path=path,
        containers=library.containers,
        sass=tuple(map(str, library.sass)),
        ptx=tuple(map(str, library.ptx)),
    )


def coverage_line(entry: CoverageEntry) -> str:
    """Return the entry as text; entries with equal contents give equal text."""
    return f"{entry.containers} containers, SASS [{' '.join(entry.sass)}], PTX [{' '.join(entry.ptx)}]"
