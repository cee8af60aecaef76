"""``inputs.lock``: text to a ``Lock`` and back. A task writes it; the checks are for bad merges."""

from __future__ import annotations

import json
import re

from builder.config import values
from builder.config.cursor import Cursor
from builder.config.document import open_document
from builder.config.problems import nearest
from builder.config.shapes import entries, matching, number, section
from builder.config.tree import read_json
from builder.errors import ValidationError
from builder.project.inputs import Input, InputKind, Lock, Pin

FORMAT = 1

_LARGEST = 2**40
_SHA256 = re.compile(r"[0-9a-f]{64}")
_FILENAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+~_-]*")
_REVISIONS = {
    InputKind.GIT: (re.compile(r"[0-9a-f]{40}"), "null, or a commit: 40 hex digits"),
    InputKind.IMAGE: (re.compile(r"sha256:[0-9a-f]{64}"), "null, or a digest: sha256: and 64 hex digits"),
}
_KINDS = tuple(kind.value for kind in InputKind)


def parse_lock(text: str, path: str) -> Lock:
    """Read ``inputs.lock``; ``path`` is the name that messages begin with.

    Raises ``ParseError`` where it is not JSON, else ``SchemaError`` or ``ValidationError`` with all problems.
    """
    root = read_json(text, path)
    keys = open_document(root, FORMAT, ("inputs",))
    pins = {key: _pin(key, place) for key, place in entries(keys["inputs"]).items()}
    root.problems.raise_if_any()
    return Lock(pins=pins)


def render_lock(lock: Lock) -> str:
    """The text of ``inputs.lock``: sorted, so that a change shows as the lines that changed."""
    inputs = {key: _fields(Input.parse(key).kind, pin) for key, pin in lock.pins.items()}
    return json.dumps({"format": FORMAT, "inputs": inputs}, indent=2, sort_keys=True) + "\n"


def _pin(key: str, place: Cursor) -> Pin:
    kind = _kind(key, place)
    if kind is None:
        return Pin()
    return _revision(kind, place) if kind in _REVISIONS else _file(place)


def _kind(key: str, place: Cursor) -> InputKind | None:
    try:
        item = Input.parse(key)
    except ValueError:
        kind = key.partition(":")[0]
        allowed, hint = ", ".join(f"{known}:…" for known in _KINDS), nearest(kind, _KINDS)
        place.report(ValidationError, "not a kind of input", found=kind, allowed=allowed, hint=hint)
        return None
    if not values.is_spec(item):
        place.report(ValidationError, f"not the name of a {item.kind.value} input", found="")
    return item.kind


def _file(place: Cursor) -> Pin:
    keys = section(place, ("filename", "size", "sha256"))
    return Pin(
        filename=matching(
            keys["filename"], _FILENAME, "not a file's bare name", "letters, digits, . + ~ _ -"
        ),
        size=number(keys["size"], least=1, most=_LARGEST),
        sha256=matching(keys["sha256"], _SHA256, "not a sha256", "64 hex digits in lower case"),
    )


def _revision(kind: InputKind, place: Cursor) -> Pin:
    revision = section(place, ("revision",))["revision"]
    if revision.is_null:
        return Pin(revision=None)
    pattern, allowed = _REVISIONS[kind]
    return Pin(revision=matching(revision, pattern, "not a revision", allowed))


def _fields(kind: InputKind, pin: Pin) -> dict[str, str | int | None]:
    if kind in _REVISIONS:
        return {"revision": pin.revision}
    return {"filename": pin.filename, "size": pin.size, "sha256": pin.sha256}
