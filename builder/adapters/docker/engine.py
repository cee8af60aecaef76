"""The Docker Engine, through the Docker SDK for facts, images and containers, and the buildx CLI for builds.

Images and containers made here have the label ``io.ortpacks``. Nothing else on the engine is changed.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import docker
from docker.errors import APIError, DockerException, ImageNotFound, NotFound
from docker.models.containers import Container
from docker.types import Mount
from requests.exceptions import RequestException

from builder.adapters.archive.unpacking import stream_files
from builder.adapters.docker.buildx import LABEL, Buildx, require_version
from builder.adapters.docker.pushed_images import push_index, read_image
from builder.adapters.docker.registry import Registry, cli_logins
from builder.errors import CommandError, DiskError, ToolMissingError, TransferError
from builder.files.disk import says_full
from builder.formats.oci import is_loopback
from builder.ports import (
    Completed,
    ContainerRun,
    EngineFacts,
    EngineResource,
    IndexEntry,
    PushedImage,
    Runner,
)

_OWNER = f"{LABEL}.owner"
"""The label of a container with the machine and the process id of the process that will remove it."""

MIN_ENGINE = (23, 0)

_TIMEOUT_SECONDS = 900


class DockerEngine(Buildx):
    """A Docker Engine with BuildKit; implements ``ports.Engine``."""

    def __init__(self, runner: Runner, env: Mapping[str, str]) -> None:
        """Make an engine that connects on first use, so that commands without Docker need no engine."""
        super().__init__(runner)
        self._env = env
        self._client: docker.DockerClient | None = None

    def facts(self) -> EngineFacts:
        """See ``ports.Engine.facts``."""
        with _engine_errors():
            version = self._sdk().version()
            info = self._sdk().info()
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
        """See ``ports.Engine.has_image``."""
        with _engine_errors():
            try:
                self._sdk().images.get(reference)
            except ImageNotFound:
                return False
        return True

    def resolve(self, reference: str) -> str:
        """See ``ports.Engine.resolve``."""
        sdk = self._sdk()
        try:
            return str(sdk.images.get_registry_data(reference).id)
        except APIError as error:
            message = str(error.explanation or error).strip()
            raise TransferError(
                f"{reference} cannot be resolved",
                cause=root_cause(message),
                advice="Check the network, or use --base assembled, which needs no image registry.",
            ) from error
        except RequestException as error:
            raise TransferError(
                f"{reference} cannot be resolved",
                cause=f"the engine gave no answer ({error})",
                advice="Try again.",
            ) from error

    def layers(self, reference: str) -> tuple[str, ...]:
        """See ``ports.Engine.layers``."""
        with _engine_errors():
            return tuple(self._sdk().images.get(reference).attrs["RootFS"]["Layers"])

    def pushed(self, reference: str, platform: str) -> PushedImage:
        """See ``ports.Engine.pushed``."""
        repository, _, tag = reference.rpartition(":")
        return read_image(self._registry(repository), tag, platform)

    def publish(self, repository: str, tags: Sequence[str], images: Sequence[IndexEntry]) -> str:
        """See ``ports.Engine.publish``."""
        return push_index(self._registry(repository), tags, images)

    def _registry(self, repository: str) -> Registry:
        """Return a repository with the Docker CLI's login.

        Plain HTTP is allowed on this machine and for hosts that the engine's configuration calls insecure.
        """
        host = repository.partition("/")[0]
        with _engine_errors():
            known = self._sdk().info()["RegistryConfig"]["IndexConfigs"].get(host, {})
        return Registry(repository, cli_logins(), insecure=is_loopback(host) or known.get("Secure") is False)

    def run(self, request: ContainerRun) -> Completed:
        """See ``ports.Engine.run``."""
        with _engine_errors():
            self._remove_orphans()
            container = self._start_with_files(request)
            try:
                code = int(container.wait(timeout=_TIMEOUT_SECONDS)["StatusCode"])
                return Completed(
                    code=code,
                    stdout=container.logs(stdout=True, stderr=False).decode(errors="replace"),
                    stderr=container.logs(stdout=False, stderr=True).decode(errors="replace"),
                )
            finally:
                container.remove(force=True)

    def resources(self) -> list[EngineResource]:
        """See ``ports.Engine.resources``. An image that a user bases on these inherits only the label."""
        with _engine_errors():
            sdk = self._sdk()
            containers = sdk.containers.list(all=True, filters={"label": f"{LABEL}=run"})
            images = {
                tag: int(image["Size"])
                for image in sdk.api.images(filters={"label": LABEL})
                for tag in image["RepoTags"] or ()
                if tag.startswith("ortpacks/")
            }
        return [
            *(EngineResource("container", one.short_id, str(one.id)) for one in containers),
            *(EngineResource("image", tag, tag, size) for tag, size in sorted(images.items())),
            *self.caches(),
        ]

    def remove(self, thing: EngineResource) -> str:
        """See ``ports.Engine.remove``."""
        if thing.kind == "cache":
            self.drop(thing)
            return f"dropped cache {thing.name}"
        with _engine_errors():
            try:
                if thing.kind == "image":
                    self._sdk().images.remove(thing.key)
                else:
                    self._sdk().api.remove_container(thing.key, force=True)
            except APIError as error:
                return f"nothing of {thing.name}: {error.explanation}"
        return f"removed {thing.kind} {thing.name}"

    def _sdk(self) -> docker.DockerClient:
        if self._client is None:
            self._client = self._connect()
        return self._client

    def _connect(self) -> docker.DockerClient:
        environment = dict(self._env)
        if not environment.get("DOCKER_HOST"):
            environment["DOCKER_HOST"] = self._context_host()
        host = environment["DOCKER_HOST"]
        cli_logins()  # the SDK reads them too, and its error would be taken for the engine's
        try:
            _require_socket(host)
            # "auto" negotiates the API version: Docker 29.0 refuses the versions of Docker 23.
            client = docker.DockerClient.from_env(
                environment=environment, timeout=_TIMEOUT_SECONDS, version="auto"
            )
        except (DockerException, ValueError) as error:  # ValueError: a port or an IPv6 address that is none
            raise ToolMissingError(
                f"No Docker engine answers at {host}",
                cause=str(error),
                advice="Start Docker, or set DOCKER_HOST. As root on Debian or Ubuntu, `./run` installs and "
                "starts one.",
            ) from error
        return client

    def _context_host(self) -> str:
        """Return the endpoint of the CLI's current context (Docker Desktop, rootless, ssh)."""
        done = self._runner.run(
            ["docker", "context", "inspect", "--format", "{{.Endpoints.docker.Host}}"], check=False
        )
        return done.stdout.strip() or "unix:///var/run/docker.sock"

    def _is_local(self) -> bool:
        return str(self._sdk().api.base_url).startswith("http+docker")

    def _start_with_files(self, request: ContainerRun) -> Container:
        """Start a container and return it. Files that the engine sees are mounted, other files copied in."""
        with suppress(APIError):  # an engine in a virtual machine or another container sees other files
            return self._start(request, self._visible(request.files))
        return self._start(request, {})

    def _visible(self, files: Mapping[str, Path]) -> Mapping[str, Path]:
        """Return the files that a container's user can use when mounted; SELinux denies access to all."""
        options = self._sdk().info().get("SecurityOptions") or ()
        if not self._is_local() or any("selinux" in option for option in options):
            return {}
        return {inside: file for inside, file in files.items() if _is_usable(file)}

    def _start(self, request: ContainerRun, shown: Mapping[str, Path]) -> Container:
        container = self._sdk().containers.create(
            request.image,
            command=list(request.argv[1:]),
            entrypoint=[request.argv[0]],
            network_mode="none",
            labels={LABEL: "run", _OWNER: f"{socket.gethostname()}:{os.getpid()}"},
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
        """Remove the containers that killed processes of this machine left."""
        ours: dict[str, str | list[str] | bool] = {"label": f"{LABEL}=run"}
        for container in self._sdk().containers.list(all=True, filters=ours, ignore_removed=True):
            if _is_dead(container.labels.get(_OWNER, "")):
                with suppress(NotFound):
                    container.remove(force=True)


def _is_usable(file: Path) -> bool:
    """Return whether any user may read the file, and its file system allows execution."""
    return bool(file.stat().st_mode & stat.S_IROTH) and not os.statvfs(file).f_flag & os.ST_NOEXEC


def _is_dead(owner: str) -> bool:
    machine, _, process = owner.rpartition(":")
    if machine != socket.gethostname():
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


def root_cause(message: str) -> str:
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
