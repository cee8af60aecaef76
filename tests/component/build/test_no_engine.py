"""Tests without a Docker engine: which verbs still work, which fail at once, and an engine that
never answers."""

import json
import signal
import socket
from pathlib import Path

import pytest

from tests.support.factories.project_copy import NO_ENGINE_MESSAGE, Place
from tests.support.messages import Told
from tests.support.schemas import schema
from tests.support.tables import data_text


def test_without_an_engine_nothing_is_fetched_or_made(place: Place) -> None:
    for words in ("build", "build --compiled", "image"):
        assert place.fails(4, *words.split(), "--variant", "legacy") == NO_ENGINE_MESSAGE
    assert place.made() == set()


def test_without_an_engine_several_variants_are_told_one_by_one(place: Place, told: Told) -> None:
    chosen = [word for name in ("legacy", "modern", "latest") for word in ("--variant", name)]
    told(place.fails(4, "build", *chosen, "--force", "--base", "assembled"))
    assert place.made() == set()


@pytest.mark.parametrize("words", ["directml", "legacy --origin source"])
def test_without_an_engine_is_planned(place: Place, told: Told, words: str) -> None:
    done = place.run("plan", "--variant", *words.split())
    told("\n".join(done.stdout.splitlines()[:4]))
    assert (done.returncode, done.stderr, place.made()) == (0, "", set())
    assert "cpu needs no Dockerfile: nothing is compiled" in place.run("render", "--variant", "cpu").stdout
    assert [path.name for path in (place.folder / "dist").iterdir()] == [".locks"]


def test_a_program_reads_what_is_missing(copied: Place) -> None:
    done = copied.run("doctor", "--json")
    said = json.loads(done.stdout)
    schema("doctor").validate(said)
    found = {check["name"]: check["ok"] for check in said["checks"]}
    assert (done.returncode, found["engine"], found["variants.yaml"]) == (1, False, True)


def test_a_program_reads_a_plan(copied: Place) -> None:
    """Standard output is one JSON document, also for two variants; all other lines are on standard error."""
    variants = ("--variant", "legacy", "--variant", "cpu")
    done = copied.run("plan", *variants, "--origin", "source", "--base", "assembled", "--json", "--offline")
    said = json.loads(done.stdout)
    schema("plan").validate(said)
    legacy, cpu = said["plans"]
    assert legacy["compile"]["cpu_seconds"] > 1000
    assert (legacy["compile"]["jobs"], legacy["compile"]["minutes"]) == (None, None)
    together = [room for room in said["together"] if room["variant"] == "legacy"]
    assert sum(room["bytes"] for room in together) == sum(room["bytes"] for room in legacy["room"])
    assert (cpu["compile"], cpu["sm"], cpu["profile"], cpu["cuda"]) == (None, [], None, None)
    assert (legacy["cuda"], legacy["cuda_reason"]) == ("12.9", None)
    assert "legacy   • plan legacy\n" in done.stderr


DOCKER = data_text("programs/docker-without-far.sh")
"""A docker program with lists of contexts and builders, and an engine ``far`` that cannot be reached."""


@pytest.mark.parametrize(
    ("code", "flags"), [(2, "--context fra"), (2, "--builder default,frm"), (4, "--context far,default")]
)
def test_builders_that_are_not_there_are_told_before_anything_is_made(
    copied: Place, tmp_path: Path, told: Told, code: int, flags: str
) -> None:
    (tmp_path / "docker").write_text(DOCKER)
    (tmp_path / "docker").chmod(0o755)
    here = Place(copied.folder)
    here.env["PATH"] = f"{tmp_path}:{here.env['PATH']}"
    told(here.fails(code, "build", "--variant", "legacy", f"--dist={tmp_path / 'dist'}", *flags.split()))
    assert [path.name for path in tmp_path.iterdir()] == ["docker"]


@pytest.mark.parametrize(
    ("verb", "number"), [("plan", signal.SIGINT), ("build", signal.SIGTERM), ("build", signal.SIGHUP)]
)
def test_an_interrupt_is_a_sentence(place: Place, tmp_path: Path, verb: str, number: signal.Signals) -> None:
    """The engine accepts the connection and never answers."""
    address = tmp_path / "e.sock"
    with socket.socket(socket.AF_UNIX) as engine:
        engine.bind(str(address))
        engine.listen()
        place.env["DOCKER_HOST"] = f"unix://{address}"
        process = place.start(verb, "--variant", "legacy")
        with engine.accept()[0]:
            process.send_signal(number)
            _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert said == "interrupted; the same command goes on from here\n"
