"""Errors that a user can see; each kind has its own exit code.

An error has fields: what is wrong, its cause and what to do about it. ``tasks.py`` and the client print the
error's text without a traceback and exit with ``exit_code``. No code parses such a text.
"""

from __future__ import annotations

import errno
from typing import Mapping, Optional, Sequence, Tuple, Union


class BuilderError(Exception):
    """An error that is reported as a message instead of a traceback.

    ``what`` names a thing and what is wrong with it. ``cause`` is the message of the operating system, a
    program or a host, ``advice`` what the user can do; both may be empty. ``details`` are the lines below the
    first. ``log`` is the path of a file with a program's whole output, empty if there is none.

    ``retry_after`` is ``None`` where another attempt cannot help, else the seconds after which it may; 0
    where no time is known.
    """

    exit_code: int = 1

    def __init__(
        self,
        what: str,
        *,
        cause: str = "",
        advice: str = "",
        details: Sequence[str] = (),
        log: str = "",
        retry_after: Optional[float] = None,
    ) -> None:
        self.what = one_line(what)  # names in it may be anybody's
        self.cause = one_line(cause)
        self.advice = advice
        self.details: Tuple[str, ...] = tuple(details)
        self.log = log
        self.retry_after = retry_after
        super().__init__(what)

    @property
    def headline(self) -> str:
        """Return what is wrong, and the cause if there is one."""
        return f"{self.what}: {_sentence(self.cause)}" if self.cause else self.what

    def warning(self, what: str) -> str:
        """Return a warning for work that goes on: what is wrong, the advice, and ``what`` happens now."""
        return " ".join(filter(None, (_sentence(self.headline), self.advice, what)))

    def __str__(self) -> str:
        log = f"The whole log: {self.log}" if self.log else ""
        if self.details or log:
            return "\n".join(line for line in (self.headline, *self.details, log, self.advice) if line)
        return f"{_sentence(self.headline)} {self.advice}" if self.advice else self.headline


def one_line(text: str) -> str:
    """Return the text in one line, with control characters and surrogates as escapes."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?", ":")) else f"{text}."


class ConfigError(BuilderError):
    """``variants.yaml``, ``inputs.lock`` or a flag is wrong."""

    exit_code = 2

    def __init__(self, what: Union[str, Sequence[str]], *, cause: str = "", advice: str = "") -> None:
        """Take one problem as ``what``, or several, which become one line each."""
        first, *others = (what,) if isinstance(what, str) else what
        super().__init__(first, cause=cause, advice=advice, details=others)
        if first is not what:
            self.what = first  # a finding has several lines

    @property
    def problems(self) -> Tuple[str, ...]:
        """Return each problem as one text."""
        return (self.what, *self.details) if self.details else (str(self),)


class ParseError(ConfigError):
    """The text is not YAML or JSON at all."""


class SchemaError(ConfigError):
    """A key is unknown or missing, or a value has the wrong type."""


class ValidationError(ConfigError):
    """A value of the right type that names nothing: ``sm: 91``, an unknown variant, a missing file."""


class CompatibilityError(ConfigError):
    """Values that are fine one by one and impossible together: cuDNN 9.11 with sm_50."""


class NothingToDoError(BuilderError):
    """The request selects nothing."""

    exit_code = 3


class ToolMissingError(BuilderError):
    """A program or service is absent, too old, or does not answer.

    A builder that went away during a build has a ``retry_after``.
    """

    exit_code = 4


class CommandError(BuilderError):
    """A program ran and failed.

    ``code`` is its exit status, ``tail`` the last lines of its output.
    """

    exit_code = 5

    def __init__(
        self,
        what: str,
        *,
        argv: Sequence[str] = (),
        code: int = 1,
        tail: Sequence[str] = (),
        cause: str = "",
        advice: str = "",
        log: str = "",
    ) -> None:
        self.argv = tuple(argv)
        self.code = code
        self.tail = tuple(tail)
        super().__init__(what, cause=cause, advice=advice, details=self.tail, log=log)


class CheckFailedError(BuilderError):
    """A check found errors.

    ``findings`` are the rendered findings, worst first.
    """

    exit_code = 6

    def __init__(self, what: str, findings: Sequence[str] = ()) -> None:
        self.findings = tuple(findings)
        super().__init__(what, details=self.findings)


class IntegrityError(BuilderError):
    """A file's bytes differ from the expected ones; the message has the expected and the found value."""

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
    """A file cannot be read or written: full disk, read-only file system, missing permission, I/O error."""

    exit_code = 11


class LoadError(BuilderError):
    """An undamaged package does not load on this machine: its system is too old, or lacks a library."""

    exit_code = 12


class VariantsFailedError(BuilderError):
    """Some of several variants built at once failed; ``failures`` has their errors by variant name.

    The exit code is that of the first failure.
    """

    def __init__(
        self,
        failures: Mapping[str, BuilderError],
        *,
        what: str = "",
        details: Sequence[str] = (),
        advice: str = "",
    ) -> None:
        """Take the failures; without ``what`` the message consists of all their messages."""
        self.failures = dict(failures)
        self.exit_code = next(iter(self.failures.values())).exit_code
        super().__init__(what, details=details, advice=advice)
        self.what = what or "\n\n".join(f"{name}: {error}" for name, error in self.failures.items())


FULL_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""The errnos for a full disk, a full quota, and a file that is larger than the file system allows."""

_WRONG_PATH = {
    errno.ENOENT: ("there is no such file or folder", "Check the path."),
    errno.ENOTDIR: ("a part of the path is a file, not a folder", "Check the path."),
    errno.EISDIR: ("it is a folder, and a file is wanted", "Name a file."),
    errno.ENAMETOOLONG: ("the path is longer than the file system takes", "Choose a shorter one."),
    errno.ELOOP: ("its symbolic links lead in a circle", "Check the path."),
}

DISK_ADVICE = {
    **dict.fromkeys(FULL_DISK, "Free space there and run the same command again."),
    errno.EACCES: "Fix its owner or mode, or run as a user who may.",
    errno.EPERM: "Fix its owner or mode, or run as a user who may.",
    errno.EROFS: "Choose a folder on another file system, or mount this one writable.",
    errno.EIO: "The disk may be failing: the kernel's log (dmesg) says more.",
    **dict.fromkeys(
        (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP),
        "That file system does not support this; some network file systems have no locks. Choose a folder on "
        "another one.",
    ),
}


def os_error(error: OSError) -> BuilderError:
    """Return the error to report for a file that the operating system refused.

    A wrong path gives a ``ValidationError``, any other error a ``DiskError`` with advice for its errno.
    """
    where = str(error.filename) if error.filename else "a file or the output"
    if error.filename and error.errno in _WRONG_PATH:
        cause, advice = _WRONG_PATH[error.errno]
        return ValidationError(where, cause=cause, advice=advice)
    return DiskError(where, cause=error.strerror or str(error), advice=DISK_ADVICE.get(error.errno or 0, ""))
