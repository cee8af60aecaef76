"""This module holds a file's plain values, the line of each value, and every problem of the file.

pydantic reports what is wrong with a value; here the report becomes a message with file, line, key path, the
found value, the allowed values and the nearest spelling. Allowed values come from the JSON schema that
pydantic makes of the same types.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Generic, TypeVar

import pydantic
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import ErrorDetails

from builder.errors import CompatibilityError, ConfigError, SchemaError, ValidationError
from builder.formats.text import nearest
from builder.project.kinds import TAG, documented

Location = tuple[str | int, ...]
"""The keys and list indices that lead from the top of a file to a value."""

T = TypeVar("T")

_BASIC_FIRST: tuple[type[ConfigError], ...] = (SchemaError, ValidationError, CompatibilityError)

_LONGEST = 120

_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]+")

_MESSAGES: Mapping[str, tuple[type[ConfigError], str]] = {
    "missing": (SchemaError, "missing key"),
    "unexpected_keyword_argument": (SchemaError, "unknown key"),
    "extra_forbidden": (SchemaError, "unknown key"),
    "string_type": (SchemaError, "text is wanted"),
    "string_unicode": (ValidationError, "an escape names half a character, like \\ud800"),
    "int_type": (SchemaError, "a whole number is wanted"),
    "bool_type": (SchemaError, "true or false is wanted"),
    "tuple_type": (SchemaError, "a list is wanted"),
    "dict_type": (SchemaError, "a mapping is wanted"),
    "mapping_type": (SchemaError, "a mapping is wanted"),
    "dataclass_type": (SchemaError, "a mapping is wanted"),
    "enum": (ValidationError, "not one of the choices"),
    "literal_error": (ValidationError, "not one of the choices"),
    "greater_than_equal": (ValidationError, "out of range"),
    "less_than_equal": (ValidationError, "out of range"),
    "too_short": (ValidationError, "at least one item is needed"),
}
"""Error class and our words for pydantic's types of errors.

Errors of ``project.kinds.wrong`` have their own words.
"""


class _WithoutTitles(GenerateJsonSchema):
    """JSON schema without titles of keys, which would repeat the keys' names."""

    def field_title_should_be_set(self, _schema: object) -> bool:
        return False


class Reader(Generic[T]):
    """Reads values of a class from plain data. pydantic compiles the class when a value is first read."""

    def __init__(self, kind: type[T]) -> None:
        self._kind = kind

    @cached_property
    def adapter(self) -> pydantic.TypeAdapter[T]:
        """Validator of the class; it raises ``pydantic.ValidationError``."""
        return pydantic.TypeAdapter(self._kind)

    @cached_property
    def schema(self) -> dict[str, object]:
        """JSON schema of the class."""
        with documented():
            adapter = pydantic.TypeAdapter(self._kind)
        return adapter.json_schema(schema_generator=_WithoutTitles)

    def schema_file(self, title: str) -> str:
        """Return the text of the schema's file in ``docs/schemas``."""
        dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
        return json.dumps({**dialect, **self.schema, "title": title}, indent=2, ensure_ascii=False) + "\n"


@dataclass(frozen=True)
class Place:
    """The line of a value, counted from 1, and the value as a message shows it."""

    line: int
    found: str
    unquoted: str = ""
    """A scalar's text without quotes; empty for null, lists and mappings."""


@dataclass(frozen=True)
class Problem:
    """One problem of a file. An empty location means the whole file."""

    kind: type[ConfigError]
    line: int
    location: Location
    message: str


