"""The work of the verb rebuild: a release's packages, made again from their provenance and compared."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory

from builder.build.verbs.verb_answers import Checked, ChecksAnswer, checked
from builder.client.arguments import is_url, place
from builder.client.install.prefix import Prefix
from builder.client.install.signed import Trust
from builder.client.install.source import FilesBeside, Located, locate
from builder.contents.provenance import SUFFIX, Recipe, build_arguments, read_recipe, tree_differences
from builder.errors import CheckFailedError, NothingToDoError, TransferError, ValidationError
from builder.files.digest import Digest, file_digest, other_bytes
from builder.files.disk import resolved
from builder.files.download import WantedFile, fetch
from builder.files.http_client import Web, read_small
from builder.files.http_opener import open_url, trusted_certificates
from builder.formats.index import INDEX_LIMIT, IndexPackage
from builder.formats.package_names import ARCHIVE_SUFFIXES, INDEX
from builder.formats.text import redacted
from builder.io.archive.unpacking import extract
from builder.io.git import revision_of
from builder.io.wiring import Wiring
from builder.prove.compare_packages import differences
from builder.publish.locations import archives_in, index_url
from builder.publish.prepare import ROOTS
from builder.publish.signing import read_roots, roots_in


@dataclass(frozen=True)
class Released:
    """One package of a release."""

    file: str
    """Name of the archive."""
    recipe: Recipe
    place: str | Path
    """Path or URL of the archive."""
    digest: Digest
    """Size and sha256 of the archive."""


def project_trust(wiring: Wiring) -> Trust | None:
    """Return the keys of the project's newest root; ``None`` if it has no root. Raises ``IntegrityError``."""
    roots = roots_in(wiring.root / ROOTS)
    read_roots(roots)
    nothing_taken = Prefix(wiring.dist)  # any release is made again, also an older one than before
    return Trust(roots[-1], datetime.now(UTC), nothing_taken) if roots else None


def rebuild_release(
    wiring: Wiring, release: str, variant: str | None, folder: Path, jobs: int | None, trust: Trust | None
) -> ChecksAnswer:
    """Rebuild each package of ``release`` and return the comparison of each.

    Raises ``NothingToDoError`` if there is no package, ``ValidationError`` if ``folder`` is the release's
    own, ``IntegrityError`` if an archive is not the one that its provenance names or ``trust`` requires, and
    what fetching and building raise.
    """
    web = release_web(wiring)
    archives = released(wiring, release, web, trust)
    packages = [archive for archive in archives if variant in (None, archive.recipe.variant)]
    if not packages:
        what = f"{redacted(release)} has no package{f' {variant}' if variant else ''}."
        raise NothingToDoError(what, advice="Name a release of ./run publish or mirror, or a package.")
    if any(
        isinstance(package.place, Path) and resolved(package.place.parent) == resolved(folder)
        for package in packages
    ):
        raise ValidationError(
            f"{folder} is the release's own folder: its packages would be compared with themselves.",
            advice="Name another folder with --into.",
        )
    checks: list[Checked] = []
    ordered = sorted(packages, key=lambda archive: (archive.recipe.variant, archive.recipe.command))
    for (_, command), group in groupby(
        ordered, key=lambda archive: (archive.recipe.variant, archive.recipe.command)
    ):
        same = list(group)
        _tell_departures(wiring, same[0].recipe)
        _build(wiring, build_arguments(same[0].recipe), folder, jobs, command)
        checks += [
            checked(archive.recipe.variant, archive.file, tuple(_compared(wiring, archive, folder, web)))
            for archive in same
        ]
    return ChecksAnswer(format=1, checks=tuple(checks))


def require_same(wiring: Wiring, release: str, answer: ChecksAnswer) -> None:
    """Say that all packages are the same. Raises ``CheckFailedError`` with every difference."""
    shown = redacted(release)
    differing = [problem for check in answer.checks for problem in check.problems]
    if differing:
        raise CheckFailedError(f"{shown} is not what this tree makes", differing)
    wiring.reporter.say(f"{shown}: {len(answer.checks)} packages are bit for bit what this tree makes")


def released(wiring: Wiring, release: str, web: Web, trust: Trust | None) -> list[Released]:
    """Return a release's packages, each with its recipe and the sha256 that its provenance names.

    ``trust`` verifies signatures; ``None`` requires none. Raises ``TransferError`` if a package's provenance
    cannot be read, ``ConfigError`` for a bad one, and ``IntegrityError`` for a provenance that is of another
    archive.
    """
    path = Path(release)
    if path.exists():
        archives = archives_in(path) if path.is_dir() else [path.with_name(path.name.removesuffix(SUFFIX))]
        return [_local(archive, web, trust) for archive in archives]
    where = release if is_url(release) else index_url(wiring.project.publish, release)
    located = locate(place(where), web, trust)
    return [_remote(located, package, web) for package in located.index.packages]


