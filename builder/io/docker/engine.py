"""The Docker Engine, through the Docker SDK for facts, images and containers, and the buildx CLI for builds.

The SDK cannot drive BuildKit (docker-py#2230). Images and containers made here have the label
``io.ortpacks``. Nothing else on the engine is changed.
"""

from __future__ import annotations

import os
import re
import socket
import stat
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from http import HTTPStatus
from pathlib import Path

import docker
from docker.errors import APIError, DockerException, ImageNotFound, NotFound
from docker.models.containers import Container
from docker.types import Mount
from requests.exceptions import RequestException

from builder.contents.required_files import LINK_ROLES
from builder.errors import BuilderError, CommandError, DiskError, ToolMissingError, TransferError
from builder.farm.status import MARK
from builder.files.disk import says_full
from builder.files.http_client import NotThereError
from builder.io.archive.unpacking import stream_files
from builder.io.docker.registry import (
    IndexEntry,
    PushedImage,
    Registry,
    cli_logins,
    is_loopback,
    push_index,
    read_image,
    refused,
)
from builder.io.process import TAIL_LINES, Completed, ProcessRunner

OVERTIME = 124
"""Exit code of a container that was ended because of its time, as of ``timeout(1)``."""

LABEL = "io.ortpacks"

_OWNER = f"{LABEL}.owner"
"""The label of a container with the process that will remove it: machine, PID namespace, process id."""

MIN_ENGINE = (23, 0)

_TIMEOUT_SECONDS = 900

_PLATFORM = "linux/amd64"
"""The platform that compiles."""


MIN_BUILDX = (0, 8)
"""The oldest buildx that works: 0.8 brought named build contexts, as Docker 23's BuildKit did."""

_FIELD = re.compile(r"^([A-Z][a-z ]+|ID):[ \t]+(.+)$", re.MULTILINE)
"""A field of an entry of ``docker buildx du --verbose``."""

_CACHE_MOUNT = re.compile(r' with id "/?(ortpacks-[\w.-]+)"')
"""The end of a cache mount's description."""

_COPY = re.compile(rf"\tlocal source for ((?:{'|'.join(LINK_ROLES)}|nvrtc)-lib)$", re.MULTILINE)
"""The description of a copy of NVIDIA's libraries, which BuildKit makes for each folder that is built in."""

_UNITS = {"B": 1, "kB": 1_000, "MB": 1_000_000, "GB": 1_000_000_000, "TB": 1_000_000_000_000}

_GONE = re.compile(
    r"Cannot connect to the Docker daemon|error during connect: |rpc error: code = Unavailable|"
    r"error reading from server|ERROR: context deadline exceeded"
)
"""The messages of buildx when the engine ends during a build or is not there (Docker 26.1, buildx 0.13)."""

_LISTS = {"builder": ("docker", "buildx", "ls"), "context": ("docker", "context", "ls")}
"""The commands that list names. Below the header, a name begins its line; continuation lines are indented."""

_REFUSED = re.compile(r"ERROR: (?:failed to solve: )?(.+)")

_SAID = re.compile(r"^(?:Error|ERROR):\s+(.+)", re.MULTILINE)

_STEP_OUTPUT = re.compile(r"#\d+ \d+\.\d+ (.+)")
"""A line of a program's output in a step, after the step's number and seconds."""


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
    platform: str | None = None
    """The platform of the result, ``linux/amd64``; ``None`` for the builder's own."""
    sockets: Mapping[str, Path] = field(default_factory=dict)
    """Sockets of SSH agents by name, for the steps that mount them."""
    push: tuple[str, ...] = ()
    """References ``HOST/NAME:TAG`` that the result is pushed to."""


@dataclass(frozen=True)
class ContainerRun:
    """The arguments of one container, which is removed when it ends."""

    image: str
    argv: tuple[str, ...]
    files: Mapping[str, Path] = field(default_factory=dict)
    """Files that the container can read and execute: absolute container path → file on this machine."""
    seconds: int = 900
    """Time after which the container is ended, and the exit code is ``OVERTIME``."""


@dataclass(frozen=True)
class EngineResource:
    """A container, an image, a cache mount or a copy of libraries of this project that an engine holds."""

    kind: str
    """``container``, ``image``, ``cache`` or ``copy``."""
    name: str
    key: str
    """The container's id, the image's tag or the id of BuildKit's record."""
    size: int = 0
    """Bytes, which an image may share with other images; 0 for a container and a cache mount in use."""


