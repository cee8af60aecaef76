"""Tests of finding names of libraries opened at run time among the constants of an ELF file."""

from __future__ import annotations

import pytest

from builder.binary.elf import read_elf
from builder.binary.embedded import dlopened_names
from tests.support.factories.binaries import elf

BUILTINS = b"libnvrtc-builtins.so.12.9"


def _opens(name: str, rodata: bytes, section: str = ".rodata") -> tuple[str, ...]:
    data = elf({".fini": b"\xc3" * 64, section: rodata})
    return dlopened_names(data, name, read_elf(data))


@pytest.mark.parametrize(
    ("name", "rodata", "names"),
    [
        (
            "libcudnn.so.9",
            b"\0libcudnn_ops.so\0x\0libcudnn_graph.so\0",
            "libcudnn_graph.so libcudnn_ops.so",
        ),
        # cuDNN 9.10.2's graph library: the first bytes of its .rodata
        ("libcudnn_graph.so.9", b"libnvrtc.so.%d\0libnvrtc.so\0Could not open", "libnvrtc.so.%d"),
        # cuDNN 9.28's ext
        (
            "libcudnn_ext.so.9",
            b"\0libnvrtc.so.\0libnvrtc-builtins.so.\0",
            "libnvrtc-builtins.so. libnvrtc.so.",
        ),
        ("libcudnn_engines_precompiled.so.9", b"\0libnvrtc.so.12\0", "libnvrtc.so.12"),
        # NVRTC 12.9: the name, and an error message that contains it
        ("libnvrtc.so.12", BUILTINS + b"\0cannot open " + BUILTINS + b".\n\0", "libnvrtc-builtins.so.12.9"),
        ("libcudnn.so.9", b"\0dlopen of libcudnn_ops.so\0libcudnn_ops.so failed\0libcuda.so\0", ""),
        ("libcublasLt.so.12", b"\0libnvrtc.so.12\0", ""),
    ],
)
def test_names_alone_between_zero_bytes(name: str, rodata: bytes, names: str) -> None:
    assert " ".join(_opens(name, rodata)) == names


def test_only_constants_are_looked_at() -> None:
    assert _opens("libcudnn.so.9", b"\0libcudnn_ops.so\0", ".data") == ()
    data = elf({".data": b"\0libcudnn_ops.so\0", ".rodata": b"\0" * 9 + b"libcudnn_cnn.so", ".x": bytes(8)})
    assert dlopened_names(data, "libcudnn.so.9", read_elf(data)) == ()


def test_a_file_full_of_names_is_not_read_to_its_end() -> None:
    assert len(_opens("libcudnn.so.9", b"".join(b"\0libcudnn_%d.so\0" % n for n in range(9999)))) == 64
