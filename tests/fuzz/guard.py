"""Refusal of every change to files outside of one folder, whatever the code under test has been led to do.

Cases run with the user's rights, so a defect that follows a link could remove files of this machine.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

_CHANGES = {
    "os.remove": (0,), "os.rmdir": (0,), "os.mkdir": (0,), "os.chmod": (0,), "os.chown": (0,),
    "os.utime": (0,), "os.truncate": (0,), "shutil.rmtree": (0,), "os.rename": (0, 1),
    "os.link": (0, 1), "os.symlink": (1,),
}  # fmt: skip
"""Audit events of Python that change files, with the places of the paths among their arguments.

The last argument is the descriptor of the folder that paths are relative to, or -1.
"""

_UNHARMED = ("/dev/null", "/dev/tty")

_only: list[Path] = []
"""The folder outside of which nothing may change; empty where nothing is guarded."""


class OutsideError(AssertionError):
    """The code under test was about to change a file outside of its folder."""


@contextmanager
def confined(folder: Path) -> Iterator[None]:
    """Raise ``OutsideError`` from each call inside the block that would change a file outside of ``folder``.

    Child processes are not watched.
    """
    if not _hooked:
        sys.addaudithook(_watch)
        _hooked.append(True)
    _only.append(folder.resolve())
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        yield
    finally:
        sys.dont_write_bytecode = before
        _only.pop()


_hooked: list[bool] = []


def _watch(event: str, arguments: tuple[object, ...]) -> None:
    if not _only:
        return
    if event == "open":
        path, _, flags = arguments
        if isinstance(flags, int) and flags & _WRITING:
            _require_inside(event, path, None)
    for place in _CHANGES.get(event, ()):
        _require_inside(event, arguments[place], None if event == "os.truncate" else arguments[-1])


def _require_inside(event: str, path: object, descriptor: object) -> None:
    if not isinstance(path, (str, bytes, os.PathLike)):  # an open file: opening it was checked
        return
    place = Path(os.fsdecode(path))
    if not place.is_absolute():
        relative_to = isinstance(descriptor, int) and descriptor >= 0
        place = Path(f"/proc/self/fd/{descriptor}" if relative_to else Path.cwd()) / place
    whole = place.parent.resolve() / place.name
    if str(whole) not in _UNHARMED and _only[-1] not in (whole, *whole.parents):
        raise OutsideError(f"{event} {whole}")