class DockerEngine:
    """A Docker Engine with BuildKit."""

    def __init__(self, runner: ProcessRunner, env: Mapping[str, str]) -> None:
        """Make an engine that connects on first use, so that commands without Docker need no engine."""
        self._runner = runner
        self._env = env

    def facts(self) -> EngineFacts:
        """Return the engine's facts. Raises ``ToolMissingError`` without an engine or without BuildKit."""
        with _engine_errors():
            version = self._client.version()
            info = self._client.info()
        _require_docker(version)
        require_version("Docker Engine", str(version["Version"]), MIN_ENGINE)
        buildx = self.buildx_version()
        root = Path(str(info.get("DockerRootDir", "")))
        return EngineFacts(
            version=str(version["Version"]),
            buildx=buildx,
            storage=str(info.get("Driver", "")),
            cpus=int(info.get("NCPU", 1)),
            memory=int(info.get("MemTotal", 0)),
            folder=root if self._is_local() and root.is_dir() else None,
        )

    def has_image(self, reference: str) -> bool:
        """Return whether the engine holds the image."""
        with _engine_errors():
            try:
                self._client.images.get(reference)
            except ImageNotFound:
                return False
        return True

    def resolve(self, reference: str) -> str:
        """Return the ``sha256:`` digest of an image in its registry. Raises ``TransferError``."""
        sdk = self._client
        try:
            data = sdk.images.get_registry_data(reference)
        except APIError as error:
            message = str(error.explanation or error).strip()
            raise (NotThereError if isinstance(error, NotFound) else TransferError)(
                f"{reference} cannot be resolved",
                cause=_root_cause(message),
                advice="Check the network, or use --base assembled, which needs no image registry.",
            ) from error
        except RequestException as error:
            raise TransferError(
                f"{reference} cannot be resolved",
                cause=f"the engine gave no answer ({error})",
                advice="Try again.",
            ) from error
        platforms = [
            f"{offered['os']}/{offered['architecture']}" for offered in data.attrs.get("Platforms") or ()
        ]
        if platforms and _PLATFORM not in platforms:
            raise NotThereError(
                f"{reference} has no image for {_PLATFORM}",
                cause=f"it has {', '.join(sorted(set(platforms)))}",
                advice="Name another image in variants.yaml.",
            )
        return str(data.id)

    def layers(self, reference: str) -> tuple[str, ...]:
        """Return the ``sha256:`` digest of each uncompressed layer of an engine's image, lowest first."""
        with _engine_errors():
            return tuple(self._client.images.get(reference).attrs["RootFS"]["Layers"])

    def pushed(self, reference: str, platform: str) -> PushedImage:
        """Return the image for a platform from its registry. Raises ``TransferError``."""
        repository, _, tag = reference.rpartition(":")
        return read_image(self._registry(repository), tag, platform)

    def publish(self, repository: str, tags: Sequence[str], images: Sequence[IndexEntry]) -> str:
        """Write an index of images and their attestations under each tag, and return the index's digest.

        Raises ``TransferError``.
        """
        return push_index(self._registry(repository), tags, images)

    def _registry(self, repository: str) -> Registry:
        """Return a repository with the Docker CLI's login.

        Plain HTTP is allowed on this machine and for hosts that the engine's configuration calls insecure.
        """
        host = repository.partition("/")[0]
        with _engine_errors():
            known = self._client.info()["RegistryConfig"]["IndexConfigs"].get(host, {})
        return Registry(repository, cli_logins(), insecure=is_loopback(host) or known.get("Secure") is False)

    def run(self, request: ContainerRun) -> Completed:
        """Run a container to its end, at most ``request.seconds``, and return its exit code and output.

        Raises ``CommandError``, ``DiskError`` or ``ToolMissingError`` if the engine fails.
        """
        with _engine_errors():
            self._remove_orphans()
            container = self._start_with_files(request)
            try:
                return Completed(
                    code=_exit_code(container, request.seconds),
                    stdout=container.logs(stdout=True, stderr=False).decode(errors="replace"),
                    stderr=container.logs(stdout=False, stderr=True).decode(errors="replace"),
                )
            finally:
                container.remove(force=True)

    def resources(self) -> Sequence[EngineResource]:
        """Return the containers and images with this project's label, and its records in BuildKit's cache.

        An image that a user makes from one of these has the label too, but is not among them.
        """
        with _engine_errors():
            sdk = self._client
            containers = sdk.containers.list(all=True, filters={"label": f"{LABEL}=run"})
            images = {
                tag: int(image["Size"])
                for image in sdk.api.images(filters={"label": LABEL})
                for tag in image["RepoTags"] or ()
                if tag.startswith("ortpacks/")
            }
        return [
            *(EngineResource("container", container.short_id, str(container.id)) for container in containers),
            *(EngineResource("image", tag, tag, size) for tag, size in sorted(images.items())),
            *self._caches(),
        ]

    def remove(self, thing: EngineResource) -> str:
        """Remove a resource, and return a line that says that it is removed, or why it is not."""
        if thing.kind in {"cache", "copy"}:
            self._runner.run(["docker", "buildx", "prune", "--force", f"--filter=id={thing.key}"])
            return f"dropped {thing.kind} {thing.name}"
        with _engine_errors():
            try:
                if thing.kind == "image":
                    self._client.images.remove(thing.key)
                else:
                    self._client.api.remove_container(thing.key, force=True)
            except APIError as error:
                return f"nothing of {thing.name}: {error.explanation}"
        return f"removed {thing.kind} {thing.name}"

    def buildx_version(self) -> str:
        """Return the version of buildx. Raises ``ToolMissingError`` if buildx is missing or too old."""
        done = self._runner.run(["docker", "buildx", "version"], check=False)
        if done.code != 0:
            raise ToolMissingError(
                "This Docker has no BuildKit front",
                cause="`docker buildx version` failed",
                advice="Install docker-buildx (Debian: docker-buildx, Docker's own packages: "
                "docker-buildx-plugin).",
            )
        words = done.stdout.split()
        version = words[1].lstrip("v") if len(words) > 1 else ""
        require_version("docker buildx", version, MIN_BUILDX)
        return version

    def build(self, request: ImageBuild, on_line: Callable[[str], None]) -> None:
        """Build an image or files; ``on_line`` gets each line of the log.

        Raises ``CommandError`` with the last 30 lines when a step fails, ``ToolMissingError`` when the engine
        or the builder goes away, and ``DiskError`` when its disk is full. If a build with references in
        ``request.push`` fails, raises ``TransferError`` with the registry's reason.
        """
        tail: deque[str] = deque(maxlen=TAIL_LINES)
        steps: deque[str] = deque(maxlen=TAIL_LINES)

        def keep(line: str) -> None:
            on_line(line)
            if not line.strip() or MARK in line:
                return
            tail.append(line)
            if match := _STEP_OUTPUT.fullmatch(line):
                steps.append(match[1])

        # buildx builds with a context's own engine only if docker runs in that context
        context = request.builder and request.builder in self.builders("context")
        docker = ["docker", f"--context={request.builder}"] if context else ["docker"]
        try:
            self._runner.run(
                [*docker, *_argv(request)], on_line=keep, env={"BUILDX_NO_DEFAULT_ATTESTATIONS": "1"}
            )
        except CommandError as error:
            raise _failure(request, error, "\n".join(tail), list(steps or tail)) from error

    def builders(self, flag: str) -> Sequence[str]:
        """Return the names that a flag accepts: of buildx's builders, or of Docker's contexts.

        ``flag`` is ``builder`` or ``context``. The ``*`` that marks the current name is left out.
        """
        lines = self._runner.run(_LISTS[flag]).stdout.splitlines()[1:]
        return [name[0] for line in lines if (name := re.match(r"[^\s*]+", line))]

    def wake(self, builder: str) -> None:
        """Start a builder unless it runs. Raises ``ToolMissingError`` with the reason of a failure.

        ``buildx inspect`` exits with 0 even if a context does not answer.
        """
        done = self._runner.run(["docker", "buildx", "inspect", "--bootstrap", builder], check=False)
        failed = _SAID.findall(f"{done.stdout}\n{done.stderr}")
        if failed or done.code != 0:
            raise ToolMissingError(
                f"Builder {builder} does not answer",
                cause=failed[-1] if failed else f"`docker buildx inspect` exited with {done.code}",
                advice="Start it, or leave it out. `docker buildx ls` shows which are running.",
            )

    def _caches(self) -> Iterator[EngineResource]:
        listing = self._runner.run(["docker", "buildx", "du", "--verbose"]).stdout
        for kind, pattern in (("cache", _CACHE_MOUNT), ("copy", _COPY)):
            for entry in re.split(r"^(?=ID:)", listing, flags=re.MULTILINE)[1:]:
                match, fields = pattern.search(entry), dict(_FIELD.findall(entry))
                if match and fields["Mutable"] == "true":
                    number, unit = re.findall(r"[\d.]+|\D+", fields["Size"])
                    size = round(float(number) * _UNITS[unit])
                    yield EngineResource(kind, match[1], fields["ID"], size)

    @cached_property
    def _client(self) -> docker.DockerClient:
        environment = dict(self._env)
        if not environment.get("DOCKER_HOST"):
            environment["DOCKER_HOST"] = self._context_host()
        host = environment["DOCKER_HOST"]
        cli_logins()  # the SDK reads them too, and its error would be taken for the engine's
        try:
            _require_socket(host)
            # "auto" negotiates the API version: Docker 29.0 refuses the versions of Docker 23.
            return docker.DockerClient.from_env(
                environment=environment, timeout=_TIMEOUT_SECONDS, version="auto"
            )
        except (DockerException, ValueError) as error:  # ValueError: a port or an IPv6 address that is none
            raise ToolMissingError(
                f"No Docker engine answers at {host}",
                cause=str(error),
                advice="Start Docker, or set DOCKER_HOST. As root on Debian or Ubuntu, `./run` installs and "
                "starts one.",
            ) from error

    def _context_host(self) -> str:
        """Return the endpoint of the CLI's current context (Docker Desktop, rootless, ssh)."""
        done = self._runner.run(
            ["docker", "context", "inspect", "--format", "{{.Endpoints.docker.Host}}"], check=False
        )
        return done.stdout.strip() or "unix:///var/run/docker.sock"

    def _is_local(self) -> bool:
        return str(self._client.api.base_url).startswith("http+docker")

    def _start_with_files(self, request: ContainerRun) -> Container:
        """Start a container and return it. Files that the engine sees are mounted, other files copied in."""
        with suppress(APIError):  # an engine in a virtual machine or another container sees other files
            return self._start(request, self._visible(request.files))
        return self._start(request, {})

    def _visible(self, files: Mapping[str, Path]) -> Mapping[str, Path]:
        """Return the files that a container's user can use when mounted; SELinux denies access to all."""
        options = self._client.info().get("SecurityOptions") or ()
        if not self._is_local() or any("selinux" in option for option in options):
            return {}
        return {inside: file for inside, file in files.items() if _is_usable(file)}

    def _start(self, request: ContainerRun, shown: Mapping[str, Path]) -> Container:
        container = self._client.containers.create(
            request.image,
            command=list(request.argv[1:]),
            entrypoint=[request.argv[0]],
            network_mode="none",
            labels={LABEL: "run", _OWNER: f"{_processes()}:{os.getpid()}"},
            mounts=[
                Mount(inside, str(file.resolve()), type="bind", read_only=True)
                for inside, file in shown.items()
            ],
        )
        try:
            rest = {inside: file for inside, file in request.files.items() if inside not in shown}
            if rest:
                container.put_archive("/", stream_files(rest))
            container.start()
        except BaseException:
            container.remove(force=True)
            raise
        return container

    def _remove_orphans(self) -> None:
        ours: dict[str, str | list[str] | bool] = {"label": f"{LABEL}=run"}
        for container in self._client.containers.list(all=True, filters=ours, ignore_removed=True):
            if _is_dead(container.labels.get(_OWNER, "")):
                self._remove_dead(container)

    def _remove_dead(self, container: Container) -> None:
        try:
            container.remove(force=True)
        except APIError as error:
            if error.status_code not in {HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT}:
                raise


