"""Brings a package onto the machine: fetched, proved, made aside, then switched to in one step."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Callable, Dict, List, Optional, Tuple

from builder.client.complete import SPARE_BYTES, Means, complete, survey
from builder.client.compressed import open_tar, readable
from builder.client.extract import extract, read_manifest
from builder.client.layout import (
    Prefix,
    forget_downloads,
    in_use,
    make_folders,
    remove_leftovers,
    switch,
    sync_folder,
    top_of,
    write_info,
)
from builder.client.lock import hold
from builder.client.obtain import coming, obtain
from builder.client.offer import Pick, pick, within
from builder.client.source import Located
from builder.client.verify import whole
from builder.client.web import Web
from builder.client.zstd import require_zstd
from builder.core.index import IndexPackage
from builder.core.manifest import Manifest
from builder.core.naming import form_of
from builder.core.select import Choice
from builder.errors import DiskError, IntegrityError

_PROVIDER = "libonnxruntime_providers_cuda.so"


@dataclass(frozen=True)
class Job:
    """What to install, from where, into what, with what."""

    choice: Choice
    offers: Tuple[IndexPackage, ...]
    """The chosen package in every layout and kind of archive, best first."""
    layout: str
    """``auto``, ``full`` or ``thin``."""
    located: Located
    means: Means
    web: Web
    now: Callable[[], datetime]

    @property
    def prefix(self) -> Prefix:
        """Where it goes."""
        return self.means.prefix


@dataclass(frozen=True)
class Installed:
    """Where the package is. ``fresh`` is false when it was there already, whole."""

    folder: Path
    fresh: bool
    package: IndexPackage
    why: str
    """Which layout, and why that one."""


def install(job: Job) -> Installed:
    """Install and switch ``current``; what was installed before stays, and in use until the last step.

    Raises ``NoCompatiblePackageError`` (not in that layout), ``TransferError``, ``IntegrityError``,
    ``DiskError`` or ``ToolMissingError`` (no zstd, no pip).
    """
    wanted = within(job.offers, job.layout)
    if not any(readable(form_of(offer.file)) for offer in wanted):
        require_zstd()
    try:
        make_folders(job.prefix)
        with hold(job.prefix.lock, lambda: job.means.say("Waiting for another install to finish.")):
            return _install(job, wanted)
    except OSError as error:
        where = error.filename or job.prefix.root
        raise DiskError(
            f"{where}: {error.strerror or error}. Nothing that was installed has changed."
        ) from error


def _install(job: Job, wanted: Tuple[IndexPackage, ...]) -> Installed:
    remove_leftovers(job.prefix, wanted)
    there = _there(job, wanted)
    if there is not None:
        package, manifest = there
        folder = job.prefix.folder(package)
        write_info(job.prefix, folder, _info(job, package, manifest))
        done = Installed(folder, fresh=False, package=package, why=f"Layout {package.layout}: it is there.")
    else:
        picked = pick(wanted, job.layout, readable, lambda thin: _nothing_missing(job, thin))
        done = _bring(job, picked)
    switch(job.prefix, done.folder)
    forget_downloads(job.prefix)
    return done


def _there(job: Job, wanted: Tuple[IndexPackage, ...]) -> Optional[Tuple[IndexPackage, Manifest]]:
    """What is installed already, whole, the one in use first."""
    current = in_use(job.prefix)
    for package in sorted(wanted, key=lambda package: job.prefix.folder(package).name != current):
        folder = job.prefix.folder(package)
        manifest = whole(folder) if folder.is_dir() else None
        if manifest is not None:
            return package, manifest
    return None


def _nothing_missing(job: Job, thin: IndexPackage) -> bool:
    """Whether this machine has all that a thin package lacks. Its archive says what that is, and is small."""
    nearby = job.means.nearby
    if not nearby.promising():
        return False
    with open_tar(_fetch(job, thin), form_of(thin.file)) as stream:
        absent = read_manifest(stream, top_of(thin)).absent
    return len(survey(absent, nearby)) == len(absent)


def _bring(job: Job, picked: Pick) -> Installed:
    package = picked.package
    folder = job.prefix.folder(package)
    _unpack(job, package, _fetch(job, package), folder)
    return Installed(folder, fresh=True, package=package, why=picked.why)


def _fetch(job: Job, package: IndexPackage) -> Path:
    """The archive, if there is room for it and what is in it: both lie side by side for a while."""
    needed = coming(package, job.located, job.prefix) + package.unpacked_size + SPARE_BYTES
    free = job.means.free(job.prefix.root)
    if free < needed:
        raise DiskError(
            f"{job.prefix.root}: {needed} bytes are needed to install {package.name}, {free} are free. "
            "Free some space or choose another place with --prefix."
        )
    return obtain(package, job.located, job.prefix, job.web)


def _unpack(job: Job, package: IndexPackage, archive: Path, folder: Path) -> None:
    part = job.prefix.part(folder.name)
    try:
        part.mkdir()
        with open_tar(archive, form_of(package.file)) as stream:
            manifest = extract(stream, top_of(package), part, package.unpacked_size)
        _require_agreement(manifest, package)
        complete(manifest, part, job.means)
        write_info(job.prefix, part, _info(job, package, manifest))
        sync_folder(part)
        _put_in_place(part, folder, aside=job.prefix.part("damaged"))
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    sync_folder(folder.parent)


def _require_agreement(manifest: Manifest, package: IndexPackage) -> None:
    said = (manifest.layout, manifest.installed_size)
    if said != (package.layout, package.installed_size):
        raise IntegrityError(
            f"{package.file}: its manifest and the index disagree.\n    wanted: layout {package.layout}, "
            f"{package.installed_size} bytes installed\n    got:    layout {said[0]}, {said[1]} bytes"
        )


def _put_in_place(part: Path, folder: Path, aside: Path) -> None:
    """Give ``part`` its name. A folder that has it already is damaged: whole ones are kept."""
    if folder.exists():
        folder.replace(aside)
    part.replace(folder)
    shutil.rmtree(aside, ignore_errors=True)


def _info(job: Job, package: IndexPackage, manifest: Manifest) -> Dict[str, object]:
    """``gpu-package-info.json``; docs/client.md explains each key."""
    device = job.choice.device
    capability = device.capability if device else None
    return {
        "format": 1,
        "name": package.name,
        "variant": package.variant,
        "layout": package.layout,
        "architectures": _architectures(manifest),
        "smVersion": capability.major * 10 + capability.minor if capability else None,
        "computeCap": str(capability) if capability else None,
        "gpuName": device.name if device else None,
        "support": job.choice.support,
        "cudaVisibleDevices": job.choice.visible,
        "version": package.onnxruntime.version,
        "libsPath": str(job.prefix.current.absolute() / "lib"),
        "installedAt": job.now().isoformat(timespec="seconds"),
        "sha256": package.sha256,
    }


def _architectures(manifest: Manifest) -> List[str]:
    """Native code found in the CUDA provider, as ``sm_75``."""
    provider: Optional[List[str]] = next(
        ([f"sm_{sm}" for sm in item.sass] for item in manifest.coverage if item.path.endswith(_PROVIDER)),
        None,
    )
    return provider or []
