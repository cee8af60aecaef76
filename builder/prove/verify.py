"""The step verify checks a package from its archive alone: names, hashes, licences, SBOM, binaries, models.

NVIDIA's libraries of a thin package are taken from NVIDIA's wheels, which its manifest names with sha256.
``check_package`` compares any package, packed or unpacked, with its manifest and with a variant.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from builder.binary.library_names import is_named_like_a_library
from builder.client.selection.reasons import numbers
from builder.config.inputs import Input, Lock, Pin
from builder.config.variants import Variant
from builder.console import Reporter
from builder.contents.card_grid import Grid, page
from builder.contents.check import check, require_checked, say_report
from builder.contents.cuobjdump import Inspector
from builder.contents.integrity import (
    check_absent,
    check_checksum,
    check_completed,
    check_files,
    check_installed,
    check_name,
    check_notice,
    read_checksums,
)
from builder.contents.package_manifest import Member, compare, installed_members, promised
from builder.contents.provenance import check_provenance, provenance_name
from builder.contents.required_files import NOTICE, SBOM, vendor_of
from builder.contents.rules.wheel_records import check_recorded
from builder.contents.sbom import check_sbom
from builder.contents.supported_gpus import stated_units
from builder.errors import CheckFailedError, NothingToDoError, ValidationError
from builder.files.atomic_write import scratch_folder, write_file
from builder.files.digest import Digest, file_digest
from builder.files.disk import disk_errors
from builder.finding import Finding, require_no_errors
from builder.formats.manifest import Manifest, WheelEntry, loads
from builder.formats.package_names import CUDA, LIB, LINUX, MANIFEST, PackageName
from builder.io.archive.unpacking import digests_of, extract, manifest_of
from builder.io.cyclonedx import bom_problems
from builder.io.wheel import record_text
from builder.io.wiring import Wiring
from builder.prove.cards import CardBench, CardRequest
from builder.prove.selftest import SelftestBench, SelftestTrial, selftest
from builder.prove.virtualcard.sessions import CardRuntime

_UNKNOWN = "unknown"
"""``source`` and ``licence`` of a file in a folder, whose origin is not known."""


@dataclass(frozen=True)
class Verifier:
    """A verifier of packages by their archives alone. Without a ``bench`` it reads bytes and runs nothing."""

    wiring: Wiring
    reporter: Reporter
    bench: SelftestBench | None = None
    cards: CardBench | None = None
    """The virtual cards on which models are opened; ``None``: no cards."""
    tried: dict[frozenset[tuple[str, str]], str] = field(default_factory=dict)
    """The package on whose libraries models ran, by the libraries' paths and digests: layouts share them."""

    def verify(self, package: Path) -> Manifest:
        """Check a package and return its manifest.

        Nothing of the package is run before its bytes are checked. Raises ``CheckFailedError`` with every
        finding of a check, ``IntegrityError`` (a damaged archive), ``ValidationError`` (not a package),
        ``TransferError`` (a wheel of a thin package cannot be fetched) or ``DiskError``.
        """
        step, what = self.reporter.step, f"{package.name} is not what it claims"
        manifest = manifest_of(package)
        named = check_name(PackageName.parse(package.name), manifest)
        require_no_errors([*named, *check_absent(manifest)], what)
        scratch = self.wiring.dist / f"verify-{manifest.name}"
        with scratch_folder(scratch, needed=manifest.unpacked_size) as folder:
            with step(f"unpack and hash {package.name}"):
                unpacked = extract(package, folder)
                sidecars = self._check_sidecars(package, manifest)
                require_no_errors([*check_files(manifest, unpacked), *sidecars], what)
                require_no_errors(list(self._check_documents(manifest, folder)), what)
            files = {entry.path: folder / entry.path for entry in manifest.packed}
            if manifest.absent:
                with step("complete the package from NVIDIA's wheels"):
                    files.update(self._completed(manifest, what))
            members, limits = installed_members(manifest, files), self.wiring.project.check
            stated = stated_units(manifest)
            report = check(members, promised(manifest), limits, None, self.reporter, stated=stated)
            require_checked([*report.findings, *compare(manifest, report)], what)
            self._run_models(package, manifest, files, what)
            if self.cards is not None:
                require_no_errors(self.cards(package, manifest, folder / LIB, report), what)
        return manifest

    def _check_sidecars(self, package: Path, manifest: Manifest) -> Iterator[Finding]:
        """Yield B008 and B016 if checksums or provenance next to the package do not match its bytes."""
        digest = file_digest(package)
        yield from check_checksum(package.name, digest, read_checksums(package.parent))
        provenance = package.with_name(provenance_name(package.name))
        if provenance.is_file():
            yield from check_provenance(package.name, digest, provenance.read_bytes(), manifest.base)

    def _check_documents(self, manifest: Manifest, folder: Path) -> Iterator[Finding]:
        """Yield findings on SBOM and NOTICE against the manifest; both files are known to exist."""
        bom = (folder / SBOM).read_bytes()
        yield from check_sbom(manifest, bom, bom_problems(bom))
        yield from check_notice(manifest, (folder / NOTICE).read_text(encoding="utf-8", errors="replace"))

    def _completed(self, manifest: Manifest, what: str) -> Mapping[str, Path]:
        """Return the paths of the files that the archive leaves to their wheels. Their bytes are checked."""
        sources = {entry.source for entry in manifest.absent}
        wheels = {
            wheel.source: wheel_tree(self.wiring, self.reporter, wheel)
            for wheel in manifest.wheels
            if wheel.source in sources
        }
        files = {entry.path: wheels[entry.source] / str(entry.member) for entry in manifest.absent}
        members = installed_members(replace(manifest, files=manifest.absent), files)
        there = [member for member in members if member.file.is_file()]  # findings name missing files
        findings = list(check_completed(manifest, digests_of(there)))
        records = {source: record_text(tree) for source, tree in wheels.items()}
        require_no_errors([*findings, *check_recorded(manifest.files, records)], what)
        return files

    def _run_models(self, package: Path, manifest: Manifest, files: Mapping[str, Path], what: str) -> None:
        if manifest.platform != LINUX:
            self.reporter.say(f"{package.name}: no model was run: it is for {manifest.platform}")
            return
        if self.bench is None:
            self.reporter.warn(
                f"{package.name}: its bytes are checked, and no model was run on it: `./run verify` does."
            )
            return
        libraries = frozenset(
            (entry.path, entry.sha256) for entry in manifest.files if entry.path.startswith(LIB)
        )
        if other := self.tried.get(libraries):
            self.reporter.say(f"models ran on the same {len(libraries)} libraries in {other}")
            return
        what_runs = "load it" if manifest.plugin else "run models on it"
        with self.reporter.step(f"{what_runs} in a bare container"):
            require_no_errors(selftest(manifest, files, self.bench), what)
        self.tried[libraries] = package.name


