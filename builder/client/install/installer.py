"""A package is fetched, verified, unpacked into a new folder, tried out, then switched to in one step."""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from datetime import datetime
from pathlib import Path
from typing import Callable, Optional, Sequence, Tuple

from builder.client.install.complete import CompletionMeans, complete, require_disk_space, survey
from builder.client.install.current import (
    in_use,
    previous_package,
    remember,
    remove_packages,
    require_ours,
    switch,
    versions,
)
from builder.client.install.decompress import open_tar, readable
from builder.client.install.obtain import bytes_to_write, obtain, remove_leftovers
from builder.client.install.prefix import Prefix, changing, empty, write_info
from builder.client.install.source import Located
from builder.client.install.unpack import extract, manifest_in, read_manifest, whole
from builder.client.install.zstd_wheel import bring_zstd
from builder.client.trials.try_out import OrtTrials, TryOut, require_loading
from builder.errors import ConfigError, IntegrityError, NoCompatiblePackageError
from builder.files.digest import Digest
from builder.files.disk import remove, rename, sync_folder
from builder.files.http_client import Web
from builder.files.package_tar import bad_package
from builder.formats.index import IndexPackage, StoredArchive, entry_of
from builder.formats.manifest import Manifest
from builder.formats.missing_kernels import consequence_of
from builder.formats.package_names import Form, Layout, form_of, stem
from builder.formats.text import amount, shortened
from builder.selection.choice import PackageChoice

_AGAIN = "The package in use is unchanged; run install again, or with --prefix for another folder."


@dataclass(frozen=True)
class InstallJob:
    """The package to install, its source, its target and the means of the install."""

    choice: PackageChoice
    offers: Tuple[IndexPackage, ...]
    """The chosen package in every layout and kind of archive, best first."""
    layout: Optional[str]
    """``full`` or ``thin``; ``None`` where the client chooses."""
    located: Located
    means: CompletionMeans
    web: Web
    now: Callable[[], datetime]
    trials: OrtTrials

    @property
    def prefix(self) -> Prefix:
        """Return the folder that packages are installed in."""
        return self.means.prefix


@dataclass(frozen=True)
class PlacedPackage:
    """A whole package in its folder."""

    folder: Path
    package: IndexPackage
    manifest: Manifest
    tried: TryOut
    fresh: bool
    """Whether this install made the folder; false where it existed already, whole."""
    why: str
    """The layout that was taken and the reason, in a sentence."""


@dataclass(frozen=True)
class InstallResult(PlacedPackage):
    """The package that is in use now, and the older packages that were kept or removed."""

    previous: Optional[str]
    """The package that ``rollback`` returns to."""
    dropped: Tuple[str, ...]
    """Names of the older packages that were removed."""
    freed: int
    """Bytes that the removal freed."""
    upgrade: Optional[str]
    """The reason for which a package that could not run every operator is replaced; ``None`` for any
    other."""


def install(job: InstallJob) -> InstallResult:
    """Install the chosen package and switch ``current`` to it in the last step.

    The package in use stays in use until that step, and is kept for ``rollback``. Raises
    ``NoCompatiblePackageError`` (not released in that layout), ``TransferError``, ``IntegrityError``,
    ``DiskError``, ``ToolMissingError`` (no zstd, no pip) or ``LoadError`` (its libraries do not load here).
    """
    wanted = _within(job.offers, job.layout)
    require_ours(job.prefix)
    with changing(job.prefix, job.means.say, also=_AGAIN):
        return _install(job, wanted)


def _install(job: InstallJob, wanted: Tuple[IndexPackage, ...]) -> InstallResult:
    remove_leftovers(job.prefix, wanted)
    placed = _already_installed(job, wanted) or _bring(job, wanted)
    if not placed.fresh:
        _describe(job, placed.folder, placed.package, placed.manifest)
    upgrade = _upgrade(job, placed)
    remember(job.prefix, placed.folder.name)
    switch(job.prefix, placed.folder)
    if job.prefix.pointer.is_file():  # the switch made no link: libsPath must name the folder
        _describe(job, placed.folder, placed.package, placed.manifest)
    empty(job.prefix.downloads)
    return _drop_older(job, placed, upgrade)


