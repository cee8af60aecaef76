"""Rules for libraries for Windows, macOS and ARM: their platform, and the host library's version."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from builder.binary.library import wheel_version
from builder.binary.pe_macho import LINKS, ForeignLibrary
from builder.findings.finding import Code, Finding
from builder.formats.package_names import HOSTS, LIB, LINUX_ARM64, MACOS, WINDOWS
from builder.package.contents import libraries

_KINDS: Mapping[str | None, str] = {
    WINDOWS: "a 64-bit DLL for x86-64",
    MACOS: "a 64-bit dynamic library for arm64",
    LINUX_ARM64: "a 64-bit shared library for aarch64",
}


def check_foreign(found: Sequence[ForeignLibrary], provider: str, platform: str) -> Iterator[Finding]:
    """Yield E012, E018, E019 and B011 on the libraries of a package that is not for linux-x64."""
    by_name = {library.path.rpartition("/")[2]: library for library in found}
    for name in libraries(provider, platform):
        if name not in by_name:
            message = f"is not in the package, and every one for {provider} on {platform} holds it"
            yield Finding(Code.E012, f"{LIB}{name}", message, wanted=f"{LIB}{name}")
    for library in found:
        if library.platform != platform:
            got = _KINDS.get(library.platform, "neither that nor any library known here")
            yield Finding(Code.E018, library.path, f"is not for {platform}", wanted=_KINDS[platform], got=got)
    host = by_name.get(HOSTS[platform])
    if host is not None:
        yield from _check_host(host, provider)


def _check_host(host: ForeignLibrary, provider: str) -> Iterator[Finding]:
    link, version = LINKS.get(provider), wheel_version(host.source)
    if link is not None and provider not in host.links:
        message = f"{link.decode()} stands nowhere in its bytes"
        yield Finding(Code.E019, host.path, message, wanted=f"ONNX Runtime with the provider {provider}")
    if version is not None and version not in host.versions:
        got = ", ".join(sorted(host.versions)) or "no version in its bytes"
        yield Finding(Code.B011, host.path, f"it comes from {host.source}", wanted=version, got=got)
