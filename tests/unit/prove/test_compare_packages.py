"""Tests of comparing two packages' files; each expected sentence was written from the planted change."""

from pathlib import Path

import pytest

from builder.prove.compare_packages import differences
from tests.support.factories.binaries import SASS, container, elf, image_of
from tests.support.messages import Told

PROVIDER = "lib/libonnxruntime_providers_cuda.so"


def library(*codes: bytes, data: bytes = b"data") -> bytes:
    """Return a library with a container of one image for each code."""
    fatbin = b"".join(container(image_of(SASS, 75, code)) for code in codes)
    return elf({".nv_fatbin": fatbin, ".rodata": data})


CODES = (b"a" * 32, b"b" * 32, b"c" * 32)


@pytest.fixture
def sides(tmp_path: Path) -> tuple[Path, Path]:
    there, here = tmp_path / "there", tmp_path / "here"
    for side in (there, here):
        (side / "lib").mkdir(parents=True)
        (side / PROVIDER).write_bytes(library(*CODES))
        (side / "NOTICE").write_text("same")
    return there, here


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("NOTICE", b"same"),
        ("new", b""),
        (PROVIDER, library(CODES[0], b"B" + CODES[1][1:], CODES[2])),
        (PROVIDER, library(CODES[0], CODES[1][:-1] + b"B", CODES[2])),
        (PROVIDER, library(*CODES, data=b"dat4")),
        (PROVIDER, library(*CODES[:2])),
        ("NOTICE", b"sane"),
        ("NOTICE", b""),
    ],
    ids=["nothing", "new", "first byte of code", "last byte", "data", "fewer containers", "text", "empty"],
)
def test_each_difference_is_a_sentence(
    sides: tuple[Path, Path], told: Told, name: str, content: bytes
) -> None:
    there, here = sides
    (here / name).write_bytes(content)
    told("\n".join(differences(there, here)))
    told("\n".join(differences(here, there)))
