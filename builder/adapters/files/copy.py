"""Bytes from one open file to another: by the kernel where it can, which on btrfs and XFS copies nothing."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import IO

_STEP = 64 << 20
"""Bytes asked of the kernel at a time: often enough to show progress."""

_CHUNK = 1 << 20

_CANNOT = {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM}
"""What copy_file_range(2) says where it has no way, not where the copy failed."""


def copy_bytes(source: IO[bytes], target: IO[bytes], size: int, advance: Callable[[int], None]) -> None:
    """Copy ``size`` bytes, or what there is of them, between the files' positions.

    Past Python's buffers: neither file may have been read or written through them. Raises ``OSError``.
    """
    left = size
    for step in (_by_the_kernel, _by_hand):
        while left and (done := step(source.fileno(), target.fileno(), left)):
            left -= done
            advance(done)


def _by_the_kernel(source: int, target: int, left: int) -> int:
    try:
        return os.copy_file_range(source, target, min(left, _STEP))
    except OSError as error:
        if error.errno in _CANNOT:
            return 0
        raise


def _by_hand(source: int, target: int, left: int) -> int:
    rest = chunk = memoryview(os.read(source, min(left, _CHUNK)))
    while rest:
        rest = rest[os.write(target, rest) :]
    return len(chunk)
