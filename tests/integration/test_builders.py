"""Tests of builders with two real engines: one dies, one has a full disk, some are absent.

Where an engine dies, variants are folders of Abseil, compiled by ``drive.py`` with a cache on Redis: ORT's
toolchain on two more engines would take minutes. Else a small stage replaces the compile.
"""

import os
import re
import subprocess
import tarfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cached_property, partial
from pathlib import Path

import pytest
from redis import Redis

from builder.build.variant_build import BuildOptions, VariantBuild
from builder.compile.builders import Builders, named_builders
from builder.compile.compile_cache import CompileCaches, served
from builder.compile.plan import PlanOptions
from builder.compile.stages import StageBuild, export
from builder.config.build_plan import NOTHING_RENDERED, Workplace
from builder.contents.build_record import CompileRecord, loads_compile
from builder.errors import DiskError, ToolMissingError, VariantsFailedError
from builder.formats.package_names import Profile
from builder.io.docker.engine import DockerEngine
from builder.io.process import ProcessRunner, side_by_side
from builder.io.wiring import Wiring
from tests.integration.faults_world import dying_engine, need_root, networks, small_disk
from tests.support import ROOT
from tests.support.cache_servers import PASSWORD, redis_cache, redis_server
from tests.support.fakes.ports import FakeReporter, FakeStore

pytestmark = pytest.mark.thorough

STAGE = """\
FROM scratch AS build
ADD {tar} /
RUN mkdir /out && echo 'ortpacks: {name} begins' && {work} && echo {name} >/out/{name}
FROM scratch AS artifact
COPY --from=build /out/ /
"""

COMPILE = """\
FROM scratch AS build
ADD compilers.tar /
SHELL ["/bin/sh", "-euc"]
COPY farm/ /ortpacks/builder/farm/
RUN --mount=type=bind,source=sources,target=/sources <<'EOF'
mkdir /src && tar -xf /sources/abseil_*.tar.gz -C /src --strip-components=1
cd /ortpacks/builder/farm
gcc-12 -std=c11 -D_DEFAULT_SOURCE -O2 -o /usr/local/bin/unit unit.c pool.c
EOF
RUN --mount=type=cache,id=ortpacks-ccache,target=/ccache \\
    --mount=type=cache,id=ortpacks-pool,target=/pool \\
    --mount=type=cache,id=ortpacks-{name},target=/build \\
    --mount=type=ssh,id=compile-cache,target=/run/compile-cache \\
    <<'EOF'
export PYTHONPATH=/ortpacks UNIT_LOG=/build/units.log
export CCACHE_DIR=/ccache CCACHE_STATSLOG=/build/ccache-stats.log CCACHE_COMPILERCHECK=string:g++
cd /src
units=$(find absl/{folder} -maxdepth 1 -name '*.cc' ! -name '*test*' ! -name '*benchmark*' | sort)
cat >/build/build.ninja <<'RULE'
rule CXX_COMPILER__absl
  command = unit ccache g++-12 -std=c++17 -I/src -c $in -o $out
  description = Building CXX object $out
RULE
for unit in $units; do echo "build $unit.o: CXX_COMPILER__absl /src/$unit"; done >>/build/build.ninja
echo build {name}: phony $(printf '%s.o ' $units) >>/build/build.ninja
touch /build/parts.tsv
python3 -m builder.farm.drive --tree /build --pool /pool --shared /run/compile-cache --name {name} \\
    --jobs 1 --memory 0 --architectures 1 --parts /build/parts.tsv --learned /ccache/costs.tsv \\
    --measured /ortpacks/builder/farm/costs.tsv --record /build/record.json {name}
mkdir /out
cp /build/record.json /out/
cd /build
sha256sum $(printf '%s.o ' $units) >/out/objects
EOF
FROM scratch AS artifact
COPY --from=build /out/ /
"""
"""The units of a folder of Abseil, compiled as the templates compile ORT's; the Ninja tree is made here."""

NEEDLESS = re.compile(r"/usr/share/|/perl|/gconv/|/lto1$|-lto-dump|/lib[a-z]*san\.")
"""Half of the root file system that compiles ORT, which two engines would unpack."""

FAR_MORE_THAN_THE_DISK = "head -c 1000000000 /dev/zero | cat >/filled"


