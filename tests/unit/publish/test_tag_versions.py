"""Tests of the version of ONNX Runtime that a release's tag names."""

from __future__ import annotations

import pytest

from builder.publish.preflight import check_tag

HELD = {"1.23.2"}


@pytest.mark.parametrize(
    "tag",
    [
        "gpu-libs-v1.23.2",
        "gpu-libs-v1.23.2-2",
        "v1.23.2+build.1.0.0",
        "v1.23.2rc1",
        "1.23.2",
        "tools-v2.0.0/ort-1.23.2",
        "nightly",
        "release-2026.11.28",
        "v1.23",
        "driver-570.133.7.1",
    ],
)
def test_what_stands_around_the_version_is_the_publishers(tag: str) -> None:
    assert check_tag(tag, HELD) == []


@pytest.mark.parametrize(
    ("tag", "named"),
    [
        ("gpu-libs-v1.21.0", "1.21.0"),
        ("gpu-libs-v1.21.0-1.22.0", "1.21.0, 1.22.0"),
        ("v1.23.20", "1.23.20"),
        ("v11.23.2", "11.23.2"),
        ("1.23.3+2026.11.28", "1.23.3"),
    ],
)
def test_another_version_is_refused_with_both(tag: str, named: str) -> None:
    (found,) = check_tag(tag, HELD)
    assert (found.code.name, found.path, found.wanted, found.got) == ("R018", tag, "1.23.2", named)


def test_of_mixed_packages_each_version_will_do() -> None:
    assert check_tag("v1.21.0", {"1.21.0", "1.23.2"}) == []
    assert check_tag("v1.22.0", {"1.21.0", "1.23.2"})[0].wanted == "1.21.0, 1.23.2"


def test_without_a_readable_package_the_packages_are_what_is_told() -> None:
    assert check_tag("v1.21.0", set()) == []
