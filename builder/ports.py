"""The ports of the pipeline as Protocols; ``builder.adapters`` implements them.

A port of one family of use cases stands beside its values (``release.assets.ReleaseHost``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from builder.project.inputs import DebianPackage, Input


class Reporter(Protocol):
    """The receiver of progress and results. Library code never prints."""

    def step(self, title: str) -> AbstractContextManager[None]:
        """A group: its title, what happens inside, then ✓ and seconds (✗ when it raises)."""

    def say(self, line: str) -> None:
        """Report one line of result or explanation."""

    def warn(self, line: str) -> None:
        """Report one line that the user should act on."""

    def progress(self, title: str, total: int) -> AbstractContextManager[Callable[[int], None]]:
        """A byte progress; the yielded function takes the number of bytes just done.

        Without a terminal it writes a line a minute.
        """

    def live(self, title: str) -> AbstractContextManager[Callable[[float, str], None]]:
        """A progress that another program tells; the yielded function takes the share done and what it says.

        It is one line on a terminal, which the next one replaces; without a terminal, a line a minute.
        """


@dataclass(frozen=True)
class Completed:
    """A finished process. The caller judges its exit code."""

    code: int
    stdout: str
    stderr: str


class Runner(Protocol):
    """The starter of processes."""

    def run(
        self,
        argv: Sequence[str],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        on_line: Callable[[str], None] | None = None,
        check: bool = True,
    ) -> Completed:
        """Run to the end. ``on_line`` gets each output line (stderr merged) as it comes.

        Raises ``ToolMissingError`` when the program is not there and, with ``check``, ``CommandError`` with
        its last lines when it exits non-zero.
        """


class Store(Protocol):
    """The cache of inputs. Each is fetched once.

    A file is hashed and compared with ``inputs.lock`` when it enters the cache, and again when it has changed
    since.
    """

    def fetch(self, item: Input) -> Path:
        """The verified file of a wheel or Debian input, under its own file name.

        Raises ``TransferError`` (not reachable, or offline and not cached), ``IntegrityError`` (wanted/got;
        the bad file is kept aside) or ``ConfigError`` (not in the lock).
        """

    def unpack(self, wheel: Input) -> Path:
        """The wheel's unpacked tree. Each file's sha256 equals the one in the wheel's RECORD."""

    def absent(self, items: Iterable[Input]) -> tuple[int, int]:
        """The bytes of the inputs that are not fetched yet, and of the wheels that are not unpacked yet."""


class CompileCache(Protocol):
    """What compilers have made, as ccache's objects by their keys, where several machines reach it.

    Each method but ``has`` of a folder raises ``TransferError`` where nothing answers, ``ValidationError``
    where the server refuses, ``DiskError``.
    """

    name: str
    """Its address."""

    def require(self) -> None:
        """Return where it answers."""

    def get(self, key: str) -> bytes | None:
        """The object, if there is one."""

    def has(self, key: str) -> bool:
        """Whether there is an object."""

    def put(self, key: str, value: bytes) -> None:
        """Keep an object. It is there whole or not at all."""

    def usage(self) -> tuple[int, int]:
        """The number of objects, and their bytes."""


@dataclass(frozen=True)
class CompileCaches:
    """The compile caches of a build beside the engine's own."""

    shared: CompileCache | None = None
    """Asked, and given what is made: ``--compile-cache``."""
    ahead: CompileCache | None = None
    """Only asked: ``--from``."""
    into: CompileCache | None = None
    """Asked, and given what is made, which is the build's result: ``--into``."""

    @property
    def readable(self) -> tuple[CompileCache, ...]:
        """Those that are asked, one after the other."""
        return tuple(cache for cache in (self.ahead, self.into, self.shared) if cache)

    @property
    def writable(self) -> tuple[CompileCache, ...]:
        """Those that are given what is made."""
        return tuple(cache for cache in (self.into, self.shared) if cache)


class Rootfs(Protocol):
    """Debian root file systems."""

    def tar(self, suite: str, packages: Sequence[str]) -> Path:
        """A tar of Debian ``suite`` with ``packages`` on top of the minimal set, cached by both.

        Raises ``ToolMissingError`` without mmdebstrap or debootstrap, ``TransferError`` without a mirror.
        """

    def slim(self, suite: str, packages: Sequence[str], arch: str) -> Path:
        """A tar of the files of exactly ``packages`` for ``arch``, without apt and dpkg, cached by all three.

        It has busybox's links, certificates, the user ``ortpacks`` (10001), and in ``var/lib/dpkg/status.d``
        what scanners read. Raises ``ToolMissingError`` without mmdebstrap, ``TransferError`` without a
        mirror.
        """

    def slim_packages(self, suite: str, packages: Sequence[str], arch: str) -> tuple[DebianPackage, ...]:
        """The packages of that slim tar, as the archive's index has them. Raises what ``slim`` raises."""

    def packages(self, suite: str, packages: Sequence[str]) -> tuple[DebianPackage, ...]:
        """All packages that are installed in that tar, sorted. Raises what ``tar`` raises."""


