"""Imitation of Windows' rules for files on this machine's file system: calls that Windows refuses fail.

Sources are pages of Microsoft's documentation below https://learn.microsoft.com/en-us/windows/win32/:

- api/winbase/nf-winbase-movefileexw: an existing folder, or link to a folder, is not replaced;
- fileio/moving-and-replacing-files: an open file is neither moved nor replaced;
- api/fileapi/nf-fileapi-createfilew: a file that is open without FILE_SHARE_DELETE, as Python opens files, is
  neither renamed nor removed;
- fileio/naming-a-file: characters, endings and device names that no file may have; names that differ in case
  only are one name;
- fileio/maximum-file-path-limitation: 260 characters for a path;
- api/winbase/nf-winbase-createsymboliclinkw: a privilege that most users do not have;
- debug/system-error-codes--0-499- and --1300-1699-: the numbers of errors.

Two rules are not imitated: a folder cannot be opened, and only a file that is open for writing can be synced.
The project's code for these tests ``os.name``.
"""

import io
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

NO_PATH, ACCESS_DENIED, SHARING_VIOLATION, INVALID_NAME, NO_PRIVILEGE = 3, 5, 32, 123, 1314
ERRNO = {NO_PATH: 2, ACCESS_DENIED: 13, SHARING_VIOLATION: 13}
"""``errno`` by Windows' error code, from CPython's ``errmap.h``; other codes have 22."""
DEVICE = re.compile(r"(?i)(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?")
LONGEST = 260
HOME = len(r"C:\Users\somebody")
"""Length in characters of the Windows path that the imitation's folder stands for."""


@contextmanager
def windows(root: Path, *, links: bool = False) -> Iterator[list[str]]:
    """Apply Windows' rules below ``root`` inside the block, and yield the list of refused calls.

    ``links``: the user has the privilege to make symbolic links.
    """
    rules = _Rules(root.resolve(), links)
    with pytest.MonkeyPatch.context() as patch:
        for rule, names in {
            rules.move: "replace rename",
            rules.remove: "unlink remove",
            rules.name: "mkdir open",
            rules.link: "symlink",
            None: "stat lstat scandir listdir rmdir readlink chmod link access",
        }.items():
            for name in names.split():
                patch.setattr(os, name, rules.checked(getattr(os, name), rule))
        patch.setattr(io, "open", rules.checked(io.open, rules.name))
        yield rules.refused


class _Rules:
    """The rules, one a method, for absolute paths. Each raises ``OSError`` as Python does on Windows."""

    def __init__(self, root: Path, links: bool) -> None:
        self.root = root
        self.links = links
        self.refused: list[str] = []

    def checked(
        self, real: Callable[..., object], rule: Callable[..., None] | None = None
    ) -> Callable[..., object]:
        """Return a function that calls ``rule``, if any, with the paths among its arguments, then ``real``.

        ``real`` gets the names as they are on the disk, whatever the case of letters in the arguments is.
        """

        def call(*arguments: object, **named: object) -> object:
            number = named.get("dir_fd")
            folder = number if isinstance(number, int) else None
            if folder is None:  # names relative to an open folder come from a listing of it
                arguments = tuple(
                    self._spelled(one) if isinstance(one, _PLACES) else one for one in arguments
                )
            if rule is not None:
                rule(*(_full(one, folder) for one in arguments if isinstance(one, _PLACES)))
            return real(*arguments, **named)

        return call

    def _spelled(self, place: str | bytes | os.PathLike[str]) -> str | bytes | os.PathLike[str]:
        """Return the path with the letters that its names have on the disk."""
        path = Path(os.fsdecode(place))
        if not self._ours(path):
            return place
        spelled = self.root
        for name in path.relative_to(self.root).parts:
            spelled /= {one.casefold(): one for one in _names(str(spelled))}.get(name.casefold(), name)
        return spelled if spelled != path else place

    def move(self, old: Path, new: Path) -> None:
        self.name(new)
        if new.is_dir() or self._held(new):
            self._refuse(ACCESS_DENIED, "replace", new)
        if self._held(old):
            self._refuse(ACCESS_DENIED if old.is_dir() else SHARING_VIOLATION, "rename", old)

    def remove(self, path: Path) -> None:
        if self._held(path):
            self._refuse(SHARING_VIOLATION, "remove", path)

    def link(self, target: Path, path: Path) -> None:
        if self._ours(path) and not self.links:
            self._refuse(NO_PRIVILEGE, "link", path)

    def name(self, path: Path, *_: Path) -> None:
        if not self._ours(path):
            return
        place = path.relative_to(self.root)
        wrong = any(set(part) & set('<>:"|?*\\') or part[-1] in ". " or DEVICE.fullmatch(part)
                    for part in place.parts)  # fmt: skip
        if wrong or any(ord(char) < 32 for char in str(place)):
            self._refuse(INVALID_NAME, "name", path)
        if HOME + 1 + len(str(place)) >= LONGEST:
            self._refuse(NO_PATH, "name", path)

    def _ours(self, path: Path) -> bool:
        return self.root in path.parents

    def _held(self, path: Path) -> bool:
        """Return whether this process has the file, or a file below the folder, open."""
        return self._ours(path) and any(path in (file, *file.parents) for file in _open_files())

    def _refuse(self, number: int, what: str, path: Path) -> None:
        self.refused.append(f"{what} {path.name}: {number}")
        error = OSError(ERRNO.get(number, 22), f"WinError {number}", str(path))
        error.winerror = number  # type: ignore[attr-defined]  # Windows' OSError has the attribute
        raise error


_PLACES = (str, bytes, os.PathLike)

_LISTDIR = os.listdir


def _names(folder: str) -> list[str]:
    try:
        return _LISTDIR(folder)
    except OSError:
        return []


def _full(place: str | bytes | os.PathLike[str], folder: int | None) -> Path:
    """Return an absolute path, in which a link as the last part is not resolved."""
    above = Path(f"/proc/self/fd/{folder}").resolve() if folder is not None else Path.cwd()
    whole = above / os.fsdecode(place)
    return whole.parent.resolve() / whole.name


def _open_files() -> Iterator[Path]:
    for descriptor in Path("/proc/self/fd").iterdir():
        place = descriptor.resolve()
        if place.is_file():
            yield place
