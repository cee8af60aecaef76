"""Ports of the pipeline as Protocols; ``builder.adapters`` implements them.

A port that a single family of use cases needs is defined next to that family's values
(``release.assets.ReleaseHost``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from builder.project.inputs import DebianPackage, Input


class Reporter(Protocol):
    """A receiver of progress and results. Library code never prints."""

    def step(self, title: str) -> AbstractContextManager[None]:
        """Report a group of work: ``title`` when the block begins, a mark and the seconds when it ends.

        The mark is ✓, or ✗ when the block raises.
        """

    def say(self, line: str) -> None:
        """Report one line of result or explanation."""

    def warn(self, line: str) -> None:
        """Report one line that the user should act on."""

    def progress(self, title: str, total: int) -> AbstractContextManager[Callable[[int], None]]:
        """Report how many of ``total`` bytes are done, during the block.

        The yielded function takes the number of bytes done since its last call. Without a terminal, a line is
        written at most once a minute.
        """

    def live(self, title: str) -> AbstractContextManager[Callable[[float, str], None]]:
        """Report the progress of another program, during the block.

        The yielded function takes the share done (0 to 1) and a text. On a terminal, each call replaces the
        same line; without a terminal, a line is written at most once a minute.
        """


@dataclass(frozen=True)
class Completed:
    """The output of a finished process and its exit code, which the caller judges."""

    code: int
    stdout: str
    stderr: str


class Runner(Protocol):
    """A starter of processes."""

    def run(
        self,
        argv: Sequence[str],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        on_line: Callable[[str], None] | None = None,
        check: bool = True,
    ) -> Completed:
        """Run a program to its end and return its exit code and output.

        ``on_line`` gets each line of output as it comes, with stderr merged into stdout; the result then has
        only the last lines. Raises ``ToolMissingError`` when the program is not there and, with ``check``,
        ``CommandError`` with the last lines when the exit code is not 0.
        """


class Store(Protocol):
    """A cache of inputs, each of which is fetched once.

    A file is hashed and compared with ``inputs.lock`` when it enters the cache, and when it is fetched again
    after it has changed on disk.
    """

    def fetch(self, item: Input) -> Path:
        """Return the path of an input's verified file; the file has its own name.

        Raises ``TransferError`` (host out of reach, or offline and not cached), ``IntegrityError`` (other
        bytes than the lock pins; the bad file is kept as ``<name>.bad``) or ``ConfigError`` (no pin in the
        lock, or an input that is no file).
        """

    def unpack(self, wheel: Input) -> Path:
        """Return the folder with a wheel's unpacked files, whose sha256 equal those in the wheel's RECORD."""

    def absent(self, item: Input) -> tuple[int, int]:
        """Return the bytes to fetch for an input, and to unpack for a wheel; 0 for what the cache has.

        A wheel counts with the size of its packed file, an input without a sha256 in the lock not at all.
        """


class CompileCache(Protocol):
    """A cache of ccache's objects by their keys, which several machines share.

    Every method raises ``TransferError`` when the server does not answer and ``ValidationError`` when the
    server refuses; the methods of a folder raise ``DiskError`` instead, and ``has`` of a folder nothing.
    """

    name: str
    """The cache's address, as messages show it."""

    def require(self) -> None:
        """Raise an error unless the cache answers."""

    def get(self, key: str) -> bytes | None:
        """Return the object of a key; ``None`` if the cache has none."""

    def has(self, key: str) -> bool:
        """Return whether the cache has an object for a key."""

    def put(self, key: str, value: bytes) -> None:
        """Store an object under a key, whole or not at all."""

    def usage(self) -> tuple[int, int]:
        """Return the number of objects and the sum of their sizes in bytes."""


