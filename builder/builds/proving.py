"""This module checks packages: their bytes, by a self-test in a container, and on virtual cards.

``check_package`` compares any package, packed or unpacked, with its manifest and with a variant.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

from builder.adapters.archive.unpacking import members_in
from builder.adapters.wheel import record_text
from builder.builds.check_tools import tools_of
from builder.builds.virtual_cards import CardBench, CardRequest
from builder.builds.wiring import Wiring
from builder.errors import CheckFailedError, ValidationError
from builder.files.atomic_write import scratch_folder, write_file
from builder.files.digest import Digest
from builder.files.disk import disk_errors
from builder.findings.finding import require_no_errors
from builder.formats.manifest import Manifest, WheelEntry, loads
from builder.formats.package_names import CUDA, LINUX, MANIFEST, REDUCED, Host
from builder.package.archive import Member, manifest_of
from builder.package.describe import compare, promised
from builder.package.proof import check_absent, check_installed
from builder.pipeline.check import check, require_checked, say_report
from builder.pipeline.plan import PlanOptions
from builder.pipeline.selftest import SelftestBench, SelftestTrial, selftest
from builder.pipeline.verify import Verifier, verify
from builder.ports import Reporter
from builder.project.inputs import Input, Lock, Pin
from builder.project.variants import Variant
from builder.report.card_grid import Grid, page


def verify_packages(
    wiring: Wiring,
    packages: Sequence[Path],
    plan_options: PlanOptions,
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
        manifest = manifest_of(package, wiring.archive(wiring.reporter))
        tools = tools_of(wiring, plan_options) if manifest.platform == LINUX else None
        tried = None
        if tools and cards and manifest.provider == CUDA:
            trials = wiring.trials(wiring.store(wiring.lock))
            tried = CardBench(
                wiring=wiring, runtime=tools.card_runtime(), trials=trials, cards=cards, grids=grids
            )
            tried.require_machine(manifest)
        elif cards:
            where = f"{manifest.provider} on {manifest.platform}"
            wiring.reporter.say(f"{manifest.name}: on no card: it is for {where}")
        try:
            verify(
                package, verifier(wiring, wiring.reporter, tools.selftest_bench() if tools else None, tried)
            )
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


def verifier(
    wiring: Wiring, reporter: Reporter, selftest_bench: SelftestBench | None, cards: CardBench | None = None
) -> Verifier:
    """Return the verifier of packages. Without ``selftest_bench`` it reads their bytes and runs nothing."""
    return Verifier(
        archive=wiring.archive(reporter),
        bom=wiring.bom,
        reporter=reporter,
        tree=lambda wheel: wheel_tree(wiring, reporter, wheel),
        record=record_text,
        check=lambda members, variant: check(members, variant, wiring.project.check, None, reporter),
        selftest=None
        if selftest_bench is None
        else lambda manifest, files: selftest(
            manifest.name,
            files,
            manifest.onnxruntime.version,
            replace(selftest_bench, trials=trials_for(manifest, selftest_bench.trials)),
            cuda=manifest.provider == CUDA,
        ),
        work=wiring.dist,
        cards=cards,
    )


def trials_for(manifest: Manifest, trials: Sequence[SelftestTrial]) -> tuple[SelftestTrial, ...]:
    """Return the trials whose models the host library opens.

    A host library that was compiled with less than profile ``full`` has no contrib operators.
    """
    entry = manifest.onnxruntime
    bare = entry.host == Host.SOURCE.value and entry.profile in REDUCED
    return tuple(trial for trial in trials if not (bare and trial.contrib))


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


def check_package(wiring: Wiring, path: Path, variants: Sequence[Variant], plan_options: PlanOptions) -> None:
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
            regular = [one for one in members if one.file.is_file() and not one.file.is_symlink()]
            digests.update(wiring.archive(wiring.reporter).digests(regular))
            members = _identified(members, manifest, digests)
            variants = variants or [promised(manifest)]
        if not variants:
            raise ValidationError(
                f"{path.name} has no {MANIFEST} to say which variant it is",
                advice="Name one, for example --variant legacy.",
            )
        inspector = None
        if any(one.provider == CUDA for one in variants):
            inspector = tools_of(wiring, plan_options).inspector()
        for variant in variants:
            report = check(
                members, variant, wiring.project.check, inspector, wiring.reporter, digests=digests
            )
            say_report(report, variant, wiring.reporter)
            mismatches = (*check_installed(manifest, digests), *compare(manifest, report)) if manifest else ()
            require_checked(
                [*report.findings, *mismatches], f"{path.name} does not hold what {variant.name} promises"
            )


def _identified(
    members: Sequence[Member], manifest: Manifest, digests: Mapping[str, Digest]
) -> tuple[Member, ...]:
    """Return the members.

    Those whose bytes the manifest names get their source, licence and modification from it.
    """
    entries = {(entry.path, entry.sha256): entry for entry in manifest.files}
    found = {path: entries.get((path, digest.sha256)) for path, digest in digests.items()}
    return tuple(
        replace(member, source=entry.source, licence=entry.licence, modified=entry.modified)
        if (entry := found.get(member.path))
        else member
        for member in members
    )


@contextmanager
def unpacked(wiring: Wiring, reporter: Reporter, package: Path) -> Iterator[Path]:
    """Yield a folder below ``dist`` with all files of an installed package.

    The folder exists inside the block only.
    """
    archive = wiring.archive(reporter)
    manifest = manifest_of(package, archive)
    scratch = wiring.dist / f"unpacked-{manifest.name}"
    with scratch_folder(scratch, needed=manifest.installed_size) as folder:
        archive.extract(package, folder)
        complete(wiring, reporter, manifest, folder)
        yield folder
