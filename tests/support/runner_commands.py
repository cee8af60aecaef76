"""What GitHub's runner takes for a command in a program's output, by the source of actions/runner.

``ActionCommand.TryParseV2`` trims a line's start and looks for ``::``; ``TryParse`` looks for ``##[``
anywhere. .NET ends a line at CR, LF or both; Python's ``splitlines`` also at further characters.
"""

NAMES = (
    "::error file=x::y",
    "::stop-commands::mine",
    "  ::set-output name=a::b",
    "##[error]y",
    "a\n::error file=x::y",
    "a\r::error file=x::y",
    "a\x1b[2J\n\x1b[1A::error file=x::y",
    "a\u2028::error file=x::y",
    "a\x85##[add-mask]y",
    f"{'a' * 60} ::error file=x::y {'b' * 60} ::error file=x::y",
    f"{'a' * 97}::error file=x::y{'b' * 90}::error",
)
"""Names of files that somebody else chose."""


def commands(output: str) -> list[str]:
    """Return the lines of an output that the runner would carry out."""
    return [line for line in output.splitlines() if line.lstrip().startswith("::") or "##[" in line]
