"""Tests of Ed25519 against RFC 8032's vectors and against another implementation."""

import random

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from builder.formats.ed25519 import verify
from tests.support import ROOT


def listed(kind: str) -> list[list[str]]:
    """Return the words of the lines of this kind."""
    lines = (ROOT / "tests/data/formats/ed25519.txt").read_text().splitlines()
    return [line.replace(" -", " ").split(" ")[1:] for line in lines if line.startswith(f"{kind} ")]


VECTORS = listed("vector")

SMALL_ORDER, OTHER_FORMS = ([point for (point,) in listed(kind)] for kind in ("small", "other"))

ORDER = 2**252 + 27742317777372353535851937790883648493


@pytest.mark.parametrize("vector", VECTORS)
def test_the_vectors_of_the_rfc(vector: list[str]) -> None:
    key, message, signature = map(bytes.fromhex, vector)
    assert verify(key, message, signature)
    assert not verify(key, message + b"\0", signature)


def test_another_implementation_agrees() -> None:
    """Both verify signatures of the other implementation, and each with one bit changed in key,
    message or signature."""
    noise = random.Random(8032)  # noqa: S311 - no secrets
    for size in range(40):
        private = Ed25519PrivateKey.from_private_bytes(noise.randbytes(32))
        key, message = private.public_key().public_bytes_raw(), noise.randbytes(size * 13)
        signature = private.sign(message)
        assert verify(key, message, signature)
        whole = bytearray(key + signature + message)
        whole[noise.randrange(len(whole))] ^= 1 << noise.randrange(8)
        key, signature, message = bytes(whole[:32]), bytes(whole[32:96]), bytes(whole[96:])
        assert verify(key, message, signature) == others(key, message, signature)
        assert not verify(key, message, signature)


def others(key: bytes, message: bytes, signature: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


@pytest.mark.parametrize("cut", [0, 1, 31, 32, 63, 65])
def test_other_lengths_are_no_signature(cut: int) -> None:
    key, message, signature = map(bytes.fromhex, VECTORS[0])
    assert not verify(key, message, (signature * 2)[:cut])
    assert not verify((key * 3)[: cut + (cut == 32)], message, signature)


@pytest.mark.parametrize("key", [*SMALL_ORDER, *OTHER_FORMS])
def test_nobody_signs_for_a_key_of_small_order(key: str) -> None:
    """With S = 0 and R of small order the equation holds for some messages: OpenSSL finds such signatures."""
    forged = [
        (bytes.fromhex(key), bytes([number]), bytes.fromhex(commitment) + bytes(32))
        for commitment in (*SMALL_ORDER, *OTHER_FORMS)
        for number in range(8)
    ]
    assert not any(verify(*one) for one in forged)
    if key in SMALL_ORDER:
        assert any(others(*one) for one in forged), "the forgeries are good ones"


@pytest.mark.parametrize("times", range(1, 16))
def test_a_scalar_beyond_the_order_is_no_signature(times: int) -> None:
    """The scalar plus the group's order also satisfies the equation: a signature has one form."""
    key, message, signature = map(bytes.fromhex, VECTORS[1])
    scalar = int.from_bytes(signature[32:], "little") + times * ORDER
    assert not verify(key, message, signature[:32] + scalar.to_bytes(32, "little"))
