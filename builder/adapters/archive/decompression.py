"""zstd and gzip as streams that are read. zstd is optional: Python itself has it from 3.14 on."""

from __future__ import annotations

import gzip
import zlib
from typing import IO, cast

from builder.errors import ToolMissingError
from builder.formats.package_names import Form

try:
    from backports.zstd import DecompressionParameter, ZstdError, ZstdFile
except ImportError:
    HAS_ZSTD = False
    """Whether this Python reads zstd; our own tools always do."""

    class ZstdError(Exception):  # type: ignore[no-redef]
        """Stands in for an error that nothing raises here."""
else:
    HAS_ZSTD = True

WINDOW_LOG = 27
"""128 MiB: the longest window every zstd decoder accepts without a flag."""


DAMAGED = (ZstdError, zlib.error, gzip.BadGzipFile, EOFError)
"""What a reader raises on a stream that is cut short, altered, or followed by something else."""


def decompressed(file: IO[bytes], form: Form) -> IO[bytes]:
    """The bytes behind zstd or gzip, read forward only; raises ``DAMAGED``.

    Raises ``ToolMissingError`` for zstd where this Python does not read it.
    """
    if form is Form.GZ:
        return cast("IO[bytes]", gzip.GzipFile(fileobj=file))
    if not HAS_ZSTD:
        raise ToolMissingError(
            "this is packed with zstd, which this Python does not read",
            advice="Use Python 3.14 or newer, or pip install backports.zstd.",
        )
    options: dict[int, int] = {DecompressionParameter.window_log_max: WINDOW_LOG}
    return cast("IO[bytes]", ZstdFile(file, options=options))
