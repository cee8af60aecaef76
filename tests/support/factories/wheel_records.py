"""Factories of wheels' libraries and of the records that are made of wheels."""

from builder.binary.coverage import cover, is_specialised
from builder.binary.fatbin import read_containers
from builder.binary.library import Inspected
from builder.files.digest import Digest
from builder.inspect.report.wheel_record import WheelRecord, record_of
from tests.support.factories.binaries import LZ4, PTX, SASS, A, container, elf, image

PROVIDER = "onnxruntime/capi/libonnxruntime_providers_cuda.so"


def unit(sass: str, ptx: str = "") -> bytes:
    """Return a container with these images of SASS and PTX, as in ``unit("75 90a", "90")``."""
    words = [(SASS, word) for word in sass.split()] + [(PTX, word) for word in ptx.split()]
    return container(
        *(image(kind, int(word.rstrip("a")), LZ4 | A * word.endswith("a")) for kind, word in words)
    )


def library_bytes(*units: bytes) -> bytes:
    """Return a library with these containers."""
    return elf({".nv_fatbin": b"".join(units)}, soname="libdemo.so.1", needed=("libcudart.so.12",))


def library(*units: bytes, name: str = PROVIDER) -> Inspected:
    """Return the reader's result for a library with these containers."""
    data = library_bytes(*units)
    return Inspected(
        name=name,
        coverage=cover(name, read_containers(data), specialised=is_specialised(name)),
        size=len(data),
        machine="x86-64",
        soname="libdemo.so.1",
        needed=("libcudart.so.12",),
    )


def wheel_record(version: str, *libraries: Inspected, name: str = "onnxruntime_gpu") -> WheelRecord:
    """Return the record of a wheel for Linux with these libraries."""
    file = f"{name}-{version}-cp311-cp311-manylinux_2_28_x86_64.whl"
    digest = Digest(1_234_567, "ab" * 32)
    return record_of(file, digest, libraries, date="2026-11-23", commit=None, seconds=1.25, peak_mib=70)


def two_releases() -> tuple[WheelRecord, WheelRecord]:
    """Return the records of two releases; the second lost 6.0 and its PTX, and won 12.0."""
    return (
        wheel_record("1.9.0", library(unit("60 75", "75"), unit("60 75", "75"))),
        wheel_record("1.10.0", library(unit("75 120"), unit("75 120"))),
    )
