"""Shell scripts in place of programs that unpack archives."""

from pathlib import Path

MACS_BSDTAR = """\
echo "bsdtar: Error opening archive: Can't initialize filter; unable to run program \\"zstd -d -qq\\"" >&2
exit 1
"""
"""Message and exit status of libarchive 3.5 without libzstd on a machine without zstd."""


def named(folder: Path, **scripts: str) -> dict[str, str]:
    """Write these programs and return their paths by name."""
    for name, script in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    return {name: str(folder / name) for name in scripts}
