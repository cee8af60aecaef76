"""The verb rebuild makes a release's packages again from their provenance and compares both."""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory

from invoke.context import Context

from builder.adapters.git import revision_of
from builder.app.command_line import make_wiring, verb
from builder.builds.wiring import Wiring
from builder.client.cli import is_url, place
from builder.client.install.source import Located, locate
from builder.errors import CheckFailedError, NothingToDoError, TransferError, ValidationError
from builder.files.download import WantedFile, fetch
from builder.files.http_client import Web, open_url, read_small, trusted_certificates
from builder.files.oci_opener import OciOpener
from builder.formats.index import INDEX_LIMIT
from builder.formats.package_names import ARCHIVE_SUFFIXES, INDEX, PARTS_SUFFIX
from builder.package.provenance import SUFFIX
from builder.package.recipe import Recipe, build_arguments, departures, read_recipe
from builder.pipeline.compare_packages import differences
from builder.release.addresses import index_url


@dataclass(frozen=True)
class Released:
    """One package of a release."""

    file: str
    """Name of the archive."""
    recipe: Recipe
    place: str | Path
    """Path or URL of the archive."""


@verb(
    positional=["release"],
    release="a tag on GitHub, a mirror's folder or URL, oci://HOST/NAME:TAG, a package or its provenance",
    variant="of these packages one alone",
    into="folder of what is built and fetched (default: dist/rebuild)",
    jobs="units compiled at once",
)
def rebuild(
    _context: Context,
    release: str,
    variant: str | None = None,
    into: str | None = None,
    jobs: int | None = None,
    dist: str | None = None,
) -> None:
    """Build a release's packages again from the same pins; exit with 6 and the differences if they differ."""
    wiring = make_wiring(dist)
    folder = Path(into) if into else wiring.dist / "rebuild"
    rebuild_release(wiring, release, variant, folder.resolve(), jobs)


def rebuild_release(
    wiring: Wiring, release: str, variant: str | None, folder: Path, jobs: int | None
) -> None:
    """Rebuild and compare each package of ``release``.

    Raises ``NothingToDoError`` if no package has a provenance, ``CheckFailedError`` with every difference,
    and what fetching and building raise.
    """
    web = _web(wiring)
    packages = [one for one in released(wiring, release, web) if variant in (None, one.recipe.variant)]
    if not packages:
        what = f"{release} has no package{f' {variant}' if variant else ''} with its provenance beside it."
        raise NothingToDoError(what, advice="Name a release of ./run publish or mirror, or a package.")
    found: list[str] = []
    ordered = sorted(packages, key=lambda one: (one.recipe.variant, one.recipe.command))
    for (_, command), group in groupby(ordered, key=lambda one: (one.recipe.variant, one.recipe.command)):
        same = list(group)
        _tell_departures(wiring, same[0].recipe)
        _build(wiring, build_arguments(same[0].recipe), folder, jobs, command)
        for one in same:
            found += _compared(wiring, one, folder, web)
    if found:
        raise CheckFailedError(f"{release} is not what this tree makes", found)
    wiring.reporter.say(f"{release}: {len(packages)} packages are bit for bit what this tree makes")


def released(wiring: Wiring, release: str, web: Web) -> list[Released]:
    """Return the packages of a release with their recipes.

    A folder's packages are those with a provenance. Raises ``TransferError`` if a provenance cannot be read
    and ``ConfigError`` for a bad one.
    """
    path = Path(release)
    if path.exists():
        return list(_local(path))
    where = release if is_url(release) else index_url(wiring.project.publish, release)
    located = locate(place(where), web)
    return [one for package in located.index.packages for one in _remote(located, package.file, web)]


def _local(path: Path) -> Iterator[Released]:
    if path.is_dir():
        files = sorted(path.glob(f"*{SUFFIX}"))
    else:
        files = [path if path.name.endswith(SUFFIX) else path.with_name(path.name + SUFFIX)]
    for file in files:
        if not file.is_file():
            raise TransferError(f"{file}: not there.", advice="It lies beside the package in its release.")
        name = file.name.removesuffix(SUFFIX)
        if not name.endswith(ARCHIVE_SUFFIXES):
            raise ValidationError(f"{file} is beside no package.", advice="Name a package's provenance.")
        yield Released(name, read_recipe(file.read_bytes(), file.name), file.with_name(name))


