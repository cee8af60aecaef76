"""The kit of a base: made once, without planning a build, and shared by whoever checks a package."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from builder.builds.check_tools import CheckTools
from builder.files.file_lock import exclusive
from tests.support.factories.workplace import Site
from tests.support.fakes.ports import FakeReporter


@pytest.fixture
def site(root: Path, tmp_path: Path) -> Site:
    return Site(root, tmp_path)


def kit(site: Site, base: str = "assembled") -> CheckTools:
    return CheckTools(site.shop, base, site.reporter)


@pytest.mark.parametrize(("base", "network"), [("assembled", False), ("nvidia", True)])
def test_a_bench_is_the_smoke_program_and_a_bare_image(site: Site, base: str, network: bool) -> None:
    bench = kit(site, base).selftest_bench()
    exported, bare = site.engine.builds
    assert (exported.target, bare.target) == ("kit", "bare")
    assert (exported.network, bare.network) == (network, network)
    assert (exported.builder, bare.builder) == (None, None)
    assert bench.image == bare.tag
    assert bench.image.startswith(f"ortpacks/bare:{base}-")
    assert bench.smoke == site.dist / f".kit-{base}" / "kit" / "ortpacks-smoke"
    assert bench.smoke.read_text() == "smoke"
    assert bench.script == site.shop.templates / "selftest.sh"
    assert [trial.name for trial in bench.trials] == ["silero_vad", "magika"]


def test_the_virtual_card_comes_out_of_the_same_image_as_the_smoke_program(site: Site) -> None:
    card = kit(site).card_runtime().library
    assert card == site.dist / ".kit-assembled" / "kit" / "libvirtualcard.so"
    assert card.is_file()
    kit(site).selftest_bench()
    assert site.built() == ["kit", "bare"]


def test_a_kit_wants_nothing_that_only_a_build_of_ort_reads(site: Site) -> None:
    kit(site).selftest_bench()
    only_for_ort = ("onnxruntime-gpu", "nvidia-cutlass", "cudnn-frontend", "onnxruntime_1.21.0", "eigen")
    assert site.store.asked
    assert [spec for spec in site.store.asked if any(name in spec for name in only_for_ort)] == []


@pytest.mark.parametrize(("base", "version"), [("assembled", "12.4"), ("nvidia", "12.9")])
def test_an_inspector_is_cuobjdump_of_the_bases_own_toolkit(site: Site, base: str, version: str) -> None:
    assert kit(site, base).inspector().version.startswith(version)
    (request,) = site.engine.builds
    assert request.target == "toolchain"
    assert str(request.tag).startswith(f"ortpacks/toolchain:{base}-")
    assert {"cudnn", "cmake"} <= set(request.contexts)


def test_an_image_that_the_engine_holds_is_not_built_again(site: Site) -> None:
    tools = kit(site)
    tools.inspector()
    (request,) = site.engine.builds
    site.engine.images.add(str(request.tag))
    tools.inspector()
    assert site.built() == ["toolchain"]
    os.utime(site.rootfs.tar("bookworm", ()), ns=(1, 1))
    tools.inspector()
    assert site.built() == ["toolchain", "toolchain"], "of another root file system"


def test_a_smoke_program_that_is_up_to_date_is_not_replaced(site: Site) -> None:
    """Another variant may be copying it into a container."""
    first = kit(site).selftest_bench().smoke.stat().st_ino
    assert kit(site).selftest_bench().smoke.stat().st_ino == first
    assert site.built() == ["kit", "bare", "bare"]


def test_a_smoke_program_that_is_gone_or_of_other_inputs_is_made_anew(site: Site) -> None:
    kit(site).selftest_bench().smoke.unlink()
    assert kit(site).selftest_bench().smoke.is_file()
    key = site.dist / ".kit-assembled" / "kit.key"
    key.write_text("0" * 64)
    kit(site).selftest_bench()
    assert site.built() == ["kit", "bare"] * 3
    assert key.read_text() != "0" * 64


def test_whoever_comes_second_waits(site: Site) -> None:
    waits = threading.Event()

    class Listening(FakeReporter):
        def say(self, line: str) -> None:
            super().say(line)
            waits.set()

    reporter = Listening()
    second = threading.Thread(target=CheckTools(site.shop, "assembled", reporter).selftest_bench)
    with exclusive(site.dist / ".locks" / "kit-assembled", lambda: None):
        second.start()
        assert waits.wait(10)
        assert reporter.lines[-1] == "another build makes the tools that check packages: waiting"
        assert site.built() == []
    second.join(10)
    assert site.built() == ["kit", "bare"]
