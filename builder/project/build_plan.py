"""The plan of one package, what ``render`` makes of it, and the folder in which it is built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from builder.formats.package_names import CUDA, REDUCED, Host, Layout, PackageName, Profile
from builder.gpu.architectures import Arch
from builder.project.inputs import DebianPackage, Input
from builder.project.variants import Base, Origin, Project, Variant

NO_BASE = "none"
"""``BuildPlan.base`` of a package that nothing is compiled for."""


@dataclass(frozen=True)
class BuildPlan:
    """One variant, fully decided: what ``render`` and every later stage read. Made by the ``plan`` stage."""

    project: Project
    variant: Variant
    base: str
    """A name of ``bases``; ``NO_BASE`` where no image has a part in it."""
    base_reason: str
    origin: Origin
    """``WHEEL`` or ``SOURCE``, never ``AUTO``."""
    origin_reason: str
    profile: Profile | None
    """``None`` for origin wheel: the official build is what it is."""
    host: Host
    ort_version: str
    """Version of the libraries in the package."""
    ort_wheel: Input
    """Official ``onnxruntime-gpu`` wheel of that version: the host library, or everything.

    Of a package without CUDA, the wheel that is repacked.
    """
    added: tuple[Arch, ...] = ()
    """What of ``variant.sm`` widening added to the set of ``variants.yaml``."""

    @property
    def on(self) -> Base:
        """What it is built on. Raises ``KeyError`` for ``NO_BASE``."""
        return self.project.bases[self.base]

    @property
    def patches(self) -> tuple[str, ...]:
        """Patches to what is compiled: the base's."""
        return self.on.patches if self.base != NO_BASE else ()

    @property
    def layouts(self) -> tuple[Layout, ...]:
        """The layouts that are made: without NVIDIA's libraries there is nothing to leave out."""
        return self.project.bundle.layouts if self.variant.provider == CUDA else (Layout.FULL,)

    @property
    def possible_layouts(self) -> tuple[Layout, ...]:
        """Those that an earlier build may have made."""
        return tuple(Layout) if self.variant.provider == CUDA else (Layout.FULL,)


def package_name(plan: BuildPlan, layout: Layout = Layout.FULL) -> PackageName:
    """The name a plan's package will have."""
    profile = plan.profile.value if plan.profile else None
    return PackageName(
        variant=plan.variant.name,
        ort=plan.ort_version,
        cuda=plan.project.cuda.version if plan.variant.provider == CUDA else None,
        profile=profile if profile in REDUCED else None,
        layout=layout.value,
        platform=plan.variant.platform,
    )


@dataclass(frozen=True)
class Rendered:
    """A variant's Dockerfiles and what their build contexts hold."""

    dockerfile: str
    runtime_dockerfile: str
    contexts: Mapping[str, Input]
    """Named build contexts: name -> wheel whose unpacked tree it is."""
    debs: tuple[Input, ...]
    """Debian packages of the main context, under ``debs/``."""
    sources: tuple[Input, ...]
    """Sources and archives of the main context, under ``sources/``."""
    network: bool
    """Whether a step reaches a network: on an image, for the packages of its apt."""
    toolchain_key: str
    """Eight hex digits that change when anything in the toolchain changes."""
    system: tuple[DebianPackage, ...] = ()
    """The packages of the root file system that compiles, where one is assembled."""


NOTHING_RENDERED = Rendered(
    dockerfile="",
    runtime_dockerfile="",
    contexts={},
    debs=(),
    sources=(),
    network=False,
    toolchain_key="",
)
"""Of a package that no image has a part in."""


class Workplace:
    """The folder ``dist/<variant>`` and what lies in it.

    ``context`` is the folder name of the main build context. BuildKit keeps one copy of what is read from all
    contexts of a folder name, so builds that read other files of them have a name of their own.
    """

    def __init__(self, root: Path, *, context: str = "context") -> None:
        self.root = root
        self.dockerfile = root / "Dockerfile"
        """As rendered."""
        self.runtime_dockerfile = root / "runtime.Dockerfile"
        """That of the system which packages are tried in."""
        self.context = root / context
        """The main build context."""
        self.artifact = root / "artifact"
        """ORT's libraries as compiled."""
        self.artifact_key = root / "artifact.key"
        """What the libraries in ``artifact`` were compiled for."""
        self.unverified = root / "unverified"
        """Where a package lies until it is verified."""
        self.kit = root / "kit"
        """What a package is tried out with: ``ortpacks-smoke``."""
        self.log = root / "build.log"
        """The whole log of the last build."""
