"""This module finds speech in audio by Silero's model, while the audio arrives."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ortpacks_service.errors import RequestError

_WINDOWS = {16000: (512, 64), 8000: (256, 32)}
"""Samples of a frame, and samples before it that the model also gets, by samples per second."""

_STATE = (2, 1, 128)

_SPEECH, _SILENCE = 0.5, 0.35
"""Silero's thresholds: a frame of at least the first begins speech, a frame below the second may end it."""

_SHORTEST_SPEECH, _SHORTEST_SILENCE, _PAD = 0.25, 0.1, 0.03
"""Durations in seconds, as in Silero's ``get_speech_timestamps``."""

_LONGEST_HEADER = 1 << 20
"""The most bytes of a WAV file before its samples; pictures and texts may come first."""

_RIFF = struct.Struct("<4sI4s")
_CHUNK = struct.Struct("<4sI")
_FORMAT = struct.Struct("<HHIIHH")
"""Layouts of RIFF's header, a chunk's header, and WAVEFORMAT.

WAVEFORMAT has format, channels, samples and bytes per second, bytes per sample of all channels, and bits.
"""

_PCM, _EXTENSIBLE = 1, 0xFFFE
_SUBFORMAT = 24
"""Offset of the actual format in WAVEFORMATEXTENSIBLE."""

_UNKNOWN_SIZES = (0, 0x7FFFFFFF)
"""Sizes that writers of streams give for an unknown size: 0, or this maximum and more."""


def silent_frame() -> dict[str, NDArray[Any]]:
    """Return silence as the model's inputs, since the model does not accept made up ones."""
    return {
        "input": np.zeros((1, sum(_WINDOWS[16000])), np.float32),
        "state": np.zeros(_STATE, np.float32),
        "sr": np.array(16000, np.int64),
    }


@dataclass(frozen=True)
class Segment:
    """Speech from ``start`` to ``end``, in seconds."""

    start: float
    end: float


class WavReader:
    """A reader of a WAV file that arrives in pieces: 16 bits, one channel, 8 or 16 kHz."""

    def __init__(self) -> None:
        self._head = b""
        self._rest = b""
        self._rate: int | None = None
        self._left: int | None = None
        """Bytes of samples that are still to come; ``None`` if the file does not say how many there are."""

    @property
    def begun(self) -> bool:
        """Whether the whole header has arrived."""
        return self._rate is not None

    @property
    def rate(self) -> int:
        """Samples per second. Raises ``RequestError`` unless the whole header has arrived."""
        if self._rate is None:
            raise RequestError("the body is no whole WAV file: it ends within its header")
        return self._rate

    def samples(self, piece: bytes) -> NDArray[np.float32]:
        """Return the samples in ``piece``, from -1 to 1. Raises ``RequestError`` for another format."""
        if self._rate is None:
            self._head += piece
            piece = self._after_header()
        if self._left is not None:
            piece = piece[: self._left]
            self._left -= len(piece)
        data = self._rest + piece
        whole = len(data) & ~1
        self._rest = data[whole:]
        return np.frombuffer(data[:whole], "<i2").astype(np.float32) / np.float32(32768)

    def _after_header(self) -> bytes:
        """Return the bytes after the header; empty until it is complete.

        A RIFF file is a sequence of chunks.
        """
        head = self._head
        if not b"RIFF".startswith(head[:4]) or not b"WAVE".startswith(head[8:12]):
            raise RequestError("the body is no WAV file: it does not begin with RIFF and WAVE")
        at, found = _RIFF.size, None
        while len(head) >= at + _CHUNK.size:
            name, size = _CHUNK.unpack_from(head, at)
            begin = at + _CHUNK.size
            if name == b"data":
                self._rate = _rate_of(found)
                known = _UNKNOWN_SIZES[0] < size < _UNKNOWN_SIZES[1]
                self._left, self._head = size if known else None, b""
                return head[begin:]
            if name == b"fmt ":
                found = head[begin : begin + size]
            at = begin + size + size % 2
            if at > _LONGEST_HEADER:
                raise RequestError(f"the body is no WAV file: no samples within {_LONGEST_HEADER} bytes")
        return b""


