"""A release must be signed by the keys in the client's root (docs/security.md).

Beside an index lie ``targets.json``, which names every file of the release, and the roots newer than the
client's. The highest version taken from each place is stored below the prefix: an older release from there is
refused.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Callable, Dict, Optional

from builder.client.install.prefix import Prefix, write_json
from builder.errors import IntegrityError
from builder.files.digest import other_bytes, sha256_of
from builder.files.http_client import ForbiddenError
from builder.formats.trust import (
    TARGETS,
    Root,
    SignedRelease,
    read_root,
    read_targets,
    require_fresh,
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

    def require_signed(self, name: str, content: bytes, place: str, beside: Beside) -> SignedRelease:
        """Return the release at ``place``, in which the file ``name`` is signed with this ``content``.

        Raises ``IntegrityError`` where the release or this content is not signed.
        """
        found = self.require_release(place, beside)
        signed = found.files.get(name)
        if signed is None:
            raise IntegrityError(f"{place}: {TARGETS} does not name {name}.", advice=_ADVICE)
        digest = sha256(content).hexdigest()
        if (signed.length, signed.hashes.sha256) != (len(content), digest):
            raise other_bytes(f"{place}: {name} is not what was signed", signed.hashes.sha256, digest)
        return found

    def require_archive(self, archive: Path, beside: Beside) -> SignedRelease:
        """Return the release beside ``archive``, in which a file with the archive's bytes is signed.

        The name of the archive does not matter. Raises ``IntegrityError`` where it is not signed.
        """
        found = self.require_release(str(archive), beside)
        self.require_named(archive, sha256_of(archive), found)
        return found

    def require_named(self, archive: Path, digest: str, signed: SignedRelease) -> None:
        """Raise ``IntegrityError`` unless a release names a file of this sha256, that of ``archive``."""
        if all(one.hashes.sha256 != digest for one in signed.files.values()):
            what = f"{archive}: {TARGETS} beside it names no file of these bytes."
            raise IntegrityError(what, advice=_ADVICE)

    def remember(self, place: str, targets: SignedRelease) -> None:
        """Store the version of a release that was taken from ``place``. The lock must be held."""
        write_json(self.prefix, self.prefix.signed, {**self._versions(), place: targets.version})

    def require_release(self, place: str, beside: Beside) -> SignedRelease:
        """Return the release that is signed at ``place``.

        Raises ``IntegrityError`` where it is not signed, its signatures have expired, or a newer version was
        taken from ``place`` before.
        """
        content = beside(TARGETS)
        if content is None:
            raise IntegrityError(f"{place} is not signed: there is no {TARGETS} beside it.", advice=_ADVICE)
        try:
            root = self._newest(beside)
            found = read_targets(content, TARGETS, root)
        except IntegrityError as error:
            raise IntegrityError(f"{place}: {error}", advice=_ADVICE) from error
        require_fresh(root.expires, self.now, root_name(root.version))
        require_fresh(found.expires, self.now, TARGETS)
        self._require_past(found, place)
        before = self._versions().get(place, 0)
        if found.version < before:
            raise IntegrityError(
                f"{place} is older than the release that was taken from there before: version "
                f"{found.version} of {TARGETS} after {before}.",
                advice="Somebody may hide newer releases from you. --trust-unsigned takes this release as it "
                "is.",
            )
        return found

    def _require_past(self, found: SignedRelease, place: str) -> None:
        """Raise ``IntegrityError`` for a release of the future, after which no real one would be newer."""
        if found.version > (self.now + _AHEAD).timestamp():
            raise IntegrityError(
                f"{place}: version {found.version} of {TARGETS} is a time in the future; today is "
                f"{self.now:%Y-%m-%d}.",
                advice="Is this machine's clock right? --trust-unsigned takes the release as it is.",
            )

    def _newest(self, beside: Beside) -> Root:
        """Return the newest root beside the index, each verified with the root before it.

        Raises ``TransferError`` where the server does not say whether there is a newer one.
        """
        root = read_root(self.root, "the root in ortpacks.pyz")
        for _ in range(_MOST_ROOTS):
            name = root_name(root.version + 1)
            try:
                content = beside(name)
            except ForbiddenError:
                content = None
            if content is None:
                break
            root = read_root(content, name, root)
        return root

    def _versions(self) -> Dict[str, int]:
        """Return the stored versions by place; empty where the file cannot be read.

        A missing file is accepted: a user who can remove it could also replace the client.
        """
        try:
            value = json.loads(self.prefix.signed.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        found = value.items() if isinstance(value, dict) else ()
        return {str(place): version for place, version in found if isinstance(version, int)}


_ADVICE = "Take it from the project's own release. For a mirror of your own: --trust-unsigned."
