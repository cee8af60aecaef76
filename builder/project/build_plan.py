"""This module has the plan of one package, what ``render`` makes of it, and the folder where it is built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from builder.formats.package_names import CUDA, REDUCED, Host, Layout, PackageName, Profile
from builder.gpu.architectures import Arch
from builder.project.bases import Base
from builder.project.inputs import DebianPackage, Input
from builder.project.variants import Origin, Project, Variant

NO_BASE = "none"
"""``BuildPlan.base`` of a package that needs no image."""


@dataclass(frozen=True)
class BuildPlan:
    """All decisions on one variant, made by the ``plan`` step and read by ``render`` and every later step."""

    project: Project
    variant: Variant
    base: str
    """A name of ``bases``; ``NO_BASE`` for a package that needs no image."""
    base_reason: str
    origin: Origin
    """``WHEEL`` or ``SOURCE``, never ``AUTO``."""
    origin_reason: str
    profile: Profile | None
    """Profile of the compiled ORT; ``None`` for origin wheel."""
    host: Host
    ort_version: str
    """Version of the libraries in the package."""
    ort_wheel: Input
    """Official ``onnxruntime-gpu`` wheel of that version: source of the host library, or of everything.

    In a package without CUDA it is the wheel that is repacked.
    """
    added: tuple[Arch, ...] = ()
    """Architectures of ``variant.sm`` that widening added to the set of ``variants.yaml``."""

    @property
    def on(self) -> Base:
        """The base that it is built on. Raises ``KeyError`` for ``NO_BASE``."""
        return self.project.bases[self.base]

    @property
    def patches(self) -> tuple[str, ...]:
        """The base's patches to the sources that are compiled."""
        return self.on.patches if self.base != NO_BASE else ()

    @property
    def layouts(self) -> tuple[Layout, ...]:
        """Layouts that are made.

        Without CUDA only the full one, since there are no NVIDIA libraries to omit.
        """
        return self.project.bundle.layouts if self.variant.provider == CUDA else (Layout.FULL,)

    @property
    def possible_layouts(self) -> tuple[Layout, ...]:
        """Layouts that an earlier build may have made."""
        return tuple(Layout) if self.variant.provider == CUDA else (Layout.FULL,)


def package_name(plan: BuildPlan, layout: Layout = Layout.FULL) -> PackageName:
    """Return the name of a plan's package."""
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
    """A variant's Dockerfiles and the contents of their build contexts."""

    dockerfile: str
    runtime_dockerfile: str
    contexts: Mapping[str, Input]
    """Named build contexts: the wheel whose unpacked tree the context is, by the context's name."""
    debs: tuple[Input, ...]
    """Debian packages of the main context, under ``debs/``."""
    sources: tuple[Input, ...]
    """Sources and archives of the main context, under ``sources/``."""
    network: bool
    """Whether a step needs the network: on an image, for the packages of its apt."""
    toolchain_key: str
    """Eight hex digits that change when anything in the toolchain changes."""
    system: tuple[DebianPackage, ...] = ()
    """Packages of the root file system that compiles, if one is assembled."""


NOTHING_RENDERED = Rendered("", "", {}, debs=(), sources=(), network=False, toolchain_key="")
"""``Rendered`` of a package that needs no image."""


class Workplace:
    """The folder ``dist/<variant>`` and the paths in it.

    ``context`` is the folder name of the main build context. BuildKit keeps one copy of what is read from all
    contexts of a folder name, so builds that read other files have a folder name of their own.
    """

    def __init__(self, root: Path, *, context: str = "context") -> None:
        self.root = root
        self.dockerfile = root / "Dockerfile"
        """The rendered Dockerfile."""
        self.runtime_dockerfile = root / "runtime.Dockerfile"
        """The rendered Dockerfile of the system in which packages are tried."""
        self.context = root / context
        """The main build context."""
        self.artifact = root / "artifact"
        """ORT's compiled libraries."""
        self.artifact_key = root / "artifact.key"
        """Key of the inputs that the libraries in ``artifact`` were compiled from."""
        self.unverified = root / "unverified"
        """Folder of packages until they are verified."""
        self.tools = root / "tools"
        """Programs that packages are tried with: ``ortpacks-smoke``."""
        self.log = root / "build.log"
        """The whole log of the last build."""
