"""Tests of reading audio in pieces and of turning probabilities into segments."""

import struct

import numpy as np
import pytest
from ortpacks_service.errors import RequestError
from ortpacks_service.speech import Segments, WavReader

from tests.support.messages import Refused
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


FORM, DATA = chunk(b"fmt ", PLAIN), chunk(b"data", TWO)

WRITTEN = {
    "plain": riff(FORM, DATA),
    "text first": riff(chunk(b"LIST", b"odd"), FORM, DATA),
    "extensible": riff(chunk(b"fmt ", EXTENSIBLE), DATA),
    "text behind": riff(FORM, DATA, chunk(b"LIST", bytes(3000))),
    "no size": riff(FORM, chunk(b"data", TWO, 0)),
    "any size": riff(FORM, chunk(b"data", TWO, 0xFFFFFFFF), size=0xFFFFFFFF),
    "more than it says": riff(chunk(b"JUNK", bytes(100_000)), FORM, DATA, size=40),
}


@pytest.mark.parametrize("data", WRITTEN.values(), ids=WRITTEN)
def test_files_as_programs_write_them(data: bytes) -> None:
    reader = WavReader()
    assert (reader.samples(data) * 32768).tolist() == [1, 2]
    assert reader.samples(bytes(2)).size in (0, 1)  # a file without a size has no end


WRONG = {
    "MP3": b"ID3\x04 an MP3",
    "no WAVE": b"RIFF" + bytes(1 << 16),
    "no data": riff(chunk(b"LIST", b"", 4 << 29), chunk(b"data", b"")),
    "no format": riff(DATA),
    "short format": riff(chunk(b"fmt ", PLAIN[:10]), DATA),
    "44.1 kHz": wav(rate=44100),
    "stereo": wav(channels=2),
    "8 bits": wav(width=1),
    "float": wav()[:20] + b"\x03" + wav()[21:],
    "empty": b"",
    "four bytes": b"RIFF",
    "ends in its header": wav()[:43],
}


@pytest.mark.parametrize("body", WRONG.values(), ids=WRONG)
def test_audio_of_another_format_is_told(refused: Refused, body: bytes) -> None:
    reader = WavReader()
    with refused(RequestError):
        assert reader.samples(body).size == reader.rate


SPEECH, UNSURE, SILENCE = 0.9, 0.4, 0.1


def segments(probabilities: list[float], missing: int) -> list[tuple[float, float]]:
    """Return the segments as start and end in frames of 32 ms, after adding probabilities one by one."""
    rule = Segments(16000, 512)
    ended = [segment for value in probabilities for segment in rule.after(value)]
    return [(one.start / 0.032, one.end / 0.032) for one in [*ended, *rule.finish(missing)]]


PAD = 0.03 / 0.032


@pytest.mark.parametrize(
    ("probabilities", "missing", "said"),
    [
        ([SILENCE] * 10 + [SPEECH] * 20 + [SILENCE] * 10, 0, [(10 - PAD, 30 + PAD)]),
        ([SPEECH] * 10 + [SILENCE] * 3 + [SPEECH] * 10 + [UNSURE] * 9 + [SILENCE] * 10, 0, [(0, 32 + PAD)]),
        ([SPEECH] * 7 + [SILENCE] * 10, 0, []),
        ([SPEECH] * 8 + [SILENCE] * 10, 0, [(0, 8 + PAD)]),
        ([SILENCE] * 5 + [SPEECH] * 15, 256, [(5 - PAD, 19.5)]),
    ],
    ids=["after silence", "a short pause and doubt", "a click", "longer than a click", "the audio ends"],
)
def test_what_ends_a_segment(
    probabilities: list[float], missing: int, said: list[tuple[float, float]]
) -> None:
    """It is a tenth of a second of silence."""
    assert np.array(segments(probabilities, missing)).reshape(-1, 2) == pytest.approx(
        np.array(said).reshape(-1, 2), abs=0.01
    )
