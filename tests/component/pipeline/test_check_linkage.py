"""The check stage on libraries with symbols: what the linkage rules find reaches its report."""

from __future__ import annotations

from pathlib import Path

from tests.component.pipeline.test_check import BRIDGE, HOST, Desk
from tests.support.factories.binaries import UNDEFINED, Row, linked


def test_a_symbol_missing_and_a_symbol_leaked(tmp_path: Path) -> None:
    host = linked(Row("OrtGetApiBase"), Row("nobody_has_this", UNDEFINED), needed=("libc.so.6",))
    bridge = linked(Row("Provider_GetHost"), Row("google_protobuf_leaked"))
    assert Desk(tmp_path).codes({HOST: host, BRIDGE: bridge}) == [("E014", HOST), ("E015", BRIDGE)]


def test_a_library_that_cannot_be_read_is_one_finding(tmp_path: Path) -> None:
    """Not one for each symbol that it would have defined."""
    host = linked(Row("cublasCreate_v2", UNDEFINED), needed=("libcublas.so.12",), runpath="$ORIGIN")
    assert Desk(tmp_path).codes({HOST: host, "lib/libcublas.so.12": b"\x7fELF"}) == [
        ("E001", "lib/libcublas.so.12")
    ]
