"""Expected values: the containers of the official wheels, and ORT's cuda_configuration.cmake read by hand."""

from __future__ import annotations

import pytest

from builder.gpu.architectures import Arch
from builder.onnxruntime.official_builds import arch_list
from builder.onnxruntime.toolchain import cmake_list, compiled, read_list, refused, rewritten

LEGACY, LATEST = "50 52 60 61 70", "89 90 100 120"


def arches(text: str) -> tuple[Arch, ...]:
    return tuple(Arch.parse(word) for word in text.split())


def shown(sass: tuple[Arch, ...], ptx: tuple[Arch, ...]) -> str:
    return f"{' '.join(map(str, sass))} | {' '.join(map(str, ptx))}".strip()


@pytest.mark.parametrize(
    ("version", "counted"),
    [
        ("1.21.0", "60 70 75 80 86 90 | 90"),
        ("1.23.2", "60 70 75 80 86 90a | 90"),
    ],
)
def test_official_lists_come_to_what_the_wheels_hold(version: str, counted: str) -> None:
    """``counted``: what each container of the provider holds that holds most, in the wheel from PyPI."""
    made = read_list(arch_list(version).wheel, version)
    assert shown(made.sass, made.ptx) == counted


@pytest.mark.parametrize(
    ("version", "wheel", "archive"),
    [
        ("1.22.0", "60 70 75 80 86 90 | 90", "60 70 75 80 90 | 90"),
        ("1.23.0", "60 70 75 80 86 90a | 90a", "60 70 75 80 90a | 90a"),
        ("1.23.1", "60 70 75 80 86 90a | 90", "60 70 75 80 90a | 90"),
        ("1.40.0", "60 70 75 80 86 90a | 90", "60 70 75 80 90a | 90"),
        ("1.20.1", "60 70 75 80 86 90 | 90", "60 70 75 80 90 | 90"),
    ],
)
def test_official_lists_by_version(version: str, wheel: str, archive: str) -> None:
    """Pull requests 23671, 25126 and 26230 on what the packages are built for."""
    listed = arch_list(version)
    made = [read_list(text, version) for text in (listed.wheel, listed.archive)]
    assert [shown(each.sass, each.ptx) for each in made] == [wheel, archive]


@pytest.mark.parametrize(
    ("sm", "version", "told", "made"),
    [
        (LEGACY, "1.21.0", "50-real;52-real;60-real;61-real;70-real", "50 52 60 61 70 |"),
        (LEGACY, "1.23.2", "50-real;52-real;60-real;61-real;70-real", "50 52 60 61 70 |"),
        (LATEST, "1.22.0", "89-real;90-real;100-real;120-real", "89 90 100 120 |"),
        (LATEST, "1.23.2", "89-real;90-real;100-real;120-real", "89 90a 100a 120a |"),
        ("89 90a", "1.21.0", "89-real;90a-real", "89 90a |"),
        ("101 103 121", "1.23.2", "101-real;103-real;121-real", "101a 103 121 |"),
        ("103a 121a", "1.23.2", "103a-real;121a-real", "103 121 |"),
        ("90 110", "1.23.2", "90-real;110-real", "90a 110 |"),
        ("90 120f", "1.22.0", "90-real;120f-real", "90 120f |"),
    ],
)
def test_what_a_set_becomes(sm: str, version: str, told: str, made: str) -> None:
    assert cmake_list(arches(sm)) == told
    found = compiled(arches(sm), version)
    assert shown(found.sass, found.ptx) == made


@pytest.mark.parametrize(
    ("text", "version", "made"),
    [
        ("75-virtual;80;90-virtual", "1.21.0", "80 | 75 80 90"),
        ("75-virtual;80;90-virtual", "1.23.2", "80 | 90"),
        ("90a-virtual;80-real", "1.23.2", "80 | 90a"),
        ("90;90-real;90a-real", "1.23.2", "90a |"),
        ("", "1.23.2", "|"),
    ],
)
def test_suffixes_of_a_list(text: str, version: str, made: str) -> None:
    found = read_list(text, version)
    assert shown(found.sass, found.ptx) == made


@pytest.mark.parametrize("version", ["1.23.0", "1.24.4"])
def test_families_are_refused_by_two_lines(version: str) -> None:
    assert refused(arches("90 100f 120f"), version) == arches("100f 120f")
    with pytest.raises(ValueError, match="Unrecognized CUDA architecture: 100f"):
        compiled(arches("90 100f"), version)


@pytest.mark.parametrize("version", ["1.22.0", "1.25.0"])
def test_no_other_line_refuses_families_itself(version: str) -> None:
    assert refused(arches("100f"), version) == ()


def test_a_word_that_is_no_architecture() -> None:
    with pytest.raises(ValueError, match="Unrecognized CUDA architecture: native"):
        read_list("90;native", "1.23.2")


def test_which_architectures_change() -> None:
    assert rewritten(arches(LATEST), "1.22.0") == ()
    assert rewritten(arches(LATEST), "1.23.2") == tuple(
        zip(arches("90 100 120"), arches("90a 100a 120a"), strict=True)
    )
    assert rewritten(arches("121a 120f"), "1.23.2") == ((Arch(12, 1, "a"), Arch(12, 1)),)


def test_text_of_what_is_made() -> None:
    assert str(read_list("80-real;90", "1.21.0")) == "80 90, PTX 90"
    assert str(read_list("80-real", "1.21.0")) == "80"
