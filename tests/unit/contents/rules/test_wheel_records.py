"""Tests of whether a wheel's file is the one that RECORD lists under its path."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock, call

import pytest

from builder.contents.package_manifest import Member
from builder.contents.rules.wheel_records import check_recorded, check_unmodified, read_rows, recorded
from builder.errors import IntegrityError
from builder.files.digest import Digest
from builder.finding import Finding
from tests.support.factories.documents import changed, digest, manifest
from tests.support.messages import Told

# printf 'hello\n' | sha256sum, and the same in urlsafe base64 without padding
HELLO = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"

ROW = "nvidia/x/lib/x.so.1,sha256=WJG1tSLV3whtD_CxEPvZ0hu0_HFjrzTQgoai6Eb2vgM,6\n"

OTHER = "nvidia/x/lib/y.so.1,sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU,0\n"

NVIDIA, ORT = "wheel:nvidia-x==1", "wheel:onnxruntime-gpu==1.21.0"

CUDNN = "lib/libcudnn.so.9"

CUDNN_WHEEL = "wheel:nvidia-cudnn-cu12==9.10.2.21"


def member(at: str | None = "nvidia/x/lib/x.so.1", **changes: object) -> Member:
    made = Member(
        path="lib/x.so.1", file=Path("/x"), source=NVIDIA, licence="LICENSE", vendor="nvidia", member=at
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def codes(findings: Iterable[Finding]) -> list[str]:
    return [f"{finding.code.name} {finding.path}" for finding in findings]


def test_record_tells_size_and_hash_before_anybody_reads_the_file() -> None:
    digests, findings = recorded([member()], lambda source: ROW + OTHER)
    assert digests == {"lib/x.so.1": Digest(6, HELLO)}
    assert findings == []


@pytest.mark.parametrize(
    ("rows", "at"),
    [
        (OTHER, "nvidia/x/lib/x.so.1"),
        (ROW, "nvidia/x/lib/y.so.1"),
        (ROW, None),
        *((ROW.replace(",6", size), "nvidia/x/lib/x.so.1") for size in (",", "", ",-6", ",six")),
        (ROW.replace(",6", ",\N{SUPERSCRIPT SIX}"), "nvidia/x/lib/x.so.1"),
    ],
    ids=["no row", "another row", "no member", "empty", "cut", "negative", "word", "superscript"],
)
def test_a_file_that_record_does_not_tell_whole_is_named(rows: str, at: str | None, told: Told) -> None:
    digests, (finding,) = recorded([member(at)], lambda source: rows)
    assert (digests, finding.code.name) == ({}, "B001")
    told(finding)


def test_what_we_built_or_modified_has_no_record_and_nvidias_may_not_be_modified(told: Told) -> None:
    ours = [
        member(None, source="built", vendor="ortpacks"),
        member(source=ORT, vendor="onnxruntime", modified=True),
    ]
    assert recorded(ours, lambda source: ROW) == ({}, [])
    _, (finding,) = recorded([member(modified=True)], lambda source: ROW)
    told(finding)


def test_each_wheels_record_is_read_once() -> None:
    record = Mock(return_value=ROW)
    recorded([member(), member(), member(source=ORT)], record)
    assert record.call_args_list == [call(NVIDIA), call(ORT)]


@pytest.mark.parametrize(
    ("vendor", "source", "same", "modified", "found"),
    [
        ("nvidia", NVIDIA, True, False, False),
        ("nvidia", NVIDIA, False, False, True),
        ("nvidia", NVIDIA, True, True, True),
        ("onnxruntime", ORT, True, False, False),
        ("onnxruntime", ORT, False, False, True),
        ("onnxruntime", ORT, False, True, False),  # RUNPATH was set on a copy
        ("onnxruntime", "built", False, False, False),
    ],
)
def test_every_unmodified_file_of_a_wheel_must_be_its_wheels(
    vendor: str, source: str, same: bool, modified: bool, found: bool
) -> None:
    asked = member(source=source, vendor=vendor, modified=modified)
    digests = {"lib/x.so.1": Digest(6, HELLO if same else "0" * 64)}
    findings = check_unmodified([asked], digests, lambda source: ROW)
    assert codes(findings) == (["B001 lib/x.so.1"] if found else [])


EMPTY = Digest(0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")


@pytest.mark.parametrize(
    ("rows", "held"),
    [
        (ROW + OTHER, EMPTY),
        (ROW, Digest(5, HELLO)),
        (ROW.replace(",6", ","), EMPTY),
        (OTHER, Digest(6, HELLO)),
    ],
    ids=["its neighbour's", "another size", "another hash", "no row"],
)
def test_other_bytes_under_its_name_are_found(rows: str, held: Digest, told: Told) -> None:
    """y.so.1 is empty: RECORD has its hash, but not for x.so.1."""
    (finding,) = check_unmodified([member()], {"lib/x.so.1": held}, lambda _: rows)
    told(finding)


def test_its_own_bytes_are_none() -> None:
    bare = {"lib/x.so.1": Digest(6, HELLO)}
    assert check_unmodified([member()], bare, lambda _: ROW.replace(",6", ",")) == []
    assert check_unmodified([member("nvidia/x/lib/y.so.1")], {"lib/x.so.1": EMPTY}, lambda _: OTHER) == []


def records() -> Mapping[str, str]:
    """Return RECORD of cuDNN's wheel for the made-up files of ``tests.support.factories.documents``."""

    def row(entry_path: str, at: str) -> str:
        made = digest(entry_path)
        coded = base64.urlsafe_b64encode(bytes.fromhex(made.sha256)).rstrip(b"=").decode()
        return f"{at},sha256={coded},{made.size}"

    rows = [row(entry.path, str(entry.member)) for entry in manifest().files if entry.source == CUDNN_WHEEL]
    return {CUDNN_WHEEL: "\n".join(rows)}


