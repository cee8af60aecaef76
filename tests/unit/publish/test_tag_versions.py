"""Tests of the version of ONNX Runtime that a release's tag names."""

import pytest

from builder.publish.preflight import check_tag


@pytest.mark.parametrize(
    ("tag", "named"),
    [
        *(("gpu-libs-v1.23.2-2", None), ("v1.23.2+build.1.0.0", None), ("v1.23.2rc1", None)),
        *(("tools-v2.0.0/ort-1.23.2", None), ("nightly", None), ("release-2026.11.28", None)),
        *(("v1.23", None), ("driver-570.133.7.1", None)),
        *(("gpu-libs-v1.21.0-1.22.0", "1.21.0, 1.22.0"), ("v1.23.20", "1.23.20")),
        *(("v11.23.2", "11.23.2"), ("1.23.3+2026.11.28", "1.23.3")),
    ],
)
def test_another_version_is_refused_and_what_else_a_tag_has_is_not(tag: str, named: str | None) -> None:
    found = [(one.code.name, one.path, one.wanted, one.got) for one in check_tag(tag, {"1.23.2"})]
    assert found == ([("R018", tag, "1.23.2", named)] if named else [])


def test_of_mixed_packages_each_version_will_do_and_without_one_nothing_is_told() -> None:
    assert check_tag("v1.21.0", {"1.21.0", "1.23.2"}) == check_tag("v1.21.0", set()) == []
    assert check_tag("v1.22.0", {"1.21.0", "1.23.2"})[0].wanted == "1.21.0, 1.23.2"
