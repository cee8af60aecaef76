"""Tests of the engine adapter's command lines and messages with a fake runner.

Tests in tests/integration use a real engine.
"""

from __future__ import annotations

import io
import json
import re
import socket
import subprocess
import tarfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import Mock

import pytest
import requests
from docker.errors import APIError
from docker.types import Mount

from builder.errors import BuilderError, CommandError, DiskError, ToolMissingError, TransferError
from builder.files.http_client import NotThereError
from builder.io.docker.engine import LABEL, OVERTIME, ContainerRun, DockerEngine, ImageBuild
from builder.io.process import Completed
from tests.doubles.loopback import LoopbackServer, QuietHandler, listening
from tests.support.fakes.ports import FakeRunner
from tests.support.messages import Refused, Told
from tests.support.tables import data_text, table

BUILDERS, CONTEXTS = data_text("docker/builders.txt"), data_text("docker/contexts.txt")
"""Output of buildx 0.13."""

NOWHERE = {"DOCKER_HOST": "unix:///nonexistent/docker.sock"}


def request(**changes: object) -> ImageBuild:
    base = {"dockerfile": Path("D"), "context": Path("ctx"), "target": "artifact"}
    return ImageBuild(**{**base, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize("host", [NOWHERE["DOCKER_HOST"], "tcp://[::1", "tcp://h:99999", ":::"])
def test_an_address_where_no_engine_answers_is_told(refused: Refused, host: str) -> None:
    with refused(ToolMissingError):
        DockerEngine(FakeRunner(), {"DOCKER_HOST": host}).facts()


IMAGES = json.loads(data_text("docker/images.json"))
"""Docker 29.7.2's list of our images, shortened; the last entry, without tags, is in 26.1.5's form."""


LIMIT = "You have reached your limit"

VERSIONS = {"ApiVersion": "1.52", "MinAPIVersion": "1.44"}


def _platforms(*names: str) -> dict[str, object]:
    platforms = [{"architecture": name, "os": "linux"} for name in names]
    return {"Descriptor": {"digest": "sha256:5e"}, "Platforms": platforms}


class Docker29(QuietHandler):
    """An engine that supports API versions 1.44 to 1.52, like Docker 29.0, and reports them.

    The answers on a registry's images are those of Docker 28.5.2; of ``silent:1`` there is none.
    """

    answers: ClassVar[dict[str, tuple[int, object]]] = {
        "/version": (200, {"Version": "29.0.0", **VERSIONS}),
        "/info": (200, {}),
        "/_ping": (200, "OK"),
        "/images/json": (200, IMAGES),
        "/containers/json": (200, []),
        "/distribution/both:1/json": (200, _platforms("arm64", "amd64")),
        "/distribution/arm:1/json": (200, _platforms("arm64", "ppc64le")),
        "/distribution/gone:1/json": (404, {"message": "manifest unknown: manifest unknown"}),
        "/distribution/limited:1/json": (429, {"message": f"toomanyrequests: {LIMIT}. Pay us."}),
        "/distribution/denied:1/json": (403, {"message": "denied: no\nsecond line"}),
        "/distribution/lost:1/json": (
            500,
            {"message": 'Get "https://r.example/v2/": dial tcp: no such host'},
        ),
    }

    def do_GET(self) -> None:  # noqa: N802 as http.server calls it
        found = re.fullmatch(r"(?:/v1\.(?P<minor>\d+))?(?P<path>/[^?]*).*", self.path)
        assert found is not None
        status, body = self.answers.get(found["path"], (404, {"message": "No such image"}))
        if found["minor"] and not 44 <= int(found["minor"]) <= 52:
            status, body = 400, {"message": f"client version 1.{found['minor']} is too old"}
        if "silent" in self.path:
            self.close_connection = True
            return
        self.respond(status, json.dumps(body).encode(), {"Content-Type": "application/json"})


class Podman(Docker29):
    """Answers of Podman 4.9.3's ``podman system service``, shortened."""

    answers: ClassVar[dict[str, tuple[int, object]]] = {
        **Docker29.answers,
        "/version": (200, {"Components": [{"Name": "Podman Engine", "Version": "4.9.3"}], **VERSIONS}),
    }


@contextmanager
def engine(answers: type[Docker29]) -> Iterator[DockerEngine]:
    with listening(LoopbackServer(answers)) as url:
        yield DockerEngine(FakeRunner(), {"DOCKER_HOST": url.replace("http:", "tcp:")})


@pytest.mark.parametrize(
    ("image", "error"),
    [
        ("gone:1", NotThereError),
        ("arm:1", NotThereError),
        *((image, TransferError) for image in ("limited:1", "denied:1", "lost:1")),
        ("silent:1", TransferError),
    ],
)
def test_an_image_must_be_for_our_platform(refused: Refused, image: str, error: type[TransferError]) -> None:
    with engine(Docker29) as docker29:
        assert not docker29.has_image("ortpacks/no:1")
        assert docker29.resolve("both:1") == "sha256:5e"
        with refused(error):
            docker29.resolve(image)


def test_images_take_what_the_engine_lists_and_not_what_containerd_holds_compressed() -> None:
    """With containerd's image store, ``inspect`` gave 44,858,828 bytes for the first image."""
    with engine(Docker29) as docker29:
        assert [(image.kind, image.name, image.size) for image in docker29.resources()] == [
            ("image", "ortpacks/bare:assembled-ee875ed74d23", 247341001),
            ("image", "ortpacks/cpu:1.21.0", 177118668),
        ]


def test_podman_is_told_by_its_name(refused: Refused) -> None:
    with engine(Podman) as podman, refused(ToolMissingError):
        podman.facts()


@pytest.mark.parametrize(
    "changes",
    [
        {"contexts": {"b": Path("/two"), "a": Path("/one")}, "output": Path("out")},
        {"output": Path('/a,b=c/"out"')},
        {"network": False, "tags": ("x:1", "x:2")},
        {"sockets": {"compile-cache": Path("/s")}, "platform": "linux/amd64"},
        {"push": ("h:5/n:1", "h:5/n:2"), "builder": "farm"},
        {"builder": "far"},
    ],
    ids=" ".join,
)
def test_a_build_asks_for_these_flags_in_this_order(changes: dict[str, object], told: Told) -> None:
    """``far`` is a context, whose engine is asked; ``farm`` is a builder."""
    runner = FakeRunner(answers={"docker context ls": Completed(0, CONTEXTS, "")})
    DockerEngine(runner, NOWHERE).build(request(**changes), lambda _: None)
    told("\n".join(runner.calls[-1]))


ECHO = [
    '#23 ERROR: process "/bin/sh -c ninja" did not complete successfully: exit code: 1',
    *("------", " > [build 5/5] RUN ninja:", "Dockerfile:71", "--------------------"),
    *("  71 | >>> ninja", "--------------------"),
    'ERROR: failed to solve: process "/bin/sh -c ninja" did not complete successfully: exit code: 1',
]
"""Output of buildx after a failed step."""


def failed(*output: str, **changes: object) -> BuilderError:
    """Return the error of a build that logs ``output``; each line of the log was passed on."""
    answers: dict[str, Completed | BuilderError] = {
        "docker context ls": Completed(0, "", ""),
        "docker": CommandError("x", argv=["docker"], code=1),
    }
    runner = FakeRunner(answers=answers, output=output)
    lines: list[str] = []
    with pytest.raises(BuilderError) as caught:
        DockerEngine(runner, NOWHERE).build(request(**changes), lines.append)
    assert lines == list(output)
    return caught.value


def test_a_failed_build_shows_the_last_30_lines_of_its_own_programs_or_else_of_buildx(told: Told) -> None:
    steps = [f"#23 {number}.125 x.cu({number}): warning" for number in range(49)]
    status = '#23 49.3 ortpacks-progress: {"done":55}'
    stopped = "#23 49.5 ninja: build stopped: subcommand failed."
    told(failed("#5 [build 1/5] COPY", *steps, status, stopped, *ECHO))
    told(failed("#1 [internal] load build definition", "", "ERROR: failed to solve: dockerfile parse error"))


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        *table("docker/refusals.txt"),
        # buildx 0.13 with a builder of driver remote that is not there; the assembler
        ("#1 ERROR: context deadline exceeded", "ToolMissingError"),
        ("#9 81.20 {standard input}: fatal error: /tmp/ccx.o: No space left on device", "DiskError"),
    ],
)
def test_an_engine_that_dies_or_is_full_is_told_so(told: Told, said: str, kind: str) -> None:
    pushed = {"push": ("h:5/n:1",)} if kind == "TransferError" else {"output": Path("there/artifact")}
    error = failed("#7 [1/9] gcc", said, builder="far" if kind == "DiskError" else None, **pushed)
    assert type(error).__name__ == kind
    assert (error.retry_after is not None) == (kind == "ToolMissingError")
    told(error)


