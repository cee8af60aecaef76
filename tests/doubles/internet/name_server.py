"""A name server for a few hosts. Their IPv6 addresses lead nowhere."""

import socket
import struct
from collections.abc import Callable

NOWHERE = "2001:db8::1"
"""An address of the range that is for documentation alone (RFC 3849)."""

_A, _AAAA = 1, 28
_ANSWER, _UNKNOWN = 0x8580, 0x8583
"""Flags of an answer with authority: no error, and NXDOMAIN."""


def answer(query: bytes, knows: Callable[[str], bool], address: str) -> bytes:
    """Return the answer to a query with one question (RFC 1035); unknown names do not exist."""
    labels, at = [], 12
    while length := query[at]:
        labels.append(query[at + 1 : at + 1 + length].decode("ascii"))
        at += 1 + length
    (kind,) = struct.unpack_from("!H", query, at + 1)
    question = query[12 : at + 5]
    known = knows(".".join(labels).lower())
    found = {_A: socket.inet_aton(address), _AAAA: socket.inet_pton(socket.AF_INET6, NOWHERE)}.get(kind, b"")
    records = known and bool(found)
    head = query[:2] + struct.pack("!HHHHH", _ANSWER if known else _UNKNOWN, 1, records, 0, 0)
    record = struct.pack("!HHHIH", 0xC00C, kind, 1, 60, len(found)) + found
    return head + question + (record if records else b"")


def serve_names(address: str, knows: Callable[[str], bool]) -> None:
    """Answer queries on every address of this machine without end; each known host is at ``address``."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("", 53))
        while True:
            query, client = server.recvfrom(4096)
            server.sendto(answer(query, knows, address), client)
