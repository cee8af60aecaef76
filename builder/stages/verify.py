"""verify: prove a package from its archive alone: names, hashes, licences, binaries, a model that runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from builder.core.checks import Finding, require
from builder.core.describe import Report, compare, promised, unpacked_members
from builder.core.manifest import Manifest, loads
from builder.core.naming import PackageName
from builder.core.package import Archive, Checksums, Member
from builder.core.ports import Reporter
from builder.core.proof import check_checksum, check_files, check_name
from builder.core.variant import Variant


@dataclass(frozen=True, kw_only=True)
class Verifier:
    """What verifying works with."""

    archive: Archive
    checksums: Checksums
    reporter: Reporter
    check: Callable[[Sequence[Member], Variant], Report]
    """The check stage: what members hold, held to a variant."""
    selftest: Callable[[Path, Manifest], Sequence[Finding]] | None
    """Runs a model on the package; ``None`` where no engine is there to do it."""
    work: Path
    """Folder to unpack below."""


def verify(package: Path, verifier: Verifier) -> Manifest:
    """The manifest of a package that holds what it claims.

    Nothing of the package is run before its bytes are proved. Raises ``CheckFailedError`` with every finding,
    ``IntegrityError`` (a damaged archive), ``ValidationError`` (no package) or ``DiskError``.
    """
    manifest = loads(verifier.archive.read_manifest(package), package.name)
    what = f"{package.name} is not what it claims"
    require(list(check_name(PackageName.parse(package.name), manifest)), what)
    with verifier.archive.scratch(
        verifier.work / f"verify-{manifest.name}", manifest.unpacked_size
    ) as folder:
        with verifier.reporter.step(f"unpack and hash {package.name}"):
            unpacked = verifier.archive.extract(package, folder)
            sums = verifier.checksums.read(package.parent)
            whole = verifier.archive.digest(package)
            require([*check_files(manifest, unpacked), *check_checksum(package.name, whole, sums)], what)
        report = verifier.check(unpacked_members(manifest, folder), promised(manifest))
        require([*report.findings, *compare(manifest, report)], what)
    _selftest(package, manifest, verifier, what)
    return manifest


def _selftest(package: Path, manifest: Manifest, verifier: Verifier, what: str) -> None:
    if verifier.selftest is None:
        verifier.reporter.warn(f"{package.name}: no model was run: there is no engine to run it in.")
        return
    with verifier.reporter.step("run a model on it in a bare container"):
        require(verifier.selftest(package, manifest), what)