def _local(archive: Path, web: Web, trust: Trust | None) -> Released:
    name = archive.name
    file = archive.with_name(name + SUFFIX)
    if not name.endswith(ARCHIVE_SUFFIXES):
        raise ValidationError(f"{archive} is no package.", advice="Name a package or its provenance.")
    if not archive.is_file():
        raise TransferError(f"{archive}: not there.", advice="It lies beside its provenance in its release.")
    if not file.is_file():
        raise TransferError(f"{file}: not there.", advice="It lies beside the package in its release.")
    if trust is not None:
        trust.require_archive(archive, FilesBeside(archive, web))
    digest = file_digest(archive)
    return _of_archive(Released(name, read_recipe(file.read_bytes(), file.name), archive, digest))


def _remote(located: Located, package: IndexPackage, web: Web) -> Released:
    name = package.file + SUFFIX
    recipe = read_recipe(read_small(str(located.asset(name)), INDEX_LIMIT, web), name)
    digest = Digest(package.size, package.sha256)
    return _of_archive(Released(package.file, recipe, located.asset(package.file), digest))


def _of_archive(package: Released) -> Released:
    """Return the package. Raises ``IntegrityError`` if its provenance is that of another archive."""
    said = package.recipe.subjects.get(package.file, "none")
    if said != package.digest.sha256:
        raise other_bytes(f"{package.file} is not the archive of its provenance", said, package.digest.sha256)
    return package


def release_web(wiring: Wiring) -> Web:
    """Return the network by which a release's small files are read."""
    certificates = trusted_certificates(wiring.env)
    return Web(
        open=partial(open_url, certificates=certificates),
        sleep=wiring.sleep,
        progress=lambda _done, _total: None,
        say=wiring.reporter.say,
        hint=f"Provenance lies beside {INDEX} and its packages.",
    )


def _tell_departures(wiring: Wiring, recipe: Recipe) -> None:
    """Warn of each difference in tree, configuration or pins that may change what is built."""
    config = hashlib.sha256((wiring.root / "variants.yaml").read_bytes()).hexdigest()
    revision = revision_of(wiring.root, wiring.runner)
    for sentence in tree_differences(recipe, revision, config, wiring.lock):
        wiring.reporter.warn(f"{recipe.variant}: {sentence}")


def _build(wiring: Wiring, arguments: Sequence[str], folder: Path, jobs: int | None, command: str) -> None:
    more = ["--dist", str(folder), *(["--jobs", str(jobs)] if jobs else [])]
    argv = [sys.executable, "-m", "builder.build.verbs.command_line", "build", *arguments, *more]
    with wiring.reporter.step(command):
        wiring.build_runner.run(argv, cwd=wiring.root, env=wiring.env, on_line=wiring.console.show)


def _compared(wiring: Wiring, package: Released, folder: Path, web: Web) -> Iterator[str]:
    """Yield the differences of a package and its rebuilt one in ``folder``; none if the bytes are equal."""
    name, ours = package.file, folder / package.file
    if not ours.is_file():
        yield f"{name}: this tree makes no such package"
        return
    wanted, got = package.digest.sha256, file_digest(ours).sha256
    if got == wanted:
        wiring.reporter.say(f"{name}: the same, sha256 {got}")
        return
    there = package.recipe.base_revision
    here = read_recipe((folder / f"{name}{SUFFIX}").read_bytes(), name + SUFFIX).base_revision
    if here != there:
        yield f"{name}: the base has other packages: {there} there, {here} here"
    try:
        theirs = _brought(package, folder, web)
    except TransferError as error:
        yield f"{name}: sha256 {wanted} there, {got} here; the differences cannot be found: {error}"
        return
    yield from (f"{name}: {difference}" for difference in _by_file(theirs, ours, folder))


def _brought(package: Released, folder: Path, web: Web) -> Path:
    if isinstance(package.place, Path):
        return package.place
    target = folder / "released" / package.file
    target.parent.mkdir(parents=True, exist_ok=True)
    fetch(WantedFile(package.place, package.digest.size, package.digest.sha256), target, web)
    return target


def _by_file(theirs: Path, ours: Path, folder: Path) -> list[str]:
    with TemporaryDirectory(prefix=".compare-", dir=folder) as work:
        sides = [Path(work, name) for name in ("there", "here")]
        for side, package in zip(sides, (theirs, ours), strict=True):
            extract(package, side)
        by_file = list(differences(*sides))
    return by_file or ["every file in it is the same; the archives are packed differently"]
