"""Tests of reading audio in pieces and of turning probabilities into segments."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
import pytest
from ortpacks_service.errors import RequestError
from ortpacks_service.speech import Segments, WavReader

from tests.support.service import wav


@pytest.mark.parametrize("step", [1, 7, 44, 45, 10_000])
def test_the_samples_do_not_depend_on_how_the_file_is_cut(step: int) -> None:
    samples = np.array([0, 16384, -32768, 32767, 5], "<i2")
    data = wav(frames=samples.tobytes())
    reader = WavReader()
    come = [reader.samples(data[at : at + step]) for at in range(0, len(data), step)]
    assert reader.rate == 16000
    assert np.concatenate(come) * 32768 == pytest.approx(samples)


def chunk(name: bytes, data: bytes, size: int | None = None) -> bytes:
    return name + struct.pack("<I", len(data) if size is None else size) + data + b"\0" * (len(data) % 2)


def riff(*chunks: bytes, size: int = 0) -> bytes:
    return b"RIFF" + struct.pack("<I", size) + b"WAVE" + b"".join(chunks)


PLAIN = struct.pack("<HHIIHH", 1, 1, 16000, 32000, 2, 16)
EXTENSIBLE = (
    struct.pack("<HHIIHHHHI", 0xFFFE, 1, 16000, 32000, 2, 16, 22, 16, 4) + struct.pack("<H", 1) + bytes(14)
)
TWO = np.array([1, 2], "<i2").tobytes()


@pytest.mark.parametrize(
    "data",
    [
        riff(chunk(b"fmt ", PLAIN), chunk(b"data", TWO)),
        riff(chunk(b"LIST", b"odd"), chunk(b"fmt ", PLAIN), chunk(b"data", TWO)),
        riff(chunk(b"fmt ", EXTENSIBLE), chunk(b"data", TWO)),
        riff(chunk(b"fmt ", PLAIN), chunk(b"data", TWO), chunk(b"LIST", bytes(3000))),
        riff(chunk(b"fmt ", PLAIN), chunk(b"data", TWO, 0)),
        riff(chunk(b"fmt ", PLAIN), chunk(b"data", TWO, 0xFFFFFFFF), size=0xFFFFFFFF),
        riff(chunk(b"JUNK", bytes(100_000)), chunk(b"fmt ", PLAIN), chunk(b"data", TWO), size=40),
    ],
    ids=["plain", "text first", "extensible", "text behind", "no size", "any size", "more than it says"],
)
def test_files_as_programs_write_them(data: bytes) -> None:
    reader = WavReader()
    assert (reader.samples(data) * 32768).tolist() == [1, 2]
    assert reader.samples(bytes(2)).size in (0, 1)  # a file without a size has no end


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"ID3\x04 an MP3", "does not begin with RIFF and WAVE"),
        (b"RIFF" + bytes(1 << 16), "does not begin with RIFF and WAVE"),
        (riff(chunk(b"LIST", b"", 4 << 29), chunk(b"data", b"")), "no samples within 1048576 bytes"),
        (riff(chunk(b"data", TWO)), "does not state its format"),
        (riff(chunk(b"fmt ", PLAIN[:10]), chunk(b"data", TWO)), "does not state its format"),
        (wav(rate=44100), "at 44100 Hz"),
        (wav(channels=2), "2 channels of 16 bits"),
        (wav(width=1), "1 channels of 8 bits"),
        (wav()[:20] + b"\x03" + wav()[21:], "in format 3"),
    ],
)
def test_audio_of_another_format_is_told(body: bytes, says: str) -> None:
    with pytest.raises(RequestError, match=says):
        WavReader().samples(body)


@pytest.mark.parametrize("body", [b"", b"RIFF", wav()[:43]])
def test_a_file_that_ends_in_its_header_is_told(body: bytes) -> None:
    reader = WavReader()
    reader.samples(body)
    with pytest.raises(RequestError, match="no whole WAV file"):
        _ = reader.rate


SPEECH, UNSURE, SILENCE = 0.9, 0.4, 0.1


def segments(*probabilities: Sequence[float], missing: int = 0) -> list[tuple[float, float]]:
    """Return the segments as start and end in frames of 32 ms, after adding probabilities one by one."""
    rule = Segments(16000, 512)
    found = [one for part in probabilities for value in part for one in rule.after(value)]
    return [(one.start / 0.032, one.end / 0.032) for one in [*found, *rule.finish(missing)]]


PAD = 0.03 / 0.032


def test_speech_ends_after_a_tenth_of_a_second_of_silence() -> None:
    found = segments([SILENCE] * 10, [SPEECH] * 20, [SILENCE] * 10)
    assert found == pytest.approx(np.array([(10 - PAD, 30 + PAD)]).reshape(1, 2), abs=0.01)


def test_a_short_pause_and_doubt_end_nothing() -> None:
    found = segments([SPEECH] * 10, [SILENCE] * 3, [SPEECH] * 10, [UNSURE] * 9, [SILENCE] * 10)
    assert found == pytest.approx(np.array([(0, 32 + PAD)]), abs=0.01)


def test_a_click_is_no_speech() -> None:
    assert segments([SPEECH] * 7, [SILENCE] * 10) == []
    assert len(segments([SPEECH] * 8, [SILENCE] * 10)) == 1


def test_the_end_of_the_audio_ends_the_last_segment() -> None:
    assert segments([SILENCE] * 5, [SPEECH] * 15, missing=256) == pytest.approx(
        np.array([(5 - PAD, 19.5)]), abs=0.01
    )
