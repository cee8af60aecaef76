"""The metadata of signed releases, root and targets of The Update Framework, is verified offline.

A root names keys, and how many of them a role needs (its threshold). Each version of the root is signed by
the keys of the version before and by its own, so that a client with one root can verify all newer ones.
``targets.json`` is signed by the keys of role ``targets`` and has size and sha256 of every file of a release,
by name. Source: The Update Framework, specification 1.0.31, sections 4 and 5.3. Its roles snapshot and
timestamp are not used: a release is one targets.json.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import datetime, timezone
from hashlib import sha256
from typing import Dict, Mapping, Optional, Tuple, Type, TypeVar

from builder.errors import BuilderError, IntegrityError
from builder.formats.ed25519 import KEY_BYTES, verify
from builder.formats.json_values import from_json, parse_json

TARGETS = "targets.json"

LIMIT = 2**20
"""The largest file of metadata in bytes; real ones have a few thousand."""

TIME = "%Y-%m-%dT%H:%M:%SZ"
"""The form of times in these files."""

_HEX = re.compile(r"(?:[0-9a-f]{2})+")
_ESCAPED = re.compile(r'\\[\\"]')
_MOST_SIGNATURES = 64

T = TypeVar("T")


@dataclass(frozen=True)
class Role:
    """The keys that may sign, and the number of signatures needed."""

    keys: Mapping[str, bytes]
    """Public keys, Ed25519, 32 bytes, by their ids."""
    threshold: int


@dataclass(frozen=True)
class Root:
    """A version of the root."""

    version: int
    expires: datetime
    root: Role
    """The role whose keys sign the next version."""
    targets: Role
    """The role whose keys sign releases."""


@dataclass(frozen=True)
class TargetHashes:
    """The ``hashes`` of a target."""

    sha256: str


@dataclass(frozen=True)
class Target:
    """A signed file: its size and its sha256."""

    length: int
    """Size in bytes."""
    hashes: TargetHashes


@dataclass(frozen=True)
class SignedRelease:
    """The content of a signed ``targets.json``."""

    version: int
    """The time of the release's first signature, in seconds since 1970: it grows from release to release."""
    expires: datetime
    files: Mapping[str, Target]


def root_name(version: object) -> str:
    """Return the file name of a version of the root; with ``*``, a pattern for any version."""
    return f"{version}.root.json"


