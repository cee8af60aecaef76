"""Validators for the schemas of ``docs/schemas``."""

import functools
import json

from jsonschema_rs import Draft202012Validator, meta

from tests.support import ROOT


@functools.cache
def schema(name: str, part: str = "") -> Draft202012Validator:
    """Return the validator of ``docs/schemas/NAME.schema.json``, or of ``part`` of its ``$defs``.

    Raises ``ValidationError`` where the file is not a valid schema.
    """
    document = json.loads((ROOT / f"docs/schemas/{name}.schema.json").read_text(encoding="utf-8"))
    meta.validate(document)
    if part:
        document = {"$defs": document["$defs"], "$ref": f"#/$defs/{part}"}
    return Draft202012Validator(document)
