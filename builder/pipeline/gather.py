"""The step gather finds every file of a package at the path that the plan names. No pattern is searched."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from builder.binary.library_names import PROVIDER, TENSORRT
from builder.errors import ConfigError, IntegrityError
from builder.formats.package_names import DIRECTML, LIB
from builder.package.archive import BUILT, Member
from builder.package.contents import DIRECTML_LICENCE, ORTPACKS, OUR_LICENCE, RequiredFile, required_files
from builder.project.build_plan import BuildPlan
from builder.project.inputs import Input
from builder.project.variants import Origin


@dataclass(frozen=True, kw_only=True)
class PackageSources:
    """The places of a package's files on this machine."""

    tree: Callable[[Input], Path]
    """Returns a wheel's unpacked tree: ``Store.unpack``."""
    artifact: Path | None
    """Folder of the compile stage's output; ``None`` for origin wheel."""
    licence: Path
    """Path of our own licence file."""
    directml: Path
    """Path of our text on the terms for ``DirectML.dll``."""
    relocate: Callable[[Path], Path]
    """Returns a copy of one of ORT's libraries that finds libraries in its folder: RUNPATH ``$ORIGIN``."""


def gather(plan: BuildPlan, sources: PackageSources) -> tuple[Member, ...]:
    """Return the libraries and licence texts of the plan's package.

    Raises ``IntegrityError`` naming each missing file and what needs it.
    """
    found = locate(required_files(plan), sources.tree, sources.artifact)
    members = [
        replace(member, file=sources.relocate(member.file), modified=True)
        if _looks_elsewhere(plan, member)
        else member
        for member in found
    ]
    texts = [our_licence(sources.licence)]
    if plan.variant.provider == DIRECTML:
        texts.append(_our_text(DIRECTML_LICENCE, sources.directml))
    return tuple(sorted([*members, *texts], key=lambda member: member.path))


def originals(
    plan: BuildPlan, members: Sequence[Member], tree: Callable[[Input], Path]
) -> tuple[Member, ...]:
    """Return the unmodified originals of the modified files among ``members``."""
    changed = {member.path for member in members if member.modified}
    return locate([file for file in required_files(plan) if file.path in changed], tree, None)


def locate(
    files: Sequence[RequiredFile], tree: Callable[[Input], Path], artifact: Path | None
) -> tuple[Member, ...]:
    """Return every wanted file, with links followed; each is a regular file that is not empty.

    ``tree`` and ``artifact`` are as in ``PackageSources``. Raises ``IntegrityError`` naming each missing file
    and what needs it.
    """
    wheels = {file.source for file in files if file.source}
    roots: Mapping[Input | None, Path | None] = {
        None: artifact,
        **{wheel: tree(wheel) for wheel in sorted(wheels)},
    }
    found = [_find(file, roots[file.source]) for file in files]
    problems = [one for one in found if isinstance(one, str)]
    if problems:
        raise IntegrityError("\n".join(problems))
    return tuple(one for one in found if isinstance(one, Member))


def _find(file: RequiredFile, root: Path | None) -> Member | str:
    """Return the member, or a sentence on what is wrong."""
    for place in file.places if root else ():
        path = Path(root or "", place)
        if path.is_symlink() and not path.is_file():
            return f"{path} is a link that leads nowhere; {file.path}: {file.needed_by}."
        if path.is_file() and path.stat().st_size == 0:
            return f"{path} is empty; {file.path}: {file.needed_by}."
        if path.is_file():
            return _member(file, Path(root or ""), path.resolve())
    where = file.source.key if file.source else "what the compile stage left"
    looked = f"Looked for {' or '.join(file.places)} in {where} ({root or 'no folder'})."
    return f"{file.path} is missing: {file.needed_by}. {looked}"


def _member(file: RequiredFile, root: Path, found: Path) -> Member:
    return Member(
        path=file.path,
        file=found,
        source=file.source.key if file.source else BUILT,
        licence=file.licence,
        vendor=file.vendor,
        member=found.relative_to(root.resolve()).as_posix() if file.source else None,
    )


def _looks_elsewhere(plan: BuildPlan, member: Member) -> bool:
    """Return whether the member needs a RUNPATH: official providers lack one, compiled ones have it."""
    ours = plan.origin is Origin.SOURCE and member.path == f"{LIB}{PROVIDER}"
    return member.path in (f"{LIB}{PROVIDER}", f"{LIB}{TENSORRT}") and not ours


def our_licence(file: Path) -> Member:
    """Return our licence as a member. Raises ``ConfigError`` if ``file`` is no file."""
    if not file.is_file():
        raise ConfigError(
            f"variants.yaml: bundle.licence: {file} is not a file",
            advice="Name the licence that every package carries.",
        )
    return _our_text(OUR_LICENCE, file)


def _our_text(path: str, file: Path) -> Member:
    return Member(path=path, file=file, source=BUILT, licence=path, vendor=ORTPACKS)