@dataclass(frozen=True)
class CompileCaches:
    """The compile caches that a build uses besides the engine's own."""

    shared: CompileCache | None = None
    """The cache of ``--compile-cache``, which objects are read from and written to."""
    ahead: CompileCache | None = None
    """The cache of ``--from``, which objects are only read from."""
    into: CompileCache | None = None
    """The cache of ``--into``, which objects are read from and written to; it is the build's result."""

    @property
    def readable(self) -> tuple[CompileCache, ...]:
        """Return the caches to read from, in the order in which they are tried."""
        return tuple(cache for cache in (self.ahead, self.into, self.shared) if cache)

    @property
    def writable(self) -> tuple[CompileCache, ...]:
        """Return the caches that new objects are written to."""
        return tuple(cache for cache in (self.into, self.shared) if cache)


NEWEST_MTIME = 1704067200
"""2024-01-01 as Unix time, so that times do not differ between runs: no file of a root file system is newer,
and those of an image's layers above it have this time."""


class Rootfs(Protocol):
    """A maker of Debian root file systems as tar files, without files newer than ``NEWEST_MTIME``."""

    def tar(self, suite: str, packages: Sequence[str]) -> Path:
        """Return a tar file of Debian ``suite`` with the minimal set and ``packages``, cached by both.

        Raises ``ToolMissingError`` without mmdebstrap or debootstrap, ``TransferError`` without a mirror.
        """

    def has(self, suite: str, packages: Sequence[str]) -> bool:
        """Return whether ``tar`` would make nothing."""

    def slim(self, suite: str, packages: Sequence[str], arch: str) -> Path:
        """Return a tar file with the files of exactly ``packages`` for ``arch``, without apt and dpkg.

        The tar is cached by all three arguments. It also has busybox's links, certificates, the user
        ``ortpacks`` (id 10001) and, in ``var/lib/dpkg/status.d``, the package list that scanners read. Raises
        ``ToolMissingError`` without mmdebstrap, ``TransferError`` without a mirror.
        """

    def slim_packages(self, suite: str, packages: Sequence[str], arch: str) -> tuple[DebianPackage, ...]:
        """Return the packages in the tar that ``slim`` makes, as the archive's index lists them, sorted.

        Raises what ``slim`` raises.
        """

    def packages(self, suite: str, packages: Sequence[str]) -> tuple[DebianPackage, ...]:
        """Return all packages installed in the tar that ``tar`` makes, sorted. Raises what ``tar`` raises."""


@dataclass(frozen=True)
class EngineFacts:
    """An engine's description of itself."""

    version: str
    buildx: str
    storage: str
    cpus: int
    memory: int
    """Bytes of memory of the engine's machine."""
    folder: Path | None
    """The folder of the engine's images; ``None`` if the engine is remote or the folder is not here."""


@dataclass(frozen=True)
class ImageBuild:
    """The arguments of one ``docker buildx build``."""

    dockerfile: Path
    context: Path
    target: str
    contexts: Mapping[str, Path] = field(default_factory=dict)
    """Folders of the named contexts, by name."""
    tags: tuple[str, ...] = ()
    """The tags under which the result is loaded into the engine; without one it is not loaded."""
    output: Path | None = None
    """The folder that the target's files are exported to; ``None`` exports nothing."""
    args: Mapping[str, str] = field(default_factory=dict)
    builder: str | None = None
    network: bool = True
    """Whether steps have network access. An assembled base needs none: its contexts have all files."""
    cache: str | None = None
    """The external cache (``--cache``) that layers, but not cache mounts, are read from and written to."""
    platform: str | None = None
    """The platform of the result, ``linux/amd64``; ``None`` for the builder's own."""
    sockets: Mapping[str, Path] = field(default_factory=dict)
    """Sockets of SSH agents by name, for the steps that mount them."""
    push: tuple[str, ...] = ()
    """References ``HOST/NAME:TAG`` that the result is pushed to."""


