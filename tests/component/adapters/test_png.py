"""The heat map as a picture: the colours it should have where they should be, and the same bytes twice."""

from __future__ import annotations

import time
from io import BytesIO

import pytest
from PIL import Image

from builder.adapters.png import draw
from builder.binary.library import Inspected
from builder.report.heatmap import heat_maps
from tests.support.factories.libraries import BROKEN, OWN, PLAIN, PROVIDER

NATIVE, JIT, PARTIAL, NONE = (15, 95, 174), (165, 210, 247), (244, 166, 60), (236, 239, 242)

WHITE = (255, 255, 255)

COLUMNS = (
    *(416, 452, 488, 532, 568, 604, 648, 684, 728, 772, 808, 844, 888, 932),
    *(976, 1012, 1048, 1084, 1120),
)
"""Where the 19 columns begin: 36 apart, and 8 more between generations."""


def drawn(*libraries: Inspected, label: str = "a wheel") -> Image.Image:
    return Image.open(BytesIO(draw(heat_maps([(label, libraries)])))).convert("RGB")


def bands(picture: Image.Image, scale: int = 2) -> list[list[tuple[int, int, int]]]:
    """The colours of each row of cells at the left of every column, top to bottom."""
    found: list[list[tuple[int, int, int]]] = []
    inside = False
    for y in range(125 * scale, picture.height):
        colours = [colour(picture, (column + 4) * scale, y) for column in COLUMNS]
        cells = {NATIVE, JIT, PARTIAL, NONE}.issuperset(colours)
        if cells and not inside:
            found.append(colours)
        inside = cells
    return found


def colour(picture: Image.Image, x: int, y: int) -> tuple[int, int, int]:
    red, green, blue = picture.getpixel((x, y))  # type: ignore[misc]
    return red, green, blue


def test_each_cell_has_the_colour_of_what_it_says() -> None:
    provider = [
        *(NONE, NONE, NONE, NATIVE, NATIVE, NONE, NATIVE, NONE, PARTIAL),
        *(NATIVE, NATIVE, NONE, NATIVE, NATIVE, JIT, JIT, JIT, JIT, JIT),
    ]
    total = [*provider[:16], NONE, JIT, JIT]
    picture = drawn(PROVIDER, PLAIN, OWN, BROKEN)
    assert picture.width == 2560
    found = bands(picture)
    assert len(found) == 3
    assert found[0] == provider
    assert found[2] == total


def test_each_cell_has_its_letter() -> None:
    """The letter is what else but the background is in the middle of a cell."""
    picture = drawn(PROVIDER)
    y = next(y for y in range(250, picture.height) if colour(picture, 2 * 536, y) == NATIVE)
    native = picture.crop((2 * 532, y, 2 * 566, y + 50)).getcolors(10_000)
    assert native is not None
    assert WHITE in {pixel for _, pixel in native}


def test_the_same_map_gives_the_same_bytes() -> None:
    maps = heat_maps([("a", [PROVIDER, OWN]), ("b", [BROKEN, PLAIN])])
    assert draw(maps) == draw(maps)
    assert draw(maps) != draw(maps[:1])


@pytest.mark.parametrize("name", [4096 * "x", "a b " * 900, "日本" * 400, "tiny"])
def test_no_name_runs_into_the_cells(name: str) -> None:
    picture = drawn(Inspected(name=name, coverage=PROVIDER.coverage), label=name)
    margin = picture.crop((2 * 1250, 0, 2 * 1280, picture.height))
    assert margin.getcolors() == [(margin.width * margin.height, WHITE)]
    row = next(y for y in range(250, picture.height) if colour(picture, 2 * 536, y) == NATIVE)
    gap = picture.crop((2 * 402, row, 2 * 415, row + 2 * 27))
    assert gap.getcolors() == [(gap.width * gap.height, WHITE)]


def test_five_hundred_libraries_are_drawn_at_half_the_scale() -> None:
    many = [Inspected(name=f"lib/lib{place}.so", coverage=OWN.coverage) for place in range(500)]
    picture = drawn(*many)
    assert picture.width == 1280
    assert len(bands(picture, scale=1)) == 501


def test_thousands_of_libraries_are_a_picture_that_says_how_many_it_leaves_out() -> None:
    many = [Inspected(name=f"{place}.so") for place in range(6001)]
    started = time.process_time()
    first, second = (draw(heat_maps([("all", [PROVIDER, *many[:count]])])) for count in (6000, 6001))
    assert time.process_time() - started < 10
    assert first != second
    for data in (first, second):
        picture = Image.open(BytesIO(data))
        assert picture.width == 1280
        assert picture.height < 16_384