def _rate_of(described: bytes | None) -> int:
    """Return the samples per second of a WAV file's ``fmt`` chunk.

    Raises ``RequestError`` for another format.
    """
    if described is None or len(described) < _FORMAT.size:
        raise RequestError("the body is no WAV file: it does not state its format before its samples")
    kind, channels, rate, _, _, bits = _FORMAT.unpack_from(described)
    if kind == _EXTENSIBLE and len(described) >= _SUBFORMAT + 2:
        kind = int.from_bytes(described[_SUBFORMAT : _SUBFORMAT + 2], "little")
    if kind != _PCM or channels != 1 or bits != 16 or rate not in _WINDOWS:  # noqa: PLR2004 - a sample's bits
        there = f"{channels} channels of {bits} bits at {rate} Hz in format {kind}"
        wanted = "one channel of 16 bits at 8000 or 16000 Hz in format 1 is wanted"
        do = "ffmpeg -i IN -ac 1 -ar 16000 -c:a pcm_s16le OUT.wav"
        raise RequestError(f"the WAV file has {there}; {wanted}, as {do} makes it")
    return int(rate)


class SpeechDetector:
    """The model's state for one audio stream."""

    def __init__(self, run: Callable[[None, dict[str, NDArray[Any]]], list[Any]], rate: int) -> None:
        """``run`` runs the model, as ``Session.run`` does."""
        self._run = run
        self._rate = np.array(rate, np.int64)
        self._frame, context = _WINDOWS[rate]
        self._state = np.zeros(_STATE, np.float32)
        self._context = np.zeros(context, np.float32)
        self._rest = np.zeros(0, np.float32)
        self._segments = Segments(rate, self._frame)

    def feed(self, samples: NDArray[np.float32]) -> Iterator[Segment]:
        """Yield the segments that end within the samples."""
        data = np.concatenate([self._rest, samples])
        whole = len(data) - len(data) % self._frame
        self._rest = data[whole:]
        for start in range(0, whole, self._frame):
            yield from self._segments.after(self._probability(data[start : start + self._frame]))

    def finish(self) -> Iterator[Segment]:
        """Yield the segments that end with the audio."""
        rest = len(self._rest)
        if rest:
            padded = np.pad(self._rest, (0, self._frame - rest))
            yield from self._segments.after(self._probability(padded))
        yield from self._segments.finish(self._frame - rest if rest else 0)

    def _probability(self, frame: NDArray[np.float32]) -> float:
        given = np.concatenate([self._context, frame])
        self._context = frame[-len(self._context) :]
        feed = {"input": given[None], "state": self._state, "sr": self._rate}
        probability, self._state = self._run(None, feed)
        return float(probability[0, 0])


class Segments:
    """Turns probabilities of speech into segments, by the rules of Silero's ``get_speech_timestamps``."""

    def __init__(self, rate: int, frame: int) -> None:
        """``rate`` is in samples per second, ``frame`` in samples."""
        self._rate = rate
        self._frame = frame
        self._at = 0
        self._start: int | None = None
        self._silent_since: int | None = None

    def after(self, probability: float) -> Iterator[Segment]:
        """Yield the segment that ends with the next frame, if one does."""
        here = self._at
        self._at += self._frame
        if probability >= _SPEECH:
            self._silent_since = None
            self._start = here if self._start is None else self._start
        elif probability < _SILENCE and self._start is not None:
            if self._silent_since is None:
                self._silent_since = here
            if here - self._silent_since >= _SHORTEST_SILENCE * self._rate:
                yield from self._ended(self._silent_since, self._silent_since + _PAD * self._rate)

    def finish(self, missing: int) -> Iterator[Segment]:
        """Yield the segment that ends with the audio.

        ``missing`` is the number of samples that the last frame lacks.
        """
        end = self._at - missing
        yield from self._ended(end, end)

    def _ended(self, end: int, padded: float) -> Iterator[Segment]:
        start, self._start, self._silent_since = self._start, None, None
        if start is not None and end - start > _SHORTEST_SPEECH * self._rate:
            begin = max(0, start - _PAD * self._rate)
            yield Segment(int(begin) / self._rate, int(padded) / self._rate)
