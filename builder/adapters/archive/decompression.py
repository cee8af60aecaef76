"""Readers of zstd and gzip streams.

zstd is optional: on Python 3.14, ``client_zipapp`` uses Python's own as ``backports.zstd``.
"""

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
    """Whether this Python reads zstd; the builder's own environment always does."""

    class ZstdError(Exception):  # type: ignore[no-redef]
        """A placeholder for an error that nothing raises here."""
else:
    HAS_ZSTD = True

WINDOW_LOG = 27
"""Binary logarithm of 128 MiB, the longest window in bytes that every zstd decoder accepts without a flag."""


DAMAGED = (ZstdError, zlib.error, gzip.BadGzipFile, EOFError)
"""The errors of reading a stream that is cut short, altered, or followed by something else."""


def decompressed(file: IO[bytes], form: Form) -> IO[bytes]:
    """Return a forward-only stream of the decompressed bytes; reading raises ``DAMAGED``.

    Raises ``ToolMissingError`` for zstd if this Python does not read it.
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
