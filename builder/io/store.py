"""Input cache addressed by content: each input is fetched once and verified when it enters the cache.

Layout below the cache folder: ``store/<2 hex>/<sha256>/<filename>``, ``unpacked/<sha256>/`` for wheels,
``trees/<commit>/`` for git, ``incoming/<id>/`` while an input is downloaded, ``locks/``.

Sources at a URL are archives of ORT's dependencies, apt's signed lists, and NVIDIA's archives, which NVIDIA
lists in ``redistrib_<release>.json`` with a path, a sha256 and a size for each component and platform.
"""

from __future__ import annotations

import hashlib
import lzma
import re
import shutil
import tarfile
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pydantic import BaseModel, ValidationError

from builder.config.inputs import LOCK_MISSING, REDIST, Input, InputKind, Lock, Pin, redist_url
from builder.console import Reporter
from builder.errors import ConfigError, IntegrityError, ParseError, TransferError
from builder.files.digest import Digest, file_digest
from builder.files.disk import disk_errors, sync_file
from builder.files.file_lock import exclusive, if_free
from builder.io.transfer import HttpTransfer
from builder.io.wheel import unpack_wheel

Source = Callable[[Input, Pin | None, Path], Path]
"""``source(item, pin, folder)`` downloads the input's file into ``folder`` and returns its path.

The file gets its own name. No other process uses ``folder``; a source may continue from what a killed run
left there. The caller verifies the file. Without a ``pin`` the source chooses the file. Raises
``TransferError`` or ``DiskError``.
"""