class Watching(FakeReporter):
    """A reporter that calls ``act`` once, when the share ``share`` of the compile is done."""

    def __init__(self, share: float = 2, act: Callable[[], None] | None = None) -> None:
        super().__init__()
        self._share, self._act = share, act

    @contextmanager
    def live(self, title: str) -> Iterator[Callable[[float, str], None]]:
        def see(share: float, words: str) -> None:
            self.lines.append(words)
            if share >= self._share and self._act:
                act, self._act = self._act, None
                act()

        yield see


class Farm:
    """Docker contexts in a configuration of their own, and variants with stages in place of ORT's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {**os.environ, "DOCKER_CONFIG": str(folder / "docker")}
        self.runner = ProcessRunner(self.env)
        self.engine = DockerEngine(self.runner, self.env)
        self.caches = CompileCaches()
        self.reporters: dict[str, Watching] = {}

    def context(self, name: str, host: str) -> None:
        argv = ["docker", "context", "create", name, "--docker", f"host={host}"]
        subprocess.run(argv, env=self.env, capture_output=True, check=True)

    def builders(self, names: str) -> Builders:
        return named_builders(self.engine, {"context": names})

    def wait(self, builders: Builders, work: Mapping[str, str]) -> None:
        """Build both variants in small stages, each with its command in ``work``, or a wait."""
        shop = Wiring(ROOT)
        suite, packages = shop.project.image.suite, shop.project.image.packages
        tar = shop.rootfs(FakeReporter()).slim(suite, packages, "amd64")
        stages = {
            name: STAGE.format(name=name, tar=tar.name, work=work.get(name, "sleep 3"))
            for name in ("legacy", "latest")
        }
        self._build(builders, stages, tar.parent, {})

    def compile(self, builders: Builders, folders: Mapping[str, str], **watching: Watching) -> None:
        """Compile a folder of Abseil for each variant, a unit at a time."""
        stages = {
            name: COMPILE.format(folder=folder, name=folder.replace("/", "-"))
            for name, folder in folders.items()
        }
        self._build(builders, stages, self._inputs, watching)

    @cached_property
    def _inputs(self) -> Path:
        """A build context of base ``assembled``, and its system reduced to what compiles C and C++."""
        shop = Wiring(ROOT, dist=self.folder / "dist", reporter=FakeReporter())
        options = BuildOptions(plan_options=PlanOptions(base="assembled", profile=Profile.MINIMAL))
        place = Workplace(self.folder / "inputs")
        place.root.mkdir()
        VariantBuild(shop, shop.project.variants["legacy"], options, shop.reporter).lay_out(place.root)
        with (
            tarfile.open(place.context / "rootfs-build.tar") as whole,
            tarfile.open(place.context / "compilers.tar", "w") as part,
        ):
            for member in whole:
                if not NEEDLESS.search(member.name):
                    part.addfile(member, whole.extractfile(member) if member.isreg() else None)
        return place.context

    def _build(
        self, builders: Builders, stages: Mapping[str, str], context: Path, watching: Mapping[str, Watching]
    ) -> None:
        """Build the variants at once; variant n prefers builder n."""
        self.reporters = {name: watching.get(name, Watching()) for name in stages}
        side_by_side(
            {
                name: self._variant(builders, name, stage, context, home)
                for home, (name, stage) in enumerate(stages.items())
            },
            self.runner.interrupt,
        )

    def _variant(
        self, builders: Builders, name: str, stage: str, context: Path, home: int
    ) -> Callable[[], None]:
        place, reporter = self.place(name), self.reporters[name]
        place.root.mkdir(parents=True, exist_ok=True)
        place.context = context
        place.dockerfile.write_text(stage)

        means = StageBuild(
            engine=self.engine,
            store=FakeStore(self.folder),
            reporter=reporter,
            served=partial(served, self.caches, reporter) if self.caches.readable else None,
        )

        def on(means: StageBuild) -> None:
            reporter.say(f"on {means.builder}")
            export("artifact", place.artifact, NOTHING_RENDERED, place, means)

        return lambda: builders.compile(on, home, means)

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

    def moves(self, name: str) -> list[str]:
        """Return the names of the variant's builders, and warnings."""
        return [line for line in self.told(name) if line.startswith(("on ", "! "))]

    def compiled(self, name: str) -> tuple[CompileRecord, str]:
        """Return the record of the variant's last compile, and the sums of its objects."""
        artifact = self.place(name).artifact
        made = loads_compile((artifact / "record.json").read_bytes(), "record.json")
        return made, (artifact / "objects").read_text()


