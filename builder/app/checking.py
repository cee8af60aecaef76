"""check --package: hold any package, packed or unpacked, to a variant: its own or one that is named."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from builder.adapters.unpacked import members_in
from builder.app.kit import Kit
from builder.app.workshop import Workshop
from builder.core.checks import require
from builder.core.describe import promised
from builder.core.manifest import Manifest, loads
from builder.core.package import MANIFEST, Member
from builder.core.variant import Variant
from builder.errors import ValidationError
from builder.stages.check import check, tell
from builder.stages.plan import Wishes, choose_base


def check_package(shop: Workshop, path: Path, variants: Sequence[Variant], wishes: Wishes) -> None:
    """Read what lies in ``path``, natively and by cuobjdump, and hold it to ``variants`` or its own promise.

    Raises ``CheckFailedError`` with every finding of the first variant that it fails.
    """
    with _unpacked(shop, path) as folder:
        manifest = _manifest(folder, path)
        members = _identified(shop, members_in(folder), manifest)
        wanted = variants or (_own_promise(manifest, path),)
        base = choose_base(shop.project, wishes, shop.engine).value
        with shop.reporter.step("make the image that has cuobjdump"):
            inspector = Kit(shop, base, shop.reporter).inspector()
        for variant in wanted:
            report = check(members, variant, shop.project.check, inspector, shop.reporter)
            tell(report, variant, shop.reporter)
            require(report.findings, f"{path.name} does not hold what {variant.name} promises")


@contextmanager
def _unpacked(shop: Workshop, path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield path
        return
    if not path.is_file():
        raise ValidationError(f"--package {path}: there is no such file or folder.")
    archive = shop.archive(shop.reporter)
    manifest = loads(archive.read_manifest(path), path.name)
    with archive.scratch(shop.dist / f"check-{manifest.name}", manifest.unpacked_size) as folder:
        archive.extract(path, folder)
        yield folder


def _manifest(folder: Path, path: Path) -> Manifest | None:
    file = folder / MANIFEST
    return loads(file.read_bytes(), path.name) if file.is_file() else None


def _identified(shop: Workshop, members: Sequence[Member], manifest: Manifest | None) -> list[Member]:
    """The members with their sources where a manifest names their very bytes: a name proves nothing."""
    entries = {(entry.path, entry.sha256): entry for entry in manifest.files} if manifest else {}
    files = [member for member in members if entries and not member.file.is_symlink()]
    digests = shop.archive(shop.reporter).digests(files)
    found = {path: entries.get((path, digest.sha256)) for path, digest in digests.items()}
    return [
        replace(member, source=entry.source, licence=entry.licence, modified=entry.modified)
        if (entry := found.get(member.path))
        else member
        for member in members
    ]


def _own_promise(manifest: Manifest | None, path: Path) -> Variant:
    if manifest is None:
        raise ValidationError(
            f"{path} has no {MANIFEST} to say which variant it is. Name one: --variant legacy, for instance."
        )
    return promised(manifest)
