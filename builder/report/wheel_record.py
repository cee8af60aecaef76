"""What was read of one wheel, as a small JSON file that is kept: a row of the atlas.

It holds facts from bytes. ``verdicts`` alone is a judgement: what was said of each GPU when it was written,
so that a rule which comes to say something else of a wheel shows in a diff.
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
    """What another reader counts in the same files."""

    reader: str
    """Its name and version."""
    libraries: int
    """The libraries that both read."""
    images: int
    """What both counted in them: images, or what else ``reader`` counts."""
    explained: tuple[str, ...] = ()
    """Differences, each with its reason."""
    unexplained: tuple[str, ...] = ()


@dataclass(frozen=True)
class WheelRecord:
    """One wheel."""

    format: int
    filename: str
    sha256: str
    size: int
    """In bytes."""
    date: str
    commit: str | None
    """The commit of the reader; ``None`` where that is not known, or files differ from it."""
    milliseconds: int
    """For opening the wheel and reading all libraries in it."""
    peak_mib: int
    """Peak memory of the process."""
    verdicts: Mapping[str, str]
    """How it runs, by capability: ``native``, with a question mark where that is doubtful."""
    compared: tuple[SecondReading, ...]
    without_code: tuple[str, ...]
    """Names of libraries that hold none."""
    libraries: tuple[LibraryFacts, ...]

    @property
    def name(self) -> str:
        """The project's name: ``onnxruntime-gpu``."""
        return str(parse_wheel_filename(self.filename)[0])

    @property
    def version(self) -> Version:
        """The release."""
        return parse_wheel_filename(self.filename)[1]

    @property
    def platform(self) -> str:
        """Like ``Linux x86-64``; ``any machine`` where the file's name says so."""
        tag = max(tag.platform for tag in parse_wheel_filename(self.filename)[3])
        system = next((name for word, name in _SYSTEMS if tag.startswith(word)), "any machine")
        return " ".join([system, *(name for word, name in _MACHINES if tag.endswith(word))])

    @property
    def label(self) -> str:
        """Name, version and platform."""
        return f"{self.name} {self.version}, {self.platform}"

    def source(self) -> InspectedSource:
        """The wheel as ``inspect`` has it. Raises ``ValueError`` as ``library_of``."""
        plain = (Inspected(name=name) for name in self.without_code)
        found = (*map(library_of, self.libraries), *plain)
        return InspectedSource(self.label, tuple(sorted(found, key=lambda item: item.name)))


@dataclass(frozen=True)
class Effort:
    """When and how a wheel was read."""

    date: str
    commit: str | None
    seconds: float
    peak_mib: int


def record_of(filename: str, digest: Digest, libraries: Sequence[Inspected], effort: Effort) -> WheelRecord:
    """The record of a wheel that was read. Raises ``ValidationError`` for the name of no wheel."""
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
    """Raise ``ValidationError`` for what is not the name of a wheel."""
    try:
        parse_wheel_filename(filename)
    except InvalidWheelFilename as error:
        raise ValidationError(
            f"{filename!r} is not the name of a wheel", advice="Like demo-1.0-py3-none-any.whl."
        ) from error


def verdicts_of(libraries: Sequence[Inspected]) -> Mapping[str, str]:
    """``WheelRecord.verdicts`` by the rules of today."""
    found = together(libraries)
    return {str(device): f"{one.support.value}{'?' * bool(one.doubt)}" for device, one in found.items()}


def dumps(record: WheelRecord) -> str:
    """The text of the file: a line for each library, so that a diff shows which one differs."""
    fields = cast("dict[str, object]", to_json(replace(record, libraries=())))
    del fields["libraries"]
    head = "".join(f" {_line(key)}: {_line(value)},\n" for key, value in fields.items())
    libraries = ",".join(f"\n  {_line(to_json(item))}" for item in record.libraries)
    return f'{{\n{head} "libraries": [{libraries}\n ]\n}}\n'


def _line(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def loads(text: str | bytes, where: str) -> WheelRecord:
    """Read a file. Raises ``ConfigError`` naming ``where`` for what is none, or of another format."""
    value = parse_json(text, where, _ADVICE)
    require_format(value, (FORMAT,), where, _ADVICE)
    record = from_json(WheelRecord, value, where)
    try:
        require_wheel(record.filename)
        record.source()
    except (ValueError, ValidationError) as error:
        raise SchemaError([f"{where}: {error}. {_ADVICE}"]) from error
    return record
