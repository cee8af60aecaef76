"""Tests of libraries for Windows and macOS with headers written by hand and programs made by other tools."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builder.binary.pe_macho import read_foreign
from builder.contents.rules.foreign_libraries import check_foreign
from builder.finding import Code, Finding
from tests.support.factories.binaries import elf
from tests.support.factories.repacked import COREML, arm64, dll, dylib
from tests.support.messages import Told

WHEEL = "wheel:onnxruntime-directml==1.23.0@win-x64"

LIBRARIES = {
    "lib/onnxruntime.dll": dll(b"1.23.0", b"DirectML.dll"),
    "lib/onnxruntime_providers_shared.dll": dll(),
    "lib/DirectML.dll": dll(),
}


def found(
    libraries: dict[str, bytes], provider: str = "directml", platform: str = "win-x64"
) -> list[Finding]:
    read = [read_foreign(path, WHEEL, data) for path, data in libraries.items()]
    return list(check_foreign(read, provider, platform))


def test_whole_packages_are_fine() -> None:
    assert found(LIBRARIES) == []
    mac = {"lib/libonnxruntime.dylib": dylib(b"1.23.0", COREML)}
    assert found(mac, "coreml", "macos-arm64") == []
    assert found(mac, "cpu", "macos-arm64") == []
    names = ("libonnxruntime.so.1", "libonnxruntime_providers_shared.so")
    arm = {f"lib/{name}": arm64(elf({".rodata": b"\0001.23.0\0"})) for name in names}
    assert found(arm, "cpu", "linux-arm64") == []


@pytest.mark.parametrize(
    ("data", "platform"),
    [
        (dll(), "win-x64"),
        (dylib(), "macos-arm64"),
        (dll(machine=0xAA64), None),  # Windows on ARM
        (dll(characteristics=0x0022), None),  # a program
        (dylib(processor=0x01000007), None),  # macOS on Intel
        (dylib(kind=2), None),  # a program
        (dylib(magic=0xBEBAFECA), None),  # several processors in one file
        (elf({".text": b"x"}), None),  # Linux on x86-64 has a reader of its own
        (arm64(elf({".text": b"x"})), "linux-arm64"),
        (arm64(elf({".text": b"x"}))[:19], None),
        (arm64(elf({".text": b"x"}), kind=2), None),  # a program
        (b"MZ", None),
        (dll()[:0x99], None),
        (dll()[:0x9A], "win-x64"),
        (b"ZM" + dll()[2:], None),
        (dylib()[:15], None),
        (dylib()[:16], "macos-arm64"),
        (b"MZ".ljust(0x3C, b"\0") + b"\xff\xff\xff\xff", None),  # its header is outside the file
    ],
)
def test_the_header_tells_the_platform(data: bytes, platform: str | None) -> None:
    assert read_foreign("lib/x", "built", data).platform == platform


@given(st.binary(max_size=300), st.sampled_from([b"", dll(), dylib()]))
def test_no_bytes_make_it_raise(data: bytes, before: bytes) -> None:
    read_foreign("lib/x", "built", before[:0x90] + data)


@pytest.mark.parametrize("path", LIBRARIES)
def test_a_library_that_is_missing_or_of_another_platform_is_named(path: str, told: Told) -> None:
    marks = (b"1.23.0", b"DirectML.dll")
    for more in ({}, {path: dylib(*marks)}, {path: elf({"x": b"".join(marks)})}):
        first, *_ = found({**{name: data for name, data in LIBRARIES.items() if name != path}, **more})
        assert (first.code, first.path) == (Code.E018 if more else Code.E012, path)
        told(first)


def test_a_host_library_without_the_provider_is_named(told: Told) -> None:
    told("\n".join(map(str, found({**LIBRARIES, "lib/onnxruntime.dll": dll(b"1.23.0")}))))
    told("\n".join(map(str, found({"lib/libonnxruntime.dylib": dylib(b"1.23.0")}, "coreml", "macos-arm64"))))


@pytest.mark.parametrize(
    ("said", "got"),
    [
        (b"1.22.0\x001.21.0", "1.21.0, 1.22.0"),
        (b"11.23.0", "no version in its bytes"),
        (b"1.23.01", "1.23.01"),
    ],
)
def test_a_host_library_of_another_version_than_its_wheel_is_named(said: bytes, got: str) -> None:
    other = {**LIBRARIES, "lib/onnxruntime.dll": dll(said, b"DirectML.dll")}
    message = f"it comes from {WHEEL}"
    assert found(other) == [Finding(Code.B011, "lib/onnxruntime.dll", message, wanted="1.23.0", got=got)]