@pytest.mark.parametrize(
    ("flag", "command", "said", "names"),
    [
        ("builder", "docker buildx ls", BUILDERS, ["farm", "default", "gone"]),
        ("context", "docker context ls", CONTEXTS, ["default", "far"]),
    ],
)
def test_builders_are_those_that_docker_lists(flag: str, command: str, said: str, names: list[str]) -> None:
    runner = FakeRunner(answers={command: Completed(0, said, "")})
    assert DockerEngine(runner, NOWHERE).builders(flag) == names


@pytest.mark.parametrize(
    "answer",
    [
        # buildx 0.13: a context whose engine is not there, then a builder of driver remote
        Completed(0, "Name:   gone\nDriver: \nError:  Cannot connect to the daemon at tcp://g.\n", ""),
        Completed(1, "", "#1 ERROR: context deadline\nERROR: context deadline exceeded\n"),
        Completed(1, "", ""),
    ],
    ids=["context", "remote", "silent"],
)
def test_a_builder_that_does_not_answer_is_told_with_the_cause(refused: Refused, answer: Completed) -> None:
    runner = FakeRunner(answers={"docker buildx inspect": answer})
    with refused(ToolMissingError):
        DockerEngine(runner, NOWHERE).wake("gone")


def test_a_builder_that_runs_is_awake() -> None:
    said = "Name:   farm\nDriver: docker-container\n\nNodes:\nName: farm0\nStatus: running\n"
    runner = FakeRunner(answers={"docker buildx inspect": Completed(0, said, "")})
    DockerEngine(runner, NOWHERE).wake("farm")
    assert runner.calls == [["docker", "buildx", "inspect", "--bootstrap", "farm"]]