def _upgrade(job: InstallJob, placed: PlacedPackage) -> Optional[str]:
    """Return why the package in use is replaced, where it lacks kernels and the new one lacks none.

    ``None`` in any other case.
    """
    current = in_use(job.prefix)
    if current is None or placed.manifest.onnxruntime.cannot_run:
        return None
    try:
        old = manifest_in(job.prefix.versions / current)
    except (IntegrityError, ConfigError):
        return None
    found = consequence_of(old.onnxruntime.cannot_run, old.onnxruntime.host)
    return f"{old.name} is replaced by {placed.manifest.name}. {found.means}" if found else None


def _drop_older(job: InstallJob, placed: PlacedPackage, upgrade: Optional[str]) -> InstallResult:
    """Remove all packages but the one in use and the one before it, and return the result."""
    previous = previous_package(job.prefix)
    old = [folder for folder in versions(job.prefix) if folder.name not in {placed.folder.name, previous}]
    if previous is None:  # without a history it is unknown which package was in use before
        old = []
    freed = _remove_older(job, old)
    dropped = tuple(folder.name for folder in old if not folder.exists())
    return InstallResult(**vars(placed), previous=previous, dropped=dropped, freed=freed, upgrade=upgrade)


def _remove_older(job: InstallJob, old: Sequence[Path]) -> int:
    """Remove older packages and return the bytes freed; 0, with a message, where removal fails."""
    try:
        return remove_packages(job.prefix, old)
    except OSError as error:
        job.means.say(f"{error.filename or old[0]}: an older package is not removed: {error.strerror}.")
        return 0


def _already_installed(job: InstallJob, wanted: Tuple[IndexPackage, ...]) -> Optional[PlacedPackage]:
    """Return a wanted package that is installed and whole; ``None`` where none is.

    The package in use is examined first. Raises ``LoadError`` where its libraries do not load.
    """
    current = in_use(job.prefix)
    for package in sorted(wanted, key=lambda package: job.prefix.folder(package).name != current):
        folder = job.prefix.folder(package)
        manifest = whole(folder) if folder.is_dir() else None
        if manifest is not None:
            why = f"Layout {package.layout}: it is installed already."
            return PlacedPackage(
                folder, package, manifest, _try_out(job, folder, manifest), fresh=False, why=why
            )
    return None


def _try_out(job: InstallJob, folder: Path, manifest: Manifest) -> TryOut:
    """Load a package's libraries in a child process. Raises ``LoadError``."""
    job.means.say("Trying it out: its libraries are loaded.")
    tried = job.trials.load(folder, manifest)
    require_loading(tried, manifest.name)
    return tried


def _nothing_missing(job: InstallJob, thin: IndexPackage) -> bool:
    """Return whether this machine has every library that the manifest of a thin package names as absent."""
    nearby = job.means.nearby
    if not nearby.may_have_libraries():
        return False
    with open_tar(_fetch(job, thin), form_of(thin.file)) as stream:
        absent = read_manifest(stream, stem(thin.file)).absent
    return len(survey(absent, nearby)) == len(absent)


def _bring(job: InstallJob, wanted: Tuple[IndexPackage, ...]) -> PlacedPackage:
    if not any(readable(form_of(offer.file)) for offer in wanted):
        bring_zstd(job.means.wheels.pip, job.prefix, job.means.say)
    package, why = _pick(job, wanted)
    folder = job.prefix.folder(package)
    manifest, tried = _unpack(job, package, _fetch(job, package), folder)
    return PlacedPackage(folder, package, manifest, tried, fresh=True, why=why)


def _fetch(job: InstallJob, package: IndexPackage) -> Path:
    """Return the path of the fetched archive.

    Raises ``DiskError`` without space for the archive and its files, both of which are then on the disk.
    """
    needed = bytes_to_write(package, job.located, job.prefix) + package.unpacked_size
    require_disk_space(job.means, needed, f"to install {package.name}")
    return obtain(package, job.located, job.prefix, job.web)


def _unpack(job: InstallJob, package: IndexPackage, archive: Path, folder: Path) -> Tuple[Manifest, TryOut]:
    part = job.prefix.part(folder.name)
    try:
        part.mkdir()
        job.means.say(f"Unpacking {amount(package.unpacked_size)}; every file is compared with its sha256.")
        with open_tar(archive, form_of(package.file), _digest_to_hold(job, package, archive)) as stream:
            manifest = extract(stream, stem(package.file), part, package.unpacked_size)
        _require_agreement(manifest, package)
        complete(manifest, part, job.means)
        tried = _try_out(job, part, manifest)
        _describe(job, part, package, manifest)
        sync_folder(part)
        _put_in_place(part, folder, aside=job.prefix.part("damaged"))
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    sync_folder(folder.parent)
    return manifest, tried


