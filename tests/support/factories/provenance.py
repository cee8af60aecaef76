"""Factory of provenance as a recipe."""

import json
from typing import Any

from tests.support.json_texts import changed
from tests.support.tables import data_text

COMMIT = "7fd1a60b01f91b314f59955a4e4d4e80d8edf11d"

CONFIG = "c" * 64


def document(**changes: Any) -> bytes:  # noqa: ANN401 - JSON
    """Return a provenance document in the form of docs/trust.md, with other values at paths like
    ``externalParameters__command``."""
    statement = data_text("formats/statement.json")
    for path, value in changes.items():
        statement = changed(statement, f"predicate/buildDefinition/{path.replace('__', '/')}", value)
    return json.dumps(json.loads(statement)).encode()
