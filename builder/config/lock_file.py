"""``inputs.lock``: text to a ``Lock`` and back. A task writes it; the checks are for bad merges."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from builder.config.document import Document, Reader, nearest
from builder.config.syntax import read_json
from builder.errors import ValidationError
from builder.project.inputs import Input, InputKind, Lock, Pin
from builder.project.kinds import SPECS, FileName, FormatNumber, ProjectSection, Sha256, TextForm

FORMAT = 1


@dataclass(frozen=True)
class FilePin(ProjectSection):
    """The one file that a wheel or a Debian package is."""

    filename: FileName
    size: Annotated[int, Field(strict=True, ge=1, le=2**40)]
    """Bytes."""
    sha256: Sha256


@dataclass(frozen=True)
class CommitPin(ProjectSection):
    """What a tag of a git repository stands for."""

    revision: (
        Annotated[str, TextForm("a revision", "[0-9a-f]{40}", "null, or a commit: 40 hex digits")] | None
    )
    """null where the host could not be asked: fine for local builds, refused for a release."""


@dataclass(frozen=True)
class DigestPin(ProjectSection):
    """What the name of an image stands for."""

    revision: (
        Annotated[
            str, TextForm("a revision", "sha256:[0-9a-f]{64}", "null, or a digest: sha256: and 64 hex digits")
        ]
        | None
    )
    """null where the host could not be asked: fine for local builds, refused for a release."""


_FILE = Reader[ProjectSection](FilePin)

_PINS: Mapping[InputKind, Reader[ProjectSection]] = {
    InputKind.WHEEL: _FILE,
    InputKind.DEBIAN: _FILE,
    InputKind.GIT: Reader(CommitPin),
    InputKind.IMAGE: Reader(DigestPin),
}


def _describe_pins(schema: dict[str, object]) -> None:
    """Which pin an input has follows from its key."""
    pins = {f"^{kind.value}:{SPECS[kind]}$": pin.schema for kind, pin in _PINS.items()}
    schema |= {"additionalProperties": False, "patternProperties": pins}


@dataclass(frozen=True)
class LockFile(ProjectSection):
    """Which bytes every input must be. Written by `./run lock`, never by hand."""

    format: FormatNumber
    """Version of this file's format."""
    inputs: Annotated[Mapping[str, object], Field(json_schema_extra=_describe_pins)]
    """Pins by input: kind, colon, name."""


LOCK = Reader(LockFile)


def parse_lock(text: str, path: str) -> Lock:
    """Read ``inputs.lock``; ``path`` is the name that messages begin with.

    Raises ``ParseError`` where it is not JSON, else ``SchemaError`` or ``ValidationError`` with all problems.
    """
    document = read_json(text, path)
    document.check_format(FORMAT, ("format", "inputs"))
    document.read(LOCK)
    pins = {key: _pin(key, document) for key in document.keys("inputs")}
    document.raise_if_any()
    return Lock(pins=pins)


def render_lock(lock: Lock) -> str:
    """The text of ``inputs.lock``: sorted, so that a change shows as the lines that changed."""
    inputs = {key: _fields(Input.parse(key).kind, pin) for key, pin in lock.pins.items()}
    return json.dumps({"format": FORMAT, "inputs": inputs}, indent=2, sort_keys=True) + "\n"


def _pin(key: str, document: Document) -> Pin:
    kind = _kind(key, document)
    read = document.read(_PINS[kind], ("inputs", key)) if kind else None
    return Pin(**vars(read)) if read else Pin()


def _kind(key: str, document: Document) -> InputKind | None:
    place = ("inputs", key)
    try:
        item = Input.parse(key)
    except ValueError:
        kind, known = key.partition(":")[0], [kind.value for kind in InputKind]
        allowed, hint = ", ".join(f"{kind}:…" for kind in known), nearest(kind, known)
        document.report(ValidationError, place, "not a kind of input", found=kind, allowed=allowed, hint=hint)
        return None
    if re.fullmatch(SPECS[item.kind], item.spec) is None:
        document.report(ValidationError, place, f"not the name of a {item.kind.value} input", found="")
    return item.kind


def _fields(kind: InputKind, pin: Pin) -> dict[str, str | int | None]:
    if _PINS[kind] is _FILE:
        return {"filename": pin.filename, "size": pin.size, "sha256": pin.sha256}
    return {"revision": pin.revision}
