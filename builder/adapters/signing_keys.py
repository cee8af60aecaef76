"""Ed25519 keys from files in PEM or OpenSSH's form, an environment variable, or an SSH agent.

A private key signs in this process. For a public key, the SSH agent signs; the private half may be in the
agent, in a hardware token, or behind a forwarded connection.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from builder.errors import ConfigError, ToolMissingError
from builder.inside import agent
from builder.release.signing import Signer

VARIABLE = "ORTPACKS_SIGNING_KEY"
"""The environment variable with the text of a private key, for CI's secrets."""

_AGENT = "SSH_AUTH_SOCK"
_KIND = b"ssh-ed25519"
_SECONDS = 120
"""Seconds to wait for the agent, since a person may have to touch a hardware token."""

_LONGEST = 1 << 16
"""Bytes of a key's file; /dev/zero has no end."""

_HOW = "`openssl genpkey -algorithm ed25519 -out FILE` makes one."


class KeySigner:
    """A signer with a private key; implements ``release.signing.Signer``."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public = _raw(key.public_key())

    def sign(self, message: bytes) -> bytes:
        """See ``release.signing.Signer.sign``."""
        return self._key.sign(message)


class AgentSigner:
    """A signer through the SSH agent that listens at ``path``; implements ``release.signing.Signer``."""

    def __init__(self, public: bytes, path: str) -> None:
        self.public = public
        self._path = path

    def sign(self, message: bytes) -> bytes:
        """See ``release.signing.Signer.sign``. Raises ``ToolMissingError`` when the agent does not sign."""
        key = agent.string(_KIND) + agent.string(self.public)
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(_SECONDS)
                connection.connect(self._path)
                with connection.makefile("rwb") as stream:
                    agent.send(stream, agent.sign_request(key, message))
                    reply = agent.receive(stream)
        except OSError as error:
            raise self._silent(error) from error
        if not reply:
            raise self._silent("it ended the connection")
        if reply[:1] != agent.SIGN_RESPONSE:
            raise ToolMissingError(
                "The SSH agent did not sign: it does not have the key, or its user refused.",
                advice="`ssh-add -l` shows its keys, `ssh-add FILE` adds one.",
            )
        return reply[-64:]  # string(string(kind) string(signature)), the signature of 64 bytes last

    def _silent(self, why: object) -> ToolMissingError:
        return ToolMissingError(f"The SSH agent at {self._path} does not answer", cause=str(why))


def signers(files: Iterable[Path], env: Mapping[str, str]) -> list[Signer]:
    """Return a signer for each key file, and one for the private key in ``VARIABLE`` if there is one.

    A public key's signer uses the SSH agent. Raises ``ConfigError`` for anything but an Ed25519 key,
    ``ToolMissingError`` for a public key without an agent.
    """
    found = [_signer(_read(file), str(file), env) for file in files]
    if text := env.get(VARIABLE, "").strip():
        found.append(KeySigner(_private(text.encode(), f"${VARIABLE}")))
    return found


def public_key(file: Path) -> bytes:
    """Return the 32 bytes of the public key in a file, or of a private key's. Raises ``ConfigError``."""
    content = _read(file)
    return _public(content) or KeySigner(_private(content, str(file))).public


def _signer(content: bytes, where: str, env: Mapping[str, str]) -> Signer:
    public = _public(content)
    if public is None:
        return KeySigner(_private(content, where))
    if not env.get(_AGENT):
        raise ToolMissingError(
            f"{where} is a public key, and there is no SSH agent to sign with it: {_AGENT} is not set."
        )
    return AgentSigner(public, env[_AGENT])


def _read(file: Path) -> bytes:
    if "\n" in str(file):
        raise ConfigError(
            "The path of a key's file is wanted, not the key itself.",
            advice=f"The text of a private key goes into the environment variable {VARIABLE}.",
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
            return _raw(key)
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


def _raw(key: Ed25519PublicKey) -> bytes:
    return key.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
