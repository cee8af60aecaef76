"""The names of packages and release assets, and the values that they are made of.

``ortpacks-legacy-1.21.0-cuda12.9-lean-thin-linux-x64`` has variant, ORT version, CUDA version, ``plugin``
for a plug-in, the profile if it is not full, the layout if it is not full, and platform. A package without
CUDA, as ``ortpacks-cpu-1.23.2-linux-x64``, has neither profile nor layout in its name. Only
``[A-Za-z0-9._+-]`` is allowed, because GitHub replaces any other character in an asset's name. A package is
for one execution provider.
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
"""The platforms of packages, as ``facts.gpu.devices.platform_of`` returns them."""

MUSL = ""
"""The glibc version of a Linux system with musl; ``None`` stands for an unknown version."""

SERVED: Mapping[str, Tuple[str, ...]] = {
    CUDA: (LINUX, LINUX_ARM64, WINDOWS),
    CPU: PLATFORMS,
    DIRECTML: (WINDOWS,),
    COREML: (MACOS,),
}
"""The platforms for which packages of a provider are made."""


class PackageForm(Enum):
    """What a package's library for CUDA is to ONNX Runtime: a part of one build, or a plug-in of any."""

    PROVIDER = "provider"
    """Host library, bridge and provider of one build."""
    PLUGIN = "plugin"
    """One library that stock hosts register; no host library."""


HOSTS: Mapping[str, str] = {
    LINUX: "libonnxruntime.so.1",
    LINUX_ARM64: "libonnxruntime.so.1",
    WINDOWS: "onnxruntime.dll",
    MACOS: "libonnxruntime.dylib",
}
"""File name of the host library in a package's ``lib/``, by platform. Applications open this library."""

PROVIDER_LIBRARIES: Mapping[str, str] = {
    LINUX: "libonnxruntime_providers_cuda.so",
    LINUX_ARM64: "libonnxruntime_providers_cuda.so",
    WINDOWS: "onnxruntime_providers_cuda.dll",
}
"""File name of the CUDA provider in a package's ``lib/``, by platform."""


class Profile(Enum):
    """How much of ONNX Runtime is compiled."""

    FULL = "full"
    """The same as in the official build."""
    LEAN = "lean"
    """Without contrib operators and flash attention."""
    MINIMAL = "minimal"
    """Only the frame of the CUDA provider, for tests."""


class Host(Enum):
    """The origin of the host library ``libonnxruntime.so.1`` when the provider is compiled."""

    WHEEL = "wheel"
    SOURCE = "source"


class Layout(Enum):
    """The part of a package that its archive holds."""

    FULL = "full"
    """All files: the archive can be installed offline."""
    THIN = "thin"
    """All files but NVIDIA's libraries, which the client takes from NVIDIA's own wheels."""


class Form(Enum):
    """The compression of an archive. The value is the end of its file name."""

    ZST = ".tar.zst"
    GZ = ".tar.gz"
    """For clients that cannot read zstd."""


ARCHIVE_SUFFIXES = tuple(form.value for form in Form)
"""The endings of archives' file names."""

MANIFEST = "manifest.json"
"""File name of the manifest: an archive's first member, at the root of an installed package."""

LIB = "lib/"
"""The folder of a package's libraries, as the beginning of their paths."""

INDEX = "index.json"

CHECKSUMS = "SHA256SUMS"

CLIENT = "ortpacks.pyz"
"""File name of the client in a release."""

INSTALL_SCRIPT = "install.sh"
"""File name of the script that brings the client to machines without pip or Python."""

REDUCED = (Profile.LEAN.value, Profile.MINIMAL.value)
"""Profiles that a package's name contains."""

_VARIANT = r"[A-Za-z0-9][A-Za-z0-9._+-]*"

_VERSION = r"\d+\.\d+\.\d+[A-Za-z0-9.+]*"

