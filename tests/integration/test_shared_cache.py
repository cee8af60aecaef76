"""Tests of a compile cache on Redis that new machines share, with a part of ONNX Runtime's real source.

Each machine is a set of cache mounts on the same engine; ``test_builders`` tests several engines.
"""

import re
from collections.abc import Callable

import pytest
from redis import Redis

from builder.compile.compile_cache import CompileCaches
from builder.farm.drive import SHARED
from tests.integration.machines import Machine, Watching, finished, record
from tests.support.cache_servers import PASSWORD, redis_cache, redis_server

pytestmark = pytest.mark.thorough


def test_a_server_that_is_cut_off_in_mid_build_is_gone_without(machine: Callable[[], Machine]) -> None:
    """All units are compiled; the server goes away at 30 %."""
    with redis_server() as server:
        reporter = Watching(0.3, server.kill)
        made = record(machine().compile(CompileCaches(shared=redis_cache(server)), reporter))
    assert made.units >= 20
    assert made.cache_hits == 0
    (warned,) = [line for line in reporter.lines if line.startswith("! redis")]
    assert re.fullmatch(r"! redis://\S+ does not answer: .* The build goes on without it\.", warned)


def test_what_one_machine_compiled_no_other_does(machine: Callable[[], Machine]) -> None:
    """The first machine is stopped, the second compiles the rest, the third finds all units in the cache."""
    one = machine()
    with redis_server() as server:
        caches = CompileCaches(shared=redis_cache(server))
        stopped = Watching(0.6, one.runner.interrupt)
        with pytest.raises(KeyboardInterrupt):
            one.compile(caches, stopped)
        after = record(machine().compile(caches, Watching()))
        assert 0.3 * after.units < finished(stopped.lines) <= after.cache_hits < after.units
        artifact = machine().compile(caches, Watching())
        last = record(artifact)
        assert last.cache_hits >= 0.95 * last.units == 0.95 * after.units
        assert (artifact / SHARED).exists(), "so provenance says so"
        with Redis(port=server.port, password=PASSWORD) as client:
            keys = [key.decode() for key in client.scan_iter("*")]
        assert len(keys) > last.units
        assert all(re.fullmatch(r"ortpacks/[0-9a-z]{2}/[0-9a-z]{31}", key) for key in keys), keys[:3]