def test_a_manifest_is_held_to_the_wheels_that_are_at_hand() -> None:
    assert list(check_recorded(manifest(), records())) == []
    assert list(check_recorded(manifest(), {})) == []
    with pytest.raises(IntegrityError, match=f"^{CUDNN_WHEEL}: RECORD has no sha256 for p/a: md5=abcd$"):
        list(check_recorded(manifest(), {CUDNN_WHEEL: "p/a,md5=abcd,6"}))
    with pytest.raises(IntegrityError, match=f"^{NVIDIA}: RECORD has no sha256 for p/a: md5=abcd$"):
        recorded([member()], lambda source: "p/a,md5=abcd,6")
    with pytest.raises(IntegrityError, match=f"^{NVIDIA}: RECORD has no sha256 for p/a: md5=abcd$"):
        check_unmodified([member()], {}, lambda source: "p/a,md5=abcd,6")


@pytest.mark.parametrize(
    "change",
    [
        {"sha256": "0" * 64},
        {"size": 1},
        {"member": "nvidia/cudnn/lib/libcudnn.so.8"},
        {"member": "nvidia/cudnn/lib/libcudnn_ops.so.9"},
        {"member": None},
        {"sha256": "0" * 64, "modified": True},
    ],
)
def test_a_manifest_that_tells_otherwise_than_the_wheel_is_found(change: dict[str, object]) -> None:
    whole = changed(manifest(), CUDNN, **change)
    (finding,) = check_recorded(whole, records())
    assert str(finding).startswith(f"error B001 {CUDNN}: it is not the file of {CUDNN_WHEEL}\n    wanted: ")


def test_a_modified_file_of_orts_need_only_be_known_to_its_wheel() -> None:
    whole = changed(manifest(), CUDNN, vendor="onnxruntime", modified=True, sha256="0" * 64)
    assert list(check_recorded(whole, records())) == []
    gone = changed(whole, CUDNN, member="elsewhere")
    assert codes(check_recorded(gone, records())) == [f"B001 {CUDNN}"]


def test_a_record_is_read_as_the_real_ones_are_written() -> None:
    """The first row is of cuDNN 9.10.2.21; the expected hex is ``sha256sum``'s for that file."""
    record = (
        "nvidia/cudnn/include/cudnn.h,sha256=EILVHTtWS6zo72_G7jNbZosr-lF_V8Bu_UKCY-XCGFU,2841\n"
        '"odd, name",sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU,0\n'
        "x.dist-info/RECORD,,\n"
    )
    assert {path: row.sha256 for path, row in read_rows(record, "x").items()} == {
        "nvidia/cudnn/include/cudnn.h": "1082d51d3b564bace8ef6fc6ee335b668b2bfa517f57c06efd428263e5c21855",
        "odd, name": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    }


def test_a_hash_may_have_its_padding_and_be_in_plain_base64() -> None:
    plain = ROW.replace("_", "/").replace("-", "+").replace("vM,", "vM=,")
    assert read_rows(plain, "x")["nvidia/x/lib/x.so.1"].sha256 == HELLO


@pytest.mark.parametrize(
    "text",
    [
        *("md5=abcd", "sha256=short", "sha256=", "sha256=\N{REPLACEMENT CHARACTER}"),
        *(f"sha512={'A' * 43}", f"sha256={'A' * 42}", f"sha256={'A' * 44}", f"sha256={'A' * 43}=="),
        f"sha256={'é' * 43}",
    ],
)
def test_a_row_without_a_sha256_is_named_with_its_wheel(text: str) -> None:
    with pytest.raises(IntegrityError, match=rf"^x\.whl: RECORD has no sha256 for p/a: {text}$"):
        read_rows(f"p/a,{text},6\n", "x.whl")


def test_a_record_that_is_no_csv_is_named_with_its_wheel() -> None:
    """Python's csv reader takes fields of at most 131,072 characters."""
    with pytest.raises(IntegrityError, match=r"^x\.whl: RECORD is no CSV: field larger than field limit"):
        read_rows("p" * 131_073 + ",sha256=,6\n", "x.whl")
