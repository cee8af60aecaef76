"""Tests of builders with two real engines: one dies, one has a full disk, some are absent.

A small stage replaces the compile, as the tests check only which engine builds and what is exported.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from builder.adapters.docker.engine import DockerEngine
from builder.adapters.process import ProcessRunner
from builder.builds.builders import Builders, named_builders
from builder.builds.side_by_side import side_by_side
from builder.builds.wiring import Wiring
from builder.errors import DiskError, ToolMissingError, ValidationError, VariantsFailedError
from builder.pipeline.compile import StageBuild, export
from builder.project.build_plan import NOTHING_RENDERED, Workplace
from tests.integration.faults_world import dying_engine, need_root, small_disk
from tests.support import ROOT
from tests.support.fakes.ports import FakeReporter, FakeStore
from tests.support.tls_server import make_certificate, unknown_tls_server

pytestmark = pytest.mark.integration

STAGE = """\
FROM scratch AS build
ADD {tar} /
RUN mkdir /out && echo 'ortpacks: {name} begins' && {work} && echo {name} >/out/{name}
FROM scratch AS artifact
COPY --from=build /out/ /
"""

FAR_MORE_THAN_THE_DISK = "head -c 1000000000 /dev/zero | cat >/filled"


class Listening(FakeReporter):
    """A reporter that calls ``on_begin`` once, when the stage prints that it begins."""

    on_begin: Callable[[], None] | None = None

    def say(self, line: str) -> None:
        super().say(line)
        if line.endswith(" begins") and self.on_begin:
            act, self.on_begin = self.on_begin, None
            act()


class Farm:
    """Docker contexts in a configuration of their own, and two variants with small stages."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {**os.environ, "DOCKER_CONFIG": str(folder / "docker")}
        self.runner = ProcessRunner(self.env)
        self.engine = DockerEngine(self.runner, self.env)
        self.reporters = {"legacy": Listening(), "latest": Listening()}

    def context(self, name: str, host: str, **more: Path) -> None:
        endpoint = ",".join([f"host={host}", *(f"{key}={file}" for key, file in more.items())])
        argv = ["docker", "context", "create", name, "--docker", endpoint]
        subprocess.run(argv, env=self.env, capture_output=True, check=True)

    def builders(self, names: str, flag: str = "context") -> Builders:
        return named_builders(self.engine, {flag: names})

    def build(self, builders: Builders, work: Mapping[str, str]) -> None:
        """Compile both variants at once, each with its command in ``work``; variant n prefers builder n."""
        side_by_side(
            {
                name: self._variant(builders, name, work.get(name, "sleep 3"), home)
                for home, name in enumerate(self.reporters)
            },
            self.runner.interrupt,
        )

    def _variant(self, builders: Builders, name: str, work: str, home: int) -> Callable[[], None]:
        place, reporter = self.place(name), self.reporters[name]
        place.root.mkdir(parents=True)
        shop = Wiring(ROOT)
        suite, packages = shop.project.image.suite, shop.project.image.packages
        tar = shop.rootfs(reporter).slim(suite, packages, "amd64")
        place.context = tar.parent
        place.dockerfile.write_text(STAGE.format(name=name, tar=tar.name, work=work))

        def on(builder: str | None) -> None:
            reporter.say(f"on {builder}")
            stage = StageBuild(
                engine=self.engine, store=FakeStore(self.folder), reporter=reporter, builder=builder
            )
            export("artifact", place.artifact, NOTHING_RENDERED, place, stage)

        return lambda: builders.compile(on, home, engine=self.engine, reporter=reporter)

    def place(self, name: str) -> Workplace:
        return Workplace(self.folder / "dist" / name)

    def made(self) -> dict[str, set[str]]:
        """Return the files in each variant's folder, without the Dockerfile and the log."""
        own = {"Dockerfile", "build.log"}
        return {
            name: {path.name for path in self.place(name).root.iterdir()} - own for name in self.reporters
        }

    def told(self, name: str) -> list[str]:
        return [line for line in self.reporters[name].lines if not line.startswith("! the whole log")]


