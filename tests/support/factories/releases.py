"""Factories of small packages and their manifests for tests of releases."""

import hashlib
from dataclasses import replace
from pathlib import Path

from builder.formats.json_values import json_text
from builder.formats.manifest import (
    BaseEntry,
    CoverageEntry,
    Driver,
    FileEntry,
    Manifest,
    OrtEntry,
    WheelEntry,
)
from builder.formats.missing_kernels import MissingKernels
from tests.doubles.release import NATIVE, Build, archive, digest, name_of
from tests.support.factories.archives import member

GENERATIONS = {"legacy": ("Maxwell", "Pascal", "Volta"), "modern": ("Turing", "Ampere")}

TEXTS = {
    "LICENSE": b"MIT, for a test: <no warranty> & so on\n",
    "NOTICE": b"which file is whose\n",
    "sbom.cdx.json": b'{"bomFormat": "CycloneDX"}\n',
}

CAPABILITIES = ("5.0", "5.2", "6.0", "6.1", "7.0", "7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "12.0")


def manifest(
    variant: str,
    *,
    version: str = "1.23.2",
    origin: str = "source",
    profile: str | None = "full",
    revision: str | None = "sha256:" + "1" * 64,
    layout: str = "full",
) -> Manifest:
    return Manifest(
        format=4,
        name=name_of(variant, version, layout, Build(profile)),
        layout=layout,
        variant=variant,
        sm=tuple(item.replace(".", "") for item in NATIVE[variant]),
        generations=GENERATIONS[variant],
        platform="linux-x64",
        provider="cuda",
        glibc="2.34",
        glibcxx="3.4.29",
        onnxruntime=OrtEntry(
            version=version,
            origin=origin,
            origin_reason="for a test",
            profile=profile,
            host="wheel",
            cannot_run=(MissingKernels("com.microsoft", ()),) if profile in ("lean", "minimal") else (),
        ),
        base=BaseEntry(name="nvidia", reason="asked for", revision=revision),
        cuda="12.9",
        cudnn="9.10.2.21",
        toolkit="12.9",
        driver=Driver(floor="525.60.13", ceiling="580" if variant == "legacy" else None),
        capabilities={item: "native" if item in NATIVE[variant] else "none" for item in CAPABILITIES},
        coverage=(CoverageEntry(path="lib/x.so", containers=1, sass=("50",), ptx=()),),
        models=(),
        wheels=(WheelEntry("wheel:nvidia-y-cu12==1.2", "nvidia_y_cu12-1.2-py3-none-any.whl", 99, "1" * 64),),
        files=(
            file_entry("lib/x.so", 1200),
            file_entry("LICENSE", 34),
            replace(
                file_entry("lib/liby.so.12", 5000),
                source="wheel:nvidia-y-cu12==1.2",
                member="nvidia/y/lib/liby.so.12",
                packed=layout == "full",
            ),
        ),
    )


def file_entry(path: str, size: int) -> FileEntry:
    return FileEntry(
        path=path,
        size=size,
        sha256="0" * 64,
        source="built",
        member=None,
        packed=True,
        licence="LICENSE",
        vendor="ortpacks",
        modified=False,
        soname=None,
        needed=(),
    )


def write_package(directory: Path, entry: Manifest, padding: int = 200_000, suffix: str = ".tar.zst") -> Path:
    """Write an archive with the manifest first and ``padding`` bytes of noise, and add it to SHA256SUMS."""
    noise = hashlib.shake_256(entry.name.encode()).digest(padding)
    files = {"manifest.json": json_text(entry).encode(), "lib/x.so": noise, **TEXTS}
    path = directory / f"{entry.name}{suffix}"
    path.write_bytes(archive([member(f"{entry.name}/{name}", data) for name, data in files.items()], suffix))
    append_sum(directory, path)
    return path


def write_two_packages(directory: Path, *, legacy: int = 200_000, modern: int = 150_000) -> None:
    """Write a compiled package and a repacked one, with so many bytes of noise each."""
    write_package(directory, manifest("legacy"), padding=legacy)
    write_package(directory, manifest("modern", origin="wheel", profile=None, revision=None), padding=modern)


def append_sum(directory: Path, path: Path) -> None:
    with (directory / "SHA256SUMS").open("a") as sums:
        sums.write(f"{digest(path.read_bytes())['sha256']}  {path.name}\n")


class FakeTime:
    """A clock that only ``sleep`` advances."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def clock(self) -> float:
        return self.now