class PackageTools(Protocol):
    """The tools of one base that check packages; each is made on its first use."""

    def inspector(self) -> Inspector:
        """Return cuobjdump."""

    def selftest_bench(self) -> SelftestBench:
        """Return the container image, smoke program and models of the self-test."""

    def trials(self) -> tuple[SelftestTrial, ...]:
        """Return the models of the self-test."""

    def card_runtime(self) -> CardRuntime:
        """Return the virtual card's library and a process runner."""

    def host(self, version: str) -> Path:
        """Return the host library of the stock wheel of ``version``."""


def verify_packages(
    wiring: Wiring,
    packages: Sequence[Path],
    tools_of: Callable[[], PackageTools],
    cards: CardRequest | None,
    grid: Path | None,
) -> None:
    """Check packages from their archives alone, and run models of those for Linux in a bare container.

    With ``cards`` models are also opened on virtual cards, and ``grid`` is the page made of all results. If
    there is a ``grid``, a package that fails does not stop the other packages; ``CheckFailedError`` then has
    every finding.
    """
    grids: list[Grid] = []
    failed: list[CheckFailedError] = []
    for package in packages:
        if is_named_like_a_library(package.name):
            _open_plugin(wiring, package, tools_of, cards)
            continue
        manifest = manifest_of(package)
        tools = tools_of() if manifest.platform == LINUX else None
        tried = None
        if tools and cards and manifest.provider == CUDA:
            tried = _bench(wiring, tools, cards, grids, _hosts(manifest, cards))
            tried.require_machine(manifest)
        elif cards:
            where = f"{manifest.provider} on {manifest.platform}"
            wiring.reporter.say(f"{manifest.name}: on no card: it is for {where}")
        try:
            bench = tools.selftest_bench() if tools else None
            Verifier(wiring, wiring.reporter, bench, tried).verify(package)
        except CheckFailedError as error:
            if grid is None:
                raise
            failed.append(error)
    if grid is not None and grids:
        write_file(grid, page(grids).encode())
        wiring.reporter.say(f"{grid}: {len(grids)} packages")
    elif grid is not None:
        wiring.reporter.warn(f"{grid} stays as it was: no package was opened on a card")
    if failed:
        raise CheckFailedError(
            f"{len(failed)} of {len(packages)} packages failed",
            [finding for error in failed for finding in error.findings],
        )


