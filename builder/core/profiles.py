"""How much of ORT is compiled, as CMake cache entries, each with its reason.

Source of names and defaults: ORT's ``cmake/CMakeLists.txt``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Tuple

from builder.core.variant import Host, Profile


@dataclass(frozen=True)
class CacheEntry:
    """One ``set(NAME VALUE CACHE TYPE "reason")``."""

    name: str
    value: str
    reason: str

    @property
    def type(self) -> str:
        """CMake's cache type."""
        return "BOOL" if self.value in {"ON", "OFF"} else "STRING"


_COMMON = (
    CacheEntry("CMAKE_BUILD_TYPE", "Release", "as the official build"),
    CacheEntry("onnxruntime_USE_CUDA", "ON", "the CUDA provider is what we ship"),
    CacheEntry("onnxruntime_BUILD_SHARED_LIB", "ON", "a host library for every language"),
    CacheEntry("onnxruntime_USE_FULL_PROTOBUF", "ON", "as the official build"),
    CacheEntry("onnxruntime_BUILD_UNIT_TESTS", "OFF", "ORT's own tests need a GPU"),
    CacheEntry("CMAKE_BUILD_WITH_INSTALL_RPATH", "ON", "no RUNPATH into the build machine"),
    CacheEntry("CMAKE_INSTALL_RPATH", "$ORIGIN", "libraries find their neighbours"),
)
_PROFILES = {
    Profile.FULL: (),
    Profile.LEAN: (
        CacheEntry("onnxruntime_DISABLE_CONTRIB_OPS", "ON", "lean: 54 CUDA units instead of 155"),
        CacheEntry("onnxruntime_USE_FLASH_ATTENTION", "OFF", "lean: flash attention needs sm_80"),
        CacheEntry("onnxruntime_USE_LEAN_ATTENTION", "OFF", "lean: part of flash attention"),
        CacheEntry("onnxruntime_USE_MEMORY_EFFICIENT_ATTENTION", "OFF", "lean: serves contrib ops only"),
    ),
}
_MINIMAL = CacheEntry("onnxruntime_CUDA_MINIMAL", "ON", "minimal: the EP's frame, one CUDA unit; for tests")

_NO_CPUINFO = CacheEntry("onnxruntime_ENABLE_CPUINFO", "OFF", "only the host library asks for it")


def cache_entries(profile: Profile, *, cpuinfo: bool) -> Tuple[CacheEntry, ...]:
    """The CMake cache entries of a profile, in the order they are written.

    ``cpuinfo``: whether the host library's CPU detection library can be had.
    """
    chosen = _PROFILES[Profile.LEAN] + (_MINIMAL,) if profile is Profile.MINIMAL else _PROFILES[profile]
    return _COMMON + chosen + (() if cpuinfo else (_NO_CPUINFO,))


def build_targets(host: Host) -> Tuple[str, ...]:
    """Ninja targets: the provider and its bridge, and the host library where it is compiled too."""
    provider = ("onnxruntime_providers_cuda", "onnxruntime_providers_shared")
    return provider if host is Host.WHEEL else (*provider, "onnxruntime")


LONGEST_UNITS = ("binary_elementwise_ops_impl", r"topk_impl_[a-z0-9_]+")
"""CUDA units compiled first: the first takes 761 s for five architectures, ten minutes of tail if last."""
