"""Sets the times of a source tree for Ninja: a file whose bytes changed is new, and no other is.

    freshen.py FOLDER RECORD

The tree is laid out anew by every change of a layer above it, and a patch that is taken away again leaves a
file *older* than the object made from it: by the time alone, Ninja would keep what was compiled with it.
``RECORD`` keeps each file's sha256 and time from one build to the next, beside the Ninja tree.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path


def main(folder: Path, record: Path) -> None:
    """Set the times below ``folder`` and write ``record`` anew."""
    known = json.loads(record.read_text()) if record.is_file() else {}
    seen = {str(file): freshen(file, known.get(str(file))) for file in files(folder)}
    part = record.with_name(f"{record.name}.part")
    part.write_text(json.dumps(seen))
    part.replace(record)


def files(folder: Path) -> Iterator[Path]:
    """Every regular file below ``folder``, links left out."""
    for parent, _, names in os.walk(folder):
        for name in names:
            path = Path(parent, name)
            if path.is_file() and not path.is_symlink():
                yield path


def freshen(file: Path, known: list[object] | None) -> list[object]:
    """``[sha256, time in ns]`` of a file: the known time for the known bytes, this moment for others."""
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    if known is None:
        return [digest, file.stat().st_mtime_ns]
    if known[0] != digest:
        os.utime(file)
    elif known[1] != file.stat().st_mtime_ns:
        os.utime(file, ns=(int(str(known[1])),) * 2)
    return [digest, file.stat().st_mtime_ns]


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