@dataclass(frozen=True)
class Document:
    """The values of a file with their places, and the problems found so far."""

    file: str
    """The name that messages begin with."""
    data: object = None
    """Mappings whose keys are text, lists, and scalars."""
    places: dict[Location, Place] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def line(self, location: Location) -> int:
        """Return the line of a value; for a missing value, the line of the mapping that lacks it."""
        while location and location not in self.places:
            location = location[:-1]
        return self.places[location].line

    def at(self, *location: str | int) -> object:
        """Return the value at a location; ``None`` if there is none or a problem is at, below or above it."""
        return self._value(location) if self.is_clean(location) else None

    def text(self, *location: str | int) -> str:
        """Return the text at a location; empty if ``at`` returns no text."""
        value = self.at(*location)
        return value if isinstance(value, str) else ""

    def keys(self, *location: str | int) -> list[str]:
        """Return the keys of the mapping at a location, whatever is wrong with it.

        Empty if there is no mapping.
        """
        value = self._value(location)
        return list(value) if isinstance(value, dict) else []

    def is_clean(self, *locations: Location) -> bool:
        """Return whether there is no problem at, below or above these locations, so that values are valid."""
        return not any(
            problem.location[: len(location)] == location[: len(problem.location)]
            for problem in self.problems
            for location in locations
        )

    def report(
        self,
        kind: type[ConfigError],
        location: Location,
        message: str,
        *,
        found: str | None = None,
        allowed: str = "",
        hint: str = "",
    ) -> None:
        """Add a problem.

        ``found`` is shown instead of the value at the location; ``hint`` is a whole sentence.
        """
        if found is None:
            found = self.places[location].found if location in self.places else ""
        facts = [f"found {found}"] if found else []
        facts += [f"allowed: {allowed}"] if allowed else []
        whole = f"{message} ({'; '.join(facts)})" if facts else message
        whole = f"{whole}. {hint}" if hint else whole
        self.problems.append(Problem(kind, self.line(location), location, whole))

    def raise_if_any(self) -> None:
        """Raise an error with all problems, in the file's order, of the most basic class among them."""
        if not self.problems:
            return
        kind = min((problem.kind for problem in self.problems), key=_BASIC_FIRST.index)
        in_order = sorted(self.problems, key=lambda problem: (problem.line, problem.location))
        raise kind(
            [
                f"{self.file}:{problem.line}: {key_path(problem.location) or 'the file'}: {problem.message}"
                for problem in in_order
            ]
        )

    def check_format(self, version: int, keys: Iterable[str]) -> None:
        """Raise at once if the file is empty, not a mapping or of another format.

        Such a file would have many more problems.
        """
        allowed = ", ".join(keys)
        if self.data in (None, "", {}, []):
            self.report(SchemaError, (), "the file is empty", found="", allowed=allowed)
        elif not isinstance(self.data, dict):
            self.report(SchemaError, (), "a mapping is wanted", allowed=allowed)
        elif type(self.data.get("format")) is int and self.data["format"] != version:
            hint = f"This program reads format {version}: use the release of ortpacks that the file is for."
            self.report(ValidationError, ("format",), "another format", allowed=str(version), hint=hint)
        else:
            return
        self.raise_if_any()

    def read(self, reader: Reader[T], location: Location = ()) -> T | None:
        """Return the value at a location; ``None`` after reporting all that is wrong with it."""
        try:
            return reader.adapter.validate_python(self._value(location))
        except pydantic.ValidationError as error:
            for detail in error.errors(include_url=False):
                self._report_detail(detail, location, reader.schema)
        return None

    def _report_detail(self, detail: ErrorDetails, above: Location, schema: object) -> None:
        if detail["type"] == "too_short" and detail["input"]:
            return  # the list has items, each with an error of its own
        is_key = detail["loc"][-1:] == ("[key]",)
        inside = detail["loc"][:-1] if is_key else detail["loc"]
        location = (*above, *(step for step in inside if not _is_tag(step)))
        kind, message = _MESSAGES.get(detail["type"], (ValidationError, detail["msg"]))
        kind = SchemaError if detail["type"] == "wrong_type" else kind
        context = detail.get("ctx", {})
        allowed, hint = str(context.get("allowed", "")), str(context.get("hint", ""))
        found = "" if is_key else None
        match detail["type"]:
            case "unexpected_keyword_argument" | "extra_forbidden":
                known, found = _choices(schema, inside[:-1]), ""
                given = self.keys(*location[:-1])
                missing = [key for key in known if key not in given]
                key = str(location[-1])
                allowed, hint = ", ".join(known), nearest(key, missing) or nearest(key, known)
            case "enum" | "literal_error":
                known = _choices(schema, inside)
                allowed, hint = ", ".join(known), nearest(str(detail["input"]), known)
            case "greater_than_equal" | "less_than_equal":
                limits = _schema_at(schema, inside)
                allowed = (
                    f"{limits['minimum']} to {limits['maximum']}"
                    if "maximum" in limits
                    else (f"{limits['minimum']} or more")
                )
            case "string_type" if self.places[location].unquoted:
                hint = f'Quote it: "{self.places[location].unquoted}".'
        self.report(kind, location, message, found=found, allowed=allowed, hint=hint)

    def _value(self, location: Location) -> object:
        value = self.data
        for step in location:
            value = value.get(step) if isinstance(value, dict) else None
        return value


def key_path(location: Location) -> str:
    """Return a location's text: ``cuda.version``, ``models[2]``, quoted ``inputs["wheel:cmake==3.31.6"]``."""
    path = ""
    for step in location:
        if isinstance(step, int):
            path += f"[{step}]"
        elif _PLAIN_KEY.fullmatch(step) is None:
            path += f"[{json.dumps(shorten(step))}]"
        else:
            path += f".{step}" if path else step
    return path


def shorten(value: str) -> str:
    """Return at most the first 120 characters."""
    return value if len(value) <= _LONGEST else f"{value[: _LONGEST - 1]}…"


def _is_tag(step: str | int) -> bool:
    """Return whether a step is pydantic's name of a kind of mapping (``project.kinds.by_key``), not a key."""
    return isinstance(step, str) and step.startswith(TAG)


def _choices(schema: object, location: Location) -> list[str]:
    """Return the keys or values that a JSON schema allows at a location."""
    described = _schema_at(schema, location)
    allowed = described.get("properties") or described.get("enum") or [described.get("const")]
    return [str(choice) for choice in allowed] if isinstance(allowed, dict | list) else []


def _schema_at(schema: object, location: Location) -> dict[str, object]:
    """Return the part of a JSON schema that describes the value at a location."""
    described = _as_mapping(schema)
    definitions = _as_mapping(described.get("$defs"))
    for step in location:
        properties, patterns = described.get("properties"), described.get("patternProperties")
        if _is_tag(step):
            kinds = (_dereferenced(kind, definitions) for kind in _as_list(described["oneOf"]))
            described = next(kind for kind in kinds if str(step)[1:] in _as_mapping(kind["properties"]))
        elif isinstance(step, int):
            described = _as_mapping(described["items"])
        elif properties:
            described = _as_mapping(_as_mapping(properties)[step])
        else:
            described = _as_mapping(next(iter(_as_mapping(patterns).values())))
        described = _dereferenced(described, definitions)
    return described


def _dereferenced(described: object, definitions: Mapping[str, object]) -> dict[str, object]:
    """Return the definition that a reference names; any other schema is returned as it is."""
    found = _as_mapping(described)
    return _as_mapping(definitions[str(found["$ref"]).rpartition("/")[2]]) if "$ref" in found else found


def _as_list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _as_mapping(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}
