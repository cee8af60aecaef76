"""Tests of signed metadata against TUF's own implementation, forgers with some of the keys, odd JSON."""

import copy
import json
import re
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tuf.api.metadata import Metadata

from builder.client.install.prefix import Prefix
from builder.client.install.signed import Trust
from builder.errors import IntegrityError, ParseError
from builder.formats.json_values import parse_json
from builder.formats.trust import LIMIT, TARGETS, canonical, read_root, read_targets, require_fresh
from builder.publish.signing import Signer, key_id
from tests.support.factories.signing import ALICE, BOB, CI, FIRST, NOW, key, root, targets
from tests.support.json_texts import changed

MALLORY = key("mallory")

FILES = {"index.json": b"{}", "SHA256SUMS": b"", 'ümläut "quoted" \\.txt': b"x"}

SIGNED = targets(FILES)


def test_pythons_tuf_accepts_what_is_written() -> None:
    """TUF's classes parse both files, verify both roles' signatures and thresholds, and give the
    same key ids."""
    trusted = Metadata.from_bytes(FIRST)
    trusted.verify_delegate("root", trusted)
    signed = Metadata.from_bytes(SIGNED)
    trusted.verify_delegate("targets", signed)
    assert set(trusted.signed.roles["root"].keyids) == {key_id(ALICE.public), key_id(BOB.public)}
    named = signed.signed.to_dict()["targets"]
    assert {name: one["length"] for name, one in named.items()} == {
        name: len(content) for name, content in FILES.items()
    }


def test_a_control_character_is_never_signed() -> None:
    with pytest.raises(ValueError, match="control"):
        canonical({"a": "\n"})
    assert canonical({"b": 'ü"\\', "a": [1, True, None]}) == '{"a":[1,true,null],"b":"ü\\"\\\\"}'.encode()


@pytest.mark.parametrize("signers", [[], [ALICE], [BOB], [ALICE, ALICE], [ALICE, MALLORY], [CI, MALLORY]])
def test_a_root_takes_its_threshold_of_its_own_keys(signers: list[object]) -> None:
    change = {"root_keys": [ALICE.public, BOB.public], "release_keys": [CI.public], "threshold": 2}
    with pytest.raises(IntegrityError, match=r"signed by [01] of the keys .* 2 are needed"):
        read_root(root(*signers, **change), "root")  # type: ignore[arg-type]


def test_keys_change_from_root_to_root() -> None:
    """Bob's key is replaced by a new one: the old threshold and the new one must both sign."""
    new = key("new")
    change = {"root_keys": [ALICE.public, new.public], "release_keys": [new.public]}
    first = read_root(FIRST, "1")
    second = root(ALICE, BOB, new, before=FIRST, **change)
    assert read_root(second, "2", first).version == 2
    signed = targets(FILES, FIRST, second, by=new)
    assert read_targets(signed, TARGETS, read_root(second, "2", first)).files.keys() == FILES.keys()
    for signers in ([ALICE, BOB], [ALICE, new], [new]):
        with pytest.raises(IntegrityError, match="are needed"):
            read_root(root(*signers, before=FIRST, **change), "2", first)


def test_a_root_is_no_release_and_a_release_no_root() -> None:
    trusted = read_root(FIRST, "root")
    with pytest.raises(IntegrityError):
        read_targets(FIRST, TARGETS, trusted)
    with pytest.raises(IntegrityError):
        read_root(SIGNED, "root")
    everything = root(CI, root_keys=[CI.public], release_keys=[CI.public], threshold=1)
    with pytest.raises(IntegrityError, match=r"a root|unknown key"):
        read_targets(everything, TARGETS, read_root(everything, "root"))


def test_what_has_expired_is_refused() -> None:
    expires = read_targets(SIGNED, TARGETS, read_root(FIRST, "root")).expires
    require_fresh(expires, expires - timedelta(seconds=1), TARGETS)
    with pytest.raises(
        IntegrityError, match=r"targets.json was signed until 2028-11-22, and today is 2028-11-22"
    ):
        require_fresh(expires, expires, TARGETS)


