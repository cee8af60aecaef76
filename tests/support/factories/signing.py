"""Factories of keys, roots and signed releases."""

import hashlib
from datetime import UTC, datetime
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from builder.files.digest import LocalFile
from builder.publish.signing import (
    RootChange,
    Signer,
    Signing,
    envelope,
    key_signer,
    next_root,
    signed_targets,
    with_signatures,
)

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)


def key(name: str) -> Signer:
    """Return the key whose private bytes are the sha256 of the name."""
    return key_signer(Ed25519PrivateKey.from_private_bytes(hashlib.sha256(name.encode()).digest()))


def pem(name: str) -> str:
    """Return the text of the file of ``key(name)``."""
    private = Ed25519PrivateKey.from_private_bytes(hashlib.sha256(name.encode()).digest())
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return private.private_bytes(*form).decode()


def root(*signers: Signer, before: bytes | None = None, **change: object) -> bytes:
    """Return the root after ``before`` (``None``: the first root) with a change, signed by ``signers``."""
    given = RootChange(**change)  # type: ignore[arg-type]
    return with_signatures(envelope(next_root(before, given, NOW)), signers)


ALICE, BOB, CI = key("alice"), key("bob"), key("ci")

FIRST = root(ALICE, BOB, root_keys=[ALICE.public, BOB.public], release_keys=[CI.public], threshold=2)
"""The first root: its successors need the signatures of both Alice and Bob; CI signs releases."""


def signing(*roots: bytes, by: Signer | tuple[Signer, ...] = CI, now: datetime = NOW) -> Signing:
    return Signing(roots or (FIRST,), by if isinstance(by, tuple) else (by,), now)


def local_file(name: str, content: bytes) -> LocalFile:
    return LocalFile(Path(name), len(content), hashlib.sha256(content).hexdigest())


def targets(
    files: dict[str, bytes],
    *roots: bytes,
    by: Signer | tuple[Signer, ...] = CI,
    now: datetime = NOW,
    before: bytes = b"",
) -> bytes:
    """Return the signed ``targets.json`` of files; ``before`` is that of the signing before."""
    named = [local_file(name, content) for name, content in files.items()]
    return signed_targets(named, before, signing(*roots, by=by, now=now))