@dataclass(frozen=True)
class EngineFacts:
    """The engine's description of itself."""

    version: str
    buildx: str
    storage: str
    cpus: int
    memory: int
    """Bytes of memory the engine's machine has."""
    folder: Path | None
    """Where images lie; ``None`` when the engine is remote."""


@dataclass(frozen=True)
class ImageBuild:
    """One ``docker buildx build``."""

    dockerfile: Path
    context: Path
    target: str
    contexts: Mapping[str, Path] = field(default_factory=dict)
    """Named contexts by name."""
    tag: str | None = None
    """Load the result into the engine under this tag, labelled as ours."""
    output: Path | None = None
    """Export the target's files into this directory."""
    args: Mapping[str, str] = field(default_factory=dict)
    builder: str | None = None
    network: bool = True
    """Whether a step may reach a network. An assembled base needs none: everything is in the contexts."""
    cache: str | None = None
    """Where layers, but not cache mounts, are read from before and written to after: ``app.command_line``."""
    platform: str | None = None
    """What the result is for, ``linux/amd64``; ``None``: what the builder runs on."""
    sockets: Mapping[str, Path] = field(default_factory=dict)
    """Sockets of SSH agents by name, for the steps that mount them."""
    push: tuple[str, ...] = ()
    """References ``HOST/NAME:TAG`` to push the result under."""


@dataclass(frozen=True)
class PushedImage:
    """An image as its registry has it."""

    digest: str
    """``sha256:`` of its manifest, or of the index that its tag names."""
    layers: tuple[str, ...]
    """As ``Engine.layers`` tells them."""
    sizes: tuple[int, ...]
    """Bytes of each layer, compressed."""


Statement = Mapping[str, object]
"""An in-toto Statement, as JSON has it."""


@dataclass(frozen=True)
class IndexEntry:
    """An image in a registry that an index names, and the attestations that go along with it."""

    digest: str
    """``sha256:`` of its manifest."""
    platform: str
    statements: tuple[Statement, ...]


@dataclass(frozen=True)
class ContainerRun:
    """One container, started with its files in place, removed after it ends."""

    image: str
    argv: tuple[str, ...]
    files: Mapping[str, Path] = field(default_factory=dict)
    """Files that are to be there, to be read and executed: absolute container path → file here."""
    network: bool = False


@dataclass(frozen=True)
class Held:
    """A thing of ours that an engine holds."""

    kind: str
    """``container``, ``image`` or ``cache``."""
    name: str
    key: str
    """What the engine knows it by."""
    size: int = 0
    """Bytes; those of an image may be other images' too; 0 for a cache mount while a build uses it."""
    used: str = ""
    """When a cache mount was last used, in BuildKit's words: ``3 hours ago``."""


class Engine(Protocol):
    """A Docker Engine with BuildKit. Everything it makes carries the label ``io.ortpacks``."""

    def facts(self) -> EngineFacts:
        """The engine's facts. Raises ``ToolMissingError`` without an engine, or without BuildKit."""

    def has_image(self, reference: str) -> bool:
        """Whether the engine holds the image."""

    def resolve(self, reference: str) -> str:
        """The ``sha256:`` digest of an image in its registry. Raises ``TransferError``."""

    def layers(self, reference: str) -> tuple[str, ...]:
        """The ``sha256:`` of each layer's tar of an image that the engine holds, from the first on."""

    def pushed(self, reference: str, platform: str) -> PushedImage:
        """The image for a platform in its registry. Raises ``TransferError``."""

    def publish(self, repository: str, tags: Sequence[str], images: Sequence[IndexEntry]) -> str:
        """Give images of a repository an index, with their attestations, under each tag; its digest.

        Raises ``TransferError``.
        """

    def builders(self, flag: str) -> Sequence[str]:
        """The names that ``flag`` may have: ``builder``, those of buildx; ``context``, those of Docker."""

    def wake(self, builder: str) -> None:
        """Start a builder unless it runs. Raises ``ToolMissingError`` where it does not answer, and why."""

    def build(self, request: ImageBuild, on_line: Callable[[str], None]) -> None:
        """Build an image or files. Raises ``CommandError`` with the last 30 log lines.

        ``ToolMissingError`` where the engine or builder goes away, ``DiskError`` where its disk is full.
        Where ``request.push`` names references, ``TransferError`` says what their registry refused.
        """

    def run(self, request: ContainerRun) -> Completed:
        """Run a container to its end; its exit code and output. Raises only when the engine fails."""

    def held(self) -> Sequence[Held]:
        """What of ours the engine holds: what carries our label, and cache mounts of our names."""

    def remove(self, thing: Held) -> str:
        """Remove one of them; the line that says so, or why it stays."""


class Inspector(Protocol):
    """A cuobjdump of a known version."""

    @property
    def version(self) -> str:
        """The version, like ``12.4.131``."""

    def list_images(self, library: Path, sha256: str) -> tuple[Completed, Completed]:
        """The outputs and exit codes of ``cuobjdump --list-elf`` and ``--list-ptx`` for a library.

        ``sha256`` is the library's, in hex: the answers are kept by it.
        """