@pytest.fixture
def farm(tmp_path: Path) -> Farm:
    return Farm(tmp_path)


@pytest.fixture
def nothing_else_of_the_machine_changes() -> Iterator[None]:
    def networks() -> set[str]:
        """Return the devices that are none of a container or of a network that another test makes."""
        names = {device.name for device in Path("/sys/class/net").iterdir()}
        return {name for name in names if not name.startswith(("veth", "br-"))}

    before = networks()
    yield
    assert networks() == before, "the machine's own engine keeps its bridge"


@pytest.mark.usefixtures("nothing_else_of_the_machine_changes")
def test_each_engine_compiles_a_variant_and_one_that_dies_hands_its_own_to_the_other(farm: Farm) -> None:
    with dying_engine() as one, dying_engine() as two:
        farm.context("one", one.host)
        farm.context("two", two.host)
        farm.reporters["legacy"].on_begin = one.kill
        farm.build(farm.builders("one,two"), {"legacy": "sleep 5"})
        assert farm.told("legacy") == [
            "on one",
            "legacy begins",
            "! one does not answer any more; two compiles now, with the objects in its own caches",
            "on two",
            "legacy begins",
        ]
        assert farm.told("latest") == ["on two", "latest begins"]
        assert farm.made() == {"legacy": {"artifact"}, "latest": {"artifact"}}
        assert (farm.place("legacy").artifact / "legacy").read_text() == "legacy\n"
        with pytest.raises(
            ToolMissingError, match="Builder one does not answer: Cannot connect to the Docker"
        ):
            farm.builders("one,two")


@pytest.mark.usefixtures("nothing_else_of_the_machine_changes")
def test_a_full_disk_of_one_engine_is_told_by_its_name_and_the_other_goes_on(
    farm: Farm, tmp_path: Path
) -> None:
    need_root("mounts a file system")
    with ExitStack() as world:
        disk = world.enter_context(small_disk(tmp_path / "small", megabytes=300))
        farm.context("small", world.enter_context(dying_engine(disk.folder)).host)
        farm.context("large", world.enter_context(dying_engine()).host)
        with pytest.raises(VariantsFailedError) as caught:
            farm.build(farm.builders("small,large"), {"legacy": FAR_MORE_THAN_THE_DISK})
        (error,) = caught.value.failures.values()
        assert isinstance(error, DiskError)
        where = farm.place("legacy").root
        assert error.what == f"Builder small or {where} had no space left while building artifact"
        assert error.advice.startswith("Free space there")
    assert farm.told("legacy") == ["on small", "legacy begins"]
    assert farm.made() == {"legacy": set(), "latest": {"artifact"}}


@pytest.fixture
def stranger(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """Run a TLS server; yield its URL and the certificate of an authority that did not sign the server's."""
    with unknown_tls_server(tmp_path) as port:
        yield f"tcp://127.0.0.1:{port}", make_certificate(tmp_path, "other")


def test_builders_that_are_not_there_are_told_by_what_docker_says(
    farm: Farm, stranger: tuple[str, Path]
) -> None:
    host, authority = stranger
    farm.context("tls", host, ca=authority)
    farm.context("away", "unix:///nonexistent.sock")
    with pytest.raises(
        ToolMissingError, match=r"Builder tls does not answer: .* certificate signed by unknown"
    ):
        farm.builders("default,tls")
    with pytest.raises(ToolMissingError, match="Builder away does not answer: Cannot connect to the Docker"):
        farm.builders("away", "builder")
    with pytest.raises(ValidationError, match=r"--context 'awya' is none of .*away.*Did you mean away\?"):
        farm.builders("awya")
    with pytest.raises(ValidationError, match=r"--builder 'awya' is none of .*away.*Did you mean away\?"):
        farm.builders("awya", "builder")