def _open_plugin(
    wiring: Wiring, library: Path, tools_of: Callable[[], PackageTools], cards: CardRequest | None
) -> None:
    if cards is None:
        raise ValidationError(
            f"{library.name} is no package", advice="Name a card to open it as a plug-in: --card 8.6."
        )
    bench = _bench(wiring, tools_of(), cards, [], cards.hosts)
    require_no_errors(list(bench.open_plugin(library)), f"{library.name} does not run as its bytes promise")


def _hosts(manifest: Manifest, cards: CardRequest) -> Sequence[str]:
    """Return the versions of hosts that register the package's plug-in; none for a provider."""
    oldest = numbers(manifest.plugin.oldest_host) if manifest.plugin else None
    return [version for version in cards.hosts if oldest and (numbers(version) or ()) >= oldest]


def _bench(
    wiring: Wiring, tools: PackageTools, cards: CardRequest, grids: list[Grid], hosts: Sequence[str]
) -> CardBench:
    return CardBench(
        wiring=wiring,
        runtime=tools.card_runtime(),
        trials=tools.trials(),
        cards=cards,
        grids=grids,
        hosts={version: tools.host(version) for version in hosts},
    )


def complete(wiring: Wiring, reporter: Reporter, manifest: Manifest, folder: Path) -> None:
    """Copy the files that a thin package takes from NVIDIA's wheels into its unpacked ``folder``.

    Raises ``CheckFailedError`` for a manifest with paths outside the folder.
    """
    require_no_errors(list(check_absent(manifest)), f"{manifest.name} is not completed")
    wheels = {wheel.source: wheel for wheel in manifest.wheels}
    for entry in manifest.absent:
        tree = wheel_tree(wiring, reporter, wheels[entry.source])
        with disk_errors(folder):
            shutil.copyfile(tree / str(entry.member), folder / entry.path)


def wheel_tree(wiring: Wiring, reporter: Reporter, wheel: WheelEntry) -> Path:
    """Return the unpacked tree of a manifest's wheel, which must have the manifest's size and sha256."""
    pin = Pin(filename=wheel.file, size=wheel.size, sha256=wheel.sha256)
    store = wiring.store(Lock(pins={wheel.source: pin}), reporter)
    return store.unpack(Input.parse(wheel.source))


