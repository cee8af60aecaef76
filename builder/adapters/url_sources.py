"""Sources of inputs at a URL: archives of ORT's dependencies, apt's signed lists, NVIDIA's archives.

NVIDIA lists a toolkit's archives in ``redistrib_<release>.json``, with a path, a sha256 and a size for each
component and platform.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from pydantic import BaseModel, ValidationError

from builder.adapters.transfer import HttpTransfer
from builder.errors import IntegrityError, ParseError, TransferError
from builder.files.digest import file_digest
from builder.project.inputs import REDIST, Input, Pin, redist_url, url_name


class UrlMirror:
    """A downloader of URLs, directly or from a mirror that has each file at ``<root>/<host>/<path>``."""

    def __init__(self, transfer: HttpTransfer, root: str | None) -> None:
        self._transfer = transfer
        self._root = root and root.rstrip("/")

    def download(self, url: str, dest: Path, *, size: int = 0) -> None:
        """Download the file at an ``https`` URL to ``dest``. Raises what ``HttpTransfer.download`` raises."""
        there = f"{self._root}/{url.removeprefix('https://')}" if self._root else url
        self._transfer.download(there, dest, size=size)


def download_url(mirror: UrlMirror, item: Input, pin: Pin | None, folder: Path) -> Path:
    """Download the file at a URL (``adapters.store.Source``)."""
    dest = folder / url_name(item.spec)
    mirror.download(item.spec, dest, size=pin.size if pin else 0)
    return dest


class _Archive(BaseModel):
    relative_path: str
    sha256: str
    size: int


def download_redist(mirror: UrlMirror, item: Input, pin: Pin | None, folder: Path) -> Path:
    """Download a component of NVIDIA's toolkit, ``12.9.1/cuda_nvcc`` (``adapters.store.Source``).

    Without a pin, the archive is the one in NVIDIA's list. Raises ``IntegrityError`` when its sha256 is not
    the one in the list, and ``ParseError`` when the list has another form.
    """
    if pin:
        dest = folder / pin.filename
        mirror.download(redist_url(item.spec, pin.filename), dest, size=pin.size)
        return dest
    listed = _archive_of(mirror, item, folder)
    dest = folder / PurePosixPath(listed.relative_path).name
    mirror.download(f"{REDIST}/{listed.relative_path}", dest, size=listed.size)
    got = file_digest(dest).sha256
    if got != listed.sha256:
        raise IntegrityError(
            f"{item.key}: NVIDIA's list names sha256 {listed.sha256}, its server gave {got}",
            advice="Run the same command again; if that does not help, the mirror serves other bytes.",
        )
    return dest


def _archive_of(mirror: UrlMirror, item: Input, folder: Path) -> _Archive:
    release, _, component = item.spec.partition("/")
    file = folder / f"redistrib_{release}.json"
    mirror.download(f"{REDIST}/{file.name}", file)
    try:
        parts = _Components.model_validate_json(file.read_bytes()).model_extra or {}
        found = parts.get(component)
        if not isinstance(found, dict) or "linux-x86_64" not in found:
            raise TransferError(
                f"{item.key}: {file.name} has no archive of it for linux-x86_64",
                advice="Correct toolkit.components in variants.yaml.",
            )
        return _Archive.model_validate(found["linux-x86_64"])
    except ValidationError as error:
        raise ParseError(
            f"{REDIST}/{file.name} is no list of archives: {error.errors()[0]['msg']}"
        ) from error
    finally:
        file.unlink()


class _Components(BaseModel, extra="allow"):
    """NVIDIA's list: release_date, release_label, and an entry for each component."""
