"""What GitHub's runner takes for a command in a program's output, by the source of actions/runner.

``ActionCommand.TryParseV2`` trims a line's start and looks for ``::``; ``TryParse`` looks for ``##[``
anywhere. .NET ends a line at CR, LF or both; Python's ``splitlines`` also at further characters.
"""

import json

from tests.support.tables import data_text

NAMES: list[str] = json.loads(data_text("programs/names.json"))
"""Names of files that somebody else chose."""


def commands(output: str) -> list[str]:
    """Return the lines of an output that the runner would carry out."""
    return [line for line in output.splitlines() if line.lstrip().startswith("::") or "##[" in line]
