"""Tests of whether a wheel's file is the one that RECORD lists under its path."""

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock, call

import pytest

from builder.contents.package_manifest import Member
from builder.contents.rules.wheel_records import check_recorded, read_rows, recorded
from builder.errors import IntegrityError
from builder.files.digest import Digest
from builder.finding import Code
from tests.support.messages import Told

# printf 'hello\n' | sha256sum, and the same in urlsafe base64 without padding
HELLO = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"

ROW = "nvidia/x/lib/x.so.1,sha256=WJG1tSLV3whtD_CxEPvZ0hu0_HFjrzTQgoai6Eb2vgM,6\n"

OTHER = "nvidia/x/lib/y.so.1,sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU,0\n"

NVIDIA, ORT = "wheel:nvidia-x==1", "wheel:onnxruntime-gpu==1.21.0"


def member(at: str | None = "nvidia/x/lib/x.so.1", **changes: object) -> Member:
    made = Member(
        path="lib/x.so.1", file=Path("/x"), source=NVIDIA, licence="LICENSE", vendor="nvidia", member=at
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def test_each_wheels_record_tells_size_and_hash_and_is_read_once() -> None:
    record = Mock(return_value=ROW + OTHER)
    found = recorded([member(), member(), member(source=ORT)], record)
    assert found == ({"lib/x.so.1": Digest(6, HELLO)}, [])
    assert record.call_args_list == [call(NVIDIA), call(ORT)]


SIZES = {"absent": "", "empty": ",", "negative": ",-6", "word": ",six", "superscript": ",\N{SUPERSCRIPT SIX}"}


@pytest.mark.parametrize(
    ("rows", "changes"),
    [
        (OTHER, {}),
        (ROW, {"at": "nvidia/x/lib/y.so.1"}),
        (ROW, {"at": None}),
        (ROW, {"modified": True}),
        *((ROW.replace(",6", size), {}) for size in SIZES.values()),
    ],
    ids=["no row", "another row", "no member", "modified", *SIZES],
)
def test_a_file_that_record_lacks_is_named(rows: str, changes: dict[str, Any], told: Told) -> None:
    digests, (finding,) = recorded([member(**changes)], lambda source: rows)
    assert digests == {}
    told(finding)


def test_what_we_built_or_modified_has_no_record() -> None:
    ours = [
        member(None, source="built", vendor="ortpacks"),
        member(source=ORT, vendor="onnxruntime", modified=True),
    ]
    assert recorded(ours, lambda source: ROW) == ({}, [])


EMPTY = Digest(0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")

NO_SIZE = ROW.replace(",6", ",")


OF_ORT = {"source": ORT, "vendor": "onnxruntime"}


@pytest.mark.parametrize(
    ("rows", "held", "changes", "found"),
    [
        (ROW, Digest(6, HELLO), {}, False),
        (NO_SIZE, Digest(6, HELLO), {}, False),
        (OTHER, EMPTY, {"at": "nvidia/x/lib/y.so.1"}, False),
        (ROW + OTHER, EMPTY, {}, True),
        (ROW, Digest(5, HELLO), {}, True),
        (ROW, Digest(6, "0" * 64), {}, True),
        (NO_SIZE, EMPTY, {}, True),
        (OTHER, Digest(6, HELLO), {}, True),
        (ROW, Digest(6, HELLO), {"at": None}, True),
        (ROW, EMPTY, {"modified": True}, True),
        (ROW, EMPTY, OF_ORT, True),
        (ROW, EMPTY, {**OF_ORT, "modified": True}, False),
        (ROW, EMPTY, {**OF_ORT, "modified": True, "at": "elsewhere"}, True),
        (ROW, EMPTY, {"source": "built", "vendor": "onnxruntime"}, False),
    ],
)
def test_a_file_of_a_wheel_at_hand_must_be_its_wheels(
    rows: str, held: Digest, changes: dict[str, Any], found: bool, told: Told
) -> None:
    """y.so.1 is empty: RECORD has its hash, but not for x.so.1."""
    files = [member(**changes).of_bytes(held)]
    findings = list(check_recorded(files, {NVIDIA: rows, ORT: rows}))
    assert [(finding.code, finding.path) for finding in findings] == [(Code.B001, "lib/x.so.1")] * found
    told("\n".join(map(str, findings)))
    assert list(check_recorded(files, {})) == []


def test_a_record_is_read_as_the_real_ones_are_written() -> None:
    """The first row is of cuDNN 9.10.2.21; the expected hex is ``sha256sum``'s for that file.

    The last row has a hash in plain base64 with its padding.
    """
    record = (
        "nvidia/cudnn/include/cudnn.h,sha256=EILVHTtWS6zo72_G7jNbZosr-lF_V8Bu_UKCY-XCGFU,2841\n"
        '"odd, name",sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU,0\n'
        "x.dist-info/RECORD,,\n"
        "plain,sha256=WJG1tSLV3whtD/CxEPvZ0hu0/HFjrzTQgoai6Eb2vgM=,6\n"
    )
    assert {path: row.sha256 for path, row in read_rows(record, "x").items()} == {
        "nvidia/cudnn/include/cudnn.h": "1082d51d3b564bace8ef6fc6ee335b668b2bfa517f57c06efd428263e5c21855",
        "odd, name": EMPTY.sha256,
        "plain": HELLO,
    }


@pytest.mark.parametrize(
    "text",
    [
        *("md5=abcd", "sha256=short", "sha256=", f"sha512={'A' * 43}", f"sha256={'é' * 43}"),
        *(f"sha256={'A' * 42}", f"sha256={'A' * 44}", f"sha256={'A' * 43}=="),
    ],
)
def test_a_row_without_a_sha256_is_named_with_its_wheel(text: str) -> None:
    row = f"p/a,{text},6\n"
    for wheel, read in (
        ("x.whl", lambda: read_rows(row, "x.whl")),
        (ORT, lambda: list(check_recorded([], {ORT: row}))),
        (NVIDIA, lambda: recorded([member()], lambda _: row)),
    ):
        with pytest.raises(IntegrityError, match=f"^{wheel}: RECORD has no sha256 for p/a: {text}$"):
            read()


def test_a_record_that_is_no_csv_is_named_with_its_wheel() -> None:
    """Python's csv reader takes fields of at most 131,072 characters."""
    with pytest.raises(IntegrityError, match=r"^x\.whl: RECORD is no CSV: field larger than field limit"):
        read_rows("p" * 131_073 + ",sha256=,6\n", "x.whl")
