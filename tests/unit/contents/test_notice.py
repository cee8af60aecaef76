"""Tests of NOTICE: it maps every file to its licence and source, NVIDIA's files to NVIDIA's terms."""

from __future__ import annotations

import pytest

from builder.contents.integrity import check_notice
from builder.contents.notice import notice
from builder.finding import Code
from builder.formats.package_names import Layout
from tests.support.factories.documents import manifest, members
from tests.support.factories.packages import official, plan

CUDNN = "lib/libcudnn.so.9"


def text(layout: Layout = Layout.FULL) -> str:
    return notice("ortpacks-x", members(plan(), layout))


def test_it_is_text_that_fits_a_terminal_and_the_same_whatever_the_order() -> None:
    made = members(plan(), Layout.THIN)
    lines = notice("ortpacks-x", made).splitlines()
    assert max(map(len, lines)) <= 110
    assert notice("ortpacks-x", tuple(reversed(made))).splitlines() == lines


def test_it_says_what_our_licence_does_not_cover_and_what_the_terms_ask() -> None:
    for layout in Layout:
        flat = " ".join(text(layout).split())
        assert "It does not cover NVIDIA's files" in flat
        assert (
            "as part of an application that uses them, not as a product of their own and not modified" in flat
        )


def test_a_file_stands_below_its_licence_with_its_wheel() -> None:
    lines = text().splitlines()
    at = lines.index("licenses/nvidia-cudnn.txt (nvidia)")
    cudnn = next(line for line in lines[at:] if line.split()[:1] == [CUDNN])
    assert cudnn.split() == [CUDNN, "wheel:nvidia-cudnn-cu12==9.10.2.21"]
    ours = lines[lines.index("LICENSE (ortpacks)") + 1 : lines.index("licenses/nvidia-cuda.txt (nvidia)") - 1]
    assert [line.split() for line in ours] == [
        ["LICENSE", "built"],
        ["NOTICE", "built"],
        ["sbom.cdx.json", "built"],
    ]


def test_thin_lists_nvidias_files_too_and_says_where_they_come_from() -> None:
    thin, full = text(Layout.THIN), text()
    assert len([line for line in thin.splitlines() if line.endswith("; not in the archive")]) == 15
    assert "unchanged, from the wheel named beside each" in " ".join(thin.split())
    assert "not in the archive" not in full


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
    ("old", "new", "told"),
    [
        ("  lib/libcudnn.so.9 ", "  lib/libcudnn.so.8 ", CUDNN),
        ("wheel:nvidia-curand-cu12==10.3.10.19", "built", "lib/libcurand.so.10"),
        (
            "wheel:nvidia-curand-cu12==10.3.10.19",
            "wheel:nvidia-curand-cu12==10.3.10.1",
            "lib/libcurand.so.10",
        ),
        ("It does not cover NVIDIA's files", "It covers all files", "NOTICE"),
        ("under an open-source licence", "under our licence", "NOTICE"),
    ],
)
def test_a_file_it_does_not_name_and_a_missing_statement_are_found(old: str, new: str, told: str) -> None:
    whole = text()
    assert old in whole
    found = list(check_notice(manifest(), whole.replace(old, new)))
    assert [(one.code, one.path) for one in found] == [(Code.B017, told)]


def test_a_file_below_another_licence_is_found() -> None:
    """The change puts cuDNN's files under our licence."""
    moved = text().replace("licenses/nvidia-cudnn.txt (nvidia)", "LICENSE (ortpacks)")
    assert len(list(check_notice(manifest(), moved))) == 8 + 1  # the libraries, and the licence text


@pytest.mark.parametrize("empty", ["", "\n\n", "\x00" * 9, "  \n  \n"])
def test_text_that_is_no_notice_names_everything_and_never_a_traceback(empty: str) -> None:
    whole = manifest()
    assert len(list(check_notice(whole, empty))) == 1 + len(whole.files)
