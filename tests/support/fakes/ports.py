"""Stand-ins for the ports, which record calls and return the answers that a test sets."""

import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from builder.config.inputs import DebianPackage, Input, Lock
from builder.errors import BuilderError, ToolMissingError, TransferError
from builder.io.debian.apt_mirror import AptMirrors
from builder.io.debian.rootfs import DebianRootfs
from builder.io.docker.engine import ContainerRun, DockerEngine, EngineFacts, EngineResource, ImageBuild
from builder.io.docker.registry import IndexEntry, PushedImage
from builder.io.process import Completed, ProcessRunner
from builder.io.store import FileStore
from builder.io.wiring import Wiring


@dataclass
class FakeReporter:
    """A reporter that keeps every line; a warning's line begins with ``!``."""

    lines: list[str] = field(default_factory=list)
    progressed: list[int] = field(default_factory=list)
    """The total of the last progress, and its steps."""

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        self.lines.append(title)
        yield

    def say(self, line: str) -> None:
        self.lines.append(line)

    def warn(self, line: str) -> None:
        self.lines.append(f"! {line}")

    @contextmanager
    def progress(self, title: str, total: int) -> Iterator[Callable[[int], None]]:
        self.progressed = [total]
        yield self.progressed.append

    @contextmanager
    def live(self, title: str) -> Iterator[Callable[[float, str], None]]:
        yield lambda share, words: self.lines.append(f"{title} {share:.0%} {words}")


def reported(wiring: Wiring) -> list[str]:
    """Return the lines that a wiring's ``FakeReporter`` has kept."""
    assert isinstance(wiring.reporter, FakeReporter)
    return wiring.reporter.lines


@dataclass
class FakeRunner(ProcessRunner):
    """A runner with answers by program, or by the first three words of a command; an error is raised."""

    answers: Mapping[str, Completed | BuilderError] = field(default_factory=dict)
    calls: list[list[str]] = field(default_factory=list)
    output: Sequence[str] = ()

    def run(
        self,
        argv: Sequence[str],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        on_line: Callable[[str], None] | None = None,
        check: bool = True,
    ) -> Completed:
        self.calls.append(list(argv))
        for line in self.output if on_line else ():
            assert on_line is not None
            on_line(line)
        answer = self.answers.get(" ".join(argv[:3])) or self.answers.get(argv[0])
        if isinstance(answer, BuilderError):
            raise answer
        return answer or Completed(code=0, stdout="", stderr="")

    def interrupt(self) -> None:
        """Do nothing, as no process runs."""


@dataclass
class FakeEngine(DockerEngine):
    """An engine with given images, registry and answers of containers."""

    images: set[str] = field(default_factory=set)
    digests: dict[str, str] = field(default_factory=dict)
    answer: Completed = field(default_factory=lambda: Completed(code=0, stdout="", stderr=""))
    runs: list[ContainerRun] = field(default_factory=list)
    builds: list[ImageBuild] = field(default_factory=list)
    on_build: Callable[[ImageBuild, Callable[[str], None]], None] = lambda request, on_line: None
    built: tuple[str, ...] = ("sha256:1", "sha256:2")
    """Layers of every built image."""
    registry: PushedImage | None = None
    """Image in every registry; ``None`` for one with the layers ``built``."""
    published: list[tuple[str, Sequence[str], Sequence[IndexEntry]]] = field(default_factory=list)
    listed: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Names of builders and contexts by the flag that selects them."""
    deaf: set[str] = field(default_factory=set)
    """Names of builders that do not answer."""
    holds: Sequence[EngineResource] = ()
    removed: list[EngineResource] = field(default_factory=list)
    on_run: Callable[[ContainerRun], Completed] | None = None
    """Function that gives a container's answer instead of ``answer``."""

    def facts(self) -> EngineFacts:
        return EngineFacts(
            version="26.1.5",
            buildx="0.13.1",
            storage="overlay2",
            cpus=2,
            memory=24 << 30,
            folder=None,
        )

    def has_image(self, reference: str) -> bool:
        return reference in self.images

    def resolve(self, reference: str) -> str:
        if reference not in self.digests:
            raise TransferError(f"{reference} cannot be resolved: no such host. Check the network.")
        return self.digests[reference]

    def layers(self, reference: str) -> tuple[str, ...]:
        return self.built

    def pushed(self, reference: str, platform: str) -> PushedImage:
        return self.registry or PushedImage("sha256:d", self.built, (20, 30))

    def publish(self, repository: str, tags: Sequence[str], images: Sequence[IndexEntry]) -> str:
        self.published.append((repository, tags, images))
        return "sha256:index"

    def builders(self, flag: str) -> Sequence[str]:
        return self.listed.get(flag, ())

    def wake(self, builder: str) -> None:
        if builder in self.deaf:
            raise ToolMissingError(f"Builder {builder} does not answer.")

    def build(self, request: ImageBuild, on_line: Callable[[str], None]) -> None:
        self.builds.append(request)
        self.on_build(request, on_line)

    def run(self, request: ContainerRun) -> Completed:
        self.runs.append(request)
        return self.on_run(request) if self.on_run else self.answer

    def resources(self) -> Sequence[EngineResource]:
        return [thing for thing in self.holds if thing not in self.removed]

    def remove(self, thing: EngineResource) -> str:
        self.removed.append(thing)
        return f"removed {thing.kind} {thing.name}"


