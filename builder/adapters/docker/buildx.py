"""BuildKit through the buildx CLI: builds, the errors of failed builds, and this project's cache mounts.

The Docker SDK cannot drive BuildKit (docker-py#2230). Images get the label ``io.ortpacks``.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator

from builder.adapters.docker.registry import refused
from builder.adapters.process import TAIL_LINES
from builder.errors import BuilderError, CommandError, DiskError, EngineLostError, ToolMissingError
from builder.files.disk import says_full
from builder.inside.status import MARK
from builder.ports import EngineResource, ImageBuild, Runner

LABEL = "io.ortpacks"

MIN_BUILDX = (0, 8)
"""The oldest buildx that works: 0.8 brought named build contexts, as Docker 23's BuildKit did."""

_CACHE_MOUNT = re.compile(
    r"^ID:\s+(?P<key>\w+)$(?:\n(?!ID:).*)*?\nSize:\s+(?P<size>[\d.]+)(?P<unit>[kMGT]?B)$"
    r'(?:\n(?!ID:).*)*? with id "/?(?P<name>ortpacks-[\w.-]+)"'
    r"(?:\nUsage count:.*)?(?:\nLast used:\s+(?P<used>.+))?",
    re.MULTILINE,
)
"""An entry of ``docker buildx du --verbose`` for a cache mount whose id begins with ``ortpacks-``."""

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


class Buildx:
    """The ``docker buildx`` of this machine: the part of ``ports.Engine`` that the SDK does not do."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

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
        """See ``ports.Engine.build``."""
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

    def builders(self, flag: str) -> list[str]:
        """See ``ports.Engine.builders``. The ``*`` that marks the current name is left out."""
        lines = self._runner.run(_LISTS[flag]).stdout.splitlines()[1:]
        return [found[0] for line in lines if (found := re.match(r"[^\s*]+", line))]

    def wake(self, builder: str) -> None:
        """See ``ports.Engine.wake``. ``buildx inspect`` exits with 0 even if a context does not answer."""
        done = self._runner.run(["docker", "buildx", "inspect", "--bootstrap", builder], check=False)
        failed = _SAID.findall(f"{done.stdout}\n{done.stderr}")
        if failed or done.code != 0:
            raise ToolMissingError(
                f"Builder {builder} does not answer",
                cause=failed[-1] if failed else f"`docker buildx inspect` exited with {done.code}",
                advice="Start it, or leave it out. `docker buildx ls` shows which are running.",
            )

    def caches(self) -> Iterator[EngineResource]:
        """Yield this project's cache mounts."""
        listing = self._runner.run(["docker", "buildx", "du", "--verbose"]).stdout
        for found in _CACHE_MOUNT.finditer(listing):
            size = int(float(found["size"]) * _UNITS[found["unit"]])
            yield EngineResource(
                kind="cache", name=found["name"], key=found["key"], size=size, used=found["used"] or ""
            )

    def drop(self, cache: EngineResource) -> None:
        """Remove a cache mount."""
        self._runner.run(["docker", "buildx", "prune", "--force", f"--filter=id={cache.key}"])


def _argv(request: ImageBuild) -> list[str]:
    argv = ["buildx", "build", "--progress=plain", "--provenance=false"]
    argv += [f"--builder={request.builder}"] if request.builder else []
    argv += [
        f"--target={request.target}",
        f"--file={request.dockerfile}",
        f"--label={LABEL}={request.target}",
        *([] if request.network else ["--network=none"]),
        *([f"--platform={request.platform}"] if request.platform else []),
        *_caching(request.cache),
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


def _caching(cache: str | None) -> list[str]:
    """Return the flags that read layers from a cache and write them to it; none without a cache.

    ``mode=max`` writes the layers of every stage, since an earlier stage compiles. A cache that cannot be
    written does not fail the build.
    """
    return [f"--cache-from={cache}", f"--cache-to={cache},mode=max,ignore-error=true"] if cache else []


def _failure(request: ImageBuild, error: CommandError, text: str, tail: list[str]) -> BuilderError:
    """Return the error for a failed build; ``text`` is the log's end, ``tail`` the programs' last output."""
    who = f"Builder {request.builder}" if request.builder else "The Docker engine"
    if _GONE.search(text):
        return EngineLostError(
            f"{who} went away while building {request.target}",
            details=text.splitlines(),
            advice="Start it and run the same command again: finished units are cached.",
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


def require_version(what: str, found: str, floor: tuple[int, int]) -> None:
    """Raise ``ToolMissingError`` when version ``found`` of ``what`` is below ``floor``."""
    number = tuple(int(part) for part in re.findall(r"\d+", found)[:2])
    if number < floor:
        wanted = ".".join(map(str, floor))
        raise ToolMissingError(
            f"{what} is {found or 'of an unknown version'}; {wanted} or newer is needed for BuildKit's named "
            "contexts and cache mounts",
            advice="Update Docker.",
        )
