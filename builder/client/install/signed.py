"""A release must be signed by the keys in the client's root (docs/trust.md).

Beside an index lie ``targets.json``, which names every file of the release, and the roots newer than the
client's. The newest root is stored for each project, and is where the next client begins. The highest version
taken from each place is stored below the prefix: an older release from there is refused.
"""

from __future__ import annotations

import json
import os
import posixpath
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Callable, Dict, Optional
from urllib.parse import unquote, urlsplit

from builder.client.install.prefix import Prefix, changing, write_json
from builder.errors import DiskError, IntegrityError
from builder.files.digest import other_bytes, sha256_of, write_new
from builder.files.disk import disk_errors, rename, sync_file
from builder.files.file_lock import exclusive
from builder.files.http_client import ForbiddenError
from builder.formats.package_names import CLIENT
from builder.formats.trust import (
    TARGETS,
    Root,
    SignedRelease,
    parse_root,
    read_root,
    read_targets,
    require_fresh,
    root_id,
    root_name,
)

Beside = Callable[[str], Optional[bytes]]
"""``beside(name)`` returns the bytes of a file of the release; ``None`` where there is none."""

_MOST_ROOTS = 1000

_AHEAD = timedelta(days=2)
"""How far clocks may differ."""


@dataclass(frozen=True)
class Trust:
    """The keys and versions that a release is verified against."""

    root: bytes
    """The content of the root that was the newest when the client was made."""
    now: datetime
    prefix: Prefix
    """The folder with the file that has the highest version that was taken from each place."""
    kept: Optional[Path] = None
    """The file of ``kept_root``; ``None`` where no root is stored."""
    say: Callable[[str], None] = lambda _: None

    def require_signed(self, name: str, content: bytes, place: str, beside: Beside) -> SignedRelease:
        """Return the release at ``place``, in which the file ``name`` is signed with this ``content``.

        Raises ``IntegrityError`` where the release or this content is not signed.
        """
        release = self.require_release(place, beside)
        signed = release.files.get(name)
        if signed is None:
            raise IntegrityError(f"{place}: {TARGETS} does not name {name}.", advice=_ADVICE)
        digest = sha256(content).hexdigest()
        if (signed.length, signed.hashes.sha256) != (len(content), digest):
            raise other_bytes(f"{place}: {name} is not what was signed", signed.hashes.sha256, digest)
        return release

    def require_archive(self, archive: Path, beside: Beside) -> SignedRelease:
        """Return the release beside ``archive``, in which a file with the archive's bytes is signed.

        The name of the archive does not matter. Raises ``IntegrityError`` where it is not signed.
        """
        release = self.require_release(str(archive), beside)
        self.require_named(archive, sha256_of(archive), release)
        return release

    def require_named(self, archive: Path, digest: str, signed: SignedRelease) -> None:
        """Raise ``IntegrityError`` unless a release names a file of ``digest``, the sha256 of ``archive``."""
        if all(file.hashes.sha256 != digest for file in signed.files.values()):
            what = f"{archive}: {TARGETS} beside it names no file of these bytes."
            raise IntegrityError(what, advice=_ADVICE)

    def remember(self, place: str, targets: SignedRelease) -> None:
        """Store the version of a release that was taken from ``place``. Raises ``DiskError``."""
        with changing(self.prefix, self.say):
            versions = {**self._versions(), _known_as(place): targets.version}
            write_json(self.prefix, self.prefix.signed, versions)

    def require_release(self, place: str, beside: Beside) -> SignedRelease:
        """Return the release that is signed at ``place``.

        Raises ``IntegrityError`` where it is not signed, its signatures have expired, or a newer version was
        taken from ``place`` before.
        """
        content = beside(TARGETS)
        if content is None:
            raise IntegrityError(f"{place} is not signed: there is no {TARGETS} beside it.", advice=_ADVICE)
        kept = self._kept_root()
        try:
            root = self._newest(beside, kept)
            release = read_targets(content, TARGETS, root)
        except IntegrityError as error:
            raise IntegrityError(f"{place}: {error}", advice=_ADVICE) from error
        require_fresh(root.expires, self.now, root_name(root.version))
        require_fresh(release.expires, self.now, TARGETS)
        self._require_past(release, place)
        before = self._versions().get(_known_as(place), 0)
        if release.version < before:
            raise IntegrityError(
                f"{place} is older than the release that was taken from there before: version "
                f"{release.version} of {TARGETS} after {before}.",
                advice="Somebody may hide newer releases from you. --trust-unsigned takes this release as it "
                "is.",
            )
        return release

    def _require_past(self, release: SignedRelease, place: str) -> None:
        """Raise ``IntegrityError`` for a release of the future, after which no real one would be newer."""
        if release.version > (self.now + _AHEAD).timestamp():
            raise IntegrityError(
                f"{place}: version {release.version} of {TARGETS} is a time in the future; today is "
                f"{self.now:%Y-%m-%d}.",
                advice="Is this machine's clock right? --trust-unsigned takes the release as it is.",
            )

    def require_successor(self, content: bytes, where: str, beside: Beside) -> None:
        """Raise ``IntegrityError`` unless a root is this client's, the newest, or signed as the next one."""
        own, newest = parse_root(self.root, _OWN), self._newest(beside, self._kept_root())
        if parse_root(content, where) not in (own, newest):
            read_root(content, where, newest)

    def _newest(self, beside: Beside, kept: Optional[Root]) -> Root:
        """Return the newest root beside the index, each verified with the root before it, and store it.

        The first is that of the client or the ``kept`` one. Raises ``TransferError`` where the server does
        not say whether there is a newer one.
        """
        root = read_root(self.root, _OWN)
        if kept is not None and kept.version > root.version:
            root = kept
        elif kept is None or kept.version < root.version:
            self._keep(self.root, root.version)
        for _ in range(_MOST_ROOTS):
            name = root_name(root.version + 1)
            try:
                content = beside(name)
            except ForbiddenError:
                content = None
            if content is None:
                break
            root = read_root(content, name, root)
            self._keep(content, root.version)
        return root

    def _kept_root(self) -> Optional[Root]:
        """Return the stored root; ``None`` without one, and with a message for one that cannot be read."""
        try:
            return self._stored()
        except OSError as error:
            self.say(f"{self.kept} cannot be read ({error.strerror}). {_REVOKED}")
            return None

    def _stored(self) -> Optional[Root]:
        """Return the stored root. Raises ``IntegrityError`` for a damaged one, ``OSError`` for no answer."""
        if self.kept is None:
            return None
        try:
            return read_root(self.kept.read_bytes(), str(self.kept))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except IntegrityError as error:
            what = "The newest keys seen here are lost"
            raise IntegrityError(what, cause=error.what, advice=f"{_REVOKED} {_LOST}") from error

    def _keep(self, content: bytes, version: int) -> None:
        """Store a root, unless a newer one is there. A folder that cannot be written gives a message."""
        if self.kept is None:
            return
        try:
            with disk_errors(self.kept), exclusive(self.kept.with_name("lock"), lambda: None):
                there = self._stored()  # what cannot be read may be newer
                if there is None or there.version < version:
                    part = self.kept.with_suffix(".part")
                    part.unlink(missing_ok=True)
                    write_new([content], part, 0o644, sync_file)
                    rename(part, self.kept)
        except DiskError as error:
            self.say(f"The project's newest root is not kept: {error.headline}. {_REVOKED}")

    def _versions(self) -> Dict[str, int]:
        """Return the stored versions by place; empty, with a message, where the file cannot be read.

        A missing file is accepted: a user who can remove it could also replace the client.
        """
        by_place: Dict[str, int] = {}
        try:
            for place, version in json.loads(self.prefix.signed.read_text(encoding="utf-8")).items():
                if isinstance(version, int):
                    by_place[_known_as(place)] = max(version, by_place.get(_known_as(place), 0))
        except (FileNotFoundError, NotADirectoryError):
            pass
        except (OSError, ValueError, RecursionError, AttributeError) as error:
            why = f"{self.prefix.signed} cannot be read ({type(error).__name__})."
            self.say(f"{why} A release older than one before would not be noticed. `install` writes it anew.")
        return by_place


def kept_root(state: Path, first: bytes) -> Path:
    """Return the file of the newest verified root of the project whose first root is ``first``.

    It is the same for each place and each client. Raises ``IntegrityError`` if ``first`` is no root.
    """
    return state / "roots" / f"{root_id(first, _OWN)}.json"


def _known_as(place: str) -> str:
    """Return a path, or a URL without login, query and fragment, in one of its spellings."""
    if "://" not in place:
        return os.path.normpath(place)
    try:
        parts = urlsplit(place)
        port = parts.port or 0
    except ValueError:
        return place
    end = "" if port in (0, 80 if parts.scheme == "http" else 443) else f":{port}"
    host = unquote(parts.hostname or "").lower().rstrip(".")
    path = posixpath.normpath("/" + unquote(parts.path).lstrip("/"))
    return f"{parts.scheme}://{host}{end}{path}"


_OWN = "the root in ortpacks.pyz"

_REVOKED = "Without it a mirror can bring back keys that were revoked after this client was made."

_LOST = f"Take the newest {CLIENT} from the project's own page, then remove the file."

_ADVICE = "Take it from the project's own release. For a mirror of your own: --trust-unsigned."