@dataclass(frozen=True)
class PushedImage:
    """An image in a registry."""

    digest: str
    """The ``sha256:`` digest of the image's manifest, or of the index that the image's tag names."""
    layers: tuple[str, ...]
    """The digest of each uncompressed layer, as ``Engine.layers`` returns them."""
    sizes: tuple[int, ...]
    """The size of each compressed layer in bytes."""


Statement = Mapping[str, object]
"""An in-toto Statement as a JSON object."""


@dataclass(frozen=True)
class IndexEntry:
    """An image in a registry that an index lists, with its attestations."""

    digest: str
    """The ``sha256:`` digest of the image's manifest."""
    platform: str
    statements: tuple[Statement, ...]


@dataclass(frozen=True)
class ContainerRun:
    """The arguments of one container, which is removed when it ends."""

    image: str
    argv: tuple[str, ...]
    files: Mapping[str, Path] = field(default_factory=dict)
    """Files that the container can read and execute: absolute container path → file on this machine."""


@dataclass(frozen=True)
class EngineResource:
    """A container, an image or a cache mount of this project that an engine holds."""

    kind: str
    """``container``, ``image`` or ``cache``."""
    name: str
    key: str
    """The container's id, the image's tag or the cache mount's id."""
    size: int = 0
    """Bytes, which an image may share with other images; 0 for a container and a cache mount in use."""
    used: str = ""
    """The time of a cache mount's last use in BuildKit's words, ``3 hours ago``; else empty."""


class Engine(Protocol):
    """A Docker Engine with BuildKit. Images and containers made here have the label ``io.ortpacks``."""

    def facts(self) -> EngineFacts:
        """Return the engine's facts. Raises ``ToolMissingError`` without an engine or without BuildKit."""

    def has_image(self, reference: str) -> bool:
        """Return whether the engine holds the image."""

    def resolve(self, reference: str) -> str:
        """Return the ``sha256:`` digest of an image in its registry. Raises ``TransferError``."""

    def layers(self, reference: str) -> tuple[str, ...]:
        """Return the ``sha256:`` digest of each uncompressed layer of a held image, lowest layer first."""

    def pushed(self, reference: str, platform: str) -> PushedImage:
        """Return the image for a platform from its registry. Raises ``TransferError``."""

    def publish(self, repository: str, tags: Sequence[str], images: Sequence[IndexEntry]) -> str:
        """Write an index of images and their attestations under each tag, and return the index's digest.

        Raises ``TransferError``.
        """

    def builders(self, flag: str) -> Sequence[str]:
        """Return the names that a flag accepts: of buildx's builders, or of Docker's contexts.

        ``flag`` is ``builder`` or ``context``.
        """

    def wake(self, builder: str) -> None:
        """Start a builder unless it runs. Raises ``ToolMissingError`` with the reason of a failure."""

    def build(self, request: ImageBuild, on_line: Callable[[str], None]) -> None:
        """Build an image or files; ``on_line`` gets each line of the log.

        Raises ``CommandError`` with the last 30 lines when a step fails, ``ToolMissingError`` when the engine
        or the builder goes away, ``DiskError`` when its disk is full, and ``TransferError`` with the
        registry's reason when a build with references in ``request.push`` fails.
        """

    def run(self, request: ContainerRun) -> Completed:
        """Run a container to its end and return its exit code and output. Raises if the engine fails."""

    def resources(self) -> Sequence[EngineResource]:
        """Return the containers and images with this project's label, and this project's cache mounts."""

    def remove(self, thing: EngineResource) -> str:
        """Remove a resource, and return a line that says that it is removed, or why it is not."""


class Inspector(Protocol):
    """A cuobjdump of a known version."""

    @property
    def version(self) -> str:
        """Return the version, like ``12.4.131``."""

    def list_images(self, library: Path, sha256: str) -> tuple[Completed, Completed]:
        """Return the exit codes and outputs of ``cuobjdump --list-elf`` and ``--list-ptx`` for a library.

        ``sha256`` is the library's, in hex; answers are cached by it.
        """
