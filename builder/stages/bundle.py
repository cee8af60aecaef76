"""bundle: gather a package's files, prove those of wheels untouched, write the archive with its manifest.

Fail closed: the old package of the same name goes first, and the new one gets its name only when all is well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from builder.core.buildrecord import record_name
from builder.core.checks import Code, Finding, require
from builder.core.content import NOTICE, ORTPACKS, OUR_LICENCE, PROVIDER, Wanted, wanted
from builder.core.describe import Packed, Report, describe
from builder.core.inputs import Input
from builder.core.manifest import dumps
from builder.core.naming import PackageName, package_name
from builder.core.notice import notice
from builder.core.package import BUILT, Archive, Checksums, Content, Digest, Member, PackageFile
from builder.core.ports import Reporter
from builder.core.untouched import check_untouched
from builder.core.variant import BuildPlan, Origin
from builder.errors import ConfigError, IntegrityError

_BIGGEST = 5
_MB = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Sources:
    """Where a package's files come from."""

    tree: Callable[[Input], Path]
    """A wheel's unpacked tree: ``Store.unpack``."""
    artifact: Path | None
    """What the compile stage left; ``None`` for origin wheel."""
    licence: Path
    """Our own licence file."""
    relocate: Callable[[Path], Path]
    """A copy of one of ORT's libraries that finds its neighbours: RUNPATH ``$ORIGIN``."""
    work: Path
    """Folder for what is written on the way: ``NOTICE``."""


@dataclass(frozen=True, kw_only=True)
class Bench:
    """What bundling and verifying work with."""

    archive: Archive
    checksums: Checksums
    reporter: Reporter
    dist: Path
    """Where packages go."""


def gather(plan: BuildPlan, sources: Sources) -> tuple[Member, ...]:
    """Every file of the plan's package, found and ready: what ``check`` reads and ``bundle`` packs.

    Raises ``IntegrityError`` naming each file that is missing and who needs it.
    """
    found = locate(wanted(plan), sources.tree, sources.artifact)
    members = [
        _relocated(member, sources) if _is_official_provider(plan, member) else member for member in found
    ]
    members.append(_ours(OUR_LICENCE, sources.licence))
    text = notice(str(package_name(plan)), [*members, _ours(NOTICE, sources.work / NOTICE)])
    members.append(_ours(NOTICE, _written(sources.work / NOTICE, text)))
    return tuple(sorted(members, key=lambda member: member.path))


def discard(name: PackageName, bench: Bench) -> None:
    """Remove a package, its checksum and its build's record: what failed a check must not lie in ``dist``.

    The package goes last: killed in between, nothing speaks of one that is not there.
    """
    bench.checksums.update(bench.dist, put={}, drop=(name.archive,))
    for file in (record_name(name.archive), name.archive):
        (bench.dist / file).unlink(missing_ok=True)


def bundle(
    plan: BuildPlan,
    members: tuple[Member, ...],
    report: Report,
    bench: Bench,
    *,
    tree: Callable[[Input], Path],
    revision: str | None = None,
) -> PackageFile:
    """Write the plan's package and its line in ``SHA256SUMS``.

    ``report`` is what the check stage read from ``members``; ``revision`` the base image's digest. Raises
    ``CheckFailedError`` (a finding of the check, a file that is not its wheel's, over budget),
    ``IntegrityError`` (a file changed meanwhile) or ``DiskError``; then no package of this name is in
    ``dist``.
    """
    name = package_name(plan)
    discard(name, bench)
    require(report.findings, f"{name} is not packed")
    packed = Packed(members=members, digests=bench.archive.digests(members))
    originals = _originals(plan, members, tree)
    for files, digests in ((members, packed.digests), (originals, bench.archive.digests(originals))):
        require(check_untouched(files, digests, _records(plan, tree)), f"{name} is not packed")
    manifest = dumps(describe(plan, packed, report, revision))
    content = Content(manifest=manifest.encode(), members=members, digests=packed.digests)
    limit = plan.project.bundle
    written = bench.archive.write(
        bench.dist / name.archive,
        content,
        limit.preset,
        lambda package: _require_budget(package, packed, limit.budget),
    )
    bench.checksums.update(bench.dist, put={name.archive: written.sha256})
    bench.reporter.say(f"{written.path.name}  {written.size / _MB:,.0f} MB  sha256 {written.sha256}")
    return written


