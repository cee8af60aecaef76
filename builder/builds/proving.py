"""How a package is proved: from its archive alone, and with models where there is a bench to run them on.

check --package: hold any package, packed or unpacked, to its manifest and to a variant.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from builder.adapters.archive.unpacking import members_in, stream_files
from builder.adapters.wheel import record_text
from builder.builds.cards import CardBench
from builder.builds.kit import Kit
from builder.builds.workshop import Workshop
from builder.errors import ValidationError
from builder.files.digest import Digest
from builder.files.disk import disk_errors
from builder.findings.finding import Finding, require
from builder.formats.manifest import MANIFEST, Manifest, WheelEntry, loads
from builder.formats.providers import CUDA
from builder.package.archive import Member
from builder.package.describe import compare, promised
from builder.package.proof import check_absent, check_installed
from builder.pipeline.check import CheckReport, check, tell
from builder.pipeline.plan import Wishes, choose_base
from builder.pipeline.selftest import Bench, selftest
from builder.pipeline.verify import Stream, Verifier
from builder.ports import Inspector, Reporter
from builder.project.inputs import Input, Lock, Pin
from builder.project.variants import Variant


def verifier(
    shop: Workshop, reporter: Reporter, bench: Bench | None, cards: CardBench | None = None
) -> Verifier:
    """What proves a package; without ``bench`` its bytes are read and nothing is run in a container."""

    def hold(members: Sequence[Member], variant: Variant) -> CheckReport:
        return check(members, variant, shop.project.check, None, reporter)

    def try_out(manifest: Manifest, stream: Stream) -> Sequence[Finding]:
        if bench is None:
            return ()
        cuda = manifest.provider == CUDA
        return selftest(manifest.name, stream, manifest.onnxruntime.version, bench, cuda=cuda)

    return Verifier(
        archive=shop.archive(reporter),
        bom=shop.bom,
        checksums=shop.checksums,
        reporter=reporter,
        tree=lambda wheel: wheel_tree(shop, reporter, wheel),
        record=record_text,
        check=hold,
        selftest=try_out if bench else None,
        tar=lambda top, files: stream_files({f"/{top}/{path}": file for path, file in files.items()}),
        work=shop.dist,
        cards=cards,
    )


def complete(shop: Workshop, reporter: Reporter, manifest: Manifest, folder: Path) -> None:
    """Lay the files that a thin package leaves to their wheels into its unpacked ``folder``.

    Raises ``CheckFailedError`` for a manifest whose words would lead out of it.
    """
    require(list(check_absent(manifest)), f"{manifest.name} is not completed")
    wheels = {wheel.source: wheel for wheel in manifest.wheels}
    for entry in manifest.absent:
        tree = wheel_tree(shop, reporter, wheels[entry.source])
        with disk_errors(folder):
            shutil.copyfile(tree / str(entry.member), folder / entry.path)


def wheel_tree(shop: Workshop, reporter: Reporter, wheel: WheelEntry) -> Path:
    """The unpacked tree of the wheel that a manifest names: these very bytes, whatever our own lock pins."""
    pin = Pin(filename=wheel.file, size=wheel.size, sha256=wheel.sha256)
    store = shop.store(Lock(pins={wheel.source: pin}), reporter)
    return store.unpack(Input.parse(wheel.source))


@dataclass(frozen=True, kw_only=True)
class _Tree:
    """A package as it lies on disk."""

    name: str
    members: tuple[Member, ...]
    manifest: Manifest | None
    digests: Mapping[str, Digest]
    """Of every regular file by member path; none without a manifest to compare them with."""

    @property
    def identified(self) -> list[Member]:
        """The members, with their sources where the manifest names their very bytes: a name is no proof."""
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


def check_package(shop: Workshop, path: Path, variants: Sequence[Variant], wishes: Wishes) -> None:
    """Read what lies in ``path``, natively and by cuobjdump, and hold it to ``variants`` or its own promise.

    Where there is a manifest, the files are also held to what it says of them. Raises ``CheckFailedError``
    with every finding of the first variant that it fails.
    """
    with _unpacked(shop, path) as folder:
        tree = _tree(shop, folder, path.name)
        wanted = variants or (_own_promise(tree),)
        inspector = _inspector(shop, wishes) if any(one.provider == CUDA for one in wanted) else None
        for variant in wanted:
            report = check(tree.identified, variant, shop.project.check, inspector, shop.reporter)
            tell(report, variant, shop.reporter)
            said: tuple[Finding, ...] = ()
            if tree.manifest is not None:
                said = (*check_installed(tree.manifest, tree.digests), *compare(tree.manifest, report))
            require([*report.findings, *said], f"{tree.name} does not hold what {variant.name} promises")


def _inspector(shop: Workshop, wishes: Wishes) -> Inspector:
    base = choose_base(shop.project, wishes, shop.engine).value
    with shop.reporter.step("make the image that has cuobjdump"):
        return Kit(shop, base, shop.reporter).inspector()


@contextmanager
def _unpacked(shop: Workshop, path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield path
        return
    if not path.is_file():
        raise ValidationError(f"--package {path}: there is no such file or folder.")
    archive = shop.archive(shop.reporter)
    manifest = loads(archive.read_manifest(path), path.name)
    with archive.scratch(shop.dist / f"check-{manifest.name}", manifest.installed_size) as folder:
        archive.extract(path, folder)
        complete(shop, shop.reporter, manifest, folder)
        yield folder


def _tree(shop: Workshop, folder: Path, name: str) -> _Tree:
    file = folder / MANIFEST
    manifest = loads(file.read_bytes(), name) if file.is_file() else None
    members = members_in(folder)
    files = [
        member for member in members if manifest and member.file.is_file() and not member.file.is_symlink()
    ]
    digests = shop.archive(shop.reporter).digests(files)
    return _Tree(name=name, members=members, manifest=manifest, digests=digests)


def _own_promise(tree: _Tree) -> Variant:
    if tree.manifest is None:
        raise ValidationError(
            f"{tree.name} has no {MANIFEST} to say which variant it is. Name one: --variant legacy, say."
        )
    return promised(tree.manifest)
