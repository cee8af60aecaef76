"""What a package is for, and the names of packages and release assets, which say it.

``ortpacks-legacy-1.21.0-cuda12.9-lean-thin-linux-x64``: variant, ORT version, CUDA version, the profile where
less than the official build was compiled, the layout where it is not full, platform. Without CUDA, as
``ortpacks-cpu-1.23.2-linux-x64``, there is neither profile nor layout. Only ``[A-Za-z0-9._+-]``: GitHub
rewrites anything else in an asset's name. A package is for one execution provider.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Iterator, Mapping, Optional, Tuple

from builder.errors import ValidationError

CUDA = "cuda"
"""Packages for NVIDIA GPUs, also those that bring the TensorRT provider."""

CPU = "cpu"

DIRECTML = "directml"

COREML = "coreml"

PROVIDERS = (CUDA, CPU, DIRECTML, COREML)

LINUX = "linux-x64"

LINUX_ARM64 = "linux-arm64"

WINDOWS = "win-x64"

MACOS = "macos-arm64"

PLATFORMS = (LINUX, LINUX_ARM64, WINDOWS, MACOS)
"""The platforms that packages are for, as ``gpu.devices.platform_of`` spells them."""

SERVED: Mapping[str, Tuple[str, ...]] = {
    CUDA: (LINUX, LINUX_ARM64, WINDOWS),
    CPU: PLATFORMS,
    DIRECTML: (WINDOWS,),
    COREML: (MACOS,),
}
"""The platforms that a provider's packages are made for."""

HOSTS: Mapping[str, str] = {
    LINUX: "libonnxruntime.so.1",
    LINUX_ARM64: "libonnxruntime.so.1",
    WINDOWS: "onnxruntime.dll",
    MACOS: "libonnxruntime.dylib",
}
"""File name of the host library in a package's ``lib/``, by platform: what a program opens."""


class Profile(Enum):
    """How much of ORT is compiled."""

    FULL = "full"
    """As the official build."""
    LEAN = "lean"
    """No contrib ops, no flash attention."""
    MINIMAL = "minimal"
    """The CUDA EP's frame only: for tests, no product."""


class Host(Enum):
    """Where the host library ``libonnxruntime.so.1`` comes from when the provider is compiled."""

    WHEEL = "wheel"
    SOURCE = "source"


class Layout(Enum):
    """What of a package travels in its archive."""

    FULL = "full"
    """Everything: works offline."""
    THIN = "thin"
    """All but NVIDIA's libraries, which the client takes from NVIDIA's own wheels."""


class Form(Enum):
    """The kind of an archive; the value is the end of its file name."""

    ZST = ".tar.zst"
    GZ = ".tar.gz"
    """For clients that cannot read zstd."""


ARCHIVE_SUFFIXES = tuple(form.value for form in Form)
"""How the files of packages end."""

MANIFEST = "manifest.json"
"""The file's name: an archive's first member, at the root of an installed package."""

INDEX = "index.json"

CHECKSUMS = "SHA256SUMS"

CLIENT = "ortpacks.pyz"
"""The file of a release that a client reads to choose."""

PARTS_SUFFIX = ".parts.json"
"""Behind an archive's name: the file that says how its parts join."""

REDUCED = (Profile.LEAN.value, Profile.MINIMAL.value)
"""Profiles that a name tells."""

_VARIANT = r"[A-Za-z0-9][A-Za-z0-9._+-]*"

_VERSION = r"\d+\.\d+\.\d+[A-Za-z0-9.+]*"

_NAME = re.compile(
    rf"ortpacks-(?P<variant>{_VARIANT})-(?P<ort>{_VERSION})"
    r"(?:-cuda(?P<cuda>\d+\.\d+)(?:-(?P<profile>lean|minimal))?(?P<thin>-thin)?)?"
    rf"-(?P<platform>{'|'.join(PLATFORMS)})"
)

_RULE = "ortpacks-<variant>-<ORT version>[-cuda<X.Y>[-lean|-minimal][-thin]]-<platform>"


@dataclass(frozen=True)
class PackageName:
    """What a package's name says. ``profile`` is ``None`` for ``full`` and for repacked wheels.

    ``cuda`` is ``None`` where nothing of CUDA is inside.
    """

    variant: str
    ort: str
    cuda: Optional[str]
    profile: Optional[str] = None
    layout: str = Layout.FULL.value
    platform: str = LINUX

    def __post_init__(self) -> None:
        if _NAME.fullmatch(str(self)) is None:
            raise ValidationError(
                f"{self} cannot be a package's name. Names look like {_RULE}, in [A-Za-z0-9._+-]."
            )

    def __str__(self) -> str:
        reduced = f"-{self.profile}" if self.profile else ""
        thin = f"-{self.layout}" if self.layout != Layout.FULL.value else ""
        cuda = f"-cuda{self.cuda}" if self.cuda else ""
        return f"ortpacks-{self.variant}-{self.ort}{cuda}{reduced}{thin}-{self.platform}"

    def archive(self, form: Form) -> str:
        """File name of the package, and name of the asset on a release."""
        return f"{self}{form.value}"

    @classmethod
    def parse(cls, text: str) -> PackageName:
        """Read a package's name or its archive's file name; ``ValidationError`` on anything else."""
        match = _NAME.fullmatch(stem(text))
        if match is None:
            endings = " or ".join(ARCHIVE_SUFFIXES)
            raise ValidationError(
                f"{text!r} is not a package's name. Names look like {_RULE}, then {endings}."
            )
        layout = Layout.THIN if match["thin"] else Layout.FULL
        return cls(
            match["variant"], match["ort"], match["cuda"], match["profile"], layout.value, match["platform"]
        )


def stem(file_name: str) -> str:
    """The package's name and top folder, from the name of its archive or of the file that joins its parts."""
    name = file_name.removesuffix(PARTS_SUFFIX)
    suffix = next((end for end in ARCHIVE_SUFFIXES if name.endswith(end)), "")
    return name.removesuffix(suffix)


def form_of(file_name: str) -> Form:
    """The kind of archive by its name. Raises ``ValidationError`` where the name tells none."""
    name = file_name.removesuffix(PARTS_SUFFIX)
    found = next((form for form in Form if name.endswith(form.value)), None)
    if found is None:
        endings = " or ".join(ARCHIVE_SUFFIXES)
        raise ValidationError(f"{file_name!r} is not a package: its name ends in neither {endings}.")
    return found


def file_mode(path: str) -> int:
    """Permission bits of a package's file by its path, whatever the umask of who unpacks it."""
    return 0o755 if path.startswith("lib/") else 0o644


FOLDER_MODE = 0o755
"""Permission bits of a package's folders: a runtime image's user is not the one who unpacked it."""


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