def forged() -> Iterator[tuple[str, bytes]]:
    """Yield forged files with their descriptions; none is signed by a trusted key."""
    document = json.loads(SIGNED)
    values: list[object] = [None, 0, -1, 2**70, 1.5, "", "x", [], {}, [[]], True, "9" * 5000]
    for path in (
        "signed",
        "signatures",
        *(f"signed/{name}" for name in ("version", "expires", "targets", "_type")),
    ):
        yield from ((f"{path} = {value!r:.20}", changed(SIGNED, path, value).encode()) for value in values)
    right = document["signed"]["targets"]["index.json"]["hashes"]["sha256"]
    for size, digest in ((3, right), (2, "0" * 64), (2, right.upper())):
        target = {"length": size, "hashes": {"sha256": digest}}
        yield f"{size} {digest:.8}", changed(SIGNED, "signed/targets/index.json", target).encode()
    (one,) = document["signatures"]
    signature = str(one["sig"])
    other = MALLORY.sign(canonical(document["signed"])).hex()
    mine, theirs = key_id(MALLORY.public), str(one["keyid"])
    for what, signatures in {
        "none": [],
        "other key under the right id": [{"keyid": theirs, "sig": other}],
        "right signature under another id": [{"keyid": mine, "sig": signature}],
        "upper case": [{"keyid": theirs, "sig": signature.upper()}],
        "no hex": [{"keyid": theirs, "sig": "zz" * 64}],
        "a number": [{"keyid": theirs, "sig": 7}],
        "a string": "signed",
        "more in it": [{**one, "more": 1}],
        "many before it": [{"keyid": mine, "sig": other}] * 64 + [one],
    }.items():
        yield f"signatures: {what}", changed(SIGNED, "signatures", signatures).encode()
    for at in range(0, len(signature), 8):
        bent = f"{signature[:at]}{int(signature[at], 16) ^ 1:x}{signature[at + 1 :]}"
        yield f"bit {at}", changed(SIGNED, "signatures", [{"keyid": theirs, "sig": bent}]).encode()
    text = SIGNED.decode()
    for what, content in {
        "no JSON": b"<html>",
        "a number": b"1",
        "deep in it": text.replace(
            '"version":', '"x": ' + "[" * 50_000 + "]" * 50_000 + ', "version":'
        ).encode(),
        "a surrogate": text.replace('"index.json"', '"\\ud800"').encode(),
        "a control character": text.replace('"index.json"', '"\\u0000"').encode(),
        "not a number": text.replace('"length": 2', '"length": NaN').encode(),
    }.items():
        yield what, content


@pytest.mark.parametrize(("what", "content"), list(forged()))
def test_forgeries_are_refused(what: str, content: bytes) -> None:
    with pytest.raises(IntegrityError):
        read_targets(content, TARGETS, read_root(FIRST, "root"))


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


PLAIN = targets({"index.json": b"{}", "SHA256SUMS": b"x"})

DOUBLED = {"root": list(twice(FIRST)), "targets": list(twice(PLAIN))}


def test_a_key_that_is_there_twice_is_refused() -> None:
    """One reader takes the first value, another the last: what is signed is not what another tool shows."""
    assert sum(map(len, DOUBLED.values())) >= 50
    for content in DOUBLED["targets"]:
        assert json.loads(content) == json.loads(PLAIN)
        with pytest.raises(IntegrityError, match="occurs twice"):
            read_targets(content, TARGETS, TRUSTED)
    for content in DOUBLED["root"]:
        with pytest.raises(IntegrityError, match="occurs twice"):
            read_root(content, "1.root.json")


def test_metadata_cut_at_any_byte_or_longer_is_refused() -> None:
    for whole, read in (
        (SIGNED.rstrip(), lambda cut: read_targets(cut, TARGETS, TRUSTED)),
        (FIRST.rstrip(), lambda cut: read_root(cut, "root")),
    ):
        read(whole)
        longer = (whole + more for more in (b"{}", b"x", b"\0", b"\xff", b",", b"}", b"\n" + SIGNED, b"\x1a"))
        for other in (*(whole[:end] for end in range(len(whole))), *longer):
            with pytest.raises(IntegrityError):
                read(other)


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


def test_a_key_twice_among_a_hundred_thousand_is_found_within_two_seconds() -> None:
    keys = ",".join(f'"{number}": 0' for number in [*range(100_000), 99_999])
    began = time.process_time()
    with pytest.raises(ParseError, match="'99999' occurs twice"):
        parse_json(f"{{{keys}}}", "index.json")
    assert time.process_time() - began < 2
