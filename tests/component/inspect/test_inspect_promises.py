"""Tests of inspect with packages: the promise of the manifest is compared with the code in the libraries."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from builder.console import Console
from builder.contents.supported_gpus import InspectedSource, Promise
from builder.errors import CheckFailedError, IntegrityError
from builder.facts.gpu.table import CAPABILITIES
from builder.finding import Code
from builder.formats.json_values import json_text
from builder.formats.manifest import CoverageEntry, Manifest
from builder.formats.package_names import Layout
from builder.inspect.answers import InspectOptions, require_sound
from builder.inspect.command import inspect_sources, show
from builder.inspect.reading import document
from builder.io.archive.split import split_archive
from builder.io.wiring import Wiring
from tests.doubles.fileserver import FileServer, serve
from tests.support.factories.archives import files
from tests.support.factories.binaries import elf, sass
from tests.support.factories.documents import manifest
from tests.support.factories.packages import PROVIDER
from tests.support.fakes.ports import FakeReporter
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


def written(folder: Path, contents: Mapping[str, bytes]) -> Path:
    for name, data in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def packed(folder: Path) -> Path:
    """Write a tar of the package ``old`` into ``folder`` and return its path."""
    folder.mkdir()
    path = folder / "old.tar"
    path.write_bytes(files({f"old/{name}": data for name, data in content(package()).items()}))
    return path


@pytest.fixture
def shop(tmp_path: Path, root: Path) -> Wiring:
    return Wiring(root, dist=tmp_path / "dist", reporter=FakeReporter())


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "here"


def looked(shop: Wiring, source: Path) -> InspectedSource:
    (found,) = inspect_sources(shop, [str(source)])
    return found


def promised(shop: Wiring, source: Path) -> Promise:
    (promise,) = looked(shop, source).promises
    return promise


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
    shop.console = Console(env={}, stream=(out := io.StringIO()))
    show(shop, [old, new], InspectOptions(diff=True), None, None)
    assert "\\x1b[2Jgone\\nline" in out.getvalue()
    assert "\x1b" not in out.getvalue()


def test_a_library_that_lost_an_architecture(shop: Wiring, place: Path) -> None:
    lost = elf({".nv_fatbin": sass(75, 86) + sass(86)})
    found = looked(shop, written(place, content(package(), **{PROVIDER: lost, CUBLAS: CUBLAS_BYTES})))
    (whole,) = found.promises[0].findings
    assert (whole.code, whole.path, whole.wanted, whole.got) == (
        Code.B007,
        "manifest.json",
        "native",
        "partial",
    )
    assert "on compute capability 7.5 the package" in whole.message
    with pytest.raises(CheckFailedError, match="promises something else than its package holds") as caught:
        require_sound([found])
    assert caught.value.exit_code == 6


def test_a_promise_that_no_byte_keeps(shop: Wiring, place: Path) -> None:
    more = CoverageEntry(PROVIDER, 3, ("75", "86", "90"), ("90",))
    made = package(coverage=(package().coverage[0], more))
    (finding,) = promised(shop, written(place, content(made))).findings
    assert (finding.code, finding.path) == (Code.B007, PROVIDER)
    assert finding.wanted == "3 containers, SASS [75 86 90], PTX [90]"
    assert finding.got == "2 containers, SASS [75 86], PTX []"


def test_more_than_was_promised_is_a_finding_too(shop: Wiring, place: Path) -> None:
    less = dict.fromkeys(map(str, CAPABILITIES), "none")
    (finding,) = promised(shop, written(place, content(package(capabilities=less)))).findings
    assert (finding.wanted, finding.got) == ("none", "native")
    assert "7.5, 8.6, 8.9" in finding.message


def test_device_code_of_which_the_manifest_says_nothing(shop: Wiring, place: Path) -> None:
    made = package(coverage=package().coverage[1:])
    (finding,) = promised(shop, written(place, content(made))).findings
    assert (finding.path, finding.wanted) == (CUBLAS, "no device code")


def test_of_a_thin_package_only_what_is_here_is_compared(shop: Wiring, place: Path) -> None:
    """Code of the missing cuBLAS can explain a smaller promise but not a larger one."""
    less = {**package().capabilities, "8.9": "jit"}
    made = package(Layout.THIN, capabilities=less)
    promise = promised(shop, written(place, content(made, **{PROVIDER: PROVIDER_BYTES})))
    assert (promise.elsewhere, promise.findings) == (1, ())
    more = package(Layout.THIN, capabilities={**less, "9.0": "native"})
    (finding,) = promised(shop, written(place, content(more, **{PROVIDER: PROVIDER_BYTES}))).findings
    assert (finding.wanted, finding.got) == ("native", "none")
    assert "capability 9.0 " in finding.message


def test_a_thin_package_that_was_completed_is_compared_as_a_whole(shop: Wiring, place: Path) -> None:
    promise = promised(shop, written(place, content(package(Layout.THIN))))
    assert (promise.elsewhere, promise.findings) == (0, ())


def test_a_packed_library_that_is_not_here(shop: Wiring, place: Path) -> None:
    (finding,) = promised(shop, written(place, content(package(), **{PROVIDER: PROVIDER_BYTES}))).findings
    assert (finding.code, finding.path) == (Code.B004, CUBLAS)


def test_a_library_that_cannot_be_read_is_told_once(shop: Wiring, place: Path) -> None:
    found = looked(shop, written(place, content(package(), **{PROVIDER: PROVIDER_BYTES, CUBLAS: b""})))
    assert found.promises[0].findings == ()
    with pytest.raises(CheckFailedError, match="1 of 2 libraries cannot be read\n"):
        require_sound([found])


def test_a_manifest_that_is_older_than_a_gpu_promises_nothing_of_it(shop: Wiring, place: Path) -> None:
    older = {
        device: found for device, found in package().capabilities.items() if device not in {"8.9", "12.1"}
    }
    promise = promised(shop, written(place, content(package(capabilities=older))))
    assert len(promise.capabilities) == len(CAPABILITIES) - 2
    assert promise.findings == ()


def test_a_manifest_of_ours_that_cannot_be_read_hides_nothing_and_fails(shop: Wiring, place: Path) -> None:
    contents = content(package())
    contents["manifest.json"] = contents["manifest.json"][:200]
    found = looked(shop, written(place, contents))
    (finding,) = found.promises[0].findings
    assert "manifest.json is not JSON" in finding.message
    assert len(found.libraries) == 2
    with pytest.raises(CheckFailedError):
        require_sound([found])


@pytest.mark.parametrize(
    "foreign",
    [
        '{"name": "an app", "icons": []}',
        '[{"Config": "a.json", "Layers": []}]',
        "",
        '{"format": 1, "name": "x"}',
    ],
)
def test_a_manifest_of_others_is_no_promise(shop: Wiring, place: Path, foreign: str) -> None:
    found = looked(shop, written(place, {**content(package()), "manifest.json": foreign.encode()}))
    assert found.promises == ()
    said = document([found])["sources"]
    assert isinstance(said, list)
    assert "promises" not in said[0]


def test_each_of_several_packages_has_its_promise(shop: Wiring, place: Path) -> None:
    written(place / "a", content(package()))
    written(place / "b", content(package(), **{PROVIDER: PROVIDER_BYTES}))
    first, second = looked(shop, place).promises
    assert (first.folder, first.findings) == ("a/", ())
    assert [finding.path for finding in second.findings] == [f"b/{CUBLAS}"]


def test_two_packages_are_compared_by_their_manifests_too(shop: Wiring, place: Path) -> None:
    old, new = packed(place), written(place / "new", content(package(cudnn="9.28.0.42")))
    both = inspect_sources(shop, [str(old), str(new)])
    shop.console = Console(env={}, stream=(out := io.StringIO()))
    show(shop, both, InspectOptions(as_json=True, diff=True), None, None)
    said = json.loads(out.getvalue())
    schema("inspect-diff").validate(said)
    assert said["packages"]["versions"] == [{"what": "cudnn", "a": package().cudnn, "b": "9.28.0.42"}]
    assert said["packages"]["sizes"][0] == {"what": "archive", "a": old.stat().st_size, "b": None}
    show(shop, both, InspectOptions(as_json=False, diff=True), None, None)
    assert f"  cudnn  {package().cudnn} → 9.28.0.42" in out.getvalue().splitlines()


def test_a_package_in_parts_is_read_and_compared_as_the_whole(shop: Wiring, place: Path) -> None:
    archive = packed(place)
    size, whole = archive.stat().st_size, looked(shop, archive)
    joins = split_archive(archive, size // 3)[-1]
    found = looked(shop, joins)
    assert (found.libraries, found.promises) == (whole.libraries, whole.promises)
    shop.console = Console(env={}, stream=(out := io.StringIO()))
    show(shop, [found, whole], InspectOptions(as_json=True, diff=True), None, None)  # only the parts are left
    archive_size, *_ = json.loads(out.getvalue())["packages"]["sizes"]
    assert archive_size == {"what": "archive", "a": size, "b": None}
    assert sorted(path.name for path in shop.dist.glob("*")) == []


def test_a_package_in_parts_at_a_url_is_compared_too(shop: Wiring, place: Path) -> None:
    archive = packed(place)
    whole = looked(shop, archive)
    parts = {path.name: path.read_bytes() for path in split_archive(archive, archive.stat().st_size // 3)}
    with serve(FileServer(parts)) as running:
        (found,) = inspect_sources(shop, [f"{running.url}/old.tar.parts.json"])
    shop.console = Console(env={}, stream=(out := io.StringIO()))
    show(shop, [found, whole], InspectOptions(as_json=True, diff=True), None, None)
    assert json.loads(out.getvalue())["packages"]["equal"]


def test_a_damaged_part_is_named(shop: Wiring, place: Path) -> None:
    archive = packed(place)
    *parts, joins = split_archive(archive, archive.stat().st_size // 3)
    data = bytearray(parts[1].read_bytes())
    data[7] ^= 1
    parts[1].write_bytes(data)
    with pytest.raises(IntegrityError, match=f"{parts[1].name} is damaged"):
        looked(shop, joins)
    parts[1].unlink()
    with pytest.raises(IntegrityError, match=f"{parts[1].name} cannot be read"):
        looked(shop, joins)


def test_json_has_the_promise_as_its_schema_says(shop: Wiring, place: Path, root: Path) -> None:
    made = content(package(), **{PROVIDER: PROVIDER_BYTES})
    said: dict[str, Any] = json.loads(json.dumps(document([looked(shop, written(place, made))])))
    schema("inspect").validate(said)
    (promise,) = said["sources"][0]["promises"]
    assert (promise["manifest"], promise["package"]) == ("manifest.json", package().name)
    assert (promise["sm"], promise["elsewhere"]) == (["75", "86"], 0)
    assert (promise["capabilities"]["8.6"], promise["capabilities"]["9.0"]) == ("native", "none")
    assert [(one["code"], one["path"]) for one in promise["findings"]] == [("B004", CUBLAS)]
    promise["findings"][0]["code"] = "no code"
    assert not schema("inspect").is_valid(said)