def _digest_to_hold(job: InstallJob, package: IndexPackage, archive: Path) -> Optional[Digest]:
    """Return the digest to compare while unpacking; ``None`` for a download, which only the client writes."""
    ours = archive == job.prefix.piece(package)
    return None if ours else Digest(package.size, package.sha256)


def _require_agreement(manifest: Manifest, package: IndexPackage) -> None:
    """Raise ``IntegrityError`` where the manifest differs from the index, by which the package was chosen."""
    by_manifest = entry_of(manifest, StoredArchive(package.file, package.size, package.sha256, package.parts))
    if package.onnxruntime.host is None:  # an index of format 3
        by_manifest = replace(by_manifest, onnxruntime=replace(by_manifest.onnxruntime, host=None))
    for field in fields(by_manifest):
        wanted, got = getattr(package, field.name), getattr(by_manifest, field.name)
        if wanted != got:
            details = (
                f"    wanted: {shortened(str(wanted))} (index)",
                f"    got:    {shortened(str(got))} (manifest)",
            )
            raise bad_package(package.file, f"its manifest and the index disagree on {field.name}.", details)


def _describe(job: InstallJob, where: Path, package: IndexPackage, manifest: Manifest) -> None:
    write_info(job.prefix, where, package, manifest, job.choice, job.now())


def _put_in_place(part: Path, folder: Path, aside: Path) -> None:
    """Rename ``part`` to ``folder``. A folder with that name is damaged, and is removed."""
    if folder.exists():
        rename(folder, aside)
    rename(part, folder)
    with suppress(OSError):
        remove(aside)


def _within(offers: Sequence[IndexPackage], wish: Optional[str]) -> Tuple[IndexPackage, ...]:
    """Return the offers of the layout that the user asked for; all where ``wish`` is ``None``.

    Raises ``NoCompatiblePackageError`` where the package is not released in that layout.
    """
    mine = tuple(offer for offer in offers if wish in {None, offer.layout})
    if not mine:
        there = ", ".join(sorted({offer.layout for offer in offers}))
        raise NoCompatiblePackageError(
            f"--layout {wish}: {offers[0].name} is released in layout {there} only.",
            advice="Leave --layout out, or name that layout.",
        )
    return mine


def _pick(job: InstallJob, offers: Sequence[IndexPackage]) -> Tuple[IndexPackage, str]:
    """Return one of ``offers``, which ``_within`` returned, best first; and the reason in a sentence.

    The thin layout is chosen where only its archive must be fetched, else the full one; zstd where it can be
    decompressed, else gzip.
    """
    usable = [offer for offer in offers if readable(form_of(offer.file))] or list(offers)
    full, thin = _first(usable, Layout.FULL), _first(usable, Layout.THIN)
    if full is None or thin is None:
        chosen, why = usable[0], _no_choice(offers, job.layout)
    elif _nothing_missing(job, thin):
        saved = f"{amount(thin.size)} are fetched instead of {amount(full.size)}"
        chosen, why = thin, f"NVIDIA's libraries are on this machine, {saved}"
    else:
        chosen, why = full, "not all of NVIDIA's libraries are on this machine"
    return chosen, f"Layout {chosen.layout}: {why}.{_form_note(chosen, offers)}"


def _first(offers: Sequence[IndexPackage], layout: Layout) -> Optional[IndexPackage]:
    return next((offer for offer in offers if offer.layout == layout.value), None)


def _no_choice(offers: Sequence[IndexPackage], wish: Optional[str]) -> str:
    if wish is not None:
        return "as asked with --layout"
    one_layout = len({offer.layout for offer in offers}) == 1
    return "the release has no other" if one_layout else "nothing here can unpack the other"


def _form_note(chosen: IndexPackage, offers: Sequence[IndexPackage]) -> str:
    better = any(offer.layout == chosen.layout and form_of(offer.file) is Form.ZST for offer in offers)
    if form_of(chosen.file) is Form.GZ and better:
        return " As gzip: nothing here can unpack zstd."
    return ""
