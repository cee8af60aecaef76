"""This module signs a release: it writes the project's roots, and ``targets.json``, which names every file.

The formats are The Update Framework's (``builder.formats.trust``). A key is Ed25519; its id is the sha256 of
its canonical form, as in the specification (section 4.2). Keys are in files in PEM or OpenSSH's form, in an
environment variable, or in an SSH agent. A private key signs in this process. For a public key the agent
signs: it may hold the private half in a hardware token or behind a forwarded connection.
"""

from __future__ import annotations

import hashlib
import json
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from builder.errors import ConfigError, IntegrityError, ToolMissingError
from builder.farm import agent
from builder.files.digest import LocalFile
from builder.formats.trust import (
    TARGETS,
    TIME,
    Role,
    Root,
    SignedRelease,
    Target,
    TargetHashes,
    canonical,
    parse_root,
    read_root,
    read_targets,
    root_name,
)
from builder.io.wiring import SIGNING_KEY

_SPECIFICATION = "1.0.31"
_KEPT = timedelta(days=30)
"""The least remaining validity of a signature that is kept; one that expires sooner is replaced."""

_VALID, _ROOT_VALID = timedelta(days=730), timedelta(days=3650)
"""The time for which signatures of releases and of roots are valid.

A release is installed for years, and trusted until its signature expires.
"""

Document = dict[str, object]


