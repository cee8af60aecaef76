"""What is read of a source of ONNX Runtime: its version, and what its own build downloads.

``cmake/deps.txt`` has a line with name, URL and SHA-1 for each archive that any build needs. ORT's CMake
files use the URL of a line as ``DEP_URL_<name>``; the lines that a build needs are those whose URL is used
when CMake configures it. The command that uses it begins with its name for ``FetchContent``. CMake looks for
each archive below ``mirror/<host>/<path>`` of the source tree before it downloads it
(``cmake/external/onnxruntime_external_deps.cmake``, from 1.15 on), so a build with all archives there needs
no network. CMake compares their SHA-1 and patches them as in the official build.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from builder.errors import ParseError
from builder.facts.ort.configured import FOLDER, Call

VERSION_FILE = "VERSION_NUMBER"

LIST = f"{FOLDER}/deps.txt"


@dataclass(frozen=True)
class Headers:
    """A dependency that is headers alone: what ORT's CMake files link, and the headers."""

    library: str
    alias: str
    """Another name of the library; empty if there is none."""
    files: str
    """Headers below a folder of headers, as a pattern of the shell."""


HEADERS: Mapping[str, Headers] = {
    "cudnn_frontend": Headers("cudnn_frontend", "", "*"),
    "date": Headers("date", "date::date", "date*"),
    "json": Headers("nlohmann_json", "nlohmann_json::nlohmann_json", "nlohmann*"),
    "microsoft_gsl": Headers("GSL", "Microsoft.GSL::GSL", "gsl"),
    "mp11": Headers("boost_mp11", "Boost::mp11", "boost/mp11*"),
}
"""Dependencies whose headers suffice, by the name in ``deps.txt``. Source of the targets: ``cmake/external``
of 1.21.0 to 1.30."""

_USE = re.compile(r"\$\{DEP_URL_(\w+)\}")

_SHA1 = re.compile(r"[0-9a-fA-F]{40}")

_NAME = re.compile(r"\w+", re.ASCII)

_URL = re.compile(r"https://[A-Za-z0-9.-]+(?::[0-9]+)?(?:/[A-Za-z0-9._+~-]+)+")

_VERSION = re.compile(r"(?:0|[1-9][0-9]*)(?:\.(?:0|[1-9][0-9]*)){2}")


@dataclass(frozen=True)
class Dependency:
    """An archive that ORT's build downloads: a line of ``deps.txt``."""

    name: str
    content: str
    """Its name for ``FetchContent``, in lower case: ``gsl`` for ``microsoft_gsl``."""
    url: str
    sha1: str
    """Hex SHA-1 of its bytes, in lower case."""
    line: int


@dataclass(frozen=True)
class SourceFacts:
    """What was read of a source."""

    version: str
    dependencies: tuple[Dependency, ...]
    """What builds need, sorted by name."""


def read_source(texts: Mapping[str, str], calls: Callable[[], Iterable[Call]]) -> SourceFacts:
    """Return what is read of a source, by the texts of its files (``is_read``) by path.

    ``calls`` returns the commands that CMake runs for our builds, as they are written. Raises ``ParseError``
    for what is no source of ONNX Runtime, or none that is understood.
    """
    require_source(texts.__contains__)
    version = texts[VERSION_FILE].strip()
    if not _VERSION.fullmatch(version):
        raise ParseError(f"its {VERSION_FILE} is {version[:40]!r}", advice="Write three numbers: X.Y.Z.")
    return SourceFacts(version, _dependencies(_listed(texts[LIST]), calls()))


def require_source(has: Callable[[str], bool]) -> None:
    """Raise ``ParseError`` unless it ``has`` the files by which a source of ONNX Runtime is known."""
    for path in (VERSION_FILE, LIST, f"{FOLDER}/CMakeLists.txt"):
        if not has(path):
            raise ParseError(
                "it is no source of ONNX Runtime that can be built here",
                cause=f"it has no {path}",
                advice="Name the top of ONNX Runtime's own tree, 1.15 or newer.",
            )


def is_read(path: str) -> bool:
    """Return whether ``read_source`` wants the text of a file of the source tree."""
    is_cmake = path.startswith(f"{FOLDER}/") and path.endswith(("/CMakeLists.txt", ".cmake"))
    return is_cmake or path in {VERSION_FILE, LIST}


def _dependencies(listed: Mapping[str, Dependency], calls: Iterable[Call]) -> tuple[Dependency, ...]:
    """Return the archives that the commands use, sorted by name. A use without a line in the list raises."""
    used: dict[str, Dependency] = {}
    for call in calls:
        for name in (name for word in call.words for name in _USE.findall(word)):
            if name not in listed:
                raise not_understood(f"{call.line}", f"deps.txt has no line for {name}")
            used.setdefault(name, _used(listed[name], call.words[0]))
    if not used:
        raise not_understood(f"{FOLDER}/CMakeLists.txt", "nothing of deps.txt is downloaded by it")
    return tuple(used[name] for name in sorted(used))


def _listed(text: str) -> dict[str, Dependency]:
    """Return the archives of the list by name, each known to ``FetchContent`` by this name."""
    by_name = {}
    for number, line in enumerate(map(str.strip, text.splitlines()), start=1):
        if not line or line.startswith("#"):
            continue
        name, *rest = map(str.strip, line.split(";"))
        if len(rest) != 2 or not _SHA1.fullmatch(rest[1]):  # noqa: PLR2004
            raise not_understood(f"{LIST}:{number}", f"{line!r} is not name;URL;SHA-1")
        by_name[name] = Dependency(name, name, rest[0], rest[1].lower(), number)
    return by_name


def _used(listed: Dependency, content: str) -> Dependency:
    """Return the archive that a command uses, whose first word is ``content``."""
    if not _URL.fullmatch(listed.url):
        raise not_understood(f"{LIST}:{listed.line}", f"the address of {listed.name} is no plain https URL")
    return replace(listed, content=content.lower()) if _NAME.fullmatch(content) else listed


def not_understood(place: str, cause: str) -> ParseError:
    """Return the error for a place of a source."""
    return ParseError(
        f"{place} of ONNX Runtime's source is not understood",
        cause=cause,
        advice="Name another version in variants.yaml.",
    )


def mirrored(url: str) -> str:
    """Return the path, below the source tree, where ORT's CMake looks for the archive of a URL."""
    return f"mirror/{url.removeprefix('https://')}"
