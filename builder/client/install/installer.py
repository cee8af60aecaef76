"""A package is fetched, verified, unpacked into a new folder, tried out, then switched to in one step."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, fields, replace
from datetime import datetime
from pathlib import Path
from typing import Callable, List, Optional, Sequence, Tuple

from builder.client.install.complete import CompletionMeans, complete, require_room, survey
from builder.client.install.current import (
    Symlink,
    in_use,
    previous_package,
    remember,
    remove_packages,
    require_ours,
    switch,
    versions,
)
from builder.client.install.decompress import no_zstd, open_tar, readable
from builder.client.install.layouts import pick, within
from builder.client.install.obtain import coming, obtain, remove_leftovers
from builder.client.install.prefix import (
    INFO,
    Prefix,
    changing,
    forget_downloads,
    write_json,
)
from builder.client.install.source import Located
from builder.client.install.unpack import extract, manifest_in, read_manifest, whole
from builder.client.install.zstd_wheel import bring_zstd
from builder.client.trials.try_out import OrtTrials, TryOut, require_loading
from builder.errors import ConfigError, IntegrityError
from builder.files.disk import rename, sync_folder
from builder.files.http_client import Web
from builder.files.package_tar import bad_package
from builder.formats.index import IndexPackage, StoredArchive, entry_of
from builder.formats.manifest import Manifest
from builder.formats.missing_kernels import consequence_of
from builder.formats.package_names import form_of, stem
from builder.formats.text import amount, shortened
from builder.selection.choice import PackageChoice

_AGAIN = "What is in use is whole; run install again, with --prefix for another folder."

_PROVIDER = "libonnxruntime_providers_cuda.so"


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
    symlink: Symlink

    @property
    def prefix(self) -> Prefix:
        """Return the folder that packages are installed in."""
        return self.means.prefix


@dataclass(frozen=True)
class Made:
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
class InstallResult(Made):
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
    wanted = within(job.offers, job.layout)
    require_ours(job.prefix)
    with changing(job.prefix, job.means.say, also=_AGAIN):
        return _install(job, wanted)


def _install(job: InstallJob, wanted: Tuple[IndexPackage, ...]) -> InstallResult:
    remove_leftovers(job.prefix, wanted)
    made = _there(job, wanted) or _bring(job, wanted)
    if not made.fresh:
        _describe(job, made.folder, made.package, made.manifest, made.folder)
    upgrade = _upgrade(job, made)
    remember(job.prefix, made.folder.name)
    switch(job.prefix, made.folder, job.symlink)
    if job.prefix.pointer.is_file():  # the switch made no link: libsPath must name the folder
        _describe(job, made.folder, made.package, made.manifest, made.folder)
    forget_downloads(job.prefix)
    return _settle(job, made, upgrade)


def _upgrade(job: InstallJob, made: Made) -> Optional[str]:
    """Return why the package in use is replaced, where it lacks kernels and the new one lacks none.

    ``None`` in any other case.
    """
    current = in_use(job.prefix)
    if current is None or made.manifest.onnxruntime.cannot_run:
        return None
    try:
        old = manifest_in(job.prefix.versions / current)
    except (IntegrityError, ConfigError):
        return None
    found = consequence_of(old.onnxruntime.cannot_run, old.onnxruntime.host)
    return f"{old.name} gives way to {made.manifest.name}. {found.means}" if found else None


def _settle(job: InstallJob, made: Made, upgrade: Optional[str]) -> InstallResult:
    """Remove all packages but the one in use and the one before it, and return the result."""
    previous = previous_package(job.prefix)
    old = [folder for folder in versions(job.prefix) if folder.name not in {made.folder.name, previous}]
    if previous is None:  # without a history it is unknown which package was in use before
        old = []
    freed = _remove_older(job, old)
    dropped = tuple(folder.name for folder in old if not folder.exists())
    return InstallResult(**vars(made), previous=previous, dropped=dropped, freed=freed, upgrade=upgrade)


def _remove_older(job: InstallJob, old: Sequence[Path]) -> int:
    """Remove older packages and return the bytes freed; 0, with a message, where removal fails."""
    try:
        return remove_packages(job.prefix, old)
    except OSError as error:
        job.means.say(f"{error.filename or old[0]}: an older package is not removed: {error.strerror}.")
        return 0


def _there(job: InstallJob, wanted: Tuple[IndexPackage, ...]) -> Optional[Made]:
    """Return a wanted package that is installed and whole; ``None`` where none is.

    The package in use is examined first. Raises ``LoadError`` where its libraries do not load.
    """
    current = in_use(job.prefix)
    for package in sorted(wanted, key=lambda package: job.prefix.folder(package).name != current):
        folder = job.prefix.folder(package)
        manifest = whole(folder) if folder.is_dir() else None
        if manifest is not None:
            why = f"Layout {package.layout}: it is there."
            return Made(folder, package, manifest, _try_out(job, folder, manifest), fresh=False, why=why)
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
    if not nearby.promising():
        return False
    with open_tar(_fetch(job, thin), form_of(thin.file)) as stream:
        absent = read_manifest(stream, stem(thin.file)).absent
    return len(survey(absent, nearby)) == len(absent)


def _bring(job: InstallJob, wanted: Tuple[IndexPackage, ...]) -> Made:
    if not any(readable(form_of(offer.file)) for offer in wanted):
        _bring_zstd(job.means)
    package, why = pick(wanted, job.layout, lambda thin: _nothing_missing(job, thin))
    folder = job.prefix.folder(package)
    manifest, tried = _unpack(job, package, _fetch(job, package), folder)
    return Made(folder, package, manifest, tried, fresh=True, why=why)


def _bring_zstd(means: CompletionMeans) -> None:
    """Make zstd readable, before the package is fetched. Raises ``ToolMissingError``."""
    if means.wheels.pip is None:
        raise no_zstd()
    bring_zstd(means.wheels.pip, means.prefix, means.say)


def _fetch(job: InstallJob, package: IndexPackage) -> Path:
    """Return the path of the fetched archive.

    Raises ``DiskError`` without space for the archive and its files, both of which are then on the disk.
    """
    needed = coming(package, job.located, job.prefix) + package.unpacked_size
    require_room(job.means, needed, f"to install {package.name}")
    return obtain(package, job.located, job.prefix, job.web)


def _unpack(job: InstallJob, package: IndexPackage, archive: Path, folder: Path) -> Tuple[Manifest, TryOut]:
    part = job.prefix.part(folder.name)
    try:
        part.mkdir()
        job.means.say(f"Unpacking {amount(package.unpacked_size)}; every file is held to its sha256.")
        with open_tar(archive, form_of(package.file)) as stream:
            manifest = extract(stream, stem(package.file), part, package.unpacked_size)
        _require_agreement(manifest, package)
        complete(manifest, part, job.means)
        tried = _try_out(job, part, manifest)
        _describe(job, part, package, manifest, folder)
        sync_folder(part)
        _put_in_place(part, folder, aside=job.prefix.part("damaged"))
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    sync_folder(folder.parent)
    return manifest, tried


def _require_agreement(manifest: Manifest, package: IndexPackage) -> None:
    """Raise ``IntegrityError`` where the manifest differs from the index, by which the package was chosen."""
    told = entry_of(manifest, StoredArchive(package.file, package.size, package.sha256, package.parts))
    if package.onnxruntime.host is None:  # an index of format 3
        told = replace(told, onnxruntime=replace(told.onnxruntime, host=None))
    for field in fields(told):
        wanted, got = getattr(package, field.name), getattr(told, field.name)
        if wanted != got:
            details = (
                f"    wanted: {shortened(str(wanted))} (index)",
                f"    got:    {shortened(str(got))} (manifest)",
            )
            raise bad_package(package.file, f"its manifest and the index disagree on {field.name}.", details)


def _put_in_place(part: Path, folder: Path, aside: Path) -> None:
    """Rename ``part`` to ``folder``. A folder with that name is damaged, and is removed."""
    if folder.exists():
        rename(folder, aside)
    rename(part, folder)
    shutil.rmtree(aside, ignore_errors=True)


def _describe(job: InstallJob, where: Path, package: IndexPackage, manifest: Manifest, folder: Path) -> None:
    """Write ``gpu-package-info.json`` into ``where``, which is ``folder`` or will be renamed to it.

    docs/client.md explains each key.
    """
    home = folder if job.prefix.pointer.is_file() else job.prefix.current.absolute()
    device = job.choice.device
    capability = device.capability if device else None
    info = {
        "format": 1,
        "name": package.name,
        "variant": package.variant,
        "provider": package.provider,
        "layout": package.layout,
        "architectures": _architectures(manifest),
        "smVersion": capability.number if capability else None,
        "computeCap": str(capability) if capability else None,
        "gpuName": device.name if device else None,
        "support": job.choice.support,
        "cudaVisibleDevices": job.choice.visible,
        "version": package.onnxruntime.version,
        "libsPath": str(home / "lib"),
        "installedAt": job.now().isoformat(timespec="seconds"),
        "sha256": package.sha256,
    }
    write_json(job.prefix, where / INFO, info)


def _architectures(manifest: Manifest) -> List[str]:
    """Return the architectures with native code in the CUDA provider, as ``sm_75``."""
    found = (item.sass for item in manifest.coverage if item.path.endswith(_PROVIDER))
    return [f"sm_{sm}" for sm in next(found, ())]
