"""The schemas of ``docs/schemas``."""

from __future__ import annotations

import functools
import json

from jsonschema_rs import Draft202012Validator, meta

from tests.support import ROOT


@functools.cache
def schema(name: str) -> Draft202012Validator:
    """The validator of ``docs/schemas/NAME.schema.json``. Fails where that is no valid schema itself."""
    document = json.loads((ROOT / f"docs/schemas/{name}.schema.json").read_text(encoding="utf-8"))
    meta.validate(document)
    return Draft202012Validator(document)
