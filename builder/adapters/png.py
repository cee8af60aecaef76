"""Heat maps as a PNG, drawn with Pillow and the font it brings: the same maps give the same bytes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from io import BytesIO

from PIL import Image, ImageDraw, ImageFont

from builder.binary.coverage import Support
from builder.errors import ToolMissingError
from builder.gpu.table import GENERATIONS, MODELS
from builder.report.heatmap import MARKS, MEANINGS, HeatMap, Row, shortened
from builder.report.sentences import SPECIALISED

WIDTH = 1280
"""Of the picture at scale 1; every length below is in these pixels."""
_MARGIN, _NAMES = 32, 368
_CELL, _STEP, _BETWEEN, _ROW = 34, 36, 8, 29
_RADIUS = 4
_TALLEST = 16_384
"""Pixels that viewers still show: a taller picture is drawn at half the scale."""
_MOST_ROWS = 512
"""Of one picture: some 15,000 pixels at half the scale."""
_BACK, _TEXT, _SOFT, _LINE, _BAD = "#ffffff", "#1a2028", "#57626e", "#dce1e6", "#a8321a"
_COLOURS = {
    Support.NATIVE: ("#0f5fae", "#ffffff"),
    Support.JIT: ("#a5d2f7", "#0b2f50"),
    Support.PARTIAL: ("#f4a63c", "#3a2300"),
    Support.NONE: ("#eceff2", "#68737e"),
}
"""Background and mark; apart in lightness too, for eyes that see fewer colours."""


@dataclass(frozen=True, kw_only=True)
class _Mark:
    """Text, or without it a box; ``x`` and ``y`` as ``anchor`` says, a box's from its upper left."""

    x: float
    y: float
    colour: str
    text: str = ""
    size: int = 14
    anchor: str = "lm"
    width: float = 0
    height: float = 0
    radius: int = 0


def draw(maps: Sequence[HeatMap]) -> bytes:
    """All maps one below the other, at twice the size where that is not too tall."""
    sheet = _Sheet()
    _title(sheet)
    for found in shortened(maps, _MOST_ROWS):
        _map(sheet, found)
    return _painted(sheet.marks, sheet.y)


class _Sheet:
    """Marks so far, and how far down the page they reach."""

    def __init__(self) -> None:
        self.marks: list[_Mark] = []
        self.y: float = _MARGIN

    def text(self, x: float, text: str, *, colour: str = _TEXT, size: int = 14, anchor: str = "lm") -> None:
        """One line of text, its middle at the current height."""
        self.marks.append(_Mark(x=x, y=self.y, colour=colour, text=text, size=size, anchor=anchor))

    def box(
        self, x: float, width: float, height: float, colour: str, *, down: float = 0, radius: int = 0
    ) -> None:
        """A box, its middle at the current height or ``down`` below it."""
        y = self.y + down - height / 2
        self.marks.append(_Mark(x=x, y=y, colour=colour, width=width, height=height, radius=radius))

    def cell(self, x: float, support: Support) -> None:
        """A box with its letter."""
        back, front = _COLOURS[support]
        self.box(x, _CELL, _ROW - 2, back, radius=_RADIUS)
        self.text(x + _CELL / 2, MARKS[support], colour=front, anchor="mm")

    def paragraph(self, text: str, *, colour: str, size: int) -> None:
        """Text over the whole width, in as many lines as it takes."""
        for line in _wrapped(text, size):
            self.text(_MARGIN, line, colour=colour, size=size)
            self.y += 1.5 * size


def _title(sheet: _Sheet) -> None:
    sheet.y += 8
    sheet.text(_MARGIN, "Which GPUs this code runs on", size=26)
    sheet.y += 42
    x: float = _MARGIN
    for support in Support:
        sheet.cell(x, support)
        sheet.text(x + _CELL + 8, MEANINGS[support], colour=_SOFT)
        x += _CELL + 34 + _length(MEANINGS[support], 14)
    sheet.y += _ROW + 8


def _map(sheet: _Sheet, found: HeatMap) -> None:
    sheet.box(_MARGIN, WIDTH - 2 * _MARGIN, 1, _LINE)
    sheet.y += 34
    sheet.text(_MARGIN, _elided(found.label, WIDTH - 2 * _MARGIN, 19), size=19)
    sheet.y += 24
    if found.folder:
        sheet.text(_MARGIN, _elided(f"in {found.folder}", WIDTH - 2 * _MARGIN, 14), colour=_SOFT)
        sheet.y += 24
    sheet.y += 4
    sheet.paragraph(found.sentence, colour=_TEXT, size=16)
    _rows(sheet, found)
    _notes(sheet, found)
    sheet.y += _MARGIN


