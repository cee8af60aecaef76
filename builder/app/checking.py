"""check --package: hold any package, packed or unpacked, to its manifest and to a variant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from builder.adapters.unpacked import members_in
from builder.app.kit import Kit
from builder.app.proving import complete
from builder.app.workshop import Workshop
from builder.core.checks import Finding, require
from builder.core.describe import compare, promised
from builder.core.manifest import Manifest, loads
from builder.core.package import MANIFEST, Digest, Member
from builder.core.ports import Inspector
from builder.core.proof import check_installed
from builder.core.providers import CUDA
from builder.core.variant import Variant
from builder.errors import ValidationError
from builder.stages.check import check, tell
from builder.stages.plan import Wishes, choose_base


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