_NAME = re.compile(
    rf"ortpacks-(?P<variant>{_VARIANT})-(?P<ort>{_VERSION})"
    r"(?:-cuda(?P<cuda>\d+\.\d+)(?P<plugin>-plugin)?(?:-(?P<profile>lean|minimal))?(?P<thin>-thin)?)?"
    rf"-(?P<platform>{'|'.join(PLATFORMS)})"
)

_RULE = "ortpacks-<variant>-<ORT version>[-cuda<X.Y>[-plugin][-lean|-minimal][-thin]]-<platform>"


@dataclass(frozen=True)
class PackageName:
    """The parts of a package's name. ``profile`` is ``None`` for ``full`` and for repacked wheels.

    ``cuda`` is ``None`` for a package without CUDA.
    """

    variant: str
    ort: str
    cuda: Optional[str]
    profile: Optional[str] = None
    layout: str = Layout.FULL.value
    platform: str = LINUX
    form: PackageForm = PackageForm.PROVIDER

    def __post_init__(self) -> None:
        if _NAME.fullmatch(str(self)) is None:
            raise ValidationError(
                f"{self} cannot be a package's name. Names look like {_RULE}, in [A-Za-z0-9._+-]."
            )

    def __str__(self) -> str:
        reduced = f"-{self.profile}" if self.profile else ""
        thin = f"-{self.layout}" if self.layout != Layout.FULL.value else ""
        cuda = f"-cuda{self.cuda}" if self.cuda else ""
        form = f"-{self.form.value}" if self.form is PackageForm.PLUGIN else ""
        return f"ortpacks-{self.variant}-{self.ort}{cuda}{form}{reduced}{thin}-{self.platform}"

    def archive(self, form: Form) -> str:
        """Return the file name of the package's archive, which is also the asset's."""
        return f"{self}{form.value}"

    @classmethod
    def parse(cls, text: str) -> PackageName:
        """Return the name in ``text``, a package's or its archive's. Raises ``ValidationError``."""
        match = _NAME.fullmatch(stem(text))
        if match is None:
            endings = " or ".join(ARCHIVE_SUFFIXES)
            raise ValidationError(
                f"{text!r} is not a package's name. Names look like {_RULE}, then {endings}."
            )
        layout = Layout.THIN if match["thin"] else Layout.FULL
        form = PackageForm.PLUGIN if match["plugin"] else PackageForm.PROVIDER
        texts = (match["variant"], match["ort"], match["cuda"], match["profile"])
        return cls(*texts, layout.value, match["platform"], form)


def stem(file_name: str) -> str:
    """Return the package's name, which is also the top folder, from an archive's name."""
    suffix = next((end for end in ARCHIVE_SUFFIXES if file_name.endswith(end)), "")
    return file_name.removesuffix(suffix)


def form_of(file_name: str) -> Form:
    """Return the form of an archive by its name. Raises ``ValidationError`` for any other ending."""
    matching = next((form for form in Form if file_name.endswith(form.value)), None)
    if matching is None:
        endings = " nor ".join(ARCHIVE_SUFFIXES)
        raise ValidationError(f"{file_name!r} is not a package: its name ends in neither {endings}.")
    return matching


def file_mode(path: str) -> int:
    """Return the permission bits of a package's file by its path, whatever the umask is."""
    return 0o755 if path.startswith(LIB) else 0o644


FOLDER_MODE = 0o755
"""Permission bits of a package's folders: in a runtime image another user than the one who unpacked it reads
them."""


def problems_of_support(provider: str, capabilities: Mapping[str, str], *, has_driver: bool) -> Iterator[str]:
    """Yield each contradiction as ``key: problem``.

    A package for CUDA has capabilities and a driver, any other has neither.
    """
    if provider not in PROVIDERS:
        yield f"provider: {provider!r}; known: {', '.join(PROVIDERS)}. Update ortpacks."
        return
    if bool(capabilities) != (provider == CUDA):
        which = "there must be some" if provider == CUDA else "there can be none"
        yield f"capabilities: {which} with provider {provider}"
    if has_driver != (provider == CUDA):
        which = "there must be one" if provider == CUDA else "there can be none"
        yield f"driver: {which} with provider {provider}"
