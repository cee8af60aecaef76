"""Packages and GPUs for tests of selection; the maps are written by hand from NVIDIA's rules for each set."""

from dataclasses import replace

from builder.facts.gpu.architectures import Capability
from builder.facts.gpu.devices import Device
from builder.formats.index import Index, IndexOrt, IndexPackage
from builder.formats.manifest import Driver, PluginEntry
from builder.formats.missing_kernels import MissingKernels

REAL = "3.5 3.7 5.0 5.2 5.3 6.0 6.1 6.2 7.0 7.2 7.5 8.0 8.6 8.7 8.9 9.0 10.0 10.1 10.3 11.0 12.0 12.1"

CAPABILITIES = tuple(REAL.split())
"""Every capability of a real device from 3.5 on."""


def package(
    name: str,
    native: str,
    *,
    jit: str = "",
    partial: str = "",
    size: int = 100,
    floor: str = "525.60.13",
    ceiling: str | None = None,
    platform: str = "linux-x64",
    glibc: str | None = "2.34",
    lacks: tuple[MissingKernels, ...] = (),
) -> IndexPackage:
    support = dict.fromkeys(CAPABILITIES[2:], "none")
    for word, which in (("native", native), ("jit", jit), ("partial", partial)):
        support.update(dict.fromkeys(which.split(), word))
    return IndexPackage(
        name=name,
        file=f"{name}.tar.zst",
        variant=name,
        platform=platform,
        provider="cuda",
        glibc=glibc,
        layout="full",
        size=size,
        sha256="0" * 64,
        parts=(),
        unpacked_size=200,
        installed_size=200,
        onnxruntime=IndexOrt("1.23.2", "source", "lean" if lacks else "full", "wheel", lacks),
        capabilities=support,
        driver=Driver(floor=floor, ceiling=ceiling),
        generations=(),
    )


def plugin(
    name: str, native: str, lacks: tuple[MissingKernels, ...] = (), profile: str = "full"
) -> IndexPackage:
    entry = PluginEntry("lib/p.so", ("CUDAExecutionProvider",), "1.24.4", 30, None)
    ort = IndexOrt("1.30.0", "source", profile, "none", lacks)
    return replace(package(name, native), plugin=entry, onnxruntime=ort)


def plain(
    provider: str, platform: str = "linux-x64", *, size: int = 10, glibc: str | None = None
) -> IndexPackage:
    """Return a package that needs no NVIDIA GPU."""
    return replace(
        package(f"{provider}-{platform}", "", size=size, platform=platform, glibc=glibc),
        variant=provider,
        provider=provider,
        unpacked_size=20,
        installed_size=20,
        onnxruntime=IndexOrt("1.23.2", "wheel", None, "wheel"),
        capabilities={},
        driver=None,
    )


def release(*packages: IndexPackage) -> Index:
    return Index(format=4, tag="t", packages=packages, models=())


def gpu(
    capability: str | None,
    driver: str | None = "570.133.07",
    *,
    memory: int | None = 8192,
    index: int = 0,
    uuid: str = "GPU-a",
) -> Device:
    return Device(
        index=index,
        uuid=uuid,
        name=f"card {index}",
        capability=Capability.parse(capability) if capability else None,
        memory_mib=memory,
        driver=driver,
    )


LEGACY = package("legacy", "5.0 5.2 6.0 6.1 7.0", ceiling="580")

MODERN = package("modern", "7.5 8.0 8.6 8.9", jit="9.0", size=300)

LATEST = package("latest", "8.9 9.0 10.0 12.0", jit="10.3 11.0 12.1", partial="8.7", size=200)

NOT_MICROSOFTS = (MissingKernels("com.microsoft", ("BiasGelu",)),)
"""Kernels that a lean package lacks, shortened."""

INDEX = release(LATEST, LEGACY, MODERN)