def check_package(
    wiring: Wiring, path: Path, variants: Sequence[Variant], tools_of: Callable[[], PackageTools]
) -> None:
    """Check the package at ``path``, by our reader and cuobjdump, against ``variants`` or its manifest.

    If there is a manifest, the files are also compared with it. Raises ``ValidationError`` for a path that
    does not exist or a package without manifest and variants, and ``CheckFailedError`` with every finding of
    the first variant that fails.
    """
    if not path.exists():
        raise ValidationError(
            f"--package {path}", cause="there is no such file or folder", advice="Check the path."
        )
    with nullcontext(path) if path.is_dir() else unpacked(wiring, wiring.reporter, path) as folder:
        file, members, digests = folder / MANIFEST, members_in(folder), dict[str, Digest]()
        manifest = loads(file.read_bytes(), path.name) if file.is_file() else None
        if manifest is not None:
            regular = [member for member in members if member.file.is_file() and not member.file.is_symlink()]
            digests.update(digests_of(regular))
            members = _identified(members, manifest, digests)
            variants = [replace(one, form=manifest.form) for one in variants] or [promised(manifest)]
        if not variants:
            raise ValidationError(
                f"{path.name} has no {MANIFEST} to say which variant it is",
                advice="Name one, for example --variant legacy.",
            )
        inspector = None
        if any(chosen.provider == CUDA for chosen in variants):
            inspector = tools_of().inspector()
        for variant in variants:
            stated = stated_units(manifest) if manifest else None
            limits, reporter = wiring.project.check, wiring.reporter
            report = check(members, variant, limits, inspector, reporter, stated=stated)
            say_report(report, variant, wiring.reporter)
            mismatches = (*check_installed(manifest, digests), *compare(manifest, report)) if manifest else ()
            require_checked(
                [*report.findings, *mismatches], f"{path.name} does not hold what {variant.name} promises"
            )


def _identified(
    members: Sequence[Member], manifest: Manifest, digests: Mapping[str, Digest]
) -> tuple[Member, ...]:
    """Return the members with their digests.

    Those whose bytes the manifest names get their source, licence and modification from it.
    """
    entries = {(entry.path, entry.sha256): entry for entry in manifest.files}
    identified = (member.of_bytes(digests.get(member.path, member.digest)) for member in members)
    return tuple(
        replace(member, source=entry.source, licence=entry.licence, modified=entry.modified)
        if (entry := entries.get((member.path, member.sha256)))
        else member
        for member in identified
    )


@contextmanager
def unpacked(wiring: Wiring, reporter: Reporter, package: Path) -> Iterator[Path]:
    """Yield a folder below ``dist`` with all files of an installed package.

    The folder exists inside the block only.
    """
    manifest = manifest_of(package)
    scratch = wiring.dist / f"unpacked-{manifest.name}"
    with scratch_folder(scratch, needed=manifest.installed_size) as folder:
        extract(package, folder)
        complete(wiring, reporter, manifest, folder)
        yield folder


def members_in(folder: Path) -> tuple[Member, ...]:
    """Return every file of an unpacked package but its manifest, or the libraries of a plain folder.

    The members are sorted by path. A link is a member too, even if it leads nowhere. Raises
    ``NothingToDoError`` without any library.
    """
    if (folder / LIB).is_dir():
        files = {file.relative_to(folder).as_posix(): file for file in sorted(folder.rglob("*"))}
    else:
        files = {f"{LIB}{file.name}": file for file in sorted(folder.iterdir()) if ".so" in file.name}
    members = tuple(
        Member(path=path, file=file, source=_UNKNOWN, licence=_UNKNOWN, vendor=vendor_of(file.name))
        for path, file in files.items()
        if path != MANIFEST and (file.is_symlink() or not file.is_dir())
    )
    if not any(member.path.startswith(LIB) for member in members):
        raise NothingToDoError(
            f"No library in {folder}",
            advice=f"Name a package, or a folder like the one that a package unpacks to ({MANIFEST}, {LIB}).",
        )
    return members