def _rows(sheet: _Sheet, found: HeatMap) -> None:
    sheet.y += 16
    _head(sheet)
    for row in found.rows:
        _row(sheet, row, _SOFT)
    if found.more:
        others = "library" if found.more == 1 else "libraries"
        sheet.text(_MARGIN, f"and {found.more:,} more {others}: --html shows all of them", colour=_SOFT)
        sheet.y += _ROW
    if found.total:
        sheet.y += 8
        _row(sheet, found.total, _TEXT)


def _head(sheet: _Sheet) -> None:
    columns = _columns()
    for generation in GENERATIONS:
        first, last = (columns[MODELS.index(generation.models[end])] for end in (0, -1))
        sheet.text((first + last + _CELL) / 2, generation.name, size=13, anchor="mm")
        sheet.box(first, last + _CELL - first, 1, _LINE, down=10)
    sheet.y += 21
    for x, model in zip(columns, MODELS, strict=True):
        sheet.text(x + _CELL / 2, str(model.device), colour=_SOFT, size=12, anchor="mm")
    sheet.text(_MARGIN, "library", colour=_SOFT, size=12)
    sheet.text(WIDTH - _MARGIN, "containers", colour=_SOFT, size=12, anchor="rm")
    sheet.y += 26


def _row(sheet: _Sheet, row: Row, soft: str) -> None:
    sheet.text(_MARGIN, _elided(f"{row.name} *" if row.specialised else row.name, _NAMES, 14))
    columns = _columns()
    for place, cell in zip(columns, row.cells, strict=False):
        sheet.cell(place, cell.support)
    if row.remark:
        room = WIDTH - _MARGIN - columns[0]
        sheet.text(columns[0], _elided(row.remark, room, 14), colour=_BAD if row.unread else _SOFT)
    else:
        sheet.text(WIDTH - _MARGIN, f"{row.containers:,}", colour=soft, anchor="rm")
    sheet.y += _ROW


def _notes(sheet: _Sheet, found: HeatMap) -> None:
    for note in found.notes:
        sheet.paragraph(f"{note.name}: {note.text}.", colour=_SOFT, size=13)
    if any(row.specialised for row in found.rows):
        sheet.paragraph(f"* {SPECIALISED}.", colour=_SOFT, size=13)


@cache
def _columns() -> tuple[float, ...]:
    """Where each capability's column begins."""
    places: list[float] = []
    x: float = _MARGIN + _NAMES + 16
    for generation in GENERATIONS:
        places += [x + _STEP * index for index in range(len(generation.models))]
        x = places[-1] + _STEP + _BETWEEN
    return tuple(places)


def _wrapped(text: str, size: int) -> Iterator[str]:
    line = ""
    for word in text.split(" "):
        longer = f"{line} {word}" if line else word
        if line and _length(longer, size) > WIDTH - 2 * _MARGIN:
            yield _elided(line, WIDTH - 2 * _MARGIN, size)
            line = word
        else:
            line = longer
    yield _elided(line, WIDTH - 2 * _MARGIN, size)


def _elided(text: str, room: float, size: int) -> str:
    """The text, or its beginning and end with an ellipsis between where there is no room for all."""
    if len(text) <= room and _length(text, size) <= room:
        return text
    kept = bisect_left(
        range(1, len(text) // 2), True, key=lambda count: _length(_cut(text, count), size) > room
    )
    return _cut(text, kept)


def _cut(text: str, count: int) -> str:
    return f"{text[:count]}…{text[-count:]}"


def _length(text: str, size: int) -> float:
    """Pixels it takes at either scale: a font's letters do not grow evenly."""
    return max(_font(size, scale).getlength(text) / scale for scale in (1, 2))


@cache
def _font(size: int, scale: int) -> ImageFont.FreeTypeFont:
    font = ImageFont.load_default(size * scale)
    if not isinstance(font, ImageFont.FreeTypeFont):
        raise ToolMissingError(
            "This Pillow has no FreeType, so --png cannot write text. Install Pillow's wheel."
        )
    return font


def _painted(marks: Iterable[_Mark], height: float) -> bytes:
    scale = 2 if 2 * height <= _TALLEST else 1
    image = Image.new("RGB", (WIDTH * scale, round(height * scale)), _BACK)
    pen = ImageDraw.Draw(image)
    for mark in marks:
        _paint(pen, mark, scale)
    buffer = BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def _paint(pen: ImageDraw.ImageDraw, mark: _Mark, scale: int) -> None:
    x, y = round(mark.x * scale), round(mark.y * scale)
    if mark.text:
        pen.text((x, y), mark.text, mark.colour, _font(mark.size, scale), anchor=mark.anchor)
        return
    right, low = x + round(mark.width * scale) - 1, y + round(mark.height * scale) - 1
    pen.rounded_rectangle((x, y, right, low), mark.radius * scale, mark.colour)
