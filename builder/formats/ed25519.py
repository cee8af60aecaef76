"""Ed25519 signatures are verified with Python's integers (RFC 8032, section 5.1.7).

The running time depends on the inputs, which are public. Points are extended coordinates (x, y, z, t) with x
= X/Z, y = Y/Z, x*y = T/Z.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Optional, Tuple

_P = 2**255 - 19
_ORDER = 2**252 + 27742317777372353535851937790883648493
"""The order of the group that the base point generates."""
_D = -121665 * pow(121666, _P - 2, _P) % _P
_ROOT_OF_MINUS_ONE = pow(2, (_P - 1) // 4, _P)

KEY_BYTES, SIGNATURE_BYTES = 32, 64

_Point = Tuple[int, int, int, int]

_NEUTRAL = (0, 1, 1, 0)


@lru_cache(maxsize=64)
def verify(key: bytes, message: bytes, signature: bytes) -> bool:
    """Return whether ``signature`` of ``message`` is by the owner of ``key``, a public key.

    False for bytes that are no key or no signature, and for a point of small order, for which anybody signs.
    Answers are kept: a release's roots are read several times in one run.
    """
    if len(key) != KEY_BYTES or len(signature) != SIGNATURE_BYTES:
        return False
    signer, commitment = _point(key), _point(signature[:32])
    scalar = int.from_bytes(signature[32:], "little")
    if signer is None or commitment is None or scalar >= _ORDER or _equal(_multiply(signer, 8), _NEUTRAL):
        return False
    digest = hashlib.sha512(signature[:32] + key + message).digest()
    challenge = int.from_bytes(digest, "little") % _ORDER
    return _equal(_multiply(_BASE, scalar), _add(commitment, _multiply(signer, challenge)))


def _point(encoded: bytes) -> Optional[_Point]:
    """Return the point that 32 bytes encode (section 5.1.3); ``None`` where they encode none.

    The bytes have y, with the lowest bit of x as the highest bit.
    """
    number = int.from_bytes(encoded, "little")
    y, is_odd = number & ((1 << 255) - 1), number >> 255
    if y >= _P:
        return None
    x_squared = (y * y - 1) * pow(_D * y * y + 1, _P - 2, _P) % _P
    x = pow(x_squared, (_P + 3) // 8, _P)
    if (x * x - x_squared) % _P:
        x = x * _ROOT_OF_MINUS_ONE % _P
    if (x * x - x_squared) % _P or (x == 0 and is_odd):
        return None
    if x & 1 != is_odd:
        x = _P - x
    return (x, y, 1, x * y % _P)


def _add(one: _Point, other: _Point) -> _Point:
    (x1, y1, z1, t1), (x2, y2, z2, t2) = one, other
    a, b = (y1 - x1) * (y2 - x2) % _P, (y1 + x1) * (y2 + x2) % _P
    c, d = 2 * t1 * t2 * _D % _P, 2 * z1 * z2 % _P
    e, f, g, h = b - a, d - c, d + c, b + a
    return (e * f % _P, g * h % _P, f * g % _P, e * h % _P)


def _multiply(point: _Point, scalar: int) -> _Point:
    product = _NEUTRAL
    while scalar:
        if scalar & 1:
            product = _add(product, point)
        point = _add(point, point)
        scalar >>= 1
    return product


def _equal(one: _Point, other: _Point) -> bool:
    (x1, y1, z1, _), (x2, y2, z2, _) = one, other
    return (x1 * z2 - x2 * z1) % _P == 0 and (y1 * z2 - y2 * z1) % _P == 0


_BASE_X = 15112221349535400772501151409588531511454012693041857206046113283949847762202

_BASE_Y = 46316835694926478169428394003475163141307993866256225615783033603165251855960

_BASE = (_BASE_X, _BASE_Y, 1, _BASE_X * _BASE_Y % _P)
"""The base point, which the RFC writes in decimal too."""
