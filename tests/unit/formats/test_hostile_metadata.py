"""Tests of signed metadata against forgers who hold some of the keys, and against ambiguous JSON."""

from __future__ import annotations

import copy
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from builder.client.install.prefix import Prefix
from builder.client.install.signed import Trust
from builder.errors import ConfigError, IntegrityError, ParseError
from builder.formats.index import loads
from builder.formats.json_values import parse_json
from builder.formats.trust import LIMIT, TARGETS, canonical, read_root, read_targets
from builder.publish.signing import Signer, key_id
from tests.support import ROOT
from tests.support.factories.signing import ALICE, BOB, CI, FIRST, NOW, key, root, targets

MALLORY = key("mallory")

FILES = {"index.json": b"{}", "SHA256SUMS": b"x"}

SIGNED = targets(FILES)

TRUSTED = read_root(FIRST, "1.root.json")

SMALL_ORDER = bytes([1]) + bytes(31)
"""A public key for which anybody signs: the neutral point."""


def signed_part(content: bytes) -> dict[str, Any]:
    part: dict[str, Any] = json.loads(content)["signed"]
    return part


def packed(signed: object, *signatures: tuple[str, bytes]) -> bytes:
    """Return a metadata file with the signatures as they are given, by key id."""
    entries = [{"keyid": name, "sig": value.hex()} for name, value in signatures]
    return json.dumps({"signatures": entries, "signed": signed}).encode()


def by(signer: Signer, signed: object, name: str = "") -> tuple[str, bytes]:
    """Return a signature under the signer's key id, or under ``name``."""
    return name or key_id(signer.public), signer.sign(canonical(signed))


def twice(content: bytes) -> Iterator[bytes]:
    """Yield the JSON text with each key of each object twice, with the same value."""

    text = content.decode()
    for head in re.finditer(r'"[^"]*":', text):
        _, end = json.JSONDecoder().raw_decode(text, head.end() + 1)
        yield f"{text[:end]}, {text[head.start() : end]}{text[end:]}".encode()


DOUBLED = {"root": list(twice(FIRST)), "targets": list(twice(SIGNED))}


def test_a_key_that_is_there_twice_is_refused() -> None:
    """One reader takes the first value, another the last: what is signed is not what another tool shows."""
    assert sum(map(len, DOUBLED.values())) >= 50
    for content in DOUBLED["targets"]:
        assert json.loads(content) == json.loads(SIGNED)
        with pytest.raises(IntegrityError, match="occurs twice"):
            read_targets(content, TARGETS, TRUSTED)
    for content in DOUBLED["root"]:
        with pytest.raises(IntegrityError, match="occurs twice"):
            read_root(content, "1.root.json")


def test_metadata_cut_at_any_byte_is_refused() -> None:
    for whole, read in (
        (SIGNED.rstrip(), lambda cut: read_targets(cut, TARGETS, TRUSTED)),
        (FIRST.rstrip(), lambda cut: read_root(cut, "root")),
    ):
        read(whole)
        for end in range(len(whole)):
            with pytest.raises(IntegrityError):
                read(whole[:end])


@pytest.mark.parametrize(
    "more", [b"{}", b"x", b"\0", b"\xff", b",", b"}", b"\n" + SIGNED, b"\x1a", b"//", b"[]"]
)
def test_bytes_after_it_are_refused(more: bytes) -> None:
    with pytest.raises(IntegrityError):
        read_targets(SIGNED + more, TARGETS, TRUSTED)


def test_metadata_larger_than_the_limit_is_not_parsed() -> None:
    """A mirror could else let the client build lists of millions of signatures."""
    padded = SIGNED + b" " * (LIMIT - len(SIGNED))
    read_targets(padded, TARGETS, TRUSTED)
    with pytest.raises(IntegrityError, match="at most 1048576"):
        read_targets(padded + b" ", TARGETS, TRUSTED)


