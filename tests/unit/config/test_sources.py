"""Tests of bases' sources: what they are, what replaces their archives, and what is refused."""

from collections.abc import Mapping

import pytest

from builder import errors
from builder.config.fields import Override
from builder.config.inputs import Input, InputKind, Lock, Pin
from builder.config.load import load_project, parse_lock, render_lock
from builder.config.variants import (
    Base,
    Project,
    all_inputs,
    archives,
    base_inputs,
    is_open,
    open_inputs,
    source_problems,
)
from builder.facts.ort.source import Dependency, SourceFacts
from builder.finding import Code
from builder.publish.preflight import check_pins
from tests.support.messages import Told
from tests.support.tables import table
from tests.unit.config.config_cases import changed

GIT = "git: https://github.com/microsoft/onnxruntime@v1.23.2"
RE2 = "pool/main/r/re2/re2_20240702.orig.tar.gz"
CMAKE = "    cmake: cmake==3.31.6\n  assembled:"
NEW = "    cmake: cmake==3.31.6\n    dependencies: {%s}\n  assembled:"
KEY = "git:https://github.com/microsoft/onnxruntime@v1.23.2"


def dependency(name: str, content: str = "") -> Dependency:
    return Dependency(name, content or name, f"https://host.example/{name}.zip", "0" * 40, 7)


FACTS = SourceFacts("1.23.2", (dependency("abseil_cpp"), dependency("json", "nlohmann_json")))

LOCK = Lock({KEY: Pin(revision="1" * 40)}, {KEY: FACTS})


def nvidia(changes: Mapping[str, str]) -> tuple[Project, Base]:
    project = load_project(changed(*changes.items()), "v.yaml")
    return project, project.bases["nvidia"]


@pytest.mark.parametrize(("written", "key"), table("config/sources.txt"))
def test_a_source_is_one_of_three(written: str, key: str) -> None:
    """``@`` in the name of a folder needs a reference, since what follows the last one is a reference."""
    project, base = nvidia({GIT: written})
    assert base.source.item == Input.parse(key)
    is_folder = base.source.item.kind is InputKind.TREE
    assert base.source.item in base_inputs(project, "nvidia", Lock({}))
    assert (base.source.item in all_inputs(project, Lock({}))) is not is_folder


@pytest.mark.parametrize(
    ("written", "kind", "spec", "folder"), [*table("config/overrides.txt"), ("none", "", "", "")]
)
def test_what_replaces_an_archive(written: str, kind: str, spec: str, folder: str) -> None:
    item = Input(InputKind(kind), spec) if kind else None
    base = load_project(changed((f"re2: {RE2}", f're2: "{written}"')), "v.yaml").bases["assembled"]
    replaced = base.dependencies["re2"]
    assert replaced == Override(item, folder)
    named = [one for one in (replaced.wheel, replaced.deb, replaced.tree) if one]
    assert named == ([item] if item else [])


def test_what_is_replaced_is_not_downloaded_and_the_rest_is_an_input_of_the_base() -> None:
    project, base = nvidia({CMAKE: NEW % "json: none"})
    assert [one.name for one in archives(base, LOCK)] == ["abseil_cpp"]
    url = Input(InputKind.URL, "https://host.example/abseil_cpp.zip")
    for inputs in (base_inputs(project, "nvidia", LOCK), all_inputs(project, LOCK)):
        assert url in inputs
        assert Input(InputKind.URL, "https://host.example/json.zip") not in inputs


def test_no_release_has_what_is_of_this_machine() -> None:
    """Its pin stands in inputs.lock, but nobody else has its bytes."""
    for written in ("git: /srv/ort@main", "tarball: /srv/ort.tgz", "tree: /srv/ort"):
        project, base = nvidia({GIT: written})
        key = base.source.item.key
        lock = Lock({key: Pin(sha256="1" * 64, revision="1" * 40)}, {key: FACTS})
        assert key in open_inputs(project, "nvidia", lock)
        assert not is_open(project, base.source.item, lock)
        (finding,) = check_pins([key], "base nvidia")
        assert (finding.code, "nobody else has it" in finding.message) == (Code.R009, True)
    project, base = nvidia({})
    assert base.source.item.key not in open_inputs(project, "nvidia", LOCK)
    assert not is_open(project, base.source.item, LOCK)
    assert is_open(project, base.source.item, Lock(LOCK.pins)), "it was not read"
    assert not is_open(project, Input.wheel("x==1"), Lock({"wheel:x==1": Pin(sha256="1" * 64)}))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("onnxruntime: 1.23.2\n    rootfs", "onnxruntime: 1.24.0\n    rootfs"),
        (CMAKE, NEW % "nlohmann_json: none"),
        (CMAKE, NEW % "abseil_cp: none"),
        (CMAKE, NEW % "onnx: none"),
        (CMAKE, NEW % "abseil_cpp: nvidia-abseil==1.0"),
    ],
    ids=["version", "FetchContent's name", "typo", "not downloaded", "headers"],
)
def test_a_base_that_does_not_fit_its_source_is_told(old: str, new: str, told: Told) -> None:
    project, _ = nvidia({old: new})
    (problem,) = source_problems(project, "nvidia", LOCK)
    told(problem)
    assert list(source_problems(project, "nvidia", Lock({}))) == [], "nothing is known of it"


def test_the_lock_keeps_what_was_read_of_sources() -> None:
    pins = {
        **LOCK.pins,
        "git:git@host:o/n@main": Pin(revision="2" * 40, ref="refs/heads/main"),
        "file:/home/ä b/ort.tgz": Pin(filename="1-ort.tgz", size=1, sha256="3" * 64),
    }
    whole = Lock(pins, LOCK.sources)
    assert parse_lock(render_lock(whole), "inputs.lock") == whole


@pytest.mark.parametrize(("old", "new", "kind"), table("config/lock-sources.txt"))
def test_a_lock_with_something_else_of_a_source_is_refused(old: str, new: str, kind: str) -> None:
    """Defect: an unknown key ended in a traceback."""
    with pytest.raises(getattr(errors, kind), match=r"^inputs\.lock:\d+: "):
        parse_lock(changed((old, new), text=render_lock(LOCK)), "inputs.lock")