def locate(
    files: Sequence[Wanted], tree: Callable[[Input], Path], artifact: Path | None
) -> tuple[Member, ...]:
    """Find every wanted file: links followed, each a regular file with bytes in it.

    ``tree`` and ``artifact`` as in ``Sources``. Raises ``IntegrityError`` naming each file that is missing
    and who needs it.
    """
    wheels = {file.source for file in files if file.source}
    roots: Mapping[Input | None, Path | None] = {
        None: artifact,
        **{wheel: tree(wheel) for wheel in sorted(wheels)},
    }
    found = [(file, *_find(file, roots[file.source])) for file in files]
    problems = [problem for _, _, problem in found if problem]
    if problems:
        raise IntegrityError("\n".join(problems))
    return tuple(_member(file, path) for file, path, _ in found if path)


def _find(file: Wanted, root: Path | None) -> tuple[Path | None, str]:
    """The file's real path, or ``None`` and what is wrong."""
    for path in [root / place for place in file.places] if root else ():
        if path.is_symlink() and not path.is_file():
            return None, f"{path} is a link that leads nowhere; {file.path}: {file.needed_by}."
        if path.is_file() and path.stat().st_size == 0:
            return None, f"{path} is empty; {file.path}: {file.needed_by}."
        if path.is_file():
            return path.resolve(), ""
    where = file.source.key if file.source else "what the compile stage left"
    looked = f"Looked for {' or '.join(file.places)} in {where} ({root or 'no folder'})."
    return None, f"{file.path} is missing: {file.needed_by}. {looked}"


def _member(file: Wanted, found: Path) -> Member:
    source = file.source.key if file.source else BUILT
    return Member(path=file.path, file=found, source=source, licence=file.licence, vendor=file.vendor)


def _is_official_provider(plan: BuildPlan, member: Member) -> bool:
    """The official provider has no RUNPATH; the one we compile is linked with it."""
    return plan.origin is Origin.WHEEL and member.path == f"lib/{PROVIDER}"


def _relocated(member: Member, sources: Sources) -> Member:
    return replace(member, file=sources.relocate(member.file), modified=True)


def _ours(path: str, file: Path) -> Member:
    if path == OUR_LICENCE and not file.is_file():
        raise ConfigError(
            f"variants.yaml: bundle.licence: {file} is not a file, and a package carries its licence."
        )
    return Member(path=path, file=file, source=BUILT, licence=OUR_LICENCE, vendor=ORTPACKS)


def _written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    part.write_text(text, encoding="utf-8")
    return part.replace(path)


def _originals(
    plan: BuildPlan, members: tuple[Member, ...], tree: Callable[[Input], Path]
) -> tuple[Member, ...]:
    """What the modified members are copies of: those too must be as they came."""
    changed = {member.path for member in members if member.modified}
    return locate([file for file in wanted(plan) if file.path in changed], tree, None)


def _records(plan: BuildPlan, tree: Callable[[Input], Path]) -> Callable[[str], str]:
    """``RECORD`` of one of the plan's wheels by its key."""
    trees = {file.source.key: file.source for file in wanted(plan) if file.source}
    return lambda key: _record(tree(trees[key]))


def _record(root: Path) -> str:
    found = list(root.glob("*.dist-info/RECORD"))
    if len(found) != 1:
        raise IntegrityError(
            f"{root} has {len(found)} RECORD files, and a wheel has one. Delete it to unpack it again."
        )
    return found[0].read_text(encoding="utf-8")


def _require_budget(package: PackageFile, packed: Packed, budget: int) -> None:
    if package.size <= budget:
        return
    biggest = sorted(packed.digests.items(), key=lambda item: -item[1].size)[:_BIGGEST]
    finding = Finding(
        code=Code.B009,
        path=package.path.name,
        message="raise bundle.budget or use bundle.preset: small. Its biggest files, unpacked:\n"
        + _table(biggest),
        wanted=f"at most {budget:,} bytes (bundle.budget)",
        got=f"{package.size:,} bytes",
    )
    require([finding], f"{package.path.name} is not kept")


def _table(files: list[tuple[str, Digest]]) -> str:
    return "\n".join(f"    {digest.size:>13,}  {path}" for path, digest in files)
