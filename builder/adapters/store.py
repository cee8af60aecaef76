"""Input cache addressed by content: each input is fetched once and verified when it enters the cache.

Layout below the cache folder: ``store/<2 hex>/<sha256>/<filename>`` next to ``<filename>.verified``,
``unpacked/<sha256>/`` for wheels, ``trees/<commit>/`` for git tags, ``incoming/<id>/`` while an input is
downloaded, ``locks/``.
"""

from __future__ import annotations

import hashlib
import shutil
import tarfile
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from builder.adapters.wheel import unpack_wheel
from builder.errors import ConfigError, IntegrityError, TransferError
from builder.files.atomic_write import write_file
from builder.files.digest import Digest, file_digest
from builder.files.disk import disk_errors, sync_file
from builder.files.file_lock import exclusive, if_free
from builder.ports import Reporter
from builder.project.inputs import LOCK_MISSING, Input, InputKind, Lock, Pin, tree_name

Source = Callable[[Input, Pin | None, Path], Path]
"""``source(item, pin, folder)`` downloads the input's file into ``folder`` and returns its path.

The file gets its own name. No other process uses ``folder``; a source may continue from what a killed run
left there. The caller verifies the file. Without a ``pin`` the source chooses the file. Raises
``TransferError`` or ``DiskError``.
"""


@dataclass(frozen=True, kw_only=True)
class FileStore:
    """An input cache in a folder; implements ``ports.Store``."""

    cache: Path
    lock: Lock
    sources: Mapping[InputKind, Source]
    reporter: Reporter
    offline: bool = False

    def fetch(self, item: Input) -> Path:
        """See ``ports.Store.fetch``."""
        pin = self._pinned(item)
        if item.kind is InputKind.GIT:
            return self.tree(item, pin.revision or "")
        path = self._place(pin)
        with self._locked(_identity(item.key), item.spec):
            if path.is_file():
                _verify_cached(item, path, pin)
            else:
                self._admit(item, self._download(item, pin), pin)
        return path

    def unpack(self, wheel: Input) -> Path:
        """See ``ports.Store.unpack``. A folder that exists is complete, so its files are not hashed again."""
        pin = self._pinned(wheel)
        tree = self._tree(pin)
        if tree.is_dir():
            return tree
        file = self.fetch(wheel)
        with self._locked(f"unpack-{pin.sha256[:16]}", f"{wheel.spec}'s files"):
            if not tree.is_dir():
                unpack_wheel(file, tree)
        return tree

    def tree(self, tag: Input, revision: str) -> Path:
        """Return a git tag's tree at a commit, as a tar file. Git verified the bytes when it fetched them.

        Raises what ``fetch`` raises.
        """
        path = self.cache / "trees" / revision / tree_name(tag)
        with self._locked(_identity(tag.key), tag.spec):
            if not path.is_file():
                file = self._download(tag, Pin(revision=revision))
                with disk_errors(path):
                    path.parent.mkdir(parents=True, exist_ok=True)
                    sync_file(file)
                    file.replace(path)
        return path

    def absent(self, item: Input) -> tuple[int, int]:
        """See ``ports.Store.absent``."""
        pin = self.lock.pins.get(item.key, Pin())
        if not pin.sha256:
            return 0, 0
        is_packed = item.kind is InputKind.WHEEL and not self._tree(pin).is_dir()
        return 0 if self._place(pin).is_file() else pin.size, pin.size if is_packed else 0

    def pin(self, item: Input) -> Pin:
        """Fetch an input that has no pin yet, and return its pin. Raises ``TransferError``."""
        with self._locked(_identity(item.key), item.spec):
            file = self._download(item, None)
            digest = _digest(file)
            pin = Pin(filename=file.name, size=digest.size, sha256=digest.sha256)
            self._admit(item, file, pin)
        return pin

    def _pinned(self, item: Input) -> Pin:
        pin = self.lock.pins.get(item.key)
        if pin is None:
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
        if self.offline:
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
            _remember_state(path)
            shutil.rmtree(self.cache / "incoming" / _identity(item.key), ignore_errors=True)


def member_text(tar: Path, name: str) -> str:
    """Return the text of a file in a tree's tar. Raises ``IntegrityError`` when the tar has no such file."""
    with tarfile.open(tar, "r:") as archive:
        try:
            file = archive.extractfile(name)
        except KeyError:
            file = None
        if file is None:
            raise IntegrityError(
                f"{tar.name} has no {name}", advice="Name a tag of ONNX Runtime in variants.yaml."
            )
        return file.read().decode(errors="replace")


def _identity(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:16]


def _verify_cached(item: Input, path: Path, pin: Pin) -> None:
    """Hash a cached file again, unless its stamp shows that nothing changed. Raises ``IntegrityError``."""
    if path.stat().st_size == pin.size and _read_stamp(path) == _state(path):
        return
    _require(item, path, pin, aside=_bad(path))
    _remember_state(path)


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
    """Sync a file and return its digest. Without the sync, a power cut could keep a stamp and lose bytes."""
    sync_file(path)
    return file_digest(path)


def _bad(path: Path) -> Path:
    return path.with_name(f"{path.name}.bad")


def _state_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.verified")


def _state(path: Path) -> str:
    """Return a file's size, time (ns) and inode; writing or replacing the file changes one of the three."""
    stat = path.stat()
    return f"{stat.st_size} {stat.st_mtime_ns} {stat.st_ino}\n"


def _remember_state(path: Path) -> None:
    write_file(_state_file(path), _state(path).encode("ascii"))


def _read_stamp(path: Path) -> str:
    try:
        return _state_file(path).read_text(encoding="ascii", errors="replace")
    except FileNotFoundError:
        return ""
