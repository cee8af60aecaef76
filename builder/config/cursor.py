"""A place in a YAML tree: which node stands there, under what key path, in which line."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

import yaml

from builder.config.problems import Problem, Problems
from builder.errors import ConfigError
from builder.formats.addresses import without_userinfo

NULL = "tag:yaml.org,2002:null"

_LONGEST = 120
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, kw_only=True)
class Cursor:
    """A place in the file. ``node`` is ``None`` where a key is missing, which is reported already."""

    problems: Problems
    node: yaml.Node | None
    path: str = ""
    line: int = 1

    @property
    def found(self) -> str:
        """What stands here, short and printable; ``""`` where nothing does."""
        if isinstance(self.node, yaml.ScalarNode):
            return _spell(self.node)
        if isinstance(self.node, yaml.CollectionNode):
            noun = "list" if isinstance(self.node, yaml.SequenceNode) else "mapping"
            return f"a {noun}" if self.node.value else f"an empty {noun}"
        return ""

    @property
    def is_null(self) -> bool:
        """Whether ``null`` stands here."""
        return self.node is not None and self.node.tag == NULL

    def report(
        self,
        kind: type[ConfigError],
        message: str,
        *,
        found: str | None = None,
        allowed: str = "",
        hint: str = "",
    ) -> None:
        """Note a problem with what stands here. ``found`` where it is not simply that."""
        problem = Problem(
            kind=kind,
            line=self.line,
            path=self.path,
            message=message,
            found=self.found if found is None else found,
            allowed=allowed,
            hint=hint,
        )
        self.problems.add(problem)

    def entry(self, key: str, node: yaml.Node | None, line: int) -> Cursor:
        """The place of a key of the mapping here."""
        return Cursor(problems=self.problems, node=node, path=key_path(self.path, key), line=line)

    def at(self, *keys: str) -> Cursor:
        """The place of a key some levels down, judging nothing on the way."""
        place = self
        for key in keys:
            pairs = place.node.value if isinstance(place.node, yaml.MappingNode) else []
            found = [(value, line_of(name)) for name, value in pairs if name.value == key]
            place = place.entry(key, *found[0]) if found else place.entry(key, None, place.line)
        return place

    def item(self, index: int, node: yaml.Node) -> Cursor:
        """The place of an item of the list here."""
        return Cursor(problems=self.problems, node=node, path=f"{self.path}[{index}]", line=line_of(node))


def key_path(parent: str, key: str) -> str:
    """``cuda.version``; keys with dots and the like are quoted: ``inputs["wheel:cmake==3.31.6"]``."""
    if _PLAIN_KEY.fullmatch(key) is None:
        return f"{parent}[{json.dumps(shorten(key))}]"
    return f"{parent}.{key}" if parent else key


def line_of(node: yaml.Node) -> int:
    """Line of the node's first character, counted from 1."""
    return int(node.start_mark.line) + 1


def shorten(value: str) -> str:
    """At most 120 characters of it."""
    return value if len(value) <= _LONGEST else f"{value[: _LONGEST - 1]}…"


def _spell(node: yaml.ScalarNode) -> str:
    if node.tag == NULL and node.style is None:
        return "nothing"
    value = shorten(without_userinfo(str(node.value)))
    return value if node.style is None and value.isprintable() else json.dumps(value)
