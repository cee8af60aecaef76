"""Tests of inspect with plug-ins: they have the file name of ONNX Runtime's classic CUDA provider."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from builder.binary.library import read_library
from builder.contents.sentences import notes
from builder.inspect.command import inspect_sources
from builder.inspect.reading import document
from builder.io.wiring import Wiring
from tests.support import written
from tests.support.factories.archives import files, zipped
from tests.support.factories.binaries import elf, sass
from tests.support.factories.pe import pe
from tests.support.schemas import schema

NAME = "libonnxruntime_providers_cuda.so"

DLL = "onnxruntime_providers_cuda.dll"

Pack = Callable[[Mapping[str, bytes]], bytes]

VERSION = b'\xef\xbb\xbf{\r\n  "version": "0.4.0"\r\n}'
"""As PowerShell's ConvertTo-Json and Set-Content write it."""


def provider(*exports: str, constants: bytes = b"\x001.24.4\x000.4.0\x00") -> bytes:
    symbols = dict.fromkeys(exports, (".nv_fatbin", 0))
    return elf({".nv_fatbin": sass(75, 86), ".rodata": constants}, symbols=symbols)


def dll(*exports: str) -> bytes:
    code = {".nv_fatb": sass(75, 86)}
    return pe(code, soname=DLL, exports=exports, data=b"\x001.24.4\x000.4.0\x00")


PLUGIN, CLASSIC = provider("CreateEpFactories", "ReleaseEpFactory"), provider("GetProvider")


def read(shop: Wiring, source: Path) -> tuple[dict[str, Any], str]:
    """Return the only library's JSON, and its notes as one text."""
    (inspected,) = inspect_sources(shop, [str(source)])
    told = document([inspected])
    schema("inspect").validate(told)
    ((library,), (item,)) = json.loads(json.dumps(told))["sources"][0]["libraries"], inspected.libraries
    return library, "; ".join(notes(item))


@pytest.mark.parametrize(
    ("library", "form", "oldest"),
    [
        (PLUGIN, "plugin", "1.24.4"),
        (CLASSIC, "provider", None),
        (provider("CreateEpFactories", "GetProvider", "ReleaseEpFactory"), "provider", None),
        (provider("CreateEpFactories", constants=b"\x001.9.0\x001.24.4\x00"), "plugin", "1.9.0"),
        (provider("CreateEpFactories", constants=b""), "plugin", None),
        (provider("Other"), None, None),
        (dll("CreateEpFactories", "ReleaseEpFactory"), "plugin", "1.24.4"),
        (dll("A", "GetProvider"), "provider", None),
        (provider("CreateEpFactories", "GetProvider"), "provider", None),  # as 1.26.0 and 1.31.1
    ],
)
def test_exports_tell_a_plugin_from_a_provider(
    shop: Wiring, tmp_path: Path, library: bytes, form: str | None, oldest: str | None
) -> None:
    name = DLL if library.startswith(b"MZ") else NAME
    (tmp_path / name).write_bytes(library)
    told, said = read(shop, tmp_path / name)
    assert (told.get("form"), told.get("oldest_host")) == (form, oldest)
    assert ("a plug-in:" in said) == (form == "plugin")
    assert (f"{oldest} or newer" in said) == (oldest is not None)
    assert ("do not say which" in said) == (form == "plugin" and oldest is None)


def test_a_plugins_version_is_that_of_its_symbols_and_no_hosts() -> None:
    """Packages are checked by it: what a provider opens without a name in its bytes is known by version."""
    symbols = {"CreateEpFactories": (".nv_fatbin", 0)}
    code = {".nv_fatbin": sass(75), ".rodata": b"\x001.24.4\x00"}
    ours, official = (
        read_library(NAME, elf(code, symbols=symbols, defines=defines)) for defines in (["VERS_1.30.0"], [])
    )
    assert (ours.embedded_version, ours.oldest_host) == ("1.30.0", "1.24.4")
    assert (official.embedded_version, official.oldest_host) == (None, "1.24.4")


@pytest.mark.parametrize("pack", [files, zipped, None], ids=["tar", "zip", "folder"])
@pytest.mark.parametrize(
    ("text", "release"),
    [
        (VERSION, "0.4.0"),
        (b'{"version": "0.4.0-dev.20260801+2a1ffff2"}', "0.4.0-dev.20260801+2a1ffff2"),
        (b'{"cuda": {"version": "12.8"}}', None),
        (b'{"version": "' + b"9" * 5000, None),
    ],
)
def test_version_json_beside_it_has_its_version(
    shop: Wiring, tmp_path: Path, pack: Pack | None, text: bytes, release: str | None
) -> None:
    contents, source = {NAME: PLUGIN, "version.json": text}, tmp_path / "cuda_ep_cuda12_0.4.0_linux_x64"
    if pack:
        source.write_bytes(pack(contents))
    else:
        written(source, contents)
    told, said = read(shop, source)
    assert (told["form"], told["release"], told["oldest_host"]) == ("plugin", release, "1.24.4")
    assert (f"of version {release}:" in said) == (release is not None)