def roots_of_forgers() -> Iterator[tuple[str, bytes]]:
    """Yield second roots that Alice, one of the two whom a root needs, makes with Mallory."""
    alice, bob, mallory = (key_id(one.public) for one in (ALICE, BOB, MALLORY))
    change = {"root_keys": [ALICE.public, MALLORY.public], "release_keys": [MALLORY.public]}
    plain = signed_part(root(before=FIRST, **change))
    good = signed_part(root(before=FIRST))
    yield "only the new keys", packed(plain, by(ALICE, plain), by(MALLORY, plain))
    yield "one key twice", packed(good, by(ALICE, good), by(ALICE, good))
    yield "one signature under both ids", packed(good, by(ALICE, good), by(ALICE, good, bob))
    yield "another's signature under the second id", packed(good, by(ALICE, good), by(MALLORY, good, bob))
    swapped = copy.deepcopy(good)
    swapped["keys"][bob] = signed_part(root(root_keys=[MALLORY.public], release_keys=[CI.public]))["keys"][
        mallory
    ]
    yield "Bob's id leads to Mallory's key", packed(swapped, by(ALICE, swapped), by(MALLORY, swapped, bob))
    upper = copy.deepcopy(good)
    upper["keys"][alice.upper()] = {**upper["keys"][alice], "keyval": {"public": ALICE.public.hex().upper()}}
    upper["roles"]["root"]["keyids"].append(alice.upper())
    yield "a key in capitals", packed(upper, by(ALICE, upper), by(ALICE, upper, alice.upper()))
    thresholds: list[object] = [0, -1, 1, 2**31, 2**62, 1.5, True, "1", None, [], {}]
    for threshold in thresholds:
        lower = copy.deepcopy(good)
        lower["roles"]["root"]["threshold"] = threshold
        yield f"threshold {threshold!r}", packed(lower, by(ALICE, lower))
    for version in (1, 3, 0, -1, 2**62, 2**63, 2.0, "2", None):
        other = {**good, "version": version}
        yield f"version {version!r} by both", packed(other, by(ALICE, other), by(BOB, other))
    weak = signed_part(root(before=FIRST, root_keys=[ALICE.public, SMALL_ORDER], threshold=2))
    anybody = (key_id(SMALL_ORDER), SMALL_ORDER + bytes(32))
    yield "a key for which anybody signs", packed(weak, by(ALICE, weak), by(BOB, weak), anybody)
    for role in ("root", "targets"):
        without = copy.deepcopy(good)
        del without["roles"][role]
        yield f"no role {role}", packed(without, by(ALICE, without), by(BOB, without))
    empty = copy.deepcopy(good)
    empty["roles"]["root"]["keyids"] = []
    yield "no keys", packed(empty, by(ALICE, empty), by(BOB, empty))


@pytest.mark.parametrize(("what", "content"), list(roots_of_forgers()))
def test_a_forged_root_is_refused(what: str, content: bytes) -> None:
    with pytest.raises(IntegrityError):
        read_root(content, "2.root.json", TRUSTED)


def test_a_release_key_for_which_anybody_signs_signs_nothing() -> None:
    weak = root(ALICE, BOB, before=FIRST, release_keys=[SMALL_ORDER])
    forged = packed(signed_part(SIGNED), (key_id(SMALL_ORDER), SMALL_ORDER + bytes(32)))
    with pytest.raises(IntegrityError, match="signed by 0 of the keys"):
        read_targets(forged, TARGETS, read_root(weak, "2.root.json", TRUSTED))


def test_the_road_from_root_to_root_has_no_gap(tmp_path: Path) -> None:
    """With root 2 withheld the client stays with root 1, and takes nothing that only later keys signed."""
    second = root(ALICE, BOB, before=FIRST, release_keys=[MALLORY.public])
    third = root(ALICE, BOB, before=second)
    there = {"3.root.json": third, TARGETS: targets(FILES, FIRST, second, by=MALLORY)}
    trust = Trust(FIRST, NOW, Prefix(tmp_path))
    with pytest.raises(IntegrityError, match="signed by 0 of the keys"):
        trust.require_signed("index.json", b"{}", "here", there.get)
    assert trust.require_signed("index.json", b"{}", "here", {**there, "2.root.json": second}.get).files
    with pytest.raises(IntegrityError, match="has version 3, 2 is wanted"):
        trust.require_signed("index.json", b"{}", "here", {**there, "2.root.json": third}.get)


NAMES = [
    "../index.json", "/index.json", "./index.json", "index.json/", "INDEX.JSON", "index.json ",
    "index.json\u200b", "\uff49ndex.json", "index\u2024json", "index.json\ufeff", "..\\index.json",
    "index.json%00", "file:///index.json", "",
]  # fmt: skip
"""Names that a file system, a URL or Unicode's normal forms take for ``index.json``."""


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_its_code_points(tmp_path: Path, name: str) -> None:
    """``index.json`` is signed by that name alone."""
    signed = signed_part(targets({"index.json": b"{}"}))
    signed["targets"] = {name: signed["targets"]["index.json"]}
    there = {TARGETS: packed(signed, by(CI, signed))}
    with pytest.raises(IntegrityError, match=r"does not name index\.json"):
        Trust(FIRST, NOW, Prefix(tmp_path)).require_signed("index.json", b"{}", "here", there.get)


INDEX = (ROOT / "tests/data/formats/index-3.json").read_bytes()


def test_an_index_cut_anywhere_or_longer_is_refused_signed_or_not(tmp_path: Path) -> None:
    text = INDEX.decode().rstrip()
    loads(text, "index.json")
    for end in range(len(text)):
        with pytest.raises(ConfigError):
            loads(text[:end], "index.json")
    trust = Trust(FIRST, NOW, Prefix(tmp_path))
    there = {TARGETS: targets({"index.json": INDEX})}
    trust.require_signed("index.json", INDEX, "here", there.get)
    for other in (
        *(INDEX[:end] for end in range(0, len(INDEX), 97)),
        INDEX + b" ",
        INDEX + b"\n",
        b"\n" + INDEX,
    ):
        with pytest.raises(IntegrityError, match="is not what was signed"):
            trust.require_signed("index.json", other, "here", there.get)


def test_a_key_twice_among_a_hundred_thousand_is_found_within_two_seconds() -> None:
    keys = ",".join(f'"{number}": 0' for number in [*range(100_000), 99_999])
    began = time.process_time()
    with pytest.raises(ParseError, match="'99999' occurs twice"):
        parse_json(f"{{{keys}}}", "index.json")
    assert time.process_time() - began < 2
