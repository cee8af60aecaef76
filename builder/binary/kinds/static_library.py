"""Reader of the members of an archive of objects, ``libfoo.a``, in the formats of System V, GNU and BSD.

Source: FreeBSD's ``ar(5)``. A thin archive of GNU ``ar`` holds only the names of its objects.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from builder.binary.elf_headers import Buffer, FormatError

_BEGIN, _THIN = b"!<arch>\n", b"!<thin>\n"

_HEADER, _SIZE_AT, _END = 60, slice(48, 58), b"`\n"

_MOST_MEMBERS = 1 << 15
"""Most members of an archive; libtorch_cuda's has some thousand."""

_TABLES = (b"/", b"/SYM64/", b"__.SYMDEF", b"__.SYMDEF SORTED")

_NAMES = b"//"

_BSD = b"#1/"
"""Before the length of a long BSD name, which stands before the member's bytes and counts as part of them."""


class ArchiveError(FormatError):
    """The archive is incomplete, thin (without its objects), or too large to be read."""


class ObjectFile(NamedTuple):
    """One member of an archive: its name, and the offsets of its bytes in the archive."""

    name: str
    start: int
    end: int


def read_members(buffer: Buffer) -> Iterator[ObjectFile]:
    """Yield the members in the archive's order, without tables of symbols and names.

    Raises ``ArchiveError`` for a thin or damaged archive.
    """
    if bytes(buffer[: len(_THIN)]) == _THIN:
        raise ArchiveError("a thin archive: its objects lie elsewhere, name those or their folder", 0)
    at, names, room = len(_BEGIN), b"", _MOST_MEMBERS
    while at < len(buffer):
        header = bytes(buffer[at : at + _HEADER])
        if len(header) < _HEADER or not header.endswith(_END):
            raise ArchiveError("no whole header of a member where one must begin", at)
        digits, start = header[_SIZE_AT].strip(b" "), at + _HEADER
        if not digits.isdigit() or start + int(digits) > len(buffer):
            raise ArchiveError("truncated: a member ends behind the file's end", at)
        end = start + int(digits)
        name = header[:16].rstrip(b" ")
        if name.startswith(_BSD) and name[len(_BSD) :].isdigit():
            begin, start = start, min(end, start + int(name[len(_BSD) :]))
            name = bytes(buffer[begin : min(start, begin + _LONGEST_NAME)]).rstrip(b"\0")
        if name == _NAMES:
            names = bytes(buffer[start : min(end, start + _LONGEST_NAMES)])
        elif name not in _TABLES:
            room -= 1
            if room < 0:
                raise ArchiveError(f"more than {_MOST_MEMBERS:,} members", at)
            yield ObjectFile(_shown(name, names), start, end)
        at = end + end % 2


_LONGEST_NAMES, _LONGEST_NAME = 1 << 24, 256


def _shown(name: bytes, names: bytes) -> str:
    """Return a member's name for messages: a long GNU name is looked up."""
    if name[:1] == b"/" and name[1:].isdigit():
        place = int(name[1:])
        name = names[place : place + _LONGEST_NAME].partition(b"\n")[0]
    return name.removesuffix(b"/").decode(errors="replace")