@dataclass(frozen=True)
class Signer:
    """A holder of a private key."""

    public: bytes
    """Public key, 32 bytes."""
    sign: Callable[[bytes], bytes]
    """Returns the signature of a message, 64 bytes.

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
    """Number of root keys that must sign a root."""
    release_threshold: int | None = None
    """Number of release keys that must sign a release."""


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
    """Return an unsigned root. Raises ``ConfigError`` for a threshold that its keys cannot reach.

    In the first root a threshold that is not given is 1.
    """
    known = parse_root(before, "the newest root") if before else None
    root = _next_role(known.root if known else _NO_ROLE, change.root_keys, change.threshold)
    release = _next_role(known.targets if known else _NO_ROLE, change.release_keys, change.release_threshold)
    if not all(1 <= role.threshold <= len(role.keys) for role in (root, release)):
        raise ConfigError(
            f"A root with {len(root.keys)} root keys and threshold {root.threshold}, {len(release.keys)} "
            f"release keys and threshold {release.threshold} could sign nothing.",
            advice="Give --root-key and --release-key, and a --threshold and --release-threshold they reach.",
        )
    targets = {"keyids": [*release.keys], "threshold": release.threshold}
    return {
        "_type": "root",
        "spec_version": _SPECIFICATION,
        "version": (known.version if known else 0) + 1,
        "expires": (now + _ROOT_VALID).strftime(TIME),
        "consistent_snapshot": False,
        "keys": {name: _key(public) for name, public in sorted({**root.keys, **release.keys}.items())},
        # The specification requires all four roles; snapshot and timestamp are not used.
        "roles": {
            "root": {"keyids": [*root.keys], "threshold": root.threshold},
            "targets": targets,
            "snapshot": targets,
            "timestamp": targets,
        },
    }


_NO_ROLE = Role({}, 1)


def _next_role(before: Role, keys: Sequence[bytes] | None, threshold: int | None) -> Role:
    named = before.keys if keys is None else dict(sorted((key_id(key), key) for key in keys))
    return Role(named, threshold or before.threshold)


def with_signatures(content: bytes, signers: Iterable[Signer]) -> bytes:
    """Return a metadata file with additional signatures.

    A signature replaces an earlier one of the same key.
    """
    document = json.loads(content)
    message = canonical(document["signed"])
    made = {signature["keyid"]: signature["sig"] for signature in document["signatures"]}
    made |= {key_id(signer.public): signer.sign(message).hex() for signer in signers}
    return envelope(document["signed"], made)


def envelope(signed: object, signatures: Mapping[str, str] | None = None) -> bytes:
    """Return the bytes of a metadata file."""
    entries = [{"keyid": name, "sig": value} for name, value in sorted((signatures or {}).items())]
    return (json.dumps({"signatures": entries, "signed": signed}, indent=1) + "\n").encode()


def signed_targets(files: Iterable[LocalFile], before: bytes, signing: Signing) -> bytes:
    """Return ``targets.json`` for these files, which may still need signatures of others.

    ``before`` is an earlier ``targets.json``, or empty. If it names the same files and stays valid long
    enough, it is returned, with the signers' signatures if it needs some. If it expires sooner, the new file
    has the same version: an old release must not become newer than all that came after it. Raises
    ``IntegrityError`` if there is no signer.
    """
    named = {file.name: Target(file.size, TargetHashes(file.sha256)) for file in files}
    roots = read_roots(signing.roots)
    alone = replace(roots[-1], targets=replace(roots[-1].targets, threshold=1))
    begun, soon = _signed_by([alone], before), signing.now + timedelta(hours=1)  # clocks differ
    if begun and (begun.version > soon.timestamp() or begun.expires > soon + _VALID):
        begun = None  # a stolen key lets nobody sign for longer
    earlier = _signed_by(roots, before) or begun
    same = earlier if earlier and earlier.files == named else None
    lasts = same and same.expires - signing.now > _KEPT
    if lasts and _signed_by(roots[-1:], before):
        return before
    unsigned = (
        before
        if lasts and begun
        else envelope(
            {
                "_type": "targets",
                "spec_version": _SPECIFICATION,
                "version": same.version if same else int(signing.now.timestamp()),
                "expires": (signing.now + _VALID).strftime(TIME),
                "targets": {name: asdict(target) for name, target in sorted(named.items())},
            }
        )
    )
    trusted = [signer for signer in signing.signers if key_id(signer.public) in roots[-1].targets.keys]
    content = with_signatures(unsigned, trusted)
    if not trusted:
        require_signatures(content, signing)
    return content


def require_signatures(content: bytes, signing: Signing) -> None:
    """Raise ``IntegrityError`` unless enough release keys of the newest root have signed ``targets.json``."""
    read_targets(content, TARGETS, read_roots(signing.roots)[-1])


def _signed_by(roots: Iterable[Root], content: bytes) -> SignedRelease | None:
    """Return the release in ``content`` if a release key of one of the roots has signed it."""
    for root in roots:
        with suppress(IntegrityError):
            return read_targets(content, TARGETS, root)
    return None


def _key(public: bytes) -> Document:
    return {"keytype": "ed25519", "scheme": "ed25519", "keyval": {"public": public.hex()}}


def roots_in(folder: Path) -> list[bytes]:
    """Return the contents of ``1.root.json``, ``2.root.json`` … in a folder.

    Raises ``IntegrityError`` if one is missing, without which later ones, or all signatures, would not count.
    """
    roots: list[bytes] = []
    while (file := folder / root_name(len(roots) + 1)).is_file():
        roots.append(file.read_bytes())
    read = {root_name(number) for number in range(1, len(roots) + 1)}
    if later := sorted({path.name for path in folder.glob(root_name("[0-9]*"))} - read):
        raise IntegrityError(
            f"{folder} has {', '.join(later)} and no file {file.name}",
            advice=f"`git restore {folder.name}` brings it back: clients follow the roots one by one.",
        )
    return roots


_AGENT = "SSH_AUTH_SOCK"
_KIND = b"ssh-ed25519"
_SECONDS = 120
"""Seconds to wait for the agent, since a person may have to touch a hardware token."""

_LONGEST = 1 << 16
"""Bytes of a key's file; /dev/zero has no end."""

_HOW = "`openssl genpkey -algorithm ed25519 -out FILE` makes one."


def key_signer(key: Ed25519PrivateKey) -> Signer:
    """Return a signer with a private key."""
    return Signer(key.public_key().public_bytes_raw(), key.sign)


