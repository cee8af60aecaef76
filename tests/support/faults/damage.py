"""Damage to a file in a folder."""

from pathlib import Path


def flip(path: Path) -> None:
    """Flip one bit of the byte in the middle of a file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
