"""Speech in audio, by Silero's model, while the audio comes in."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from ortpacks_runtime import Session

from ortpacks_service.errors import RequestError

_WINDOWS = {16000: (512, 64), 8000: (256, 32)}
"""Samples a second → samples of a frame, and samples before it that the model is given too."""

_STATE = (2, 1, 128)

_SPEECH, _SILENCE = 0.5, 0.35
"""Silero's own thresholds: a frame from the first on begins speech, one below the second may end it."""

_SHORTEST_SPEECH, _SHORTEST_SILENCE, _PAD = 0.25, 0.1, 0.03
"""Seconds, as in Silero's ``get_speech_timestamps``."""

_LONGEST_HEADER = 1 << 20
"""Bytes of a WAV file before its samples, at most: pictures and texts may come first."""

_RIFF = struct.Struct("<4sI4s")
_CHUNK = struct.Struct("<4sI")
_FORMAT = struct.Struct("<HHIIHH")
"""RIFF's header, a chunk's, and WAVEFORMAT: format, channels, samples and bytes a second, bytes and bits."""

_PCM, _EXTENSIBLE = 1, 0xFFFE
_SUBFORMAT = 24
"""Where WAVEFORMATEXTENSIBLE has the format that it stands for."""

_UNKNOWN_SIZES = (0, 0x7FFFFFFF)
"""Who writes a stream does not know its size: none, or this and more."""


def a_frame() -> dict[str, NDArray[Any]]:
    """Silence as the model's inputs: made up ones it does not take."""
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
    """A WAV file that comes in pieces: 16 bits, one channel, 8 or 16 kHz."""

    def __init__(self) -> None:
        self._head = b""
        self._rest = b""
        self._rate: int | None = None
        self._left: int | None = None
        """Bytes of samples that are to come; ``None`` where the file does not say how many there are."""

    @property
    def begun(self) -> bool:
        """Whether the header has come."""
        return self._rate is not None

    @property
    def rate(self) -> int:
        """Samples a second. Raises ``RequestError`` unless the header has come."""
        if self._rate is None:
            raise RequestError("the body is no whole WAV file: it ends within its header")
        return self._rate

    def samples(self, piece: bytes) -> NDArray[np.float32]:
        """The samples that have come with ``piece``, -1 to 1. Raises ``RequestError`` for another format."""
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
        """What follows the header, once it is there. A RIFF file is a row of chunks."""
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
    """The samples a second of a WAV file's ``fmt`` chunk. Raises ``RequestError`` for another format."""
    if described is None or len(described) < _FORMAT.size:
        raise RequestError("the body is no WAV file: it does not tell its format before its samples")
    kind, channels, rate, _, _, bits = _FORMAT.unpack_from(described)
    if kind == _EXTENSIBLE and len(described) >= _SUBFORMAT + 2:
        kind = int.from_bytes(described[_SUBFORMAT : _SUBFORMAT + 2], "little")
    if kind != _PCM or channels != 1 or bits != 16 or rate not in _WINDOWS:  # noqa: PLR2004 - a sample's bits
        raise RequestError(
            f"the WAV file has {channels} channels of {bits} bits at {rate} Hz in format {kind}; one channel "
            "of 16 bits at 8000 or 16000 Hz in format 1 is wanted, as ffmpeg -i IN -ac 1 -ar 16000 "
            "-c:a pcm_s16le OUT.wav makes it"
        )
    return int(rate)


class SpeechDetector:
    """The model's memory of one piece of audio."""

    def __init__(self, session: Session, rate: int) -> None:
        self._session = session
        self._rate = np.array(rate, np.int64)
        self._frame, context = _WINDOWS[rate]
        self._state = np.zeros(_STATE, np.float32)
        self._context = np.zeros(context, np.float32)
        self._rest = np.zeros(0, np.float32)
        self._segments = Segments(rate, self._frame)

    def feed(self, samples: NDArray[np.float32]) -> Iterator[Segment]:
        """The segments that end within the samples."""
        data = np.concatenate([self._rest, samples])
        whole = len(data) - len(data) % self._frame
        self._rest = data[whole:]
        for start in range(0, whole, self._frame):
            yield from self._segments.after(self._probability(data[start : start + self._frame]))

    def finish(self) -> Iterator[Segment]:
        """The segments that end with the audio."""
        rest = len(self._rest)
        if rest:
            padded = np.pad(self._rest, (0, self._frame - rest))
            yield from self._segments.after(self._probability(padded))
        yield from self._segments.finish(self._frame - rest if rest else 0)

    def _probability(self, frame: NDArray[np.float32]) -> float:
        given = np.concatenate([self._context, frame])
        self._context = frame[-len(self._context) :]
        feed = {"input": given[None], "state": self._state, "sr": self._rate}
        probability, self._state = self._session.run(None, feed)
        return float(probability[0, 0])


class Segments:
    """Frames' probabilities of speech to segments, by the rules of Silero's ``get_speech_timestamps``."""

    def __init__(self, rate: int, frame: int) -> None:
        """``rate`` is in samples a second, ``frame`` in samples."""
        self._rate = rate
        self._frame = frame
        self._at = 0
        self._start: int | None = None
        self._silent_since: int | None = None

    def after(self, probability: float) -> Iterator[Segment]:
        """The segment that ends with the next frame, if one does."""
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
        """The segment that the end of the audio ends; ``missing`` samples of the last frame never came."""
        end = self._at - missing
        yield from self._ended(end, end)

    def _ended(self, end: int, padded: float) -> Iterator[Segment]:
        start, self._start, self._silent_since = self._start, None, None
        if start is not None and end - start > _SHORTEST_SPEECH * self._rate:
            begin = max(0, start - _PAD * self._rate)
            yield Segment(int(begin) / self._rate, int(padded) / self._rate)