def canonical(value: object) -> bytes:
    """Return the bytes that are signed: canonical JSON, which escapes only quotes and backslashes.

    Raises ``ValueError`` for control characters, which JSON escapes too and metadata does not contain.
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    if "\\" in _ESCAPED.sub("", text):
        raise ValueError("a control character")
    return text.encode()


def root_id(content: bytes, where: str) -> str:
    """Return the sha256 of a root's signed part, which does not depend on the signatures.

    Raises ``IntegrityError``.
    """
    return sha256(_envelope(content, where).message).hexdigest()


def read_root(content: bytes, where: str, before: Optional[Root] = None) -> Root:
    """Return the root in a file, signed by its own keys and by those of the version ``before``.

    Without ``before`` only its own keys are required. Raises ``IntegrityError``.
    """
    root, envelope = parse_root(content, where), _envelope(content, where)
    for role in (root.root, *([before.root] if before else [])):
        _require_signatures(envelope, role, where)
    if before is not None and root.version != before.version + 1:
        raise IntegrityError(f"{where} has version {root.version}, {before.version + 1} is wanted.")
    return root


def parse_root(content: bytes, where: str) -> Root:
    """Return the root in a file, without verifying its signatures. Raises ``IntegrityError``."""
    fields = _fields(_RootFields, _envelope(content, where), where)
    return Root(
        fields.version,
        _time(fields.expires, where),
        _role(fields, "root", where),
        _role(fields, "targets", where),
    )


def read_targets(content: bytes, where: str, root: Root) -> SignedRelease:
    """Return the release in ``targets.json``.

    Raises ``IntegrityError`` where the keys that ``root`` names have not signed it.
    """
    envelope = _envelope(content, where)
    _require_signatures(envelope, root.targets, where, f" by {root_name(root.version)}")
    fields = _fields(_TargetsFields, envelope, where)
    return SignedRelease(fields.version, _time(fields.expires, where), fields.targets)


def require_fresh(expires: datetime, now: datetime, where: str) -> None:
    """Raise ``IntegrityError`` for expired metadata, which may hide that there are newer releases."""
    if now >= expires:
        raise IntegrityError(
            f"{where} was signed until {expires:%Y-%m-%d}, and today is {now:%Y-%m-%d}.",
            advice="Is this machine's clock right? If so, take the newest release and its ortpacks.pyz.",
        )


@dataclass(frozen=True)
class _Signature:
    keyid: str
    sig: str


@dataclass(frozen=True)
class _Signatures:
    signatures: Tuple[_Signature, ...]


@dataclass(frozen=True)
class _KeyValue:
    public: str


@dataclass(frozen=True)
class _Key:
    keytype: str
    scheme: str
    keyval: _KeyValue


@dataclass(frozen=True)
class _RoleFields:
    keyids: Tuple[str, ...]
    threshold: int


@dataclass(frozen=True)
class _RootFields:
    _type: str
    spec_version: str
    version: int
    expires: str
    consistent_snapshot: bool
    keys: Mapping[str, _Key]
    roles: Mapping[str, _RoleFields]


@dataclass(frozen=True)
class _TargetsFields:
    _type: str
    spec_version: str
    version: int
    expires: str
    targets: Mapping[str, Target]


_TYPES: Mapping[type, str] = {_RootFields: "root", _TargetsFields: "targets"}


@dataclass(frozen=True)
class _Envelope:
    signatures: Tuple[_Signature, ...]
    signed: object
    message: bytes
    """The bytes that are signed."""


def _envelope(content: bytes, where: str) -> _Envelope:
    if len(content) > LIMIT:
        raise IntegrityError(f"{where} has {len(content)} bytes; signed metadata has at most {LIMIT}.")
    try:
        value = parse_json(content, where)
        members = value if isinstance(value, dict) else {}
        parsed = from_json(_Signatures, {"signatures": members.get("signatures")}, where)
        signed = members.get("signed")
        return _Envelope(parsed.signatures[:_MOST_SIGNATURES], signed, canonical(signed))
    except (BuilderError, ValueError, RecursionError) as error:
        raise IntegrityError(f"{where} is no signed metadata: {error}") from error


def _fields(kind: Type[T], envelope: _Envelope, where: str) -> T:
    try:
        fields = from_json(kind, envelope.signed, where)
    except BuilderError as error:
        raise IntegrityError(str(error)) from error
    kind_name, version = getattr(fields, "_type", ""), getattr(fields, "version", 0)
    if kind_name != _TYPES[kind] or version < 1:
        raise IntegrityError(f"{where} is a {kind_name} of version {version}, a {_TYPES[kind]} is wanted.")
    return fields


def _role(fields: _RootFields, name: str, where: str) -> Role:
    """Return a role's keys. Keys of other types than Ed25519 cannot be verified, and are left out."""
    role = fields.roles.get(name)
    if role is None or role.threshold < 1:
        raise IntegrityError(f"{where} has no role {name!r} that takes a signature.")
    named = {keyid: fields.keys[keyid] for keyid in role.keyids if keyid in fields.keys}
    keys: Dict[str, bytes] = {}
    for keyid, key in named.items():
        public = _bytes(key.keyval.public)
        if (key.keytype, key.scheme, len(public)) == ("ed25519", "ed25519", KEY_BYTES):
            keys[keyid] = public
    return Role(keys, role.threshold)


def _require_signatures(envelope: _Envelope, role: Role, where: str, by: str = "") -> None:
    """Raise ``IntegrityError`` unless enough of the role's keys have signed. A key counts once."""
    signers = {
        role.keys[signature.keyid]
        for signature in envelope.signatures
        if signature.keyid in role.keys
        and verify(role.keys[signature.keyid], envelope.message, _bytes(signature.sig))
    }
    if len(signers) < role.threshold:
        raise IntegrityError(
            f"{where} is signed by {len(signers)} of the keys that are trusted{by}, "
            f"{role.threshold} {'is' if role.threshold == 1 else 'are'} needed."
        )


def _bytes(text: str) -> bytes:
    """Return the bytes of hexadecimal digits; empty for any other text."""
    return bytes.fromhex(text) if _HEX.fullmatch(text) else b""


def _time(text: str, where: str) -> datetime:
    try:
        return datetime.strptime(text, TIME).replace(tzinfo=timezone.utc)
    except ValueError as error:
        raise IntegrityError(f"{where}: {text[:40]!r} is no time like 2030-12-31T00:00:00Z.") from error
