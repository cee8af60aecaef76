"""Tests of a compile cache whose objects carry a code: those of others are not used."""

import hmac
import os
from pathlib import Path

import pytest

from builder.compile.compile_cache import CompileCache, CompileCaches, compile_cache
from builder.errors import IntegrityError, ValidationError
from builder.io.wiring import COMPILE_CACHE_KEY
from tests.support.cache_servers import KEY, ccache
from tests.support.fakes.ports import FakeReporter

OURS, OTHER = "4f1c0c6e2b7a9d35", "a key of somebody else"


def sealed(folder: Path, key: str = OURS) -> CompileCache:
    return compile_cache(str(folder), "--compile-cache", {COMPILE_CACHE_KEY: key})


def code(key: str, name: str, value: bytes) -> bytes:
    return hmac.new(key.encode(), name.encode() + b"\n" + value, "sha256").digest()


def test_objects_come_back_to_those_who_have_the_key(tmp_path: Path) -> None:
    sealed(tmp_path).put(KEY, b"made")
    assert (sealed(tmp_path).get(KEY), sealed(tmp_path).has(KEY)) == (b"made", True)
    assert (sealed(tmp_path).get("cd/efghijklmnop"), sealed(tmp_path).has("cd/efghijklmnop")) == (None, False)
    assert (tmp_path / KEY).read_bytes() == code(OURS, KEY, b"made") + b"made"


@pytest.mark.parametrize(
    "stored",
    [
        code(OTHER, KEY, b"false") + b"false",
        b"false",
        code(OURS, "cd/efghijklmnop", b"false") + b"false",
        code(OURS, KEY, b"made") + b"mad!",
        b"",
    ],
    ids=["another key", "no key", "another name", "changed", "empty"],
)
def test_an_object_of_another_is_not_used_and_told_once(tmp_path: Path, stored: bytes) -> None:
    (tmp_path / KEY).parent.mkdir()
    (tmp_path / KEY).write_bytes(stored)
    with pytest.raises(IntegrityError, match=f"{KEY} was not stored with the key in {COMPILE_CACHE_KEY}"):
        sealed(tmp_path).get(KEY)
    reporter = FakeReporter()
    with ccache(CompileCaches(shared=sealed(tmp_path)), reporter) as one:
        assert [one.ask("GET", KEY), one.ask("GET", KEY)] == [(404, b"")] * 2
    (warned,) = [line for line in reporter.lines if line[0] == "!"]
    assert warned.endswith("The build goes on without it.")


@pytest.mark.parametrize("key", [OURS[1:], ""], ids=["short", "of a file that is not there"])
def test_a_key_that_could_be_guessed_is_refused(tmp_path: Path, key: str) -> None:
    with pytest.raises(
        ValidationError, match=rf"{COMPILE_CACHE_KEY} has fewer than 16 characters.*openssl rand -hex 32"
    ):
        sealed(tmp_path, key)


def test_a_key_may_be_of_any_bytes(tmp_path: Path) -> None:
    key = os.fsdecode(b"\xff\xfe" * 8)
    sealed(tmp_path, key).put(KEY, b"made")
    assert sealed(tmp_path, key).get(KEY) == b"made"
