"""Tests of which addresses may get a token, and of addresses in messages."""

from __future__ import annotations

import time

import pytest

from builder.formats.text import may_carry_a_token, redacted, redacted_message
from tests.support.messages import Told


@pytest.mark.parametrize(
    "text",
    [
        "http://user:secret@mirror.example/debian",
        "http://user:p@ss@mirror.example/debian",
        "https://token@mirror.example",
        "E: http://u:p@a.example/x and http://u:p@b.example",
        "http://user:sec/ret@mirror.example/x",
        "http://user:sec ret@mirror.example:x/y",
        "https://h/a?id=7&X-Amz-Signature=5ecret&se=9#b",
        "'https://u:p@h/a?sig=5ecret' is not https://h/?token=5ecret",
        "https:/u:s3cret@h/x is no package, C:/a@b neither",
    ],
)
def test_logins_and_signatures_are_taken_out_and_nothing_else(text: str, told: Told) -> None:
    told(redacted(text))


@pytest.mark.parametrize(
    "text",
    [
        "http://mirror.example:8080/a@b",
        "http://[::1]:8080/a@b",
        "http://mirror.example/a@b",
        "mail user@mirror.example about http://mirror.example",
        "git:https://host.example/a/b@v1",
        "http://mirror.example?to=a@b",
        "what?sig=1.so, see https://h/a?b=1",
    ],
)
def test_a_text_without_them_stays_as_it_is(text: str) -> None:
    assert redacted(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "https://u:s3cret@h/x?sig=5ecret fails",
        "https:/u:s3cret@h/x is no package",
        "HTTPS://ghp_t0ken@h/x, oci://u:p@ss@h",
        "ssh://me@far does not answer: C:/a@b",
        "Name it https://USER:PASSWORD@HOST/PATH.",
        "http://h:abc/x: no URL. / and @ are written %2F and %40",
    ],
)
def test_a_message_keeps_its_advice(text: str, told: Told) -> None:
    told(redacted_message(text))


@pytest.mark.parametrize("part", ["?sig", "sig", "a1", "://", "ab:/", "u:p@"])
def test_hostile_addresses_take_no_longer_than_their_bytes(part: str) -> None:
    """Names of a query without a value were cubic: 6 kB took 4 s, a redirect's 64 kB more than an hour."""
    text, start = "http://h/?" + part * 10_000, time.process_time()
    assert redacted_message(text)
    assert redacted(text)
    assert time.process_time() - start < 1


@pytest.mark.parametrize(
    ("url", "may"),
    [
        ("https://git.example/x", True),
        ("http://127.0.0.1:8080/x", True),
        ("http://localhost", True),
        ("http://git.example/x", False),
        ("http://localhost.git.example/x", False),
        ("http://127.0.0.1:x@git.example/", False),
        ("http://127.0.0.1.git.example/", False),
    ],
)
def test_plain_http_is_for_this_machine(url: str, may: bool) -> None:
    assert may_carry_a_token(url) is may
