"""Tests of writing ``index.json``, and of refusals when it is read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from builder.errors import ConfigError, ParseError, SchemaError, ValidationError
from builder.formats.index import Index, StoredArchive, build_index, by_support, loads
from builder.formats.json_values import json_text
from builder.formats.manifest import ModelRule
from builder.formats.parts import StoredFile
from tests.support import ROOT
from tests.support.factories.releases import manifest
from tests.support.json_texts import changed
from tests.support.schemas import schema

SHA = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"  # sha256sum of "test"

MODELS = (ModelRule(model="0.6b-gpu", device="gpu", vram_mib=3500), ModelRule(model="0.6b-cpu", device="cpu"))


def index() -> Index:
    parts = (StoredFile("modern.tar.zst.part1", 3, SHA), StoredFile("modern.tar.zst.part2", 1, SHA))
    packages = [
        (manifest("modern"), StoredArchive("modern.tar.zst", 4, SHA, parts)),
        (manifest("legacy"), StoredArchive("legacy.tar.zst", 5, SHA)),
        (manifest("legacy", layout="thin"), StoredArchive("legacy-thin.tar.gz", 5, SHA)),
    ]
    return build_index("gpu-libs-v1.23.2", packages, MODELS)


def as_json() -> dict[str, object]:
    value = json.loads(json_text(index()))
    assert isinstance(value, dict)
    return value


def test_the_index_is_what_its_schema_says() -> None:
    schema("index").validate(as_json())


def test_the_schema_and_the_reader_know_the_same_keys(root: Path) -> None:
    written = json.loads((root / "docs/schemas/index.schema.json").read_text())
    value = as_json()
    assert list(written["properties"]) == list(value)
    assert list(written["$defs"]["package"]["properties"]) == list(value["packages"][0])  # type: ignore[index]
    ort = value["packages"][0]["onnxruntime"]  # type: ignore[index]
    own = written["$defs"]["package"]["properties"]["onnxruntime"]
    assert list(own["properties"]) == own["required"] == list(ort)
    part = value["packages"][2]["parts"][0]  # type: ignore[index]
    assert list(written["$defs"]["part"]["properties"]) == list(part)
    assert list(written["$defs"]["model"]["properties"]) == list(value["models"][0])  # type: ignore[index]


@pytest.mark.parametrize("key", ["size", "unpacked_size", "installed_size"])
def test_a_size_that_no_disk_has_is_refused(key: str) -> None:
    with pytest.raises(SchemaError, match=rf"packages\[0\]\.{key}: a whole number below 2\*\*63 is wanted"):
        loads(changed(json_text(index()), f"packages/0/{key}", 10**400), "x")


def test_a_glibc_of_five_thousand_digits_is_refused() -> None:
    """Python converts no text of more than 4,300 digits to a number."""
    with pytest.raises(ValidationError, match=r"is not a version like 2\.34"):
        loads(changed(json_text(index()), "packages/0/glibc", f"2.{'9' * 5000}"), "x")


def test_it_reads_back_what_it_wrote() -> None:
    assert loads(json_text(index()), "index.json") == index()


def test_an_entry_says_what_the_manifest_and_the_file_say() -> None:
    """Entries are sorted by file name, so that the same release gives the same bytes."""
    thin, entry, cut = index().packages
    assert (entry.file, entry.size, entry.sha256, entry.parts) == ("legacy.tar.zst", 5, SHA, ())
    assert (entry.layout, thin.layout, cut.layout) == ("full", "thin", "full")
    # the sum of the manifest's files by hand: ours of 1200 and 34, NVIDIA's of 5000
    assert (entry.unpacked_size, entry.installed_size) == (6234, 6234)
    assert (thin.unpacked_size, thin.installed_size) == (1234, 6234)
    assert [part.size for part in cut.parts] == [3, 1]
    assert entry.onnxruntime.profile == "full"
    assert (entry.onnxruntime.host, entry.onnxruntime.cannot_run) == ("wheel", ())
    assert entry.driver is not None
    assert entry.driver.floor == "525.60.13"
    assert (entry.provider, entry.glibc) == ("cuda", "2.34")


def test_a_saved_web_page_is_not_an_index() -> None:
    with pytest.raises(ParseError, match=r"https://example\.org/index\.json is not JSON.*web page"):
        loads("<!DOCTYPE html><title>404</title>", "https://example.org/index.json")


def test_all_wrong_keys_are_told_at_once() -> None:
    value = as_json()
    first = value["packages"][0]  # type: ignore[index]
    first["size"] = "big"
    first["colour"] = "red"
    del value["tag"]
    with pytest.raises(SchemaError) as caught:
        loads(json.dumps(value), "x/index.json")
    told = "\n".join(caught.value.problems)
    assert "x/index.json: packages[0].size: a whole number is wanted, found 'big'" in told
    assert "packages[0].colour: unknown key" in told
    assert "tag: missing" in told


@pytest.mark.parametrize("text", ["[]", "3", '"index"', "null", "{}"])
def test_json_of_another_shape_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        loads(text, "index.json")


@pytest.mark.parametrize("found", [5, True, "3", 0])
def test_another_format_asks_for_an_update(found: object) -> None:
    with pytest.raises(ValidationError, match=r"this ortpacks reads 3 and 4\. Update ortpacks"):
        loads(json.dumps({**as_json(), "format": found}), "index.json")


def test_an_index_of_format_3_is_read_and_says_what_it_could_not() -> None:
    """The code at 07f663b wrote ``index-3.json``; the values must be read unchanged."""
    text = (ROOT / "tests" / "data/formats/index-3.json").read_text()
    found = loads(text, "x")
    lean, thin, official = (package.onnxruntime for package in found.packages)
    assert [one.domain for one in lean.cannot_run] == ["", "com.microsoft", "com.ms.internal.nhwc"]
    assert (thin.cannot_run, official.cannot_run) == (lean.cannot_run, ())
    assert {ort.host for ort in (lean, thin, official)} == {None}
    new = json.loads(json_text(found))
    for package in new["packages"]:
        del package["onnxruntime"]["cannot_run"], package["onnxruntime"]["host"]
    assert {**new, "format": 3} == json.loads(text)


@pytest.mark.parametrize("value", [{"packages": 3}, {"packages": [3]}, {"packages": [{"onnxruntime": 3}]}])
def test_an_index_of_format_3_that_is_none_is_told_by_key(value: dict[str, object]) -> None:
    with pytest.raises(SchemaError, match="packages"):
        loads(json.dumps({"format": 3, "tag": "t", "models": [], **value}), "x")


@pytest.mark.parametrize("found", [1, 2])
def test_an_older_release_has_a_client_of_its_own(found: int) -> None:
    own = rf"format {found}; .*Install with the ortpacks\.pyz of the same release"
    with pytest.raises(ValidationError, match=own):
        loads(json.dumps({**as_json(), "format": found}), "index.json")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("file", "../evil.tar.zst"),
        ("file", "/etc/passwd"),
        ("file", ".hidden"),
        ("file", ""),
        ("file", "a\nb"),
        ("file", "legacy.zip"),
        ("sha256", SHA.upper()),
        ("sha256", SHA[:-1]),
        ("size", 0),
        ("unpacked_size", -1),
        ("installed_size", 0),
        ("parts", [{"file": "a/b", "size": 5, "sha256": SHA}]),
        ("parts", [{"file": "a", "size": 0, "sha256": SHA}, {"file": "b", "size": 5, "sha256": SHA}]),
        ("parts", [{"file": "a", "size": 5, "sha256": SHA[1:]}]),
        ("layout", "split"),
        ("capabilities", {"8.6": "maybe"}),
        ("capabilities", {}),
        ("capabilities", {"sm_86": "native"}),
        ("capabilities", {"8.6": "native", "": "none"}),
        ("driver", None),
        ("driver", {"floor": "new", "ceiling": None}),
        ("driver", {"floor": "", "ceiling": None}),
        ("driver", {"floor": "525.60.13", "ceiling": "580-open"}),
        ("driver", {"floor": "525.60.13", "ceiling": ""}),
        ("provider", "rocm"),
        ("glibc", "new"),
        ("glibc", ""),
    ],
)
def test_values_that_cannot_be_are_refused_by_reader_and_schema(key: str, value: object) -> None:
    text = changed(json_text(index()), f"packages/0/{key}", value)
    with pytest.raises(ValidationError, match=rf"packages\[0\]\.{key}"):
        loads(text, "index.json")
    assert not schema("index").is_valid(json.loads(text))


@pytest.mark.parametrize("provider", ["cpu", "directml", "coreml"])
def test_a_package_without_cuda_has_neither_capabilities_nor_a_driver(provider: str) -> None:
    value = as_json()
    value["packages"][0]["provider"] = provider  # type: ignore[index]
    with pytest.raises(ValidationError) as caught:
        loads(json.dumps(value), "index.json")
    assert f"packages[0].capabilities: there can be none with provider {provider}" in str(caught.value)
    assert f"packages[0].driver: there can be none with provider {provider}" in str(caught.value)
    validator = schema("index")
    assert not validator.is_valid(value)
    value["packages"][0].update(capabilities={}, driver=None, glibc=None, generations=[])  # type: ignore[index]
    package = loads(json.dumps(value), "index.json").packages[0]
    assert (package.provider, package.driver, package.glibc) == (provider, None, None)
    validator.validate(value)


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        ("1/file", "legacy-thin.tar.gz", "listed twice"),
        ("2/parts/1/size", 2, r"packages\[2\]\.parts: they join to 5 bytes, .* has 4"),
        ("2/parts/1/file", "legacy.tar.zst", r"parts\[1\]\.file: legacy\.tar\.zst is listed twice"),
        ("0/installed_size", 1233, "installed_size: 1233 bytes, less than"),
    ],
)
def test_values_that_do_not_fit_each_other_are_refused(path: str, value: object, problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        loads(changed(json_text(index()), f"packages/{path}", value), "index.json")


def test_capabilities_by_how_code_runs_on_them() -> None:
    assert by_support(index().packages[2])["native"] == "7.5, 8.0, 8.6"


def test_an_empty_index_is_refused() -> None:
    with pytest.raises(ValidationError, match="the list is empty"):
        loads(json.dumps({**as_json(), "packages": []}), "index.json")
