"""Tests of a base's check tools, which are made once, without a plan, and serve all checks of packages."""

import os
from unittest.mock import Mock

import pytest

from builder.build.check_tools import CheckTools
from builder.config.inputs import Lock
from builder.errors import CommandError, ConfigError
from builder.files.file_lock import exclusive
from builder.io.process import Completed
from builder.prove.selftest import SelftestTrial
from tests.support.factories.selftests import TRIALS
from tests.support.factories.workplace import Site


class Tools(CheckTools):
    """Check tools with two made-up trials, as the real ones need real wheels."""

    def trials(self) -> tuple[SelftestTrial, ...]:
        return TRIALS


def tools_of(site: Site, base: str = "assembled") -> CheckTools:
    return Tools(site.shop, base, site.reporter)


@pytest.mark.parametrize(("base", "network"), [("assembled", False), ("nvidia", True)])
def test_a_bench_is_the_smoke_program_and_a_bare_image(site: Site, base: str, network: bool) -> None:
    bench = tools_of(site, base).selftest_bench()
    exported, bare = site.engine.builds
    assert (exported.target, bare.target) == ("tools", "bare")
    assert (exported.network, bare.network) == (network, network)
    assert (exported.builder, bare.builder) == (None, None)
    assert (bench.image,) == bare.tags
    assert bench.image.startswith(f"ortpacks/bare:{base}-")
    assert bench.smoke == site.dist / f".check-tools-{base}" / "tools" / "ortpacks-smoke"
    assert bench.script == site.shop.templates / "selftest.sh"
    assert [trial.name for trial in bench.trials] == ["silero_vad", "magika"]
    only_for_ort = ("onnxruntime-gpu", "nvidia-cutlass", "cudnn-frontend", "onnxruntime_1.21.0", "eigen")
    assert site.store.asked
    assert [spec for spec in site.store.asked if any(name in spec for name in only_for_ort)] == []


def test_programs_are_made_once_and_anew_when_they_are_gone_or_of_other_inputs(site: Site) -> None:
    """Another variant may be copying the smoke program into a container."""
    card = tools_of(site).card_runtime().library
    assert (card.name, card.is_file()) == ("libvirtualcard.so", True)
    smoke = tools_of(site).selftest_bench().smoke
    first = smoke.stat().st_ino
    assert tools_of(site).selftest_bench().smoke.stat().st_ino == first
    assert site.built() == ["tools", "bare", "bare"]
    smoke.unlink()
    tools_of(site).selftest_bench()
    key = site.dist / ".check-tools-assembled" / "tools.key"
    key.write_text("0" * 64)
    tools_of(site).selftest_bench()
    assert smoke.is_file()
    assert site.built() == ["tools", "bare", "bare", *["tools", "bare"] * 2]
    assert key.read_text() != "0" * 64


KNOWN = [
    *(
        f"ELF file    1: demo.sm_{sm}.cubin"
        for sm in ("50", "60", "70", "75", "80", "90", "90a", "100", "120")
    ),
    *(f"PTX file    1: demo.sm_{sm}.ptx" for sm in ("52", "90")),
]
"""Lines that cuobjdump 12.4.131 printed for ``builder/binary/known-images.so``, file numbers aside."""


def answered(code: int, *lines: str) -> Completed:
    """Return the container's output when cuobjdump prints these lines and ends with ``code``."""
    of = {kind: "\n".join(one for one in lines if one.startswith(kind.upper())) for kind in ("ELF", "PTX")}
    parts = {"elf.code": code, "elf.out": of["ELF"], "elf.err": "", "ptx.code": 0, "ptx.out": of["PTX"]}
    text = "".join(f"\n@@ {name}\n{said}" for name, said in {**parts, "ptx.err": "", "end": ""}.items())
    return Completed(code=0, stdout=text, stderr="")


def test_every_base_has_the_one_cuobjdump_and_tries_it_first(site: Site) -> None:
    site.engine.answer = answered(0, *KNOWN)
    assert tools_of(site, "nvidia").inspector().version == "12.4.131"
    (request,) = site.engine.builds
    assert request.target == "cuobjdump"
    assert request.tags[0].startswith("ortpacks/cuobjdump:nvidia-")
    assert (request.contexts, request.dockerfile.name) == ({}, "runtime.Dockerfile")
    (tried,) = site.engine.runs
    assert list(tried.files.values()) == [site.shop.root / "builder/binary/known-images.so"]


def test_a_cuobjdump_without_a_pin_is_told(site: Site) -> None:
    lock = site.shop.lock
    key = site.shop.project.check.cuobjdump.key
    site.shop.__dict__["lock"] = Lock({name: pin for name, pin in lock.pins.items() if name != key})
    with pytest.raises(ConfigError, match=r"nvidia-cuda-toolkit_12\.4\.131.*\./run lock"):
        tools_of(site).inspector()


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (answered(0, *KNOWN[1:]), "sm_50: 1 read natively, 0 by cuobjdump"),
        (answered(139), "exit code 139: no output"),
        (answered(0), "an empty answer"),
    ],
)
def test_a_cuobjdump_that_misreads_a_known_file_is_not_relied_on(
    site: Site, answer: Completed, told: str
) -> None:
    site.engine.answer = answer
    with pytest.raises(CommandError) as caught:
        tools_of(site).inspector()
    assert told in caught.value.tail


def test_an_image_that_the_engine_holds_is_not_built_again(site: Site) -> None:
    site.engine.answer = answered(0, *KNOWN)
    tools = tools_of(site)
    tools.inspector()
    (request,) = site.engine.builds
    site.engine.images.update(request.tags)
    tools.inspector()
    assert site.built() == ["cuobjdump"]
    os.utime(site.rootfs.tar("bookworm", ()), ns=(1, 1))
    tools.inspector()
    assert site.built() == ["cuobjdump", "cuobjdump"], "of another root file system"


def test_whoever_comes_second_waits(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site.reporter, "say", Mock(side_effect=EOFError))
    with exclusive(site.dist / ".locks" / "check-tools-assembled", lambda: None), pytest.raises(EOFError):
        tools_of(site).selftest_bench()
    site.reporter.say.assert_called_with("another build makes the tools that check packages: waiting")  # type: ignore[attr-defined]
    assert site.built() == []
