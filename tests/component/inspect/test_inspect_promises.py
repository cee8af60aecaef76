"""Tests of inspect with packages: the promise of the manifest is compared with the code in the libraries."""

import io
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from builder.console import Console
from builder.contents.supported_gpus import InspectedSource, Promise
from builder.errors import CheckFailedError
from builder.facts.gpu.table import CAPABILITIES
from builder.formats.json_values import json_text
from builder.formats.manifest import CoverageEntry, Manifest
from builder.formats.package_names import Layout
from builder.inspect.answers import InspectOptions, require_sound
from builder.inspect.command import inspect_sources, show
from builder.inspect.reading import document
from builder.io.wiring import Wiring
from tests.support import written
from tests.support.factories.archives import files
from tests.support.factories.binaries import elf, sass
from tests.support.factories.documents import manifest
from tests.support.factories.packages import PROVIDER
from tests.support.messages import Told
from tests.support.schemas import schema

CUBLAS = "lib/libcublas.so.12"

PROVIDER_BYTES = elf({".nv_fatbin": sass(75, 86) + sass(75, 86)})

CUBLAS_BYTES = elf({".nv_fatbin": sass(75, 86)})

NATIVE = ("7.5", "8.6", "8.9")
"""Capabilities on which sm_75 and sm_86 run: CUDA's binary compatibility within a major version,
without Tegra."""