@dataclass(kw_only=True)
class FileStore:
    """A cache of inputs, each of which is fetched once.

    A file is hashed and compared with ``inputs.lock`` when it enters the cache and when it is fetched again.
    """

    cache: Path
    lock: Lock
    sources: Mapping[InputKind, Source]
    reporter: Reporter
    offline: bool = False
    require_wheel: Callable[[Input], None] = lambda _: None
    """Raises an error for a wheel without a pin that cannot get one. It is not called with ``offline``."""

    def fetch(self, item: Input) -> Path:
        """Return the path of an input's verified file; the file has its own name.

        Raises ``TransferError`` (host out of reach, or offline and not cached), ``IntegrityError`` (other
        bytes than the lock pins; the bad file is kept as ``<name>.bad``) or ``ConfigError`` (no pin in the
        lock, or an input that is no file).
        """
        pin = self._pinned(item)
        if item.kind is InputKind.GIT:
            return self.tree(item, pin)
        path = self._place(pin)
        with self._locked(_identity(item.key), item.spec):
            if path.is_file():
                _require(item, path, pin, aside=_bad(path))
            else:
                self._admit(item, self._download(item, pin), pin)
        return path

    def unpack(self, wheel: Input) -> Path:
        """Return the folder with a wheel's unpacked files, whose sha256 equal those in the wheel's RECORD.

        A folder that exists is complete, so its files are not hashed again.
        """
        pin = self._pinned(wheel)
        tree = self._tree(pin)
        if tree.is_dir():
            return tree
        file = self.fetch(wheel)
        with self._locked(f"unpack-{pin.sha256[:16]}", f"{wheel.spec}'s files"):
            if not tree.is_dir():
                unpack_wheel(file, tree)
        return tree

    def tree(self, item: Input, pin: Pin) -> Path:
        """Return the tree of a git input's commit, as a tar file, whose bytes git verified.

        Raises what ``fetch`` raises.
        """
        path = self.cache / "trees" / (pin.revision or "") / item.file_name
        with self._locked(_identity(item.key), item.spec):
            if not path.is_file():
                file = self._download(item, pin)
                with disk_errors(path):
                    path.parent.mkdir(parents=True, exist_ok=True)
                    sync_file(file)
                    file.replace(path)
        return path

    def absent(self, item: Input) -> tuple[int, int]:
        """Return the bytes to fetch for an input, and to unpack for a wheel; 0 for what the cache has.

        A wheel counts with the size of its packed file, an input without a sha256 in the lock not at all.
        """
        pin = self.lock.pins.get(item.key, Pin())
        if not pin.sha256:
            return 0, 0
        is_packed = item.kind is InputKind.WHEEL and not self._tree(pin).is_dir()
        return 0 if self._place(pin).is_file() else pin.size, pin.size if is_packed else 0

    def pin(self, item: Input, sha1: str = "") -> Pin:
        """Fetch an input that has no pin yet, and return its pin.

        ``sha1`` is the hex SHA-1 that its bytes must have, if one is known. Raises ``TransferError``, and
        ``IntegrityError`` for other bytes.
        """
        with self._locked(_identity(item.key), item.spec):
            file = self._download(item, None)
            _require_sha1(item, file, sha1)
            digest = _digest(file)
            pin = Pin(filename=file.name, size=digest.size, sha256=digest.sha256)
            self._admit(item, file, pin)
        return pin

    def _pinned(self, item: Input) -> Pin:
        pin = self.lock.pins.get(item.key)
        if pin is None:
            if item.kind is InputKind.WHEEL and not self.offline:
                self.require_wheel(item)
            raise ConfigError(
                f"inputs.lock has no entry {item.key!r}", advice="Run ./run lock and commit the file."
            )
        if pin.is_open:
            raise ConfigError(
                f"{item.key} has no pin in inputs.lock, so it is not used", advice=f"{LOCK_MISSING}."
            )
        if item.kind not in self.sources:
            raise ConfigError(
                f"{item.key!r} is not a file that can be fetched", cause=f"it is a {item.kind.value} input"
            )
        return pin

    def _place(self, pin: Pin) -> Path:
        return self.cache / "store" / pin.sha256[:2] / pin.sha256 / pin.filename

    def _tree(self, pin: Pin) -> Path:
        return self.cache / "unpacked" / pin.sha256

    def _locked(self, name: str, what: str) -> AbstractContextManager[None]:
        path = self.cache / "locks" / f"{name}.lock"
        with disk_errors(path.parent, also="ORTPACKS_CACHE names another folder."):
            path.parent.mkdir(parents=True, exist_ok=True)
        return exclusive(path, lambda: self.reporter.say(f"another process is busy with {what}: waiting"))

    def _download(self, item: Input, pin: Pin | None) -> Path:
        if self.offline and not item.is_here:
            raise TransferError(
                f"{item.key} is not in the cache ({self.cache}) and --offline was given",
                advice="Run the same command once without --offline.",
            )
        self._sweep(item)
        folder = self.cache / "incoming" / _identity(item.key)
        with disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        self.reporter.say(f"fetching {item.spec}" + (f", {pin.size:,} bytes" if pin and pin.size else ""))
        started = time.monotonic()
        file = self.sources[item.kind](item, pin, folder)
        seconds = time.monotonic() - started
        self.reporter.say(f"fetched {file.name}, {file.stat().st_size:,} bytes in {seconds:.1f} s")
        return file

    def _sweep(self, item: Input) -> None:
        """Remove killed processes' partial downloads, except of ``item`` and of inputs yet to be fetched."""
        missing = (key for key, pin in self.lock.pins.items() if not self._place(pin).is_file())
        wanted = {_identity(item.key), *map(_identity, missing)}
        for folder in (self.cache / "incoming").glob("*"):
            if folder.name in wanted:
                continue
            with if_free(self.cache / "locks" / f"{folder.name}.lock") as free:
                if free:
                    shutil.rmtree(folder, ignore_errors=True)

    def _admit(self, item: Input, file: Path, pin: Pin) -> None:
        """Verify a new file and move it to its place in the cache. Raises ``IntegrityError``."""
        path = self._place(pin)
        with disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            _require(item, file, pin, aside=_bad(path))
            file.chmod(0o644)
            file.replace(path)
            shutil.rmtree(self.cache / "incoming" / _identity(item.key), ignore_errors=True)


def texts_in(
    tar: Path, wanted: Callable[[str], bool], folders_above: int, listed: tuple[str, ...] = ()
) -> dict[str, str]:
    """Return the texts of the ``wanted`` files of a source's tar, by path in the source.

    Of other files whose names end like one of ``listed`` it is empty. ``folders_above`` is as in ``Input``.
    Raises ``ParseError`` for what is no tar.
    """
    texts: dict[str, str] = {}
    try:
        with tarfile.open(tar) as archive:
            for member in archive:
                path = "/".join(member.name.removeprefix("./").split("/")[folders_above:])
                if wanted(path) and (file := archive.extractfile(member)):
                    texts[path] = file.read().decode(errors="replace")
                elif path.endswith(listed):
                    texts[path] = ""
    except (tarfile.TarError, EOFError, OSError, lzma.LZMAError) as error:
        raise ParseError(
            "it is no archive that can be read",
            cause=f"{error}".partition(":\n")[0],  # a line for each compression follows
            advice="Make or fetch it anew.",
        ) from error
    return texts