def _buildx(code: int, said: str) -> str:
    answers = {"docker buildx version": Completed(code, said, "")}
    return DockerEngine(FakeRunner(answers=answers), {}).buildx_version()


def test_buildx_that_will_do_says_its_version(refused: Refused) -> None:
    assert _buildx(0, "github.com/docker/buildx v0.8.0 abc\n") == "0.8.0"
    for code, said in ((1, "unknown command"), (0, "github.com/docker/buildx v0.7.1 abc")):
        with refused(ToolMissingError):
            _buildx(code, said)


def sdk_with(
    *,
    refuses: str = "",
    blind: bool = False,
    local: bool = True,
    security: str = "name=seccomp,profile=builtin",
    waits: bool = False,
    gone: bool = False,
    orphan: int = 0,
    namespace: str = "",
) -> Mock:
    """Return the SDK's client, whose container runs ``true``.

    ``blind``: the engine sees none of this machine's files. ``waits``: the container says something and does
    not end; ``gone``: the engine goes away. ``orphan``: the status on the removal of a killed process's
    container.
    """
    container, dead, sdk = Mock(), Mock(), Mock(mounts=[], copied=[])

    def create(*_: object, mounts: Sequence[Mount], network_mode: str, **__: object) -> Mock:
        assert network_mode == "none"
        if said := "bind source path does not exist" if blind and mounts else refuses:
            raise APIError("500 Server Error", explanation=said)
        sdk.mounts = [*mounts]
        return container

    def put_archive(folder: str, stream: Iterable[bytes]) -> None:
        assert folder == "/"
        with tarfile.open(fileobj=io.BytesIO(b"".join(stream))) as tar:
            sdk.copied = [f"/{one.name}" for one in tar if one.isfile()]

    def wait(timeout: int) -> dict[str, int]:
        if waits:
            time.sleep(timeout)
        if waits or gone:
            raise requests.ConnectionError("Read timed out. (read timeout=1)")
        return {"StatusCode": 0}

    ended, response = subprocess.Popen(["true"]), requests.Response()
    ended.wait()
    response.status_code = orphan
    here = namespace or Path("/proc/self/ns/pid").readlink()
    dead.labels = {f"{LABEL}.owner": f"{socket.gethostname()}/{here}:{ended.pid}"}
    dead.remove.side_effect = APIError("Client Error", response, "removal of container e2 is in progress")
    container.configure_mock(put_archive=put_archive, wait=wait)
    container.logs = lambda stdout, stderr: b"asking the driver" if stdout and container.kill.called else b""
    sdk.containers.configure_mock(**{"create": create, "list.return_value": [dead] if orphan else []})
    sdk.info.return_value = {"SecurityOptions": security.split()}
    sdk.api.base_url = "http+docker://localhost" if local else "https://far.example"
    sdk.container = container
    return sdk