def finished(lines: list[str]) -> int:
    """Return how many units had been compiled when the last of the displayed lines was written."""
    return max(int(line.partition("/")[0]) for line in lines if re.match(r"\d+/\d+ units", line))


@pytest.fixture
def farm(tmp_path: Path) -> Farm:
    return Farm(tmp_path)


@pytest.fixture
def nothing_else_of_the_machine_changes() -> Iterator[None]:
    before = networks()
    yield
    assert networks() == before, "the machine's own engine keeps its bridge"


@pytest.mark.usefixtures("nothing_else_of_the_machine_changes")
def test_engines_share_a_cache_and_one_that_dies_hands_its_work_to_the_other(farm: Farm) -> None:
    """Each variant is compiled on one engine, then on the other from the cache.

    Then an engine dies, and at last the cache's server, while units are compiled.
    """
    with dying_engine() as one, dying_engine() as two, redis_server() as server:
        farm.caches = CompileCaches(shared=redis_cache(server))
        farm.context("one", one.host)
        farm.context("two", two.host)
        folders = {"legacy": "hash/internal", "latest": "numeric"}
        farm.compile(farm.builders("one,two"), folders)
        assert (farm.moves("legacy"), farm.moves("latest")) == (["on one"], ["on two"])
        cold = {name: farm.compiled(name) for name in folders}
        assert all(made.units and not made.cache_hits for made, _ in cold.values())
        farm.compile(farm.builders("two,one"), folders)
        assert (farm.moves("legacy"), farm.moves("latest")) == (["on two"], ["on one"])
        for name, (made, objects) in cold.items():
            again, same = farm.compiled(name)
            assert (again.cache_hits, again.units, same) == (made.units, made.units, objects)
        with Redis(port=server.port, password=PASSWORD) as client:
            keys = [key.decode() for key in client.scan_iter("*")]
        assert len(keys) > sum(made.units for made, _ in cold.values())
        assert all(re.fullmatch(r"ortpacks/[0-9a-z]{2}/[0-9a-z]{31}", key) for key in keys), keys[:3]

        stopped = Watching(0.3, one.kill)
        folders = {"legacy": "strings", "latest": "base"}
        farm.compile(farm.builders("one,two"), folders, legacy=stopped)
        assert farm.moves("legacy") == [
            "on one",
            "! one does not answer any more; two compiles now, with the objects in its own caches",
            "on two",
        ]
        assert farm.moves("latest") == ["on two"]
        on_one = stopped.lines[: stopped.lines.index("on two")]
        rest, _ = farm.compiled("legacy")
        assert 0.2 * rest.units < finished(on_one) <= rest.cache_hits < rest.units
        assert farm.made() == {"legacy": {"artifact"}, "latest": {"artifact"}}
        with pytest.raises(
            ToolMissingError, match="Builder one does not answer: Cannot connect to the Docker"
        ):
            farm.builders("one,two")

        cut_off = Watching(0.3, server.kill)
        farm.compile(farm.builders("two"), {"latest": "time/internal/cctz/src"}, latest=cut_off)
        made, _ = farm.compiled("latest")
        assert (made.units >= 5, made.cache_hits) == (True, 0)
        (warned,) = [line for line in farm.told("latest") if line.startswith("! redis")]
        assert re.fullmatch(r"! redis://\S+ does not answer: .* The build goes on without it\.", warned)


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
            farm.wait(farm.builders("small,large"), {"legacy": FAR_MORE_THAN_THE_DISK})
        (error,) = caught.value.failures.values()
        assert isinstance(error, DiskError)
        where = farm.place("legacy").root
        assert error.what == f"Builder small or {where} had no space left while building artifact"
        assert error.advice.startswith("Free space there")
    assert farm.told("legacy") == ["on small", "legacy begins"]
    assert farm.made() == {"legacy": set(), "latest": {"artifact"}}
