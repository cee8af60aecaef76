"""Tests of compile caches on Redis and moto's S3, and of damaged or false objects."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from builder.binary.library import read_library
from builder.binary.library_names import PROVIDER
from builder.compile.compile_cache import CompileCaches, compile_cache
from builder.contents.rules.device_code import check_provider
from builder.finding import Code, Severity
from builder.io.wiring import Wiring
from tests.integration.toolchain import Toolchain
from tests.support import ROOT
from tests.support.cache_servers import (
    BUCKET,
    KEY,
    PASSWORD,
    ccache,
    redis_server,
    s3_environment,
    s3_server,
)
from tests.support.fakes.ports import FakeReporter
from tests.support.faults.damage import flip

pytestmark = pytest.mark.thorough


@pytest.fixture(params=["redis", "s3"])
def address(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "redis":
        with redis_server() as server:
            yield f"redis://127.0.0.1:{server.port}/2"
        return
    with s3_server() as server:
        for name, value in s3_environment(server).items():
            monkeypatch.setenv(name, value)
        yield f"s3://{BUCKET}/ours"


def test_objects_go_there_and_come_back(address: str) -> None:
    value, reporter = bytes(range(256)) * 10_000, FakeReporter()
    cache = compile_cache(address, "--into", {"REDISCLI_AUTH": PASSWORD})
    cache.require()
    with ccache(CompileCaches(shared=cache), reporter) as one:
        assert [one.ask("HEAD", KEY)[0], one.ask("GET", KEY)[0]] == [404, 404]
        assert one.ask("PUT", KEY, value)[0] == 201
        assert one.ask("HEAD", KEY)[0] == 200
        assert one.ask("GET", KEY) == (200, value)
    assert reporter.lines == [f"{address}: 1 of 2 objects found, 1 new"]


def test_an_object_with_a_damaged_byte_is_made_again(toolchain: Toolchain) -> None:
    """ccache's own checksum in each object detects the damage."""
    made = fill(toolchain, "store", "nvcc")
    sound, pieces = (toolchain.folder / "unit.o").read_bytes(), toolchain.made()
    for file in made.values():
        flip(file)
    toolchain.compile(SET, nvcc=taking("store", "nvcc"))
    assert toolchain.made() == pieces
    assert (toolchain.folder / "unit.o").read_bytes() == sound


def test_an_object_of_another_architecture_is_refused_by_nvidias_packer(toolchain: Toolchain) -> None:
    """The object under the key of sm_52 is valid for ccache and was made for sm_50."""
    of_50, of_52 = (fill(toolchain, arch, f"NVCC_ONLY={arch} nvcc") for arch in ("50", "52"))
    result_beside(of_52, of_50).write_bytes(result_beside(of_50, of_52).read_bytes())
    with pytest.raises(AssertionError, match="elf arch does not match user-specified arch"):
        toolchain.compile(SET, nvcc=taking("52", "nvcc"))


def test_a_unit_that_lacks_an_architecture_is_found_by_the_check(toolchain: Toolchain) -> None:
    """Another compile's result is stored under the unit's key; a provider is linked from the unit alone."""
    sound = fill(toolchain, "whole", WHOLE)
    ours = result_beside(sound, fill(toolchain, "pieces", PIECES))
    less = fill(toolchain, "less", WHOLE, SET[:-1])
    ours.write_bytes(result_beside(less, fill(toolchain, "their-pieces", PIECES, SET[:-1])).read_bytes())
    toolchain.made()
    toolchain.compile(SET, nvcc=taking("whole", WHOLE))
    assert toolchain.made() == [], "nothing but the poisoned unit"
    done = toolchain.sh("g++ -shared -o unit.so unit.o -L/usr/local/cuda/lib64 -lcudart_static")
    assert done.returncode == 0, done.stderr
    read = read_library(PROVIDER, (toolchain.folder / "unit.so").read_bytes())
    variant = Wiring(ROOT).project.variants["legacy"]
    (finding,) = check_provider(PROVIDER, read.containers, variant, Severity.ERROR)
    assert (finding.code, finding.message) == (Code.A001, "no SASS for sm_70 in any of 1 containers")


SET = ("50:50", "50:52", "60:60", "60:61", "70:70")
"""Architectures of legacy, each virtual and real."""

PIECES = "nvcc -Xcompiler=-fPIC"

WHOLE = "ccache /usr/local/cuda/bin/nvcc -Xcompiler=-fPIC"
"""Command with ccache for the whole unit too, not for its pieces alone."""


def fill(toolchain: Toolchain, store: str, nvcc: str, codes: tuple[str, ...] = SET) -> dict[str, Path]:
    """Compile with the empty cache ``store`` and return the cache's files by key."""
    toolchain.sh("rm -rf ccache")
    toolchain.compile(codes, nvcc=f"CCACHE_SECONDARY_STORAGE=file:/unit/{store} {nvcc}")
    folder = toolchain.folder / store
    return {str(file.relative_to(folder)): file for file in folder.glob("??/*")}


def taking(store: str, nvcc: str) -> str:
    """Return a command for nvcc as on another machine, which only reads the cache."""
    return f"rm -rf ccache unit.o; CCACHE_SECONDARY_STORAGE='file:/unit/{store}|read-only' {nvcc}"


def result_beside(mine: dict[str, Path], others: dict[str, Path]) -> Path:
    """Return the only result in ``mine`` under a key that ``others`` lacks.

    The fourth byte of ccache's header is 0 for a result, 1 for a manifest.
    """
    (found,) = (mine[key] for key in mine.keys() - others.keys() if mine[key].read_bytes()[3] == 0)
    return found
