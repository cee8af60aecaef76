"""This module reads YAML and JSON text into a ``Document``.

Numbers such as ``12.9`` and words such as ``yes`` are read neither as text nor as a number or boolean, but as
``Unread``. Anchors, aliases, merge keys and tags are refused: each value is written where it belongs, and a
few lines of aliases cannot expand to gigabytes. A key that is twice in a mapping is refused, and a scalar
that is twice in a list.
"""

from __future__ import annotations

import json
import re

import yaml
from yaml.reader import ReaderError

from builder.config.document import Document, Location, Place, Problem, key_path, shorten
from builder.errors import ParseError, SchemaError, ValidationError
from builder.formats.text import redacted
from builder.project.kinds import Unread

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
        return Document(file, _value(root, (), document), document.places, document.problems)
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


def _value(node: yaml.Node | None, location: Location, document: Document) -> object:
    """Return the plain value of a node.

    The document gets the places of all values in it, and their problems.
    """
    if isinstance(node, yaml.MappingNode):
        _place(document, location, node, "mapping")
        return _mapping(node, location, document)
    if isinstance(node, yaml.SequenceNode):
        _place(document, location, node, "list")
        return _list(node, location, document)
    if isinstance(node, yaml.ScalarNode):
        _place(document, location, node, "")
        return _scalar(node)
    return None


def _mapping(node: yaml.MappingNode, location: Location, document: Document) -> dict[str, object]:
    found: dict[str, object] = {}
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
        elif key.value in found:
            message = f"this key stands in line {document.line(place)} already. Keep one of the two."
            document.problems.append(Problem(SchemaError, line, place, message))
        else:
            document.places[place] = Place(line, "")
            found[key.value] = _value(value, place, document)
    return found


def _list(node: yaml.SequenceNode, location: Location, document: Document) -> list[object]:
    first: dict[tuple[str, str], Location] = {}
    found = []
    for index, item in enumerate(node.value):
        place = (*location, index)
        document.places[place] = Place(_line(item), "")
        found.append(_value(item, place, document))
        if isinstance(item, yaml.ScalarNode):
            earlier = first.setdefault((item.tag, item.value), place)
            if earlier != place:
                document.report(ValidationError, place, f"stands in {key_path(earlier)} already")
    return found


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


def _place(document: Document, location: Location, node: yaml.Node, noun: str) -> None:
    line = document.places[location].line if location else _line(node)
    if isinstance(node, yaml.ScalarNode):
        plain = node.style is None and node.tag not in {f"{_TAG}null", f"{_TAG}str"}
        unquoted = shorten(node.value) if plain else ""
        document.places[location] = Place(line, _scalar_text(node), unquoted)
    else:
        document.places[location] = Place(line, f"a {noun}" if node.value else f"an empty {noun}")


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
