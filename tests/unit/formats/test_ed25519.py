"""Tests of Ed25519 against RFC 8032's vectors and against another implementation."""

from __future__ import annotations

import random

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from builder.formats.ed25519 import verify

VECTORS = [
    (
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        (
            "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46b"
            "d25bf5f0595bbe24655141438e7a100b"
        ),
    ),
    (
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        (
            "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc659"
            "4a7c15e9716ed28dc027beceea1ec40a"
        ),
    ),
]
"""RFC 8032, section 7.1, tests 1 and 3: public key, message, signature."""

ORDER = 2**252 + 27742317777372353535851937790883648493


@pytest.mark.parametrize("vector", VECTORS)
def test_the_vectors_of_the_rfc(vector: tuple[str, str, str]) -> None:
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


SMALL_ORDER = [
    "0100000000000000000000000000000000000000000000000000000000000000",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "0000000000000000000000000000000000000000000000000000000000000000",
    "0000000000000000000000000000000000000000000000000000000000000080",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
]
"""The eight points whose order divides 8, each in its one canonical form."""

OTHER_FORMS = [
    "0100000000000000000000000000000000000000000000000000000000000080",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
    "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
    "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
]
"""Other bytes that implementations without RFC 8032's checks read as points of small order."""


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
