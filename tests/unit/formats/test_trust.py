"""Tests of signed metadata against The Update Framework's own implementation and against forgeries."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from datetime import timedelta

import pytest
from tuf.api.metadata import Metadata

from builder.errors import IntegrityError
from builder.formats.trust import TARGETS, canonical, read_root, read_targets, require_fresh
from builder.publish.signing import key_id
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


def test_what_is_written_is_read() -> None:
    found = read_targets(SIGNED, TARGETS, read_root(FIRST, "root"))
    assert found.files.keys() == FILES.keys()
    assert found.expires - NOW == timedelta(days=730)


def test_a_control_character_is_never_signed() -> None:
    with pytest.raises(ValueError, match="control"):
        canonical({"a": "\n"})
    assert canonical({"b": 'ü"\\', "a": [1, True, None]}) == '{"a":[1,true,null],"b":"ü\\"\\\\"}'.encode()


@pytest.mark.parametrize("signers", [[], [ALICE], [BOB], [ALICE, ALICE], [ALICE, MALLORY], [CI, MALLORY]])
def test_a_root_takes_its_threshold_of_its_own_keys(signers: list[object]) -> None:
    change = {"root_keys": [ALICE.public, BOB.public], "release_keys": [CI.public], "threshold": 2}
    with pytest.raises(IntegrityError, match=r"signed by [01] of the keys .* 2 are needed"):
        read_root(root(*signers, **change), "root")  # type: ignore[arg-type]


def test_a_key_under_two_names_counts_once() -> None:
    document = json.loads(FIRST)
    twin = copy.deepcopy(document["signed"]["keys"][key_id(ALICE.public)])
    document["signed"]["keys"]["twin"] = twin
    document["signed"]["roles"]["root"]["keyids"].append("twin")
    signature = ALICE.sign(canonical(document["signed"])).hex()
    document["signatures"] = [{"keyid": name, "sig": signature} for name in ("twin", key_id(ALICE.public))]
    with pytest.raises(IntegrityError, match="signed by 1 of"):
        read_root(json.dumps(document).encode(), "root")


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


def test_roots_follow_each_other_without_a_gap() -> None:
    second = root(ALICE, BOB, before=FIRST, threshold=2)
    third = root(ALICE, BOB, before=second, threshold=2)
    with pytest.raises(IntegrityError, match="has version 3, 2 is wanted"):
        read_root(third, "2.root.json", read_root(FIRST, "1"))
    with pytest.raises(IntegrityError, match="has version 1, 2 is wanted"):
        read_root(FIRST, "2.root.json", read_root(FIRST, "1"))


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
        "signed/version",
        "signed/expires",
        "signed/targets",
        "signed/_type",
    ):
        yield from ((f"{path} = {value!r:.20}", changed(SIGNED, path, value).encode()) for value in values)
    index = document["signed"]["targets"]["index.json"]
    for size, digest in (
        (3, index["hashes"]["sha256"]),
        (2, "0" * 64),
        (2, index["hashes"]["sha256"].upper()),
    ):
        target = {"length": size, "hashes": {"sha256": digest}}
        yield f"{size} {digest:.8}", changed(SIGNED, "signed/targets/index.json", target).encode()
    (one,) = document["signatures"]
    signature = str(one["sig"])
    other = MALLORY.sign(canonical(document["signed"])).hex()
    mine, theirs = key_id(MALLORY.public), str(one["keyid"])
    for what, signatures in {
        "none": [],
        "other key": [{"keyid": mine, "sig": other}],
        "other key under the right id": [{"keyid": theirs, "sig": other}],
        "right signature under another id": [{"keyid": mine, "sig": signature}],
        "cut": [{"keyid": theirs, "sig": signature[:-2]}],
        "upper case": [{"keyid": theirs, "sig": signature.upper()}],
        "no hex": [{"keyid": theirs, "sig": "zz" * 64}],
        "empty": [{"keyid": theirs, "sig": ""}],
        "zeros": [{"keyid": theirs, "sig": "00" * 64}],
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
        "nothing": b"",
        "no JSON": b"<html>",
        "cut": SIGNED[: len(SIGNED) // 2],
        "a list": b"[]",
        "a number": b"1",
        "deep": b"[" * 100_000,
        "deep in it": text.replace(
            '"version":', '"x": ' + "[" * 50_000 + "]" * 50_000 + ', "version":'
        ).encode(),
        "a surrogate": text.replace('"index.json"', '"\\ud800"').encode(),
        "a control character": text.replace('"index.json"', '"\\u0000"').encode(),
        "a key twice": text.replace('"version":', '"version": 9999999999, "version":', 1)
        .replace('"_type": "targets"', '"_type": "root"')
        .encode(),
        "not a number": text.replace('"length": 2', '"length": NaN').encode(),
    }.items():
        yield what, content


@pytest.mark.parametrize(("what", "content"), list(forged()))
def test_forgeries_are_refused(what: str, content: bytes) -> None:
    with pytest.raises(IntegrityError):
        read_targets(content, TARGETS, read_root(FIRST, "root"))


def test_enough_forgeries_were_tried() -> None:
    assert len(list(forged())) >= 100
