"""Tests of NOTICE: it maps every file to its licence and source, NVIDIA's files to NVIDIA's terms."""

from __future__ import annotations

import pytest

from builder.contents.integrity import check_notice
from builder.contents.notice import notice
from builder.finding import Code
from builder.formats.package_names import Layout
from tests.support.factories.documents import manifest, members
from tests.support.factories.packages import official, plan
from tests.support.messages import Told

CUDNN = "lib/libcudnn.so.9"


def text(layout: Layout = Layout.FULL) -> str:
    return notice("ortpacks-x", members(plan(), layout))


def test_it_is_text_that_fits_a_terminal_and_the_same_whatever_the_order() -> None:
    made = members(plan(), Layout.THIN)
    lines = notice("ortpacks-x", made).splitlines()
    assert max(map(len, lines)) <= 110
    assert notice("ortpacks-x", tuple(reversed(made))).splitlines() == lines


def test_it_says_which_file_is_under_which_licence_and_from_where(told: Told) -> None:
    told(text())
    told(text(Layout.THIN))


def test_thin_lists_nvidias_files_too_and_says_where_they_come_from() -> None:
    assert (
        len([line for line in text(Layout.THIN).splitlines() if line.endswith("; not in the archive")]) == 15
    )
    assert "not in the archive" not in text()


def test_the_modified_one_is_named() -> None:
    lines = notice("x", members(official())).splitlines()
    assert [line.split()[0] for line in lines if "RUNPATH set to $ORIGIN" in line] == [
        "lib/libonnxruntime_providers_cuda.so"
    ]


@pytest.mark.parametrize("layout", list(Layout))
def test_its_own_text_passes(layout: Layout) -> None:
    for made in (plan(), official()):
        assert list(check_notice(manifest(made, layout), notice("x", members(made, layout)))) == []


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        ("  lib/libcudnn.so.9 ", "  lib/libcudnn.so.8 ", CUDNN),
        ("-curand-cu12==10.3.10.19", "built", "lib/libcurand.so.10"),
        ("-curand-cu12==10.3.10.19", "-curand-cu12==10.3.10.1", "lib/libcurand.so.10"),
        ("It does not cover NVIDIA's files", "It covers all files", "NOTICE"),
        ("under an open-source licence", "under our licence", "NOTICE"),
    ],
)
def test_a_file_it_does_not_name_and_a_missing_statement_are_found(old: str, new: str, path: str) -> None:
    whole = text()
    assert old in whole
    found = list(check_notice(manifest(), whole.replace(old, new)))
    assert [(one.code, one.path) for one in found] == [(Code.B017, path)]


def test_a_file_below_another_licence_is_found() -> None:
    """The change puts cuDNN's files under our licence."""
    moved = text().replace("licenses/nvidia-cudnn.txt (nvidia)", "LICENSE (ortpacks)")
    assert len(list(check_notice(manifest(), moved))) == 8 + 1  # the libraries, and the licence text


@pytest.mark.parametrize("empty", ["", "\n\n", "\x00" * 9, "  \n  \n"])
def test_text_that_is_no_notice_names_everything_and_never_a_traceback(empty: str) -> None:
    whole = manifest()
    assert len(list(check_notice(whole, empty))) == 1 + len(whole.files)
