"""Speech in audio, by Silero's model, while the audio comes in."""

from __future__ import annotations

import io
import wave
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

_LONGEST_HEADER = 1 << 16
"""Bytes of a WAV file before its samples, at most."""


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
        data = self._rest + piece
        whole = len(data) & ~1
        self._rest = data[whole:]
        return np.frombuffer(data[:whole], "<i2").astype(np.float32) / np.float32(32768)

    def _after_header(self) -> bytes:
        """What follows the header, once it is there. The standard library's ``wave`` reads it."""
        file = io.BytesIO(self._head)
        try:
            with wave.open(file) as header:
                found = (header.getnchannels(), header.getsampwidth(), header.getframerate())
                start = file.tell()
        except EOFError:
            return self._awaited("no samples in it")
        except wave.Error as error:
            return self._awaited(str(error))
        if found[:2] != (1, 2) or found[2] not in _WINDOWS:
            raise RequestError(
                f"the WAV file has {found[0]} channels of {8 * found[1]} bits at {found[2]} Hz; one channel "
                "of 16 bits at 8000 or 16000 Hz is wanted: ffmpeg -i IN -ac 1 -ar 16000 -c:a pcm_s16le O.wav"
            )
        self._rate = found[2]
        return self._head[start:]

    def _awaited(self, why: str) -> bytes:
        """Nothing, where more may make it a WAV file. Raises ``RequestError`` where nothing will."""
        riff = b"RIFF".startswith(self._head[:4]) and len(self._head) < _LONGEST_HEADER
        if not riff or why.startswith("unknown"):
            raise RequestError(f"the body is no WAV file: {why}")
        return b""


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
