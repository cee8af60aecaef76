"""Mutations of files."""

import random
from collections.abc import Sequence

from tests.fuzz.seeds import Field, Seed

_EDGES = (0, 1, 2, 8, 15, 16, 17, 63, 64, 65, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF)
_POWERS = tuple((1 << power) + step for power in (31, 32, 40, 62, 63, 64) for step in (-16, -1, 0, 1))
_MOST_BYTES = 1 << 16


def mutated(seeds: Sequence[Seed], source: random.Random) -> bytes:
    """Return one of ``seeds`` with one to four mutations, most of them in its headers.

    One in twenty ends with a part of another seed.
    """
    seed = source.choice(seeds)
    data = bytearray(seed.data)
    for _ in range(source.choice((1, 1, 2, 3, 4))):
        kind = source.random()
        if kind < 0.6:
            _set_field(data, seed, source)
        elif kind < 0.75:
            _set_byte(data, source)
        elif kind < 0.85:
            _repeat_header(data, seed, source)
        else:
            source.choice((_truncate, _swap, _repeat, _remove, _grow))(data, source)
    if source.random() < 0.05:
        _splice(data, source.choice(seeds).data, source)
    return bytes(data[:_MOST_BYTES])


def _set_field(data: bytearray, seed: Seed, source: random.Random) -> None:
    """Replace a header's number by an edge case, a near value, another field's, or one with a flipped bit."""
    at, width = source.choice(seed.fields)
    now = _number(data, (at, width))
    other = _number(data, source.choice(seed.fields))
    near = now + source.choice((-64, -16, -8, -1, 1, 8, 16, 64))
    size = len(data) - at + source.choice((-17, -16, -1, 0, 1, 16))
    bit = now ^ (1 << source.randrange(width * 8))
    value = source.choice((source.choice(_EDGES), source.choice(_POWERS), near, other, size, bit, bit))
    data[at : at + width] = (value % (1 << width * 8)).to_bytes(width, "little")


def _number(data: bytearray, field: Field) -> int:
    at, width = field
    return int.from_bytes(data[at : at + width], "little")


def _set_byte(data: bytearray, source: random.Random) -> None:
    if data:
        data[source.randrange(len(data))] = source.choice((0, 1, 0x7F, 0x80, 0xFF, source.randrange(256)))


def _repeat_header(data: bytearray, seed: Seed, source: random.Random) -> None:
    """Overwrite a header, or bytes near its start, with another header."""
    start, size = source.choice(seed.headers)
    there, _ = source.choice(seed.headers)
    there += source.choice((0, 0, 0, 8, 16, -16))
    data[there : there + size] = data[start : start + size]


def _truncate(data: bytearray, source: random.Random) -> None:
    del data[source.randint(0, len(data)) :]


def _swap(data: bytearray, source: random.Random) -> None:
    (first, size), (second, _) = _slice(data, source), _slice(data, source)
    data[first : first + size], data[second : second + size] = (
        data[second : second + size],
        data[first : first + size],
    )


def _repeat(data: bytearray, source: random.Random) -> None:
    start, size = _slice(data, source)
    there = source.randint(0, len(data))
    data[there:there] = data[start : start + size]


def _remove(data: bytearray, source: random.Random) -> None:
    start, size = _slice(data, source)
    del data[start : start + size]


def _grow(data: bytearray, source: random.Random) -> None:
    data.extend(source.choice((b"\0", b"\xff", b"\x50\xed\x55\xba\x01\x00\x10\x00")) * source.randint(1, 64))


def _splice(data: bytearray, other: bytes, source: random.Random) -> None:
    data[source.randint(0, len(data)) :] = other[source.randint(0, len(other)) :]


def _slice(data: bytearray, source: random.Random) -> Field:
    return source.randint(0, len(data)), source.choice((1, 4, 8, 16, 64, 256))
