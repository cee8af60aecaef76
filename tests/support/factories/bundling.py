"""Factory of the bundle stage's input, from the tiny trees of ``tests.support.factories.packages``."""

from dataclasses import dataclass
from pathlib import Path

from builder.config.build_plan import BuildPlan
from builder.config.inputs import Input
from builder.contents.package_manifest import BinaryReport, Member
from builder.files.digest import LocalFile
from builder.io.archive.package_writer import PackageWriter
from builder.io.wheel import record_text
from builder.package.bundle import BundlePorts, CheckedContent, PackageSources, bundle, gather, originals
from tests.support.factories.packages import Trees, artifact, lock, official, report
from tests.support.fakes.ports import FakeReporter


@dataclass(frozen=True)
class Site:
    """A folder with everything that a bundle needs."""

    folder: Path
    ports: BundlePorts
    trees: Trees

    def members(self, made: BuildPlan) -> tuple[Member, ...]:
        return gather(made, self._sources(made))

    def checked(self, made: BuildPlan, read: BinaryReport | None = None) -> CheckedContent:
        """Return the checked content of a plan; ``read`` is the report, by default without findings."""
        members = self.members(made)
        return CheckedContent(
            plan=made,
            members=members,
            originals=originals(made, members, self.trees),
            report=read or report(),
            record=lambda key: record_text(self.trees(Input.parse(key))),
            lock=lock(),
        )

    def bundle(self, made: BuildPlan) -> tuple[LocalFile, ...]:
        return bundle(self.checked(made), self.ports)

    @property
    def dist(self) -> list[str]:
        return sorted(path.name for path in self.ports.dist.iterdir())

    def _sources(self, made: BuildPlan) -> PackageSources:
        return PackageSources(
            tree=self.trees,
            artifact=None if made == official() else self.folder / "artifact",
            licence=self.folder / "LICENSE",
            directml=self.folder / "LICENSE",
            relocate=self._relocated,
        )

    def _relocated(self, library: Path) -> Path:
        copy = self.folder / "relocated.so"
        copy.write_bytes(library.read_bytes() + b"RUNPATH $ORIGIN")
        return copy


def site_in(folder: Path, *compiled: str) -> Site:
    """Return a site in ``folder``; its artifact holds the text files ``compiled`` too."""
    artifact(folder / "artifact")
    for name in compiled:
        (folder / "artifact" / name).write_text(name)
    (folder / "LICENSE").write_text("MIT\n")
    (folder / "dist").mkdir()
    reporter = FakeReporter()
    ports = BundlePorts(
        writer=PackageWriter(reporter=reporter, workers=1),
        reporter=reporter,
        dist=folder / "dist",
        work=folder / "documents",
    )
    return Site(folder, ports, Trees(folder / "trees").lay())
