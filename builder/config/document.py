"""YAML and JSON text is read into a ``Document``: plain values, their lines, and all their problems.

Numbers such as ``12.9`` and words such as ``yes`` are read neither as text nor as a number or boolean, but as
``Unread``. Anchors, aliases, merge keys and tags are refused: each value is written where it belongs, and a
few lines of aliases cannot expand to gigabytes. A key that is twice in a mapping is refused, and a scalar
that is twice in a list.

pydantic reports what is wrong with a value. Here its report becomes a message with file, line, key path, the
found value, the allowed values and the nearest spelling. Allowed values come from the JSON schema that
pydantic makes of the same types.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar, cast

import pydantic
import yaml
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import ErrorDetails
from yaml.reader import ReaderError

from builder.config.fields import TAG, Unread
from builder.errors import CompatibilityError, ConfigError, ParseError, SchemaError, ValidationError
from builder.formats.text import nearest, redacted

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

Errors of ``config.fields.wrong`` have their own words.
"""


class _WithoutTitles(GenerateJsonSchema):
    """JSON schema without titles of keys, which would repeat the keys' names."""

    def field_title_should_be_set(self, _schema: object) -> bool:
        return False


_ADAPTERS: dict[type[object], pydantic.TypeAdapter[object]] = {}


def _adapter(kind: type[object]) -> pydantic.TypeAdapter[object]:
    """Return the validator of a class, which pydantic compiles when it is first asked for."""
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = pydantic.TypeAdapter(kind)
    return _ADAPTERS[kind]


def schema_of(kind: type[object]) -> JsonSchemaValue:
    """Return the JSON schema of a class."""
    return _adapter(kind).json_schema(schema_generator=_WithoutTitles)


def schema_file(kind: type[object], title: str) -> str:
    """Return the text of a schema's file in ``docs/schemas``."""
    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return json.dumps({**dialect, **schema_of(kind), "title": title}, indent=2, ensure_ascii=False) + "\n"


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

    def is_clean(self, location: Location) -> bool:
        """Return whether there is no problem at, below or above a location, so that its value is valid."""
        return not any(
            problem.location[: len(location)] == location[: len(problem.location)]
            for problem in self.problems
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
        """Raise one error with all problems, in the file's order. Its class is the most basic of theirs."""
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

    def read(self, kind: type[T], location: Location = ()) -> T | None:
        """Return the value at a location; ``None`` after reporting all that is wrong with it."""
        try:
            return cast("T", _adapter(kind).validate_python(self._value(location)))
        except pydantic.ValidationError as error:
            for detail in error.errors(include_url=False):
                self._report_detail(detail, location, schema_of(kind))
        return None

    def _report_detail(self, detail: ErrorDetails, above: Location, schema: JsonSchemaValue) -> None:
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
            path += f"[{json.dumps(shorten(redacted(step)))}]"
        else:
            path += f".{step}" if path else step
    return path


def shorten(value: str) -> str:
    """Return at most the first 120 characters."""
    return value if len(value) <= _LONGEST else f"{value[: _LONGEST - 1]}…"


def _is_tag(step: str | int) -> bool:
    """Return whether a step is pydantic's name of a kind of mapping (``config.fields.by_key``), not a key."""
    return isinstance(step, str) and step.startswith(TAG)


def _choices(schema: JsonSchemaValue, location: Location) -> list[str]:
    described = _schema_at(schema, location)
    allowed = described.get("properties") or described.get("enum") or [described.get("const")]
    return [str(choice) for choice in allowed]


def _schema_at(schema: JsonSchemaValue, location: Location) -> JsonSchemaValue:
    def dereferenced(described: JsonSchemaValue) -> JsonSchemaValue:
        name = described.get("$ref", "").rpartition("/")[2]
        found: JsonSchemaValue = schema["$defs"][name] if name else described
        return found

    described = schema
    for step in location:
        if _is_tag(step):
            kinds = map(dereferenced, described["oneOf"])
            described = next(kind for kind in kinds if str(step)[1:] in kind["properties"])
        elif isinstance(step, int):
            described = described["items"]
        elif "properties" in described:
            described = described["properties"][step]
        else:
            of_any_key = {"": described.get("additionalProperties")}
            described = next(iter(described.get("patternProperties", of_any_key).values()))
        described = dereferenced(described)
    return described


_DEEPEST = 16
"""The most levels of nesting; our formats need five. PyYAML and json recurse and crash at thousands."""

_TAG = "tag:yaml.org,2002:"

_WHOLE_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,17}")


def read_yaml(content: str, file: str) -> Document:
    """Return a YAML document; ``file`` is its name in messages.

    Raises ``ParseError`` with line and column for text that is not YAML.
    """
    try:
        document = Document(file, places={(): Place(1, "")})
        root = _Composer(content, document).get_single_node()
        document.raise_if_any()
        data = _value(root, (), _line(root), document) if root else None
        return Document(file, data, document.places, document.problems)
    except yaml.MarkedYAMLError as error:
        raise ParseError(_syntax_error(error, file)) from None
    except ReaderError as error:
        raise ParseError(_forbidden_character(content, error.position, file)) from None
    except (ValueError, OverflowError):
        # From chr() of an escape such as "\UFFFFFFFF"; PyYAML reports no line for it
        raise ParseError(f"{file}: not YAML: an escape names no character (largest: \\U0010FFFF).") from None


