"""The opening of a file of ours: a mapping with a ``format`` number that this program reads."""

from __future__ import annotations

from collections.abc import Sequence

import yaml

from builder.config.cursor import Cursor
from builder.config.shapes import INT, number, section
from builder.errors import SchemaError, ValidationError


def open_document(
    root: Cursor, version: int, keys: Sequence[str], optional: Sequence[str] = ()
) -> dict[str, Cursor]:
    """The places of ``keys`` and of those that may be missing at the top level.

    Raises at once, with nothing else, where the file is empty, no mapping, or of another format: there every
    further message would be noise.
    """
    known = ("format", *keys)
    if root.node is None or not root.node.value:
        root.report(SchemaError, "the file is empty", found="", allowed=", ".join(known))
    elif not isinstance(root.node, yaml.MappingNode):
        root.report(SchemaError, "a mapping is wanted", allowed=", ".join(known))
    else:
        _check_format(root.at("format"), version)
    root.problems.raise_if_any()
    places = section(root, known, optional)
    number(places["format"], least=version, most=version)
    return places


def _check_format(place: Cursor, version: int) -> None:
    node = place.node
    if node is not None and node.tag == INT and node.value != str(version):
        hint = f"This program reads format {version}: use the release of ortpacks that the file is for."
        place.report(ValidationError, "another format", allowed=str(version), hint=hint)
