"""This module signs a release: it writes the project's roots, and ``targets.json``, which names every file.

The formats are The Update Framework's (``builder.formats.trust``). A key is Ed25519; its id is the sha256 of
its canonical form, as in the specification (section 4.2).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol

from builder.errors import ConfigError, IntegrityError
from builder.files.digest import LocalFile
from builder.formats.trust import (
    TARGETS,
    TIME,
    Root,
    SignedRelease,
    Target,
    TargetHashes,
    canonical,
    read_root,
    read_targets,
    root_name,
)

_SPECIFICATION = "1.0.31"
_KEPT = timedelta(days=30)
"""The least remaining validity of a signature that is kept; one that expires sooner is replaced."""

TARGETS_DAYS, ROOT_DAYS = 730, 3650
"""Days for which signatures are valid.

A release is installed for years, and trusted until its signature expires.
"""

Document = dict[str, object]


class Signer(Protocol):
    """A holder of a private key."""

    public: bytes
    """Public key, 32 bytes."""

    def sign(self, message: bytes) -> bytes:
        """Return the signature, 64 bytes.

        Raises ``ToolMissingError`` if an agent does not answer or refuses.
        """


@dataclass(frozen=True)
class Signing:
    """The project's roots, oldest first, and the signers."""

    roots: Sequence[bytes]
    signers: Sequence[Signer]
    now: datetime


@dataclass(frozen=True, kw_only=True)
class RootChange:
    """The values that differ in the next version of the root; ``None``: as before."""

    root_keys: Sequence[bytes] | None = None
    release_keys: Sequence[bytes] | None = None
    threshold: int | None = None
    """Number of root keys that must sign a root; one key is enough to sign a release."""


def key_id(public: bytes) -> str:
    """Return the id of a key in metadata."""
    return hashlib.sha256(canonical(_key(public))).hexdigest()


def read_roots(contents: Sequence[bytes]) -> list[Root]:
    """Return the roots, each verified with its predecessor. Raises ``IntegrityError``."""
    roots: list[Root] = []
    for version, content in enumerate(contents, start=1):
        roots.append(read_root(content, root_name(version), roots[-1] if roots else None))
    return roots


def next_root(before: bytes | None, change: RootChange, now: datetime) -> Document:
    """Return an unsigned root. Raises ``ConfigError`` for a threshold that its keys cannot reach."""
    signed = _signed_part(before) if before else {}
    given = (*(change.root_keys or ()), *(change.release_keys or ()))
    keys = {**_keys_of(signed), **{key_id(key): _key(key) for key in given}}
    named = _ids(signed, "root", change.root_keys), _ids(signed, "targets", change.release_keys)
    root, release = ([one for one in ids if one in keys] for ids in named)  # by hand a key may be gone
    threshold = change.threshold or int(str(_role(signed, "root")["threshold"]))
    if not release or not 1 <= threshold <= len(root):
        raise ConfigError(
            f"A root with {len(root)} root keys, {len(release)} release keys and threshold {threshold} "
            "could sign nothing.",
            advice="Give --root-key and --release-key at least once, and a --threshold that they reach.",
        )
    releases = {"keyids": release, "threshold": 1}
    return {
        "_type": "root",
        "spec_version": _SPECIFICATION,
        "version": int(str(signed.get("version", 0))) + 1,
        "expires": _until(now, ROOT_DAYS),
        "consistent_snapshot": False,
        "keys": {name: keys[name] for name in sorted({*root, *release})},
        # The specification requires all four roles; snapshot and timestamp are not used.
        "roles": {
            "root": {"keyids": root, "threshold": threshold},
            "targets": releases,
            "snapshot": releases,
            "timestamp": releases,
        },
    }


def with_signatures(content: bytes, signers: Iterable[Signer]) -> bytes:
    """Return a metadata file with additional signatures.

    A signature replaces an earlier one of the same key.
    """
    document = json.loads(content)
    message = canonical(document["signed"])
    made = {one["keyid"]: one["sig"] for one in document["signatures"]}
    made |= {key_id(signer.public): signer.sign(message).hex() for signer in signers}
    return envelope(document["signed"], made)


def envelope(signed: object, signatures: Mapping[str, str] | None = None) -> bytes:
    """Return the bytes of a metadata file."""
    entries = [{"keyid": name, "sig": value} for name, value in sorted((signatures or {}).items())]
    return (json.dumps({"signatures": entries, "signed": signed}, indent=1) + "\n").encode()


def signed_targets(files: Iterable[LocalFile], before: bytes, signing: Signing) -> bytes:
    """Return ``targets.json`` for these files.

    ``before``, which may be empty, is returned if it names the same files and stays valid long enough. One
    that expires sooner is renewed with its own version, or an old release would become newer than all that
    came after it. Raises ``IntegrityError`` if the signers are not enough.
    """
    named = {file.name: Target(file.size, TargetHashes(file.sha256)) for file in files}
    roots = read_roots(signing.roots)
    earlier = _signed_by(roots, before)
    same = earlier if earlier and earlier.files == named else None
    if same and same.expires - signing.now > _KEPT and _signed_by(roots[-1:], before):
        return before
    unsigned = envelope(
        {
            "_type": "targets",
            "spec_version": _SPECIFICATION,
            "version": same.version if same else int(signing.now.timestamp()),
            "expires": _until(signing.now, TARGETS_DAYS),
            "targets": {name: asdict(target) for name, target in sorted(named.items())},
        }
    )
    trusted = [signer for signer in signing.signers if key_id(signer.public) in roots[-1].targets.keys]
    content = with_signatures(unsigned, trusted)
    read_targets(content, TARGETS, roots[-1])
    return content


def _signed_by(roots: Iterable[Root], content: bytes) -> SignedRelease | None:
    """Return the release in ``content`` if a release key of one of the roots has signed it."""
    for root in roots:
        with suppress(IntegrityError):
            return read_targets(content, TARGETS, root)
    return None


def _signed_part(content: bytes) -> Document:
    signed: Document = json.loads(content)["signed"]
    return signed


def _key(public: bytes) -> Document:
    return {"keytype": "ed25519", "scheme": "ed25519", "keyval": {"public": public.hex()}}


def _keys_of(signed: Document) -> Mapping[str, Document]:
    keys = signed.get("keys")
    return keys if isinstance(keys, dict) else {}


def _role(signed: Document, name: str) -> Document:
    roles = signed.get("roles")
    return roles[name] if isinstance(roles, dict) else {"keyids": [], "threshold": 1}


def _ids(signed: Document, name: str, given: Sequence[bytes] | None) -> list[str]:
    if given is not None:
        return sorted({key_id(key) for key in given})
    before = _role(signed, name)["keyids"]
    return before if isinstance(before, list) else []


def _until(now: datetime, days: int) -> str:
    return (now + timedelta(days=days)).strftime(TIME)


def roots_in(folder: Path) -> list[bytes]:
    """Return the contents of ``1.root.json``, ``2.root.json`` … in a folder.

    Raises ``IntegrityError`` if one is missing, without which later ones, or all signatures, would not count.
    """
    found: list[bytes] = []
    while (file := folder / root_name(len(found) + 1)).is_file():
        found.append(file.read_bytes())
    read = {root_name(number) for number in range(1, len(found) + 1)}
    if later := sorted({path.name for path in folder.glob(root_name("[0-9]*"))} - read):
        raise IntegrityError(
            f"{folder} has {', '.join(later)} and no file {file.name}",
            advice=f"`git restore {folder.name}` brings it back: clients follow the roots one by one.",
        )
    return found
