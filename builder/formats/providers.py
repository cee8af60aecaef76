"""Execution providers that packages are for: one a package."""

from __future__ import annotations

from typing import Iterator, Mapping, Tuple

CUDA = "cuda"
"""Packages for NVIDIA GPUs, also those that bring the TensorRT provider."""

CPU = "cpu"

DIRECTML = "directml"

COREML = "coreml"

PROVIDERS = (CUDA, CPU, DIRECTML, COREML)

LINUX = "linux-x64"

WINDOWS = "win-x64"

MACOS = "macos-arm64"

PLATFORMS = (LINUX, WINDOWS, MACOS)
"""The platforms that packages are for, as ``gpu.devices.platform_of`` spells them."""

SERVED: Mapping[str, Tuple[str, ...]] = {
    CUDA: (LINUX,),
    CPU: PLATFORMS,
    DIRECTML: (WINDOWS,),
    COREML: (MACOS,),
}
"""The platforms that a provider's packages are made for."""

HOSTS: Mapping[str, str] = {
    LINUX: "libonnxruntime.so.1",
    WINDOWS: "onnxruntime.dll",
    MACOS: "libonnxruntime.dylib",
}
"""File name of the host library in a package's ``lib/``, by platform: what a program opens."""


def impossible(provider: str, capabilities: Mapping[str, str], *, has_driver: bool) -> Iterator[str]:
    """What cannot be, as ``key: problem``: capabilities and a driver are what packages for CUDA have."""
    if provider not in PROVIDERS:
        yield f"provider: {provider!r}; known: {', '.join(PROVIDERS)}. Update ortpacks."
        return
    if bool(capabilities) != (provider == CUDA):
        which = "there must be some" if provider == CUDA else "there can be none"
        yield f"capabilities: {which} with provider {provider}"
    if has_driver != (provider == CUDA):
        which = "there must be one" if provider == CUDA else "there can be none"
        yield f"driver: {which} with provider {provider}"
