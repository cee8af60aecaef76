"""The proof of packages: from their bytes, by a self-test in a container, and on virtual cards.

``check_package`` compares any package, packed or unpacked, with its manifest and with a variant.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from builder.adapters.archive.unpacking import members_in, stream_files
from builder.adapters.wheel import record_text
from builder.builds.check_tools import CheckTools
from builder.builds.virtual_cards import CardBench, CardRequest, write_page
from builder.builds.wiring import Wiring
from builder.errors import CheckFailedError, ValidationError
from builder.files.atomic_write import scratch_folder
from builder.files.digest import Digest
from builder.files.disk import disk_errors
from builder.findings.finding import Finding, require
from builder.formats import manifest as manifest_format
from builder.formats.manifest import MANIFEST, Manifest, WheelEntry, loads
from builder.formats.package_names import CUDA, LINUX
from builder.package.archive import Member
from builder.package.describe import compare, promised
from builder.package.proof import check_absent, check_installed
from builder.pipeline.check import CheckReport, check, say_report
from builder.pipeline.plan import Wishes, choose_base
from builder.pipeline.selftest import SelftestBench, selftest
from builder.pipeline.verify import Stream, Verifier, verify
from builder.ports import Inspector, Reporter
from builder.project.inputs import Input, Lock, Pin
from builder.project.variants import Variant
from builder.report.card_grid import Grid
from builder.virtualcard.opening import CardRuntime


def verify_packages(
    wiring: Wiring, packages: Sequence[Path], wishes: Wishes, cards: CardRequest | None, grid: Path | None
) -> None:
    """Prove packages from their archives alone, and run models of those for Linux in a bare container.

    With ``cards`` models are also opened on virtual cards, and ``grid`` is the page made of all results. A
    package that fails does not stop the others when there is a page; then ``CheckFailedError`` has every
    finding.
    """
    grids: list[Grid] = []
    failed: list[CheckFailedError] = []
    for package in packages:
        manifest = manifest_format.loads(wiring.archive(wiring.reporter).read_manifest(package), package.name)
        tools = _check_tools(wiring, wishes) if manifest.platform == LINUX else None
        tried = (
            _card_bench(wiring, tools, cards, grids)
            if tools and cards and manifest.provider == CUDA
            else None
        )
        if cards and tried is None:
            wiring.reporter.say(f"{manifest.name}: on no card: it is for {manifest.provider}")
        if tried is not None:
            tried.require_machine(manifest)
        try:
            verify(
                package,
                verifier(wiring, wiring.reporter, _selftest_bench(wiring, tools) if tools else None, tried),
            )
        except CheckFailedError as error:
            if grid is None:
                raise
            failed.append(error)
    if grid is not None and grids:
        write_page(grid, grids)
        wiring.reporter.say(f"{grid}: {len(grids)} packages")
    elif grid is not None:
        wiring.reporter.warn(f"{grid} stays as it was: no package was opened on a card")
    if failed:
        raise CheckFailedError(
            f"{len(failed)} of {len(packages)} packages failed",
            [finding for error in failed for finding in error.findings],
        )


def _check_tools(wiring: Wiring, wishes: Wishes) -> CheckTools:
    return CheckTools(wiring, choose_base(wiring.project, wishes, wiring.engine).value, wiring.reporter)


def _selftest_bench(wiring: Wiring, tools: CheckTools) -> SelftestBench:
    with wiring.reporter.step("make what it is tried out with"):
        return tools.bench()


def _card_bench(wiring: Wiring, tools: CheckTools, cards: CardRequest, grids: list[Grid]) -> CardBench:
    with wiring.reporter.step("make the virtual card"):
        runtime = CardRuntime(library=tools.virtual_card(), runner=wiring.runner)
    trials = wiring.trials(wiring.store(wiring.lock))
    return CardBench(wiring=wiring, runtime=runtime, trials=trials, cards=cards, grids=grids)


def verifier(
    wiring: Wiring, reporter: Reporter, bench: SelftestBench | None, cards: CardBench | None = None
) -> Verifier:
    """The verifier of packages. Without ``bench`` their bytes are read and nothing is run."""

    def hold(members: Sequence[Member], variant: Variant) -> CheckReport:
        return check(members, variant, wiring.project.check, None, reporter)

    def try_out(manifest: Manifest, stream: Stream) -> Sequence[Finding]:
        if bench is None:
            return ()
        cuda = manifest.provider == CUDA
        return selftest(manifest.name, stream, manifest.onnxruntime.version, bench, cuda=cuda)

    return Verifier(
        archive=wiring.archive(reporter),
        bom=wiring.bom,
        checksums=wiring.checksums,
        reporter=reporter,
        tree=lambda wheel: wheel_tree(wiring, reporter, wheel),
        record=record_text,
        check=hold,
        selftest=try_out if bench else None,
        tar=lambda top, files: stream_files({f"/{top}/{path}": file for path, file in files.items()}),
        work=wiring.dist,
        cards=cards,
    )


def complete(wiring: Wiring, reporter: Reporter, manifest: Manifest, folder: Path) -> None:
    """Copy the files that a thin package leaves to their wheels into its unpacked ``folder``.

    Raises ``CheckFailedError`` for a manifest with paths outside the folder.
    """
    require(list(check_absent(manifest)), f"{manifest.name} is not completed")
    wheels = {wheel.source: wheel for wheel in manifest.wheels}
    for entry in manifest.absent:
        tree = wheel_tree(wiring, reporter, wheels[entry.source])
        with disk_errors(folder):
            shutil.copyfile(tree / str(entry.member), folder / entry.path)


def wheel_tree(wiring: Wiring, reporter: Reporter, wheel: WheelEntry) -> Path:
    """The unpacked tree of the wheel that a manifest names, of the bytes that it names."""
    pin = Pin(filename=wheel.file, size=wheel.size, sha256=wheel.sha256)
    store = wiring.store(Lock(pins={wheel.source: pin}), reporter)
    return store.unpack(Input.parse(wheel.source))


@dataclass(frozen=True, kw_only=True)
class _Tree:
    """A package on disk."""

    name: str
    members: tuple[Member, ...]
    manifest: Manifest | None
    digests: Mapping[str, Digest]
    """Of every regular file by member path; none without a manifest to compare them with."""

    @property
    def identified(self) -> list[Member]:
        """The members, with the source of those whose bytes the manifest names."""
        entries = (
            {(entry.path, entry.sha256): entry for entry in self.manifest.files} if self.manifest else {}
        )
        found = {path: entries.get((path, digest.sha256)) for path, digest in self.digests.items()}
        return [
            replace(member, source=entry.source, licence=entry.licence, modified=entry.modified)
            if (entry := found.get(member.path))
            else member
            for member in self.members
        ]


def check_package(wiring: Wiring, path: Path, variants: Sequence[Variant], wishes: Wishes) -> None:
    """Check the package at ``path``, by our reader and cuobjdump, against ``variants`` or its manifest.

    Where there is a manifest, the files are also compared with it. Raises ``CheckFailedError`` with every
    finding of the first variant that it fails.
    """
    with _unpacked(wiring, path) as folder:
        tree = _tree(wiring, folder, path.name)
        wanted = variants or (_own_promise(tree),)
        inspector = _inspector(wiring, wishes) if any(one.provider == CUDA for one in wanted) else None
        for variant in wanted:
            report = check(tree.identified, variant, wiring.project.check, inspector, wiring.reporter)
            say_report(report, variant, wiring.reporter)
            said: tuple[Finding, ...] = ()
            if tree.manifest is not None:
                said = (*check_installed(tree.manifest, tree.digests), *compare(tree.manifest, report))
            require([*report.findings, *said], f"{tree.name} does not hold what {variant.name} promises")


def _inspector(wiring: Wiring, wishes: Wishes) -> Inspector:
    base = choose_base(wiring.project, wishes, wiring.engine).value
    with wiring.reporter.step("make the image that has cuobjdump"):
        return CheckTools(wiring, base, wiring.reporter).inspector()


@contextmanager
def _unpacked(wiring: Wiring, path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield path
        return
    if not path.is_file():
        raise ValidationError(f"--package {path}: there is no such file or folder.")
    archive = wiring.archive(wiring.reporter)
    manifest = loads(archive.read_manifest(path), path.name)
    with scratch_folder(wiring.dist / f"check-{manifest.name}", needed=manifest.installed_size) as folder:
        archive.extract(path, folder)
        complete(wiring, wiring.reporter, manifest, folder)
        yield folder


def _tree(wiring: Wiring, folder: Path, name: str) -> _Tree:
    file = folder / MANIFEST
    manifest = loads(file.read_bytes(), name) if file.is_file() else None
    members = members_in(folder)
    files = [
        member for member in members if manifest and member.file.is_file() and not member.file.is_symlink()
    ]
    digests = wiring.archive(wiring.reporter).digests(files)
    return _Tree(name=name, members=members, manifest=manifest, digests=digests)


def _own_promise(tree: _Tree) -> Variant:
    if tree.manifest is None:
        raise ValidationError(
            f"{tree.name} has no {MANIFEST} to say which variant it is. Name one: --variant legacy, say."
        )
    return promised(tree.manifest)