def _exit_code(container: Container, seconds: int) -> int:
    began = time.monotonic()
    try:
        return int(container.wait(timeout=seconds)["StatusCode"])
    except RequestException:  # the SDK has no error of its own for an answer that did not come in time
        if time.monotonic() - began < seconds:
            raise
    container.kill()
    return OVERTIME


def _is_usable(file: Path) -> bool:
    """Return whether any user may read the file, and its file system allows execution."""
    return bool(file.stat().st_mode & stat.S_IROTH) and not os.statvfs(file).f_flag & os.ST_NOEXEC


def _processes() -> str:
    """Return the name of what gives process ids: this machine and, on Linux, the PID namespace in it."""
    try:
        namespace = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        namespace = ""
    return f"{socket.gethostname()}/{namespace}"


def _is_dead(owner: str) -> bool:
    processes, _, process = owner.rpartition(":")
    if processes != _processes():
        return False
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False


def _require_socket(host: str) -> None:
    if host.startswith("unix://") and not Path(host.removeprefix("unix://")).exists():
        raise DockerException("there is no such socket")


def _root_cause(message: str) -> str:
    """Return the last clause of Docker's first sentence.

    Of ``Get "https://...": dial tcp: no such host`` it is ``no such host``.
    """
    return message.partition("\n")[0].partition(". ")[0].rpartition(": ")[2].rstrip(".")


