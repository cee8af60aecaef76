"""The step verify checks a package from its archive alone: names, hashes, licences, SBOM, binaries, models.

NVIDIA's libraries of a thin package are taken from NVIDIA's wheels, which its manifest names with sha256.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from builder.files.atomic_write import scratch_folder
from builder.files.digest import file_digest
from builder.findings.finding import Finding, require_no_errors
from builder.formats.manifest import Manifest, WheelEntry
from builder.formats.package_names import LIB, LINUX, PARTS_SUFFIX, PackageName
from builder.package.archive import Archive, Member, manifest_of
from builder.package.checksums import read_checksums
from builder.package.contents import NOTICE, SBOM
from builder.package.describe import BinaryReport, compare, installed_members, promised
from builder.package.proof import (
    check_absent,
    check_checksum,
    check_completed,
    check_files,
    check_name,
    check_notice,
)
from builder.package.provenance import check_provenance, provenance_name
from builder.package.sbom import BomFormat, check_sbom
from builder.pipeline.check import require_checked
from builder.ports import Reporter
from builder.project.variants import Variant
from builder.rules.wheel_records import check_recorded


@dataclass(frozen=True, kw_only=True)
class Verifier:
    """The ports and programs of verifying, and the libraries that models already ran on."""

    archive: Archive
    bom: BomFormat
    reporter: Reporter
    tree: Callable[[WheelEntry], Path]
    """Returns a wheel's unpacked tree; the wheel is fetched if it is not in the cache."""
    record: Callable[[Path], str]
    """Returns the text of RECORD in such a tree."""
    check: Callable[[Sequence[Member], Variant], BinaryReport]
    """The check step: compares the contents of members with a variant."""
    selftest: Callable[[Manifest, Mapping[str, Path]], Sequence[Finding]] | None
    """Runs models on the package's files, by their paths; ``None`` if no engine is to run them."""
    work: Path
    """Folder below which packages are unpacked."""
    cards: Callable[[Path, Manifest, Path, BinaryReport], Sequence[Finding]] | None = None
    """Opens models on virtual cards, for package, manifest, libraries' folder and report.

    ``None``: no cards.
    """
    tried: dict[frozenset[tuple[str, str]], str] = field(default_factory=dict)
    """Package whose libraries models ran on, by the libraries' paths and digests; both layouts share them."""


def verify(package: Path, verifier: Verifier) -> Manifest:
    """Check a package and return its manifest.

    Nothing of the package is run before its bytes are checked. Raises ``CheckFailedError`` with every finding
    of a check, ``IntegrityError`` (a damaged archive), ``ValidationError`` (not a package), ``TransferError``
    (a wheel of a thin package cannot be fetched) or ``DiskError``.
    """
    manifest = manifest_of(package, verifier.archive)
    what = f"{package.name} is not what it claims"
    require_no_errors([*check_name(PackageName.parse(package.name), manifest), *check_absent(manifest)], what)
    with scratch_folder(verifier.work / f"verify-{manifest.name}", needed=manifest.unpacked_size) as folder:
        with verifier.reporter.step(f"unpack and hash {package.name}"):
            unpacked = verifier.archive.extract(package, folder)
            require_no_errors(
                [*check_files(manifest, unpacked), *_check_sidecars(package, manifest, verifier)], what
            )
            require_no_errors(list(_documents(manifest, folder, verifier)), what)
        files = {entry.path: folder / entry.path for entry in manifest.packed}
        if manifest.absent:
            with verifier.reporter.step("complete the package from NVIDIA's wheels"):
                files.update(_completed(manifest, verifier, what))
        report = verifier.check(installed_members(manifest, files), promised(manifest))
        require_checked([*report.findings, *compare(manifest, report)], what)
        _selftest(package, manifest, files, verifier)
        if verifier.cards is not None:
            require_no_errors(verifier.cards(package, manifest, folder / LIB, report), what)
    return manifest


def _check_sidecars(package: Path, manifest: Manifest, verifier: Verifier) -> Iterator[Finding]:
    """Yield B008 and B016 if checksums or provenance next to the package do not match its bytes."""
    whole = verifier.archive.whole(package)
    own = file_digest(package) if package.name.endswith(PARTS_SUFFIX) else whole
    yield from check_checksum(package.name, own, read_checksums(package.parent))
    provenance = package.with_name(provenance_name(package.name))
    if provenance.is_file():
        yield from check_provenance(package.name, whole, provenance.read_bytes(), manifest.base)


def _documents(manifest: Manifest, folder: Path, verifier: Verifier) -> Iterator[Finding]:
    """Yield findings on SBOM and NOTICE against the manifest; both files are known to exist."""
    bom = (folder / SBOM).read_bytes()
    yield from check_sbom(manifest, bom, verifier.bom.problems(bom))
    yield from check_notice(manifest, (folder / NOTICE).read_text(encoding="utf-8", errors="replace"))


def _completed(manifest: Manifest, verifier: Verifier, what: str) -> Mapping[str, Path]:
    """Return the paths of the files that the archive leaves to their wheels, after checking their bytes."""
    sources = {entry.source for entry in manifest.absent}
    wheels = {wheel.source: verifier.tree(wheel) for wheel in manifest.wheels if wheel.source in sources}
    files = {entry.path: wheels[entry.source] / str(entry.member) for entry in manifest.absent}
    members = installed_members(replace(manifest, files=manifest.absent), files)
    there = [member for member in members if member.file.is_file()]  # findings name missing files
    found = list(check_completed(manifest, verifier.archive.digests(there)))
    records = {source: verifier.record(tree) for source, tree in wheels.items()}
    require_no_errors([*found, *check_recorded(manifest, records)], what)
    return files


def _selftest(package: Path, manifest: Manifest, files: Mapping[str, Path], verifier: Verifier) -> None:
    if manifest.platform != LINUX:
        verifier.reporter.say(f"{package.name}: no model was run: it is for {manifest.platform}")
        return
    if verifier.selftest is None:
        verifier.reporter.warn(
            f"{package.name}: its bytes are checked, and no model was run on it: `./run verify` does."
        )
        return
    libraries = frozenset(
        (entry.path, entry.sha256) for entry in manifest.files if entry.path.startswith(LIB)
    )
    if other := verifier.tried.get(libraries):
        verifier.reporter.say(f"models ran on the same {len(libraries)} libraries in {other}")
        return
    with verifier.reporter.step("run models on it in a bare container"):
        findings = verifier.selftest(manifest, files)
        require_no_errors(findings, f"{package.name} is not what it claims")
    verifier.tried[libraries] = package.name
