"""Tests of which archives a source's build downloads, on sources that were made up.

The archives of real ones, 1.21.0 to the 1.30 development line, were compared with a reading of their CMake
files by hand: 15 for 1.21.0, 14 from 1.22.0 on, which has no ``utf8_range``.
"""

from collections.abc import Mapping

import pytest

from builder.build.source_reading import commands_of
from builder.errors import ParseError
from builder.facts.ort.source import Dependency, SourceFacts, mirrored, read_source
from builder.io.wiring import Wiring
from tests.support import ROOT
from tests.support.tables import data_text

SHA1 = {name: f"{number:040x}" for number, name in enumerate(("alpha", "beta", "gamma", "delta", "win"))}

LIST = "#Name;Url;SHA1\n\n" + "".join(
    f"{name};https://host.example/{name}/archive/v1.zip;{sha1}\n" for name, sha1 in SHA1.items()
)

CMAKE = data_text("ort/archives/CMakeLists.txt")

EXTERNAL = data_text("ort/archives/deps.cmake")


def files(listed: str = LIST, cmake: str = CMAKE) -> dict[str, str]:
    return {
        "cmake/deps.txt": listed,
        "cmake/CMakeLists.txt": cmake,
        "cmake/external/deps.cmake": EXTERNAL,
        "VERSION_NUMBER": "1.29.0\n",
    }


def read(files: Mapping[str, str]) -> SourceFacts:
    return read_source(files, lambda: commands_of(Wiring(ROOT), files))


def needed(files: Mapping[str, str]) -> tuple[Dependency, ...]:
    """The archives of this project's builds."""
    return read(files).dependencies


def archive(name: str, line: int, content: str = "") -> Dependency:
    url = f"https://host.example/{name}/archive/v1.zip"
    return Dependency(name, content or name, url, SHA1[name], line)


def test_what_the_options_of_a_build_use_is_needed_and_nothing_else() -> None:
    """``gamma`` depends on the profile, so it is pinned for those that need it. ``beta`` has another name for
    ``FetchContent``."""
    downloaded = (archive("alpha", 3), archive("beta", 4, "bee"), archive("gamma", 5))
    assert read(files()) == SourceFacts("1.29.0", downloaded)


@pytest.mark.parametrize("gone", ["VERSION_NUMBER", "cmake/deps.txt", "cmake/CMakeLists.txt"])
def test_what_is_no_source_is_told_by_what_it_lacks(gone: str) -> None:
    lacking = {path: text for path, text in files().items() if path != gone}
    with pytest.raises(ParseError, match=f"no source of ONNX Runtime .*it has no {gone}. Name the top of"):
        read(lacking)


@pytest.mark.parametrize("text", ["", "1.29", "v1.29.0", "1.29.0\n1.30.0", "1.29.0-dev"])
def test_a_version_is_three_numbers(text: str) -> None:
    with pytest.raises(ParseError, match=r"its VERSION_NUMBER is .* X\.Y\.Z"):
        read({**files(), "VERSION_NUMBER": text})


def test_a_list_without_a_line_that_is_not_used_is_fine() -> None:
    """Defect: a fixed list of names was wanted, one of which ONNX Runtime dropped in 2025."""
    short = "".join(line for line in LIST.splitlines(keepends=True) if "delta" not in line)
    assert needed(files(short)) == needed(files())


@pytest.mark.parametrize(
    ("listed", "cmake", "place"),
    [
        (LIST.replace("beta;", "other;"), CMAKE, r"^cmake/CMakeLists\.txt:5 .*no line for beta"),
        (LIST + "no row at all\n", CMAKE, r"^cmake/deps\.txt:8 .*'no row at all'"),
        (LIST.replace(SHA1["win"], "zz"), CMAKE, r"^cmake/deps\.txt:7 "),
        (LIST.replace("https://host.example/alpha", "file:///alpha"), CMAKE, r"^cmake/deps\.txt:3 .* alpha"),
        (LIST, "message(nothing)\n", r"^cmake/CMakeLists\.txt "),
        (LIST, CMAKE + "if(\n", r"^cmake/CMakeLists\.txt:16 of .* Parse error"),
    ],
)
def test_what_is_not_understood_is_told_with_its_place(listed: str, cmake: str, place: str) -> None:
    with pytest.raises(ParseError, match=place):
        needed(files(listed, cmake))


def test_cmake_finds_an_archive_below_the_tree() -> None:
    assert mirrored(archive("alpha", 3).url) == "mirror/host.example/alpha/archive/v1.zip"