@pytest.mark.parametrize(
    ("how", "mode", "shown"),
    [
        ({}, 0o644, True),
        ({}, 0o600, False),
        ({"local": False}, 0o644, False),
        ({"blind": True}, 0o644, False),
        ({"security": "name=seccomp name=selinux"}, 0o644, False),
    ],
    ids=["here", "not the user's", "another machine", "behind a socket", "SELinux"],
)
def test_files_are_shown_to_a_container_or_copied(
    tmp_path: Path, how: dict[str, Any], mode: int, shown: bool
) -> None:
    sdk, library = sdk_with(**how), tmp_path / "libx.so"
    library.write_bytes(b"x")
    library.chmod(mode)
    assert ran(sdk, files={"/in/libx.so": library}).code == 0
    there = [(mount["Target"], mount["Source"], mount["ReadOnly"]) for mount in sdk.mounts]
    assert there == ([("/in/libx.so", str(library), True)] if shown else [])
    assert sdk.copied == ([] if shown else ["/in/libx.so"])


def ran(sdk: Mock, **changes: object) -> Completed:
    """Return how a container ended that runs ``true`` through this SDK."""
    engine = DockerEngine(FakeRunner(), {})
    engine._client = sdk
    return engine.run(ContainerRun(**{"image": "bare", "argv": ("true",), "files": {}, **changes}))  # type: ignore[arg-type]


def test_a_container_that_does_not_end_is_ended_with_what_it_said() -> None:
    """Defect: after 15 minutes it was told as an engine that went away."""
    sdk = sdk_with(waits=True)
    assert ran(sdk, seconds=1) == Completed(OVERTIME, "asking the driver", "")
    sdk.container.kill.assert_called_once_with()
    sdk.container.remove.assert_called_once_with(force=True)


@pytest.mark.parametrize("how", [{"orphan": 404}, {"orphan": 409}, {"orphan": 500, "namespace": "pid:[1]"}])
def test_an_orphan_that_another_removes_or_cannot_see_is_no_refusal(how: dict[str, Any]) -> None:
    """Defect: of two builds that began at once after a kill, one ended with Docker's 409.

    Defect: a build in a container took the running ones outside for dead, whose ids it cannot see.
    """
    assert ran(sdk_with(**how)).code == 0


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ({"gone": True}, ToolMissingError),
        ({"orphan": 500}, CommandError),
        # dockerd 26.1, while copying a file
        ({"refuses": "write /inspect/libx.so: no space left on device"}, DiskError),
        ({"refuses": "no such image: bare"}, CommandError),
    ],
    ids=["gone", "orphan", "full", "no image"],
)
def test_what_an_engine_refuses_has_its_kind(
    refused: Refused, how: dict[str, Any], error: type[BuilderError]
) -> None:
    with refused(error):
        ran(sdk_with(**how))