def _require_sha1(item: Input, file: Path, wanted: str) -> None:
    if not wanted:
        return
    got = hashlib.sha1(file.read_bytes(), usedforsecurity=False).hexdigest()
    if got != wanted:
        file.unlink()
        raise IntegrityError(
            f"{item.key}: the source that downloads it names SHA-1 {wanted}, its host sent {got}",
            advice="Its host or mirror has other bytes than when the source was released. Set "
            "ORTPACKS_ARCHIVE_MIRROR to a mirror that has them, or name another version.",
        )


def _identity(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:16]


def _require(item: Input, path: Path, pin: Pin, *, aside: Path) -> None:
    got = _digest(path)
    if got == Digest(size=pin.size, sha256=pin.sha256):
        return
    path.replace(aside)
    raise IntegrityError(
        f"{item.key}: wanted sha256 {pin.sha256} ({pin.size:,} bytes), got {got.sha256} ({got.size:,} bytes)",
        advice=f"The bad file is kept at {aside}. Run the same command again to fetch it anew; if that does "
        "not help, the index or mirror serves other bytes than inputs.lock names.",
    )


def _digest(path: Path) -> Digest:
    """Sync a file and return its digest: a power cut after the rename loses no bytes."""
    sync_file(path)
    return file_digest(path)


def _bad(path: Path) -> Path:
    return path.with_name(f"{path.name}.bad")


_PAGE = re.compile(rb"\s*<(?:!doctype\s+html|html)\b", re.IGNORECASE)


class UrlMirror:
    """A downloader of URLs, directly or from a mirror that has each file at ``<root>/<host>/<path>``.

    A mirror that is a folder of this machine may lack files, which are downloaded then.
    """

    def __init__(self, transfer: HttpTransfer, root: str | None) -> None:
        self._transfer = transfer
        self._root = root and root.rstrip("/")

    def download(self, url: str, dest: Path, *, size: int = 0) -> None:
        """Download the file at an ``https`` URL to ``dest``.

        Raises what ``HttpTransfer.download`` raises, and ``IntegrityError`` for a web page in its place.
        """
        there = f"{self._root}/{url.removeprefix('https://')}" if self._root else url
        if "://" not in there:
            if Path(there).is_file():
                copy_file(Path(there), dest)
                return
            there = url
        self._transfer.download(there, dest, size=size)
        with dest.open("rb") as file:
            beginning = file.read(256)
        if _PAGE.match(beginning):
            dest.unlink()
            raise IntegrityError(
                f"{url} is a web page instead of the file",
                cause="a proxy, a login or a mirror answered in the host's place"
                if there == url
                else "ORTPACKS_ARCHIVE_MIRROR names a server that answers with pages",
                advice="Open the address in a browser to see what it says.",
            )


def download_url(mirror: UrlMirror, item: Input, pin: Pin | None, folder: Path) -> Path:
    """Download the file at a URL (``io.store.Source``)."""
    dest = folder / item.file_name
    mirror.download(item.spec, dest, size=pin.size if pin else 0)
    return dest


def copy_here(item: Input, _pin: Pin | None, folder: Path) -> Path:
    """Copy a file of this machine (``io.store.Source``). Raises ``ConfigError`` if it is not there."""
    dest = folder / item.file_name
    if not Path(item.spec).is_file():
        raise ConfigError(f"{item.spec} is no file.", advice="Correct the path.")
    copy_file(Path(item.spec), dest)
    return dest


def copy_file(source: Path, dest: Path) -> None:
    """Copy a file. Raises ``DiskError``."""
    with disk_errors(dest, source.stat().st_size):
        shutil.copyfile(source, dest)


class _Archive(BaseModel):
    relative_path: str
    sha256: str
    size: int


def download_redist(mirror: UrlMirror, item: Input, pin: Pin | None, folder: Path) -> Path:
    """Download a component of NVIDIA's toolkit, ``12.9.1/cuda_nvcc`` (``io.store.Source``).

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
        archive = parts.get(component)
        if not isinstance(archive, dict) or "linux-x86_64" not in archive:
            raise TransferError(
                f"{item.key}: {file.name} has no archive of it for linux-x86_64",
                advice="Correct toolkit.components in variants.yaml.",
            )
        return _Archive.model_validate(archive["linux-x86_64"])
    except ValidationError as error:
        raise ParseError(
            f"{REDIST}/{file.name} is no list of archives: {error.errors()[0]['msg']}"
        ) from error
    finally:
        file.unlink()


class _Components(BaseModel, extra="allow"):
    """NVIDIA's list: release_date, release_label, and an entry for each component."""
