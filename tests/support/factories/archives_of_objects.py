"""Factories of static libraries, written by hand from FreeBSD's manual page ``ar(5)``."""

from collections.abc import Mapping


def ar(members: Mapping[str, bytes], *, begin: bytes = b"!<arch>\n") -> bytes:
    """Return an archive in GNU's variant: an empty symbol table, a table of long names, the members."""
    table, places = b"", {}
    for name in members:
        places[name] = f"/{len(table)}" if len(name) > 15 else f"{name}/"
        table += f"{name}/\n".encode() if len(name) > 15 else b""
    whole = begin + _member("/", b"\0\0\0\0") + (_member("//", table) if table else b"")
    return whole + b"".join(_member(places[name], data) for name, data in members.items())


def bsd_ar(members: Mapping[str, bytes]) -> bytes:
    """Return an archive in BSD's variant: a long name stands before the member's bytes, with zeros behind."""
    named = {name: name.encode() + bytes(-len(name) % 4) for name in members}
    whole = (_member(f"#1/{len(named[name])}", named[name] + data) for name, data in members.items())
    return b"!<arch>\n" + b"".join(whole)


def _member(name: str, data: bytes) -> bytes:
    return (
        f"{name:<16}{0:<12}{0:<6}{0:<6}{644:<8}{len(data):<10}`\n".encode() + data + b"\n" * (len(data) % 2)
    )


def as_object(library: bytes) -> bytes:
    """Return the ELF file with the type of an object, ``ET_REL``."""
    return library[:16] + b"\1\0" + library[18:]