def agent_signer(public: bytes, path: str) -> Signer:
    """Return a signer through the SSH agent that listens at ``path``."""
    return Signer(public, partial(_sign_by_agent, public, path))


def _sign_by_agent(public: bytes, path: str, message: bytes) -> bytes:
    key = agent.string(_KIND) + agent.string(public)
    silent = f"The SSH agent at {path} does not answer"
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_SECONDS)
            connection.connect(path)
            with connection.makefile("rwb") as stream:
                agent.send(stream, agent.sign_request(key, message))
                reply = agent.receive(stream)
    except OSError as error:
        raise ToolMissingError(silent, cause=str(error)) from error
    if not reply:
        raise ToolMissingError(silent, cause="it ended the connection")
    if reply[:1] != agent.SIGN_RESPONSE:
        raise ToolMissingError(
            "The SSH agent did not sign: it does not have the key, or its user refused.",
            advice="`ssh-add -l` shows its keys, `ssh-add FILE` adds one.",
        )
    return reply[-64:]  # string(string(kind) string(signature)), the signature of 64 bytes last


def signers(files: Iterable[Path], env: Mapping[str, str]) -> list[Signer]:
    """Return a signer for each key file, and one for the private key in ``SIGNING_KEY`` if there is one.

    A public key's signer uses the SSH agent. Raises ``ConfigError`` for anything but an Ed25519 key,
    ``ToolMissingError`` for a public key without an agent.
    """
    all_signers = [_signer(_read(file), str(file), env) for file in files]
    if text := env.get(SIGNING_KEY, "").strip():
        all_signers.append(key_signer(_private(text.encode(), f"${SIGNING_KEY}")))
    return all_signers


def public_key(file: Path) -> bytes:
    """Return the 32 bytes of the public key in a file, or of a private key's. Raises ``ConfigError``."""
    content = _read(file)
    return _public(content) or key_signer(_private(content, str(file))).public


def _signer(content: bytes, where: str, env: Mapping[str, str]) -> Signer:
    public = _public(content)
    if public is None:
        return key_signer(_private(content, where))
    if not env.get(_AGENT):
        raise ToolMissingError(
            f"{where} is a public key, and there is no SSH agent to sign with it: {_AGENT} is not set."
        )
    return agent_signer(public, env[_AGENT])


def _read(file: Path) -> bytes:
    if "\n" in str(file):
        raise ConfigError(
            "The path of a key's file is wanted, not the key itself.",
            advice=f"The text of a private key goes into the environment variable {SIGNING_KEY}.",
        )
    try:
        with file.open("rb") as stream:
            return stream.read(_LONGEST)
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}. An Ed25519 key is wanted; {_HOW}") from error


def _public(content: bytes) -> bytes | None:
    """Return the 32 bytes of a public key in PEM or OpenSSH's form; ``None`` for anything else."""
    for load in (serialization.load_ssh_public_key, serialization.load_pem_public_key):
        try:
            key = load(content)
        except (ValueError, UnsupportedAlgorithm):
            continue
        if isinstance(key, Ed25519PublicKey):
            return key.public_bytes_raw()
    return None


def _private(content: bytes, where: str) -> Ed25519PrivateKey:
    """Return the private key, whose text is in no message. Raises ``ConfigError``."""
    reasons: list[str] = []
    for load in (serialization.load_pem_private_key, serialization.load_ssh_private_key):
        try:
            key = load(content, None)
        except TypeError:
            reasons.append("it is encrypted: add it to an SSH agent, and name its public key here")
        except (ValueError, UnsupportedAlgorithm):
            continue
        else:
            if isinstance(key, Ed25519PrivateKey):
                return key
            reasons.append("it is a key of another kind")
    raise ConfigError(
        f"{where} holds no Ed25519 key{''.join(f': {why}' for why in reasons[:1])}.", advice=_HOW
    )
