"""YAML and JSON text as a tree whose nodes know their lines. Nothing is constructed from tags.

Anchors, aliases and tags are refused: the file says each thing where it stands, and a few lines of aliases
cannot unfold into gigabytes.
"""

from __future__ import annotations

import json

import yaml
from yaml.reader import ReaderError

from builder.config.cursor import Cursor
from builder.config.problems import Problem, Problems
from builder.errors import ParseError, SchemaError

_DEEPEST = 16
"""Levels of nesting; our formats need five. PyYAML and json recurse, so that thousands end in a crash."""


def read_yaml(content: str, file: str) -> Cursor:
    """The root of a YAML document; ``ParseError`` with line and column where it is not YAML."""
    problems = Problems(file=file)
    try:
        _refuse_indirection(content, problems)
        return Cursor(problems=problems, node=yaml.compose(content, Loader=yaml.SafeLoader))
    except yaml.MarkedYAMLError as error:
        raise ParseError(_syntax_error(error, file)) from None
    except ReaderError as error:
        raise ParseError(_forbidden_character(content, error.position, file)) from None
    except (ValueError, OverflowError):
        # chr() of an escape such as "\UFFFFFFFF"; PyYAML does not say where
        raise ParseError(f"{file}: not YAML: an escape names no character (largest: \\U0010FFFF).") from None


def read_json(content: str, file: str) -> Cursor:
    """The root of a JSON document; ``ParseError`` with line and column where it is not JSON."""
    try:
        json.loads(content, parse_int=str, parse_float=str)
    except json.JSONDecodeError as error:
        raise ParseError(f"{file}:{error.lineno}:{error.colno}: not JSON: {error.msg}.") from None
    except RecursionError:
        raise ParseError(f"{file}: not JSON that we read: nested too deep.") from None
    # JSON is YAML but for tabs, which valid JSON holds only between its tokens
    return read_yaml(content.replace("\t", " "), file)


def _refuse_indirection(content: str, problems: Problems) -> None:
    depth = 0
    for event in yaml.parse(content, Loader=yaml.SafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        message = _too_deep(depth) or _indirection(event)
        if message and event.start_mark:
            line = event.start_mark.line + 1
            hint = "Write the value out where it stands."
            problems.add(Problem(kind=SchemaError, line=line, path="", message=message, hint=hint))
        if depth > _DEEPEST:
            break
    problems.raise_if_any()


def _too_deep(depth: int) -> str:
    return f"nested deeper than {_DEEPEST} levels" if depth > _DEEPEST else ""


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
