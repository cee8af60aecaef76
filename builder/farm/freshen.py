"""This program sets the times of source files for Ninja: only files whose bytes changed get a new time.

    freshen.py FOLDER RECORD

Each change of an earlier image layer unpacks the source tree again. A file whose patch was removed is then
*older* than the object compiled with the patch, and by the time alone Ninja would keep that object.
``RECORD``, a file in the Ninja tree, keeps each file's sha256 and time from build to build. A new time is
later than Ninja's log there, so that a clock that was set back leaves no old object in place.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path


def main(folder: Path, record: Path) -> None:
    """Set the times of all files below ``folder`` and replace ``record``.

    All files get a new time if ``record`` is damaged, because objects may be of other bytes then.
    """
    other: list[object] | None = None
    try:
        known = json.loads(record.read_text()) if record.is_file() else {}
    except ValueError:
        known, other = {}, ["", 0]
    new = later_than(record.with_name(".ninja_log"))
    seen = {str(file): freshen(file, known.get(str(file), other), new) for file in files(folder)}
    part = record.with_name(f"{record.name}.part")
    part.write_text(json.dumps(seen))
    part.replace(record)


def later_than(log: Path) -> int:
    """Return the current time in ns, or the time just after the last change of ``log`` if that is later."""
    return max(time.time_ns(), log.stat().st_mtime_ns + 1 if log.is_file() else 0)


def files(folder: Path) -> Iterator[Path]:
    """Yield every regular file below ``folder``, without symbolic links."""
    for parent, _, names in os.walk(folder):
        for name in names:
            path = Path(parent, name)
            if path.is_file() and not path.is_symlink():
                yield path


def freshen(file: Path, known: list[object] | None, new: int) -> list[object]:
    """Set a file's time and return ``[sha256, time in ns]``.

    A file with the ``known`` sha256 gets the known time, a changed file the time ``new``; a file without
    ``known`` values keeps its time.
    """
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    if known is None:
        return [digest, file.stat().st_mtime_ns]
    if known[0] != digest:
        os.utime(file, ns=(new, new))
    elif known[1] != file.stat().st_mtime_ns:
        os.utime(file, ns=(int(str(known[1])),) * 2)
    return [digest, file.stat().st_mtime_ns]


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