class NoEngine(FakeEngine):
    """An engine that does not answer, as on a machine without Docker."""

    def facts(self) -> EngineFacts:
        raise ToolMissingError("No Docker engine answers.")

    def has_image(self, reference: str) -> bool:
        raise ToolMissingError("No Docker engine answers.")

    def resolve(self, reference: str) -> str:
        raise ToolMissingError("No Docker engine answers.")

    def resources(self) -> Sequence[EngineResource]:
        raise ToolMissingError("No Docker engine answers.")


class FakeStore(FileStore):
    """A store whose inputs lie in a folder under the last part of their spec."""

    def __init__(self, folder: Path, pins: Lock | None = None) -> None:
        self.pins = pins or Lock(pins={})
        super().__init__(cache=folder, lock=self.pins, sources={}, reporter=FakeReporter())
        self.folder = folder

    def fetch(self, item: Input) -> Path:
        path = self.folder / item.spec.rsplit("/", maxsplit=1)[-1]
        if not path.exists():
            path.write_text(item.spec)
        return path

    def unpack(self, wheel: Input) -> Path:
        path = self.folder / wheel.spec
        path.mkdir(exist_ok=True)
        return path

    def absent(self, item: Input) -> tuple[int, int]:
        return 0, 0


class FakeRootfs(DebianRootfs):
    """Root file systems that are files of one line of text; a slim one is a tar of this file."""

    def __init__(self, folder: Path) -> None:
        mirrors = AptMirrors(folder=folder)
        super().__init__(
            cache=folder, runner=FakeRunner(), mirrors=mirrors, reporter=FakeReporter(), root=False
        )
        self.folder = folder
        self.asked: list[tuple[str, tuple[str, ...]]] = []
        self.version = "1"
        """Version of every Debian package in a root file system."""

    def tar(self, suite: str, packages: Sequence[str]) -> Path:
        self.asked.append((suite, tuple(packages)))
        path = self.folder / f"rootfs-{suite}-{len(packages)}.tar"
        text = f"{suite} with {', '.join(packages) or 'nothing'}"
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
        return path

    def has(self, suite: str, packages: Sequence[str]) -> bool:
        return (self.folder / f"rootfs-{suite}-{len(packages)}.tar").exists()

    def slim(self, suite: str, packages: Sequence[str], arch: str) -> Path:
        text = self.tar(f"slim-{arch}-{suite}", packages)
        tar = text.with_suffix(".slim.tar")
        with tarfile.open(tar, "w") as archive:
            archive.add(text, "etc/issue")
        return tar

    def slim_packages(self, suite: str, packages: Sequence[str], arch: str) -> tuple[DebianPackage, ...]:
        return tuple(replace(one, arch=arch) for one in self.packages(suite, packages)[1:])

    def packages(self, suite: str, packages: Sequence[str]) -> tuple[DebianPackage, ...]:
        return tuple(
            DebianPackage(f"pool/{name}_{self.version}_amd64.deb", name, self.version, "amd64", "5" * 64)
            for name in ("dpkg", *sorted(packages))
        )