def _require_docker(version: Mapping[str, Sequence[Mapping[str, str]]]) -> None:
    """Raise ``ToolMissingError`` for Podman, which answers to Docker's API and has no BuildKit."""
    for component in version.get("Components") or ():
        if component["Name"] == "Podman Engine":
            raise ToolMissingError(
                f"Podman {component['Version']} answers in place of a Docker Engine",
                cause="Dockerfiles here need BuildKit, which Podman's service does not have",
                advice="Start a Docker Engine, and set DOCKER_HOST or the context to it.",
            )


@contextmanager
def _engine_errors() -> Iterator[None]:
    """Turn the SDK's exceptions into ``CommandError``, ``DiskError`` or ``ToolMissingError``."""
    try:
        yield
    except APIError as error:
        raise _refusal(str(error.explanation or error)) from error
    except (DockerException, RequestException) as error:
        raise ToolMissingError(
            "The Docker engine went away", cause=str(error), advice="Start it and run the same command again."
        ) from error


def _refusal(message: str) -> CommandError | DiskError:
    """Return the error for a refusal by the engine: ``DiskError`` for a full disk, else ``CommandError``."""
    if says_full([message]):
        return DiskError(
            "The Docker engine's disk is full",
            cause=message,
            advice="Free space there (`docker system df` shows what the engine holds) and run the same "
            "command again.",
        )
    advice = "The engine's log says more (`journalctl --unit docker` where systemd runs it)."
    return CommandError("The Docker engine refused", cause=message, advice=advice)