def package(layout: Layout = Layout.FULL, **changes: object) -> Manifest:
    """Return the manifest of a package of two libraries with code, whose coverage equals that of
    their bytes."""
    whole = manifest(layout=layout)
    made = replace(
        whole,
        sm=("75", "86"),
        files=tuple(entry for entry in whole.files if entry.path in {PROVIDER, CUBLAS, "NOTICE"}),
        coverage=(CoverageEntry(CUBLAS, 1, ("75", "86"), ()), CoverageEntry(PROVIDER, 2, ("75", "86"), ())),
        capabilities={str(one): "native" if str(one) in NATIVE else "none" for one in CAPABILITIES},
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def content(made: Manifest, **libraries: bytes) -> dict[str, bytes]:
    """Return a package's files by path."""
    return {
        "manifest.json": json_text(made).encode(),
        **(libraries or {PROVIDER: PROVIDER_BYTES, CUBLAS: CUBLAS_BYTES}),
    }


def packed(folder: Path) -> Path:
    """Write a tar of the package ``old`` into ``folder`` and return its path."""
    members = {f"old/{name}": data for name, data in content(package()).items()}
    return written(folder, {"old.tar": files(members)}) / "old.tar"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "here"


def looked(shop: Wiring, source: Path) -> InspectedSource:
    (found,) = inspect_sources(shop, [str(source)])
    return found


def promised(shop: Wiring, source: Path) -> Promise:
    (promise,) = looked(shop, source).promises
    return promise


def compared(shop: Wiring, sources: Sequence[InspectedSource], *, as_json: bool = True) -> str:
    """Return what ``inspect --diff`` writes to stdout."""
    shop.console = Console(env={}, stream=(out := io.StringIO()))
    show(shop, sources, InspectOptions(as_json=as_json, diff=True), None, None)
    return out.getvalue()


def test_an_unpacked_package_that_holds_what_it_promises(shop: Wiring, place: Path) -> None:
    found = looked(shop, written(place, content(package())))
    (promise,) = found.promises
    assert (promise.package, promise.sm) == (package().name, ("75", "86"))
    native = [str(device) for device, support in promise.capabilities.items() if support.value == "native"]
    assert native == list(NATIVE)
    assert (promise.elsewhere, promise.findings) == (0, ())
    assert [item.name for item in found.libraries] == [CUBLAS, PROVIDER]
    require_sound([found])


@pytest.mark.parametrize("top", ["here", "another-name"])
def test_an_archive_is_as_the_folder_it_unpacks_to(shop: Wiring, tmp_path: Path, top: str) -> None:
    packed = {f"{top}/{name}": data for name, data in content(package()).items()}
    (tmp_path / "here.tar").write_bytes(files(packed))
    promise = promised(shop, tmp_path / "here.tar")
    assert promise.folder == ("" if top == "here" else "another-name/")
    assert promise.findings == ()
    assert list(shop.dist.iterdir()) == []


def test_a_manifest_larger_than_any_is_a_finding(shop: Wiring, place: Path) -> None:
    """Defect: one of 200 MB, less than one packed, took 5 GB of memory."""
    written(place, content(package()))
    with (place / "manifest.json").open("r+b") as file:
        file.truncate(1 << 25)
    (finding,) = promised(shop, place).findings
    assert finding.message.endswith("manifest.json has more than the 16,777,216 bytes that are read.")


def test_a_manifest_of_anybody_s_moves_no_cursor(shop: Wiring, tmp_path: Path) -> None:
    """Defect: texts of manifests reached the terminal as they were, escape sequences too."""
    base = replace(package().base, reason="\x1b[2Jgone\nline")
    old, new = (
        looked(shop, written(tmp_path / name, content(made)))
        for name, made in (("old", package()), ("new", package(base=base)))
    )
    text = compared(shop, [old, new], as_json=False)
    assert "\\x1b[2Jgone\\nline" in text
    assert "\x1b" not in text


LOST = {PROVIDER: elf({".nv_fatbin": sass(75, 86) + sass(86)}), CUBLAS: CUBLAS_BYTES}

ALONE = {PROVIDER: PROVIDER_BYTES}

MORE = CoverageEntry(PROVIDER, 3, ("75", "86", "90"), ("90",))

LESS = {**package().capabilities, "8.9": "jit"}

BROKEN = {
    "a library that lost an architecture": content(package(), **LOST),
    "a promise that no byte keeps": content(package(coverage=(package().coverage[0], MORE))),
    "more than was promised": content(package(capabilities=dict.fromkeys(map(str, CAPABILITIES), "none"))),
    "device code that it does not name": content(package(coverage=package().coverage[1:])),
    "a packed library that is not here": content(package(), **ALONE),
    "a thin package that promises more": content(
        package(Layout.THIN, capabilities={**LESS, "9.0": "native"}), **ALONE
    ),
    "a manifest that is cut": {
        **content(package()),
        "manifest.json": content(package())["manifest.json"][:200],
    },
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_promise_that_is_not_kept_fails(shop: Wiring, place: Path, broken: str, told: Told) -> None:
    found = looked(shop, written(place, BROKEN[broken]))
    (finding,) = found.promises[0].findings
    told(finding)
    assert len(found.libraries) == len(BROKEN[broken]) - 1
    with pytest.raises(CheckFailedError, match="promises something else than its package holds") as caught:
        require_sound([found])
    assert caught.value.exit_code == 6


def test_of_a_thin_package_only_what_is_here_is_compared(shop: Wiring, place: Path) -> None:
    """Code of the missing cuBLAS can explain a smaller promise but not a larger one."""
    promise = promised(shop, written(place, content(package(Layout.THIN, capabilities=LESS), **ALONE)))
    assert (promise.elsewhere, promise.findings) == (1, ())


@pytest.mark.parametrize("foreign", ['{"name": "an app"}', "[]", "", '{"format": 1, "name": "x"}'])
def test_a_manifest_of_others_is_no_promise(shop: Wiring, place: Path, foreign: str) -> None:
    found = looked(shop, written(place, {**content(package()), "manifest.json": foreign.encode()}))
    assert found.promises == ()
    assert "promises" not in json.dumps(document([found]))


def test_each_of_several_packages_has_its_promise(shop: Wiring, place: Path) -> None:
    written(place / "a", content(package()))
    written(place / "b", content(package(), **{PROVIDER: PROVIDER_BYTES}))
    first, second = looked(shop, place).promises
    assert (first.folder, first.findings) == ("a/", ())
    assert [finding.path for finding in second.findings] == [f"b/{CUBLAS}"]


def test_two_packages_are_compared_by_their_manifests_too(shop: Wiring, place: Path) -> None:
    old, new = packed(place), written(place / "new", content(package(cudnn="9.28.0.42")))
    both = inspect_sources(shop, [str(old), str(new)])
    said = json.loads(compared(shop, both))
    schema("inspect-diff").validate(said)
    assert said["packages"]["versions"] == [{"what": "cudnn", "a": package().cudnn, "b": "9.28.0.42"}]
    assert said["packages"]["sizes"][0] == {"what": "archive", "a": old.stat().st_size, "b": None}
    assert f"  cudnn  {package().cudnn} → 9.28.0.42\n" in compared(shop, both, as_json=False)


def test_json_has_the_promise_as_its_schema_says(shop: Wiring, place: Path, told: Told) -> None:
    found = looked(shop, written(place, content(package(), **ALONE)))
    said: dict[str, Any] = json.loads(json.dumps(document([found])))
    schema("inspect").validate(said)
    (promise,) = said["sources"][0]["promises"]
    told(json.dumps(promise, indent=1))
    promise["findings"][0]["code"] = "no code"
    assert not schema("inspect").is_valid(said)
