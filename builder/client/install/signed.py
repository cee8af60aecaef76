"""Whether a release is signed by the keys that the client came with (docs/security.md).

Beside an index lie ``targets.json``, which names every file of the release, and the roots that came after the
client's own. What was seen at a place is remembered below the prefix: an older release there is refused.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Callable, Dict, Optional

from builder.errors import IntegrityError, TransferError
from builder.files.digest import other_bytes, sha256_of
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
"""The bytes of the file of a name in the release; ``None`` where there is none."""

_MOST_ROOTS = 1000


@dataclass(frozen=True)
class Trust:
    """What the client holds releases to."""

    root: bytes
    """The newest root when the client was made."""
    now: datetime
    memory: Path
    """The file with the highest version that was seen at each place."""

    def require_signed(self, name: str, content: bytes, place: str, beside: Beside) -> SignedRelease:
        """Raise ``IntegrityError`` unless the file ``name`` of the release at ``place`` is signed for."""
        found = self.require_release(place, beside)
        signed = found.files.get(name)
        if signed is None:
            raise IntegrityError(f"{place}: {TARGETS} does not name {name}.", advice=_ADVICE)
        digest = sha256(content).hexdigest()
        if (signed.length, signed.hashes.sha256) != (len(content), digest):
            raise other_bytes(f"{place}: {name} is not what was signed", signed.hashes.sha256, digest)
        return found

    def require_archive(self, archive: Path, beside: Beside) -> SignedRelease:
        """Raise ``IntegrityError`` unless ``archive`` is one of the release's, whatever its name is here."""
        found = self.require_release(str(archive), beside)
        digest = sha256_of(archive)
        if all(one.hashes.sha256 != digest for one in found.files.values()):
            what = f"{archive}: {TARGETS} beside it names no file of these bytes."
            raise IntegrityError(what, advice=_ADVICE)
        return found

    def remember(self, place: str, targets: SignedRelease) -> None:
        """Note that a release was taken from ``place``."""
        versions = {**self._seen(), place: targets.version}
        self.memory.parent.mkdir(parents=True, exist_ok=True)
        part = self.memory.with_suffix(".part")
        part.write_text(json.dumps(versions), encoding="utf-8")
        part.replace(self.memory)

    def require_release(self, place: str, beside: Beside) -> SignedRelease:
        """What is signed of the release at ``place``. Raises ``IntegrityError`` where nothing is."""
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
        before = self._seen().get(place, 0)
        if found.version < before:
            raise IntegrityError(
                f"{place} is older than what was taken from there before: version {found.version} "
                f"of {TARGETS} after {before}.",
                advice="Somebody may keep newer releases from you. --trust-unsigned takes it as it is.",
            )
        return found

    def _newest(self, beside: Beside) -> Root:
        """The root that those beside the index lead to, from the client's own."""
        root = read_root(self.root, "the root in ortpacks.pyz")
        for _ in range(_MOST_ROOTS):
            name = root_name(root.version + 1)
            try:
                content = beside(name)
            except TransferError:  # S3 refuses (403) what is not there
                content = None
            if content is None:
                break
            root = read_root(content, name, root)
        return root

    def _seen(self) -> Dict[str, int]:
        """Nothing where nothing can be read: who can write there can do more than that."""
        try:
            value = json.loads(self.memory.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        found = value.items() if isinstance(value, dict) else ()
        return {str(place): version for place, version in found if isinstance(version, int)}


_ADVICE = "Take it from the project's own release. For a mirror of your own: --trust-unsigned."
