"""The record of one wheel, a row of the atlas: a small JSON file with the facts read from the wheel's bytes.

Only ``verdicts`` is no fact but the support of each GPU by the rules at the time of writing, so that a change
of the rules shows in a diff.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import Version

from builder.binary.library import Inspected
from builder.binary.verdict import together
from builder.errors import SchemaError, ValidationError
from builder.files.digest import Digest
from builder.formats.json_values import from_json, parse_json, require_format, to_json
from builder.package.promise import InspectedSource
from builder.report.library_facts import LibraryFacts, facts_of, library_of

FORMAT = 1

_ADVICE = "Read the wheel again: ./run atlas --add NAME==VERSION"

_SYSTEMS = (
    ("win", "Windows"),
    ("macosx", "macOS"),
    ("manylinux", "Linux"),
    ("musllinux", "Linux"),
    ("linux", "Linux"),
)

_MACHINES = (("x86_64", "x86-64"), ("amd64", "x86-64"), ("aarch64", "aarch64"), ("arm64", "aarch64"))


@dataclass(frozen=True)
class SecondReading:
    """A comparison with the counts of another reader of the same files."""

    reader: str
    """The other reader's name and version."""
    libraries: int
    """Number of libraries that both readers read."""
    images: int
    """Number of images, or of other things that ``reader`` counts, that were compared."""
    explained: tuple[str, ...] = ()
    """Differences with a known reason, which each text states."""
    unexplained: tuple[str, ...] = ()


@dataclass(frozen=True)
class WheelRecord:
    """The facts on one wheel, in the file's order."""

    format: int
    filename: str
    sha256: str
    size: int
    """The wheel's bytes."""
    date: str
    commit: str | None
    """The commit of the reader; ``None`` where it is not known, or the reader's files differ from it."""
    milliseconds: int
    """Time for opening the wheel and reading all its libraries."""
    peak_mib: int
    """Peak memory of the reading process in MiB."""
    verdicts: Mapping[str, str]
    """Support by capability, like ``native``; doubtful support ends in ``?``."""
    compared: tuple[SecondReading, ...]
    without_code: tuple[str, ...]
    """Names of the libraries without device code."""
    libraries: tuple[LibraryFacts, ...]

    @property
    def name(self) -> str:
        """The project's name: ``onnxruntime-gpu``."""
        return str(parse_wheel_filename(self.filename)[0])

    @property
    def version(self) -> Version:
        """The wheel's version."""
        return parse_wheel_filename(self.filename)[1]

    @property
    def platform(self) -> str:
        """The platform of the wheel's tag: ``Linux x86-64``; ``any machine`` for another tag."""
        tag = max(tag.platform for tag in parse_wheel_filename(self.filename)[3])
        system = next((name for word, name in _SYSTEMS if tag.startswith(word)), "any machine")
        return " ".join([system, *(name for word, name in _MACHINES if tag.endswith(word))])

    @property
    def label(self) -> str:
        """Name, version and platform."""
        return f"{self.name} {self.version}, {self.platform}"

    def source(self) -> InspectedSource:
        """Return the wheel as a source of ``inspect``. Raises ``ValueError`` as ``library_of`` does."""
        plain = (Inspected(name=name) for name in self.without_code)
        found = (*map(library_of, self.libraries), *plain)
        return InspectedSource(self.label, tuple(sorted(found, key=lambda item: item.name)))


@dataclass(frozen=True)
class Effort:
    """The circumstances of reading a wheel: date, commit of the reader, time and memory."""

    date: str
    commit: str | None
    seconds: float
    peak_mib: int


def record_of(filename: str, digest: Digest, libraries: Sequence[Inspected], effort: Effort) -> WheelRecord:
    """Return the record of a wheel. Raises ``ValidationError`` if ``filename`` is no wheel's."""
    require_wheel(filename)
    kept = [item for item in libraries if item.coverage or item.problem or item.raw]
    return WheelRecord(
        format=FORMAT,
        filename=filename,
        sha256=digest.sha256,
        size=digest.size,
        date=effort.date,
        commit=effort.commit,
        milliseconds=round(effort.seconds * 1000),
        peak_mib=effort.peak_mib,
        verdicts=verdicts_of(libraries),
        compared=(),
        without_code=tuple(item.name for item in libraries if item not in kept),
        libraries=tuple(map(facts_of, kept)),
    )


def require_wheel(filename: str) -> None:
    """Raise ``ValidationError`` for a file name that is no wheel's."""
    try:
        parse_wheel_filename(filename)
    except InvalidWheelFilename as error:
        raise ValidationError(
            f"{filename!r} is not the name of a wheel", advice="Like demo-1.0-py3-none-any.whl."
        ) from error


def verdicts_of(libraries: Sequence[Inspected]) -> Mapping[str, str]:
    """Return ``WheelRecord.verdicts`` for ``libraries``, by the current rules."""
    found = together(libraries)
    return {str(device): f"{one.support.value}{'?' * bool(one.doubt)}" for device, one in found.items()}


def dumps(record: WheelRecord) -> str:
    """Return the file's JSON text, with a line for each library, so that a diff shows changed libraries."""
    fields = cast("dict[str, object]", to_json(replace(record, libraries=())))
    del fields["libraries"]
    head = "".join(f" {_line(key)}: {_line(value)},\n" for key, value in fields.items())
    libraries = ",".join(f"\n  {_line(to_json(item))}" for item in record.libraries)
    return f'{{\n{head} "libraries": [{libraries}\n ]\n}}\n'


def _line(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def loads(text: str | bytes, where: str) -> WheelRecord:
    """Return the record that a file's text holds; ``where`` names the file in errors.

    Raises ``ParseError`` for text that is no JSON, ``ValidationError`` for an unknown format, ``SchemaError``
    for a wrong key or value.
    """
    value = parse_json(text, where, _ADVICE)
    require_format(value, (FORMAT,), where, _ADVICE)
    record = from_json(WheelRecord, value, where)
    try:
        require_wheel(record.filename)
        record.source()
    except (ValueError, ValidationError) as error:
        raise SchemaError([f"{where}: {error}. {_ADVICE}"]) from error
    return record
