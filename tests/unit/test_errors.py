"""Tests of the texts that errors form from their fields, and of errors made from the system's refusals."""

import errno
import os

import pytest

from builder.errors import (
    BuilderError,
    CheckFailedError,
    CommandError,
    ConfigError,
    DiskError,
    ValidationError,
    os_error,
)
from tests.support.messages import Told


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (BuilderError("x is wrong."), "x is wrong."),
        (BuilderError("x", cause="why?", advice="Do y."), "x: why? Do y."),
        (BuilderError("x", cause="why", advice="Do y.", details=["a", "b"]), "x: why.\na\nb\nDo y."),
        (CommandError("nvcc exited with 1", tail=["a", "b"]), "nvcc exited with 1\na\nb"),
        (
            CommandError("nvcc exited with 1", tail=["a"], advice="Do y.", log="build.log"),
            "nvcc exited with 1\na\nThe whole log: build.log\nDo y.",
        ),
        (CheckFailedError("2 errors", ["A001", "A002"]), "2 errors\nA001\nA002"),
        (ConfigError(["a is wrong.", "b is wrong."]), "a is wrong.\nb is wrong."),
    ],
)
def test_the_text_is_made_of_the_fields(error: BuilderError, text: str) -> None:
    assert str(error) == text


def test_problems_of_a_configuration_are_told_one_by_one() -> None:
    assert ConfigError(["a is wrong.", "b is wrong."]).problems == ("a is wrong.", "b is wrong.")
    assert ConfigError("a", cause="why", advice="Do y.").problems == ("a: why. Do y.",)


@pytest.mark.parametrize(
    ("kind", "numbers"),
    [
        (ValidationError, (errno.ENOENT, errno.ENOTDIR, errno.EISDIR)),
        (DiskError, (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO)),
        (DiskError, (errno.ETXTBSY,)),
    ],
)
def test_a_refusal_is_told_by_its_number(
    told: Told, kind: type[BuilderError], numbers: tuple[int, ...]
) -> None:
    for number in numbers:
        error = os_error(OSError(number, os.strerror(number), "/data/dist"))
        assert type(error) is kind
        told(error)
