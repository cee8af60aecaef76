"""A thin package's manifest may be anybody's: what it says of absent files becomes paths and pip's words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builder.formats.manifest import Manifest, WheelEntry
from builder.package.proof import check_absent
from tests.support.factories.records import LEGACY, manifest

SOURCE = "wheel:nvidia-cudnn-cu12==9.10.2.21"

WHEEL = WheelEntry(SOURCE, "nvidia_cudnn_cu12-9.10.2.21-py3-none-manylinux_2_27_x86_64.whl", 7, "ab" * 32)


def thin(wheel: WheelEntry | None = WHEEL, **changes: object) -> Manifest:
    made = manifest(LEGACY, {"lib/libcudnn.so.9": 7})
    absent = {"source": SOURCE, "member": "nvidia/cudnn/lib/libcudnn.so.9", "packed": False, **changes}
    entry = replace(made.files[0], **absent)  # type: ignore[arg-type]
    return replace(made, files=(entry,), wheels=(wheel,) if wheel else ())


def test_what_we_write_is_safe() -> None:
    assert list(check_absent(thin())) == []
    assert list(check_absent(manifest(LEGACY, {"lib/libcudnn.so.9": 7}))) == []


@pytest.mark.parametrize(
    "hostile",
    [
        thin(path="../../etc/cron.d/x"),
        thin(path="/etc/passwd"),
        thin(path="lib/../../x"),
        thin(path="lib/-x"),
        thin(member="../../../etc/shadow"),
        thin(member="/etc/shadow"),
        thin(member="a//b"),
        thin(member=""),
        thin(member=None),
        thin(source="built"),
        thin(wheel=None),
        thin(replace(WHEEL, file="../../../x.whl")),
        thin(replace(WHEEL, sha256="../../../../tmp")),
        thin(replace(WHEEL, source="wheel:--index-url=x==1"), source="wheel:--index-url=x==1"),
        thin(replace(WHEEL, source="image:x"), source="image:x"),
        thin(replace(WHEEL, source="nothing"), source="nothing"),
    ],
)
def test_what_would_lead_elsewhere_is_found_before_anything_is_fetched(hostile: Manifest) -> None:
    assert [finding.code.name for finding in check_absent(hostile)] == ["B004"]