def _argv(request: ImageBuild) -> list[str]:
    argv = ["buildx", "build", "--progress=plain", "--provenance=false"]
    argv += [f"--builder={request.builder}"] if request.builder else []
    argv += [
        f"--target={request.target}",
        f"--file={request.dockerfile}",
        f"--label={LABEL}={request.target}",
        *([] if request.network else ["--network=none"]),
        *([f"--platform={request.platform}"] if request.platform else []),
    ]
    argv += [f"--ssh={name}={path}" for name, path in sorted(request.sockets.items())]
    argv += [f"--build-context={name}={path}" for name, path in sorted(request.contexts.items())]
    argv += [f"--build-arg={name}={value}" for name, value in sorted(request.args.items())]
    if request.output is not None:
        argv.append(f"--output=type=local,{_field(f'dest={request.output}')}")
    if request.tags:
        argv += ["--load", *(f"--tag={tag}" for tag in request.tags)]
    if request.push:
        argv += ["--push", *(f"--tag={reference}" for reference in request.push)]
    return [*argv, str(request.context)]


def _field(text: str) -> str:
    """Return a field of a line of CSV, which buildx reads there: a path may hold a comma."""
    quoted = text.replace('"', '""')
    return f'"{quoted}"' if {",", '"'}.intersection(text) else text


def _failure(request: ImageBuild, error: CommandError, text: str, tail: list[str]) -> BuilderError:
    """Return the error for a failed build; ``text`` is the log's end, ``tail`` the programs' last output."""
    who = f"Builder {request.builder}" if request.builder else "The Docker engine"
    if _GONE.search(text):
        return ToolMissingError(
            f"{who} went away while building {request.target}",
            details=text.splitlines(),
            advice="Start it and run the same command again: finished units are cached.",
            retry_after=0.0,
        )
    if says_full([text]):
        here = f" or {request.output.parent}" if request.output else ""
        return DiskError(
            f"{who}{here} had no space left while building {request.target}",
            details=text.splitlines(),
            advice="Free space there (`docker system df` shows what an engine holds) and run the same "
            "command again.",
        )
    if request.push:
        said = [match[1] for line in text.splitlines() if (match := _REFUSED.search(line))]
        host = request.push[0].partition("/")[0]
        return refused(f"{request.push[0]} was not pushed", host, (said or [tail[-1]])[-1])
    return CommandError(
        f"docker buildx build of stage {request.target} exited with {error.code}",
        argv=error.argv,
        code=error.code,
        tail=tail,
    )


def require_version(what: str, version: str, floor: tuple[int, int]) -> None:
    """Raise ``ToolMissingError`` if the ``version`` of ``what`` is below ``floor``."""
    number = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if number < floor:
        wanted = ".".join(map(str, floor))
        raise ToolMissingError(
            f"{what} is {version or 'of an unknown version'}; {wanted} or newer is needed for BuildKit's "
            "named contexts and cache mounts",
            advice="Update Docker.",
        )
