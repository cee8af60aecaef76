"""Tests of manifests and tables of models: they are read back as written; a wrong key is named."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from builder.binary.coverage import ContainerTally, Support
from builder.binary.library import HostNeeds
from builder.config.build_plan import BuildPlan
from builder.contents.package_manifest import (
    BinaryReport,
    Member,
    compare,
    describe,
    installed_members,
    promised,
)
from builder.errors import ConfigError, ParseError, SchemaError, ValidationError
from builder.facts.gpu.architectures import Arch, Capability
from builder.formats.json_values import from_json, json_text
from builder.formats.manifest import (
    MANIFEST_LIMIT,
    Driver,
    Manifest,
    ModelRule,
    PluginEntry,
    WheelEntry,
    loads,
    loads_models,
)
from builder.formats.package_names import Layout, Profile
from tests.support import ROOT
from tests.support.factories.packages import official, plan, report
from tests.support.json_texts import changed
from tests.support.messages import Told
from tests.support.schemas import schema
from tests.support.tables import table

OLD = ROOT / "tests" / "data/formats/manifest-3.json"

PATHS = {
    "lib/libonnxruntime_providers_cuda.so": "built",
    "LICENSE": "built",
    "lib/libcudnn.so.9": "wheel:nvidia-cudnn-cu12==9.10.2.21",
}


WHEEL = WheelEntry("wheel:nvidia-cudnn-cu12==9.10.2.21", "nvidia_cudnn_cu12-9.10.2.21.whl", 7, "cd" * 32)


def members(layout: Layout = Layout.FULL) -> list[Member]:
    return [
        Member(
            path=path,
            file=Path(path),
            source=source,
            licence="LICENSE",
            vendor="ortpacks" if source == "built" else "nvidia",
            member=None if source == "built" else f"nvidia/cudnn/{path}",
            packed=layout is Layout.FULL or source == "built",
            size=len(path),
            sha256="ab" * 32,
        )
        for path, source in PATHS.items()
    ]


def described(
    made: BuildPlan, read: BinaryReport, layout: Layout = Layout.FULL, revision: str | None = None
) -> Manifest:
    return describe(made, layout, members(layout), (WHEEL,), read, revision)


def made() -> Manifest:
    return described(plan(), report(), revision="sha256:" + "0" * 64)


def test_what_is_written_fits_the_schema_and_comes_back() -> None:
    thin = described(plan(), report(), Layout.THIN)
    plugin = PluginEntry("lib/libcudnn.so.9", ("CUDAExecutionProvider",), "1.24.4", 30, "ab" * 32)
    for manifest in (made(), thin, described(official(), report()), replace(made(), plugin=plugin)):
        schema("manifest").validate(json.loads(json_text(manifest)))
        assert loads(json_text(manifest), "x") == manifest


def test_a_manifest_of_format_3_is_read_and_says_what_it_could_not(told: Told) -> None:
    """The code at 07f663b wrote ``manifest-3.json``; the values must be read unchanged."""
    text = OLD.read_text()
    manifest = loads(text, "x")
    assert manifest.name == "ortpacks-legacy-1.21.0-cuda12.9-lean-linux-x64"
    told("\n".join(f"{one.domain}: {len(one.operators)}" for one in manifest.onnxruntime.cannot_run))
    new = changed(changed(json_text(manifest), "onnxruntime/cannot_run", ...), "format", 3)
    assert json.loads(new) == json.loads(text)
    full = text.replace('"profile": "lean"', '"profile": "full"')
    assert loads(full, "x").onnxruntime.cannot_run == ()


@pytest.mark.parametrize("layout", list(Layout))
def test_it_says_what_was_planned_and_what_was_found(layout: Layout, told: Told) -> None:
    """A thin package names the files that its archive leaves to their wheels."""
    whole = described(plan(), report(), layout)
    lacks = {one.domain: one.operators for one in whole.onnxruntime.cannot_run}
    assert "BiasGelu" in lacks["com.microsoft"]
    told(json_text(replace(whole, onnxruntime=replace(whole.onnxruntime, cannot_run=()))))
    absent = sum(len(entry.path) for entry in whole.absent)
    assert whole.unpacked_size + absent == whole.installed_size == sum(map(len, PATHS))


@pytest.mark.parametrize(
    ("changes", "toolkit"),
    [({"base": "nvidia", "profile": Profile.FULL}, "12.9"), ({"base": "assembled"}, "12.4")],
)
def test_the_toolkit_is_the_compilers_that_ran(changes: dict[str, object], toolkit: str) -> None:
    assert described(plan(**changes), report()).toolkit == toolkit
    assert described(official(**changes | {"profile": None}), report()).toolkit == "official"


def test_the_driver_is_that_of_the_code_found() -> None:
    """Sources of floors and last branch: CUDA 12 release notes; NVIDIA's notice of the last
    branch before Turing."""
    (provider,) = report().coverage
    turing = replace(report(), coverage=(replace(provider, sass=(Arch(7, 5),)),))
    assert described(plan(), turing).driver == Driver("525.60.13", None)
    packed_tight = replace(report(), coverage=(replace(provider, zstd=True),))
    assert described(plan(), packed_tight).driver == Driver("550.54.14", "580")


def test_a_manifest_leads_back_to_members_and_to_what_was_promised(tmp_path: Path) -> None:
    files = {path: tmp_path / path for path in PATHS}
    members = {member.path: member for member in installed_members(made(), files)}
    assert members["lib/libcudnn.so.9"].file == tmp_path / "lib/libcudnn.so.9"
    assert {path: member.source for path, member in members.items()} == PATHS
    assert promised(made()) == plan().variant


@pytest.mark.parametrize("change", [change for (change,) in table("formats/manifest-changes.txt")])
def test_a_wrong_manifest_is_told_by_key_and_never_a_traceback(change: str, told: Told) -> None:
    text = json.dumps({**json.loads(json_text(made())), **json.loads(change)})
    with pytest.raises((SchemaError, ValidationError)) as caught:
        loads(text, "a.tar.zst")
    told(caught.value)
    assert not schema("manifest").is_valid(json.loads(text))


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", ParseError),
        ("[" * 100_000, ParseError),
        ('{"format": 2', ParseError),
        ("[]", SchemaError),
        # The client takes a SchemaError for a damaged package, an unknown format for a newer one.
        (json.dumps({**json.loads(json_text(made())), "driver": None}), SchemaError),
        (b" " * (MANIFEST_LIMIT + 1), ValidationError),
    ],
    ids=["empty", "deep", "cut behind a key", "a list", "contradictions", "too large"],
)
def test_what_is_no_manifest_has_its_error(text: str | bytes, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"^x: manifest\.json"):
        loads(text, "x")


def test_of_thousands_of_problems_a_hundred_are_looked_for_and_named() -> None:
    """Defect: each empty list gave a dozen messages, 6 GB of them for an archive of 74 KB."""
    read: list[int] = []

    class Empty(list[object]):
        def __iter__(self) -> Iterator[object]:
            for number in range(1000):
                read.append(number)
                yield []

    with pytest.raises(SchemaError) as caught:
        from_json(Manifest, {**json.loads(json_text(made())), "files": Empty()}, "x")
    assert (len(caught.value.problems), caught.value.problems[-1]) == (101, "x: and more")
    assert len(read) < 20


def test_a_claim_the_binaries_do_not_hold_is_told_line_by_line(told: Told) -> None:
    assert compare(made(), report()) == ()
    seen = replace(
        report(),
        capabilities={**report().capabilities, Capability(5, 0): Support.NONE},
        elf={},
        coverage=(),
        needs=HostNeeds("2.34", "3.4.29"),
    )
    told("\n".join(map(str, compare(made(), seen))))


def test_the_driver_is_one_that_compiles_the_ptx_of_a_promised_gpu() -> None:
    """PTX does not count in a library that runs natively on all promised GPUs."""
    (provider,) = report().coverage
    jit = {device: ContainerTally(0, 54, 0) for device in provider.tally}
    for tally, floor in ((jit, "575.51.03"), (provider.tally, "525.60.13")):
        library = replace(provider, path="lib/libx.so", isa=(8, 8), tally=tally)
        found = described(plan(), replace(report(), coverage=(provider, library)))
        assert found.driver == Driver(floor, "580")


def test_a_floor_that_a_line_leaves_out_is_0() -> None:
    lines = [{"model": "large", "device": "gpu", "vram_mib": 12000}, {"model": "small", "device": "cpu"}]
    models = loads_models(json.dumps({"models": lines}), "app.json")
    assert models == (ModelRule("large", "gpu", vram_mib=12000), ModelRule("small", "cpu"))


@pytest.mark.parametrize("text", [text for (text,) in table("formats/models.txt")])
def test_what_is_no_table_is_told_by_its_place(text: str, told: Told) -> None:
    with pytest.raises(ConfigError) as caught:
        loads_models(text, "app.json")
    told(caught.value)