def _remote(located: Located, file: str, web: Web) -> Iterator[Released]:
    address = located.asset(file + SUFFIX)
    if isinstance(address, Path):
        yield from _local(address)
        return
    content = read_small(address, INDEX_LIMIT, web)
    yield Released(file, read_recipe(content, file + SUFFIX), located.asset(file))


def _web(wiring: Wiring) -> Web:
    certificates = trusted_certificates(wiring.env)
    return Web(
        open=OciOpener(partial(open_url, certificates=certificates)),
        sleep=time.sleep,
        progress=lambda _done, _total: None,
        say=wiring.reporter.say,
        hint=f"Provenance lies beside {INDEX} and its packages.",
    )


def _tell_departures(wiring: Wiring, recipe: Recipe) -> None:
    """Warn of each difference in tree, configuration or pins that may change what is built."""
    config = hashlib.sha256((wiring.root / "variants.yaml").read_bytes()).hexdigest()
    revision = revision_of(wiring.root, wiring.runner)
    for sentence in departures(recipe, revision, config, wiring.lock):
        wiring.reporter.warn(f"{recipe.variant}: {sentence}")


def _build(wiring: Wiring, arguments: Sequence[str], folder: Path, jobs: int | None, command: str) -> None:
    """Run the build command in a process of its own, with ``folder`` for its packages."""
    more = ["--dist", str(folder), *(["--jobs", str(jobs)] if jobs else [])]
    argv = [sys.executable, "-m", "builder.app.command_line", "build", *arguments, *more]
    with wiring.reporter.step(command):
        wiring.runner.run(argv, cwd=wiring.root, env=wiring.env, on_line=wiring.console.show)


def _compared(wiring: Wiring, package: Released, folder: Path, web: Web) -> Iterator[str]:
    """Yield the differences of a package and its rebuilt one in ``folder``; none if the bytes are equal."""
    name, made = package.file, (folder / f"{package.file}{end}" for end in ("", PARTS_SUFFIX))
    ours = next((path for path in made if path.is_file()), None)
    if ours is None:
        yield f"{name}: this tree makes no such package"
        return
    wanted = package.recipe.subjects.get(name, "")
    got = wiring.archive(wiring.reporter).whole(ours).sha256
    if got == wanted:
        wiring.reporter.say(f"{name}: the same, sha256 {wanted}")
        return
    there = package.recipe.base_revision
    here = read_recipe((folder / f"{name}{SUFFIX}").read_bytes(), name + SUFFIX).base_revision
    if here != there:
        yield f"{name}: the packages of the base are others: {there} there, {here} here"
    try:
        theirs = _brought(package, folder, web)
    except TransferError as error:
        yield f"{name}: sha256 {wanted} there, {got} here; what differs cannot be told: {error}"
        return
    yield from (f"{name}: {one}" for one in _by_file(wiring, theirs, ours, folder))


def _brought(package: Released, folder: Path, web: Web) -> Path:
    if isinstance(package.place, Path):
        if not package.place.is_file():
            raise TransferError(f"{package.place}: not there.")
        return package.place
    target = folder / "released" / package.file
    target.parent.mkdir(parents=True, exist_ok=True)
    fetch(WantedFile(package.place, None, package.recipe.subjects.get(package.file)), target, web)
    return target


def _by_file(wiring: Wiring, theirs: Path, ours: Path, folder: Path) -> list[str]:
    archive = wiring.archive(wiring.reporter)
    with TemporaryDirectory(prefix=".compare-", dir=folder) as work:
        sides = [Path(work, name) for name in ("there", "here")]
        for side, package in zip(sides, (theirs, ours), strict=True):
            archive.extract(package, side)
        found = list(differences(*sides))
    return found or ["every file in it is the same; the archives are packed differently"]