def read_json(content: str, file: str) -> Document:
    """Return a JSON document. Raises ``ParseError`` with line and column for text that is not JSON."""
    try:
        json.loads(content, parse_int=str, parse_float=str)
    except json.JSONDecodeError as error:
        raise ParseError(f"{file}:{error.lineno}:{error.colno}: not JSON: {error.msg}.") from None
    except RecursionError:
        raise ParseError(f"{file}: not JSON that we read: nested too deep.") from None
    # JSON is YAML except for tabs, which valid JSON has only between its tokens
    return read_yaml(content.replace("\t", " "), file)


def _value(node: yaml.Node, location: Location, line: int, document: Document) -> object:
    """Return the plain value of a node.

    The document gets the places of all values in it, and their problems.
    """
    if isinstance(node, yaml.ScalarNode):
        plain = node.style is None and node.tag not in {f"{_TAG}null", f"{_TAG}str"}
        document.places[location] = Place(line, _scalar_text(node), shorten(node.value) if plain else "")
        return _scalar(node)
    noun, read = ("mapping", _mapping) if isinstance(node, yaml.MappingNode) else ("list", _list)
    document.places[location] = Place(line, f"a {noun}" if node.value else f"an empty {noun}")
    return read(node, location, document)


def _mapping(node: yaml.Node, location: Location, document: Document) -> dict[str, object]:
    mapping: dict[str, object] = {}
    for key, value in node.value:
        line = _line(key)
        if not isinstance(key, yaml.ScalarNode):
            message = "a key that is not text. Write a plain word before the colon."
            document.problems.append(Problem(SchemaError, line, location, message))
            continue
        place = (*location, key.value)
        if key.tag == f"{_TAG}merge":
            message = "merge keys are not read. Write the entries out."
            document.problems.append(Problem(SchemaError, line, place, message))
        elif key.value in mapping:
            message = f"this key stands in line {document.line(place)} already. Keep one of the two."
            document.problems.append(Problem(SchemaError, line, place, message))
        else:
            mapping[key.value] = _value(value, place, line, document)
    return mapping


def _list(node: yaml.Node, location: Location, document: Document) -> list[object]:
    first: dict[tuple[str, str], Location] = {}
    values = []
    for index, item in enumerate(node.value):
        place = (*location, index)
        values.append(_value(item, place, _line(item), document))
        if isinstance(item, yaml.ScalarNode):
            earlier = first.setdefault((item.tag, item.value), place)
            if earlier != place:
                document.report(ValidationError, place, f"stands in {key_path(earlier)} already")
    return values


def _scalar(node: yaml.ScalarNode) -> object:
    value = str(node.value)
    match node.tag.removeprefix(_TAG):
        case "str":
            return value
        case "null":
            return None
        case "int" if _WHOLE_NUMBER.fullmatch(value):
            return int(value)
        case "bool" if value in {"true", "false"}:
            return value == "true"
    return Unread(value)


def _scalar_text(node: yaml.ScalarNode) -> str:
    if node.tag == f"{_TAG}null" and node.style is None:
        return "nothing"
    value = shorten(redacted(str(node.value)))
    return value if node.style is None and value.isprintable() else json.dumps(value)


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


class _Composer(yaml.SafeLoader):
    """A YAML loader that reports aliases, anchors, tags and deep nesting, which are not read."""

    def __init__(self, content: str, document: Document) -> None:
        super().__init__(content)
        self._document = document
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Return the next node. PyYAML calls this method for each node, recursively."""
        event = self.peek_event()  # type: ignore[no-untyped-call]
        self._refuse(event, _indirection(event))
        if isinstance(event, yaml.AliasEvent):
            self.get_event()  # type: ignore[no-untyped-call]
            return yaml.ScalarNode(f"{_TAG}null", "")
        event.anchor = None  # PyYAML refuses a second anchor of one name
        is_collection = isinstance(event, yaml.CollectionStartEvent)
        if is_collection and self._depth == _DEEPEST:
            self._refuse(event, f"nested deeper than {_DEEPEST} levels")
            self._document.raise_if_any()
        self._depth += is_collection
        node = super().compose_node(parent, index)
        self._depth -= is_collection
        return node

    def _refuse(self, event: yaml.Event, message: str) -> None:
        if message and event.start_mark:
            whole = f"{message}. Write the value out where it stands."
            self._document.problems.append(Problem(SchemaError, event.start_mark.line + 1, (), whole))


def _indirection(event: yaml.Event) -> str:
    if isinstance(event, yaml.AliasEvent):
        return f"the alias *{event.anchor} is not read"
    if isinstance(event, yaml.NodeEvent) and event.anchor is not None:
        return f"the anchor &{event.anchor} is not read"
    if isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent) and event.tag is not None:
        return f"the tag {event.tag} is not read"
    return ""


def _forbidden_character(content: str, position: int, file: str) -> str:
    line = content.count("\n", 0, position) + 1
    return f"{file}:{line}: not YAML: the character U+{ord(content[position]):04X} is not allowed. Remove it."


def _syntax_error(error: yaml.MarkedYAMLError, file: str) -> str:
    mark = error.problem_mark or error.context_mark
    place = f"{file}:{mark.line + 1}:{mark.column + 1}" if mark else file
    since = f" that begins in line {error.context_mark.line + 1}" if error.context_mark else ""
    context = f", {error.context}{since}" if error.context else ""
    hint = " YAML is indented with spaces, never with tabs." if "'\\t'" in str(error.problem) else ""
    return f"{place}: not YAML: {error.problem}{context}.{hint}"
