"""Brings a package onto the machine: fetched, proved, unpacked aside, then switched to in one step."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Callable, Dict, List, Optional

from builder.client.digest import require_bytes, size_of
from builder.client.download import Wanted, etag_file, fetch
from builder.client.extract import extract
from builder.client.layout import (
    Prefix,
    make_folders,
    remove_leftovers,
    switch,
    sync_folder,
    top_of,
    write_info,
)
from builder.client.lock import hold
from builder.client.source import Place
from builder.client.verify import whole
from builder.client.web import Web
from builder.client.zstd import open_zstd, require_zstd
from builder.core.index import IndexPackage
from builder.core.manifest import Manifest
from builder.core.select import Choice
from builder.errors import DiskError, TransferError

SPARE_BYTES = 64 * 2**20
"""Left free beyond what the package needs."""

_PROVIDER = "libonnxruntime_providers_cuda.so"


@dataclass(frozen=True)
class Job:
    """What to install, from where, into what, with what."""

    package: IndexPackage
    choice: Choice
    place: Place
    """URL or path of the archive."""
    prefix: Prefix
    web: Web
    say: Callable[[str], None]
    now: Callable[[], datetime]
    free: Callable[[Path], int]
    """Bytes free where a path lies."""


@dataclass(frozen=True)
class Installed:
    """Where the package is. ``fresh`` is false when it was there already, whole."""

    folder: Path
    fresh: bool


def install(job: Job) -> Installed:
    """Install and switch ``current``; what was installed before stays, and in use until the last step.

    Raises ``TransferError``, ``IntegrityError``, ``DiskError`` or ``ToolMissingError`` (no zstd).
    """
    require_zstd()
    try:
        make_folders(job.prefix)
        with hold(job.prefix.lock, lambda: job.say("Waiting for another install to finish.")):
            return _install(job)
    except OSError as error:
        where = error.filename or job.prefix.root
        raise DiskError(
            f"{where}: {error.strerror or error}. Nothing that was installed has changed."
        ) from error


def _install(job: Job) -> Installed:
    remove_leftovers(job.prefix, job.package)
    folder = job.prefix.folder(job.package)
    there = whole(folder)
    if there is not None:
        write_info(job.prefix, folder, _info(job, there))
    else:
        _require_space(job)
        _unpack(job, _obtain(job), folder)
    switch(job.prefix, folder)
    _forget_download(job)
    return Installed(folder, fresh=there is None)


def _require_space(job: Job) -> None:
    """Archive and unpacked files lie side by side for a while."""
    coming = (
        0 if isinstance(job.place, Path) else job.package.size - size_of(job.prefix.download(job.package))
    )
    needed = max(coming, 0) + job.package.unpacked_size + SPARE_BYTES
    free = job.free(job.prefix.root)
    if free < needed:
        raise DiskError(
            f"{job.prefix.root}: {needed} bytes are needed to install {job.package.name}, {free} are free. "
            "Free some space or choose another place with --prefix."
        )


def _obtain(job: Job) -> Path:
    """The archive, proved to be the one the index describes."""
    package = job.package
    if isinstance(job.place, Path):
        if not job.place.is_file():
            raise TransferError(f"{job.place}: not there. Packages lie beside their index.json.")
        require_bytes(job.place, package.size, package.sha256, str(job.place))
        return job.place
    part = job.prefix.download(package)
    fetch(Wanted(job.place, package.size, package.sha256), part, job.web)
    return part


def _unpack(job: Job, archive: Path, folder: Path) -> None:
    part = job.prefix.part(folder.name)
    try:
        part.mkdir()
        with open_zstd(archive) as stream:
            manifest = extract(stream, top_of(job.package), part, job.package.unpacked_size)
        write_info(job.prefix, part, _info(job, manifest))
        sync_folder(part)
        _put_in_place(part, folder, aside=job.prefix.part("damaged"))
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    sync_folder(folder.parent)


def _put_in_place(part: Path, folder: Path, aside: Path) -> None:
    """Give ``part`` its name. A folder that has it already is damaged: whole ones are kept."""
    if folder.exists():
        folder.replace(aside)
    part.replace(folder)
    shutil.rmtree(aside, ignore_errors=True)


def _forget_download(job: Job) -> None:
    part = job.prefix.download(job.package)
    part.unlink(missing_ok=True)
    etag_file(part).unlink(missing_ok=True)


def _info(job: Job, manifest: Manifest) -> Dict[str, object]:
    """``gpu-package-info.json``; docs/client.md explains each key."""
    device = job.choice.device
    capability = device.capability if device else None
    return {
        "format": 1,
        "name": job.package.name,
        "variant": job.package.variant,
        "architectures": _architectures(manifest),
        "smVersion": capability.major * 10 + capability.minor if capability else None,
        "computeCap": str(capability) if capability else None,
        "gpuName": device.name if device else None,
        "support": job.choice.support,
        "cudaVisibleDevices": job.choice.visible,
        "version": job.package.onnxruntime.version,
        "libsPath": str(job.prefix.current.absolute() / "lib"),
        "installedAt": job.now().isoformat(timespec="seconds"),
        "sha256": job.package.sha256,
    }


def _architectures(manifest: Manifest) -> List[str]:
    """Native code found in the CUDA provider, as ``sm_75``."""
    provider: Optional[List[str]] = next(
        ([f"sm_{sm}" for sm in item.sass] for item in manifest.coverage if item.path.endswith(_PROVIDER)),
        None,
    )
    return provider or []
