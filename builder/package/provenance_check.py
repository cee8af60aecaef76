"""Holds a provenance file to the package it lies beside. Values in, findings out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from builder.errors import ParseError, SchemaError
from builder.findings.finding import Code, Finding
from builder.formats.manifest import BaseEntry
from builder.formats.package_names import PARTS_SUFFIX
from builder.package.archive import Digest
from builder.package.provenance import (
    PART_OF_BASE,
    PREDICATE_TYPE,
    STATEMENT_TYPE,
    base_revision,
    provenance_name,
)

_FIXED = {"_type": STATEMENT_TYPE, "predicateType": PREDICATE_TYPE}

_DEFINITION, _DETAILS = "predicate.buildDefinition", "predicate.runDetails"

_REQUIRED: Mapping[str, type] = {
    "subject": list,
    f"{_DEFINITION}.buildType": str,
    f"{_DEFINITION}.externalParameters": dict,
    f"{_DEFINITION}.resolvedDependencies": list,
    f"{_DETAILS}.builder.id": str,
    f"{_DETAILS}.metadata.startedOn": str,
    f"{_DETAILS}.metadata.finishedOn": str,
}
"""What SLSA asks for at build level 1, and what we always write. Keys that nobody knows are to be ignored."""


def check_provenance(package: str, digest: Digest, document: bytes, base: BaseEntry) -> Iterator[Finding]:
    """B016 where the provenance beside a package cannot be read, or is not of these bytes or of this base.

    ``package`` is the file's name and ``digest`` the whole archive's, also where it lies there in parts;
    ``base`` is what the manifest says.
    """
    where = provenance_name(package)
    archive = package.removesuffix(PARTS_SUFFIX)
    try:
        made = read_subjects(document, where)
    except (ParseError, SchemaError) as error:
        yield from (Finding(Code.B016, where, problem) for problem in error.problems)
        return
    got = made.get(archive)
    if got != digest.sha256:
        what = f"{archive} changed after it was made" if got else f"it does not speak of {archive}"
        yield Finding(Code.B016, where, what, wanted=digest.sha256, got=got or ", ".join(sorted(made)))
    if base.name == "assembled" and base.revision is not None:
        listed = base_revision(_parts_of_base(json.loads(document)))
        if listed != base.revision:
            what = "the parts of the base that it lists do not come to the base's revision in the manifest"
            yield Finding(Code.B016, where, what, wanted=base.revision, got=listed)


def _parts_of_base(value: object) -> Iterator[tuple[str, str]]:
    """URI and hex sha256 of each dependency that is said to be a part of the base."""
    found = _at(value, f"{_DEFINITION}.resolvedDependencies")
    for one in found if isinstance(found, list) else []:
        if _at(one, f"annotations.{PART_OF_BASE}") is True:
            yield str(_at(one, "uri")), str(_at(one, "digest.sha256"))


def read_subjects(document: bytes, where: str) -> dict[str, str]:
    """Hex sha256 by name of the files that a provenance speaks of; ``where`` names it in errors.

    Raises ``ParseError`` (no JSON) or ``SchemaError`` (everything that makes it no SLSA provenance v1).
    """
    try:
        value = json.loads(document)
    except (ValueError, RecursionError) as error:
        raise ParseError(f"{where} is not JSON: {error}") from error
    problems = [*_wrong(value)]
    subjects = _at(value, "subject")
    problems += [] if problems else _odd_subjects(subjects)
    if problems:
        raise SchemaError(problems)
    return {one["name"]: one["digest"]["sha256"] for one in subjects}  # type: ignore[attr-defined]


def _wrong(value: object) -> Iterator[str]:
    for key, wanted in _FIXED.items():
        if _at(value, key) != wanted:
            yield f"{key}: {wanted!r} is wanted, found {_at(value, key)!r}"
    for key, kind in _REQUIRED.items():
        if not isinstance(_at(value, key), kind) or not _at(value, key):
            yield f"{key}: a {kind.__name__} with something in it is wanted, found {_at(value, key)!r}"


def _odd_subjects(subjects: object) -> list[str]:
    found = subjects if isinstance(subjects, list) else []
    return [
        f"subject[{index}]: a name and a digest.sha256 are wanted"
        for index, one in enumerate(found)
        if not (isinstance(_at(one, "name"), str) and isinstance(_at(one, "digest.sha256"), str))
    ]


def _at(value: object, path: str) -> object:
    """What stands under a path of keys; ``None`` where there is nothing."""
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value
