"""How large an archive would be: samples of each file, really compressed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from builder.adapters.compression import compressor
from builder.core.sizes import extrapolated, sampled
from builder.core.variant import Form, Preset
from builder.errors import IntegrityError


def estimated(files: Iterable[Path], form: Form, preset: Preset, workers: int) -> int:
    """About how many bytes ``files`` compress to. Raises ``IntegrityError`` for one that cannot be read.

    Files one by one, because each has a ratio of its own.
    """
    return sum(_estimated(file, form, preset, workers) for file in files)


def _estimated(path: Path, form: Form, preset: Preset, workers: int) -> int:
    try:
        size = path.stat().st_size
        with compressor(form, preset, workers) as compress:
            out = sum(len(compress.compress(sample)) for sample in _samples(path, size))
            out += len(compress.flush())
    except OSError as error:
        raise IntegrityError(f"{path} cannot be read: {error.strerror}.") from error
    return extrapolated(size, out, form, preset)


def _samples(path: Path, size: int) -> Iterator[bytes]:
    with path.open("rb") as file:
        for span in sampled(size):
            file.seek(span.offset)
            yield file.read(span.length)
