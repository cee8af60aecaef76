"""Tests of writing ``index.json``, and of refusals when it is read."""

import json
from dataclasses import replace

import pytest

from builder.errors import ConfigError, SchemaError, ValidationError
from builder.formats.index import Index, build_index, by_support, loads
from builder.formats.json_values import json_text
from builder.formats.manifest import ModelRule, PluginEntry
from builder.formats.stored_file import StoredFile
from tests.support import ROOT
from tests.support.factories.releases import manifest
from tests.support.json_texts import changed
from tests.support.messages import Refused, Told
from tests.support.schemas import schema
from tests.support.tables import table

SHA = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"  # sha256sum of "test"

MODELS = (ModelRule(model="0.6b-gpu", device="gpu", vram_mib=3500), ModelRule(model="0.6b-cpu", device="cpu"))


def index() -> Index:
    packages = [
        (manifest("modern"), StoredFile("modern.tar.zst", 4, SHA)),
        (manifest("legacy"), StoredFile("legacy.tar.zst", 5, SHA)),
        (manifest("legacy", layout="thin"), StoredFile("legacy-thin.tar.gz", 5, SHA)),
    ]
    return build_index("gpu-libs-v1.23.2", packages, MODELS)


def as_json() -> dict[str, object]:
    value = json.loads(json_text(index()))
    assert isinstance(value, dict)
    return value


@pytest.mark.parametrize(
    ("key", "value"), [("size", 10**400), ("glibc", f"2.{'9' * 5000}")], ids=["size", "glibc"]
)
def test_a_number_that_nothing_has_is_refused(key: str, value: object) -> None:
    """Python converts no text of more than 4,300 digits to a number."""
    with pytest.raises(ConfigError, match=rf"packages\[0\]\.{key}: "):
        loads(changed(json_text(index()), f"packages/0/{key}", value), "x")


def test_it_reads_back_what_it_wrote() -> None:
    plugin = PluginEntry("lib/p.so", ("CUDAExecutionProvider",), "1.24.4", 30, None)
    packages = tuple(replace(package, plugin=plugin) for package in index().packages)
    for written in (index(), replace(index(), packages=packages)):
        schema("index").validate(json.loads(json_text(written)))
        assert loads(json_text(written), "index.json") == written


def test_an_entry_says_what_the_manifest_and_the_file_say() -> None:
    """Entries are sorted by file name. Sizes are the sums of the manifest's files: ours of 1200 and 34, and
    NVIDIA's of 5000."""
    thin, entry, other = index().packages
    assert (entry.file, entry.size, entry.sha256, entry.parts) == ("legacy.tar.zst", 5, SHA, ())
    assert (entry.layout, thin.layout, other.layout) == ("full", "thin", "full")
    assert (entry.unpacked_size, entry.installed_size) == (6234, 6234)
    assert (thin.unpacked_size, thin.installed_size) == (1234, 6234)


@pytest.mark.parametrize("text", ["<!DOCTYPE html><title>404</title>", "[]", "{}"])
def test_what_is_no_index_is_refused(text: str, told: Told) -> None:
    with pytest.raises(ConfigError) as caught:
        loads(text, "https://example.org/index.json")
    told(caught.value)


@pytest.mark.parametrize("found", [5, True, "3", 0, 1, 2])
def test_another_format_asks_for_another_client(found: object, refused: Refused) -> None:
    with refused(ValidationError):
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


def test_an_index_of_format_3_that_is_none_is_told_by_key() -> None:
    for packages in (3, [3], [{"onnxruntime": 3}]):
        with pytest.raises(SchemaError, match="packages"):
            loads(json.dumps({"format": 3, "tag": "t", "models": [], "packages": packages}), "x")


@pytest.mark.parametrize(("key", "value"), table("formats/index-values.txt"))
def test_values_that_cannot_be_are_refused_by_reader_and_schema(key: str, value: str) -> None:
    text = changed(json_text(index()), f"packages/0/{key}", json.loads(value))
    with pytest.raises(ValidationError, match=rf"packages\[0\]\.{key}"):
        loads(text, "index.json")
    assert not schema("index").is_valid(json.loads(text))


@pytest.mark.parametrize("provider", ["cpu", "directml", "coreml"])
def test_a_package_without_cuda_has_neither_capabilities_nor_a_driver(provider: str, told: Told) -> None:
    value = json.loads(changed(json_text(index()), "packages/0/provider", provider))
    with pytest.raises(ValidationError) as caught:
        loads(json.dumps(value), "index.json")
    told(caught.value)
    assert not schema("index").is_valid(value)
    value["packages"][0].update(capabilities={}, driver=None, glibc=None, generations=[])
    package = loads(json.dumps(value), "index.json").packages[0]
    assert (package.provider, package.driver, package.glibc) == (provider, None, None)
    schema("index").validate(value)


@pytest.mark.parametrize(("path", "value"), table("formats/index-clashes.txt"))
def test_values_that_do_not_fit_each_other_are_refused(path: str, value: str, refused: Refused) -> None:
    with refused(ValidationError):
        loads(changed(json_text(index()), path, json.loads(value)), "index.json")


def test_capabilities_by_how_code_runs_on_them() -> None:
    assert by_support(index().packages[2])["native"] == "7.5, 8.0, 8.6"
