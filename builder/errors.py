"""Every error a user can meet, each class with its own exit code.

A message says what is wrong, why, and what to do next; ``tasks.py`` and the client print it without a
traceback and exit with ``exit_code``. Standard library only, Python 3.9 and newer.
"""

from __future__ import annotations

from typing import ClassVar, Sequence


class BuilderError(Exception):
    """Base of every error that is reported as a message instead of a traceback."""

    exit_code: ClassVar[int] = 1


class ConfigError(BuilderError):
    """``variants.yaml``, ``inputs.lock`` or a flag is wrong. ``problems`` holds one line each."""

    exit_code = 2

    def __init__(self, problems: Sequence[str] | str) -> None:
        lines = (problems,) if isinstance(problems, str) else tuple(problems)
        self.problems: tuple[str, ...] = lines
        super().__init__("\n".join(self.problems))


class ParseError(ConfigError):
    """The text is not YAML or JSON at all."""


class SchemaError(ConfigError):
    """A key is unknown or missing, or a value has the wrong type."""


class ValidationError(ConfigError):
    """A value of the right type that names nothing we know: ``sm: 91``, an unknown variant."""


class CompatibilityError(ConfigError):
    """Values that are fine one by one and impossible together: cuDNN 9.11 with sm_50."""


class NothingToDoError(BuilderError):
    """The request selects nothing."""

    exit_code = 3


class ToolMissingError(BuilderError):
    """A program or service is absent, too old, or does not answer."""

    exit_code = 4


class CommandError(BuilderError):
    """A program ran and failed. ``tail`` holds its last lines."""

    exit_code = 5

    def __init__(
        self, message: str, *, argv: Sequence[str] = (), code: int = 1, tail: Sequence[str] = ()
    ) -> None:
        self.argv = tuple(argv)
        self.code = code
        self.tail = tuple(tail)
        super().__init__("\n".join([message, *self.tail]))


class CheckFailedError(BuilderError):
    """A check found errors. ``findings`` holds the rendered findings, worst first."""

    exit_code = 6

    def __init__(self, message: str, findings: Sequence[str] = ()) -> None:
        self.findings = tuple(findings)
        super().__init__("\n".join([message, *self.findings]))


class IntegrityError(BuilderError):
    """Bytes are not what they should be: wanted and got are in the message."""

    exit_code = 7


class ReleaseConflictError(BuilderError):
    """The release host holds something that differs and may not be replaced."""

    exit_code = 8


class NoCompatiblePackageError(BuilderError):
    """No package fits this machine: the message lists each candidate and why not."""

    exit_code = 9


class TransferError(BuilderError):
    """A download or upload did not come through, or the machine is offline."""

    exit_code = 10


class DiskError(BuilderError):
    """A file cannot be written: full disk, read-only folder, missing permission."""

    exit_code = 11


class LoadError(BuilderError):
    """A package that is whole does not load on this machine: its system is too old, or lacks a library."""

    exit_code = 12
