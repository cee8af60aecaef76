"""inspect: which GPUs the code in some files runs on, as a table and as JSON; what it says of bad files."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import jsonschema
import pytest

from builder.app.survey import look_inside, require_read, told
from builder.app.workshop import Workshop
from builder.core.coverage import CAPABILITIES
from builder.errors import CheckFailedError, NothingToDoError, ValidationError
from builder.stages.inspect import inspect, table
from tests.binaries import BLACKWELL, PTX, SASS, container, elf, image, sass
from tests.fakes import FakeReporter

MODERN = elf({".nv_fatbin": sass(75, 80, 86) + container(*(image(SASS, arch) for arch in (75, 80, 86)))})
"""Two containers, each with the same three architectures."""
JIT = elf({".nv_fatbin": container(image(SASS, 75), image(PTX, 90, BLACKWELL))})
CUT = MODERN[:200]


@pytest.fixture
def shop(tmp_path: Path, root: Path) -> Workshop:
    return Workshop(root, dist=tmp_path / "dist", reporter=FakeReporter())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Libraries of every sort, a link, and files that are none."""
    made = tmp_path / "lib"
    made.mkdir()
    (made / "libonnxruntime_providers_cuda.so").write_bytes(MODERN)
    (made / "libjit.so.1").write_bytes(JIT)
    (made / "libplain.so.1").write_bytes(elf({".text": b"code"}))
    (made / "libcut.so").write_bytes(CUT)
    (made / "libbad.so").write_bytes(elf({".nv_fatbin": b"no container" * 9}))
    (made / "libempty.so").write_bytes(b"")
    (made / "libtext.so").write_text("INPUT(-lfoo)\n")
    (made / "README").write_text("no library")
    (made / "libjit.so").symlink_to("libjit.so.1")
    return made


def shown_of(shop: Workshop, path: Path, *, as_json: bool = False) -> str:
    return told(look_inside(shop, path), as_json=as_json)


def row(text: str, name: str) -> str:
    return next(line for line in text.splitlines() if line.split()[0] == name)


def marks(text: str, name: str) -> dict[str, str]:
    devices = [str(device) for device in CAPABILITIES]
    return dict(zip(devices, row(text, name).split()[1:], strict=False))


def test_a_row_a_library_and_a_column_a_capability(shop: Workshop, folder: Path) -> None:
    shown = shown_of(shop, folder)
    assert shown.splitlines()[0].split() == ["library", *map(str, CAPABILITIES)]
    found = marks(shown, "libonnxruntime_providers_cuda.so")
    assert {device for device, mark in found.items() if mark == "N"} == {"7.5", "8.0", "8.6", "8.9"}
    assert row(shown, "libonnxruntime_providers_cuda.so").endswith("2 containers")
    assert shown.splitlines()[-1] == "N native   j by JIT   ~ some kernels missing   . not at all"


def test_code_that_the_driver_compiles_is_marked_so(shop: Workshop, folder: Path) -> None:
    found = marks(shown_of(shop, folder / "libjit.so.1"), "libjit.so.1")
    shown = [found[device] for device in ("7.0", "7.5", "8.6", "9.0", "12.0")]
    assert shown == [".", "N", ".", "j", "j"]


def test_what_no_tool_can_read_is_not_called_unsupported(shop: Workshop, tmp_path: Path) -> None:
    """cuFFT keeps its kernels elsewhere: one container for sm_52 is all that can be seen."""
    library = tmp_path / "libcufft.so.11"
    library.write_bytes(elf({".nv_fatbin": sass(52)}))
    shown = shown_of(shop, library)
    assert "not known: its kernels lie where no published tool reads them" in row(shown, "libcufft.so.11")
    (entry,) = json.loads(shown_of(shop, library, as_json=True))["libraries"]
    assert (entry["containers"], entry["sass"], entry["capabilities"]) == (1, ["52"], {})


def test_what_cannot_be_read_says_so_and_hides_nothing_else(shop: Workshop, folder: Path) -> None:
    shown = shown_of(shop, folder)
    assert row(shown, "libempty.so").endswith("cannot be read: the file is empty")
    for name in ("libbad.so", "libcut.so", "libtext.so"):
        assert "  cannot be read: " in row(shown, name)
    assert row(shown, "libplain.so.1").endswith("no device code")


def test_what_cannot_be_read_fails_by_name_and_cause(shop: Workshop, folder: Path) -> None:
    found = look_inside(shop, folder)
    with pytest.raises(CheckFailedError, match=r"^4 of 7 libraries cannot be read\n") as caught:
        require_read(found)
    assert caught.value.exit_code == 6
    names = [finding.split(": ", maxsplit=1)[0] for finding in caught.value.findings]
    assert names == ["libbad.so", "libcut.so", "libempty.so", "libtext.so"]
    assert "libempty.so: the file is empty" in caught.value.findings


def test_libraries_without_device_code_are_no_failure(shop: Workshop, folder: Path) -> None:
    for name in ("libplain.so.1", "libjit.so.1", "libonnxruntime_providers_cuda.so"):
        require_read(look_inside(shop, folder / name))


def test_a_folder_is_its_libraries_each_once(shop: Workshop, folder: Path) -> None:
    listed = json.loads(shown_of(shop, folder, as_json=True))["libraries"]
    assert [entry["name"] for entry in listed] == [
        "libbad.so",
        "libcut.so",
        "libempty.so",
        "libjit.so.1",
        "libonnxruntime_providers_cuda.so",
        "libplain.so.1",
        "libtext.so",
    ]


def test_json_is_as_its_schema_says(shop: Workshop, folder: Path, root: Path) -> None:
    schema = json.loads((root / "docs/schemas/inspect.schema.json").read_text(encoding="utf-8"))
    said = json.loads(shown_of(shop, folder, as_json=True))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(said, schema)
    by_name = {entry["name"]: entry for entry in said["libraries"]}
    provider = by_name["libonnxruntime_providers_cuda.so"]
    assert (provider["containers"], provider["sass"], provider["ptx"]) == (2, ["75", "80", "86"], [])
    assert provider["capabilities"]["8.9"] == "native"
    assert provider["capabilities"]["5.0"] == "none"
    assert by_name["libjit.so.1"]["capabilities"]["12.0"] == "jit"
    assert by_name["libempty.so"]["problem"] == "the file is empty"
    assert by_name["libplain.so.1"]["problem"] is None


@pytest.mark.parametrize("wrong", [{"containers": -1}, {"sass": ["sm_75"]}, {"capabilities": {"8.6": "yes"}}])
def test_the_schema_is_strict(shop: Workshop, folder: Path, root: Path, wrong: dict[str, object]) -> None:
    schema = json.loads((root / "docs/schemas/inspect.schema.json").read_text(encoding="utf-8"))
    said = json.loads(shown_of(shop, folder, as_json=True))
    said["libraries"][0].update(wrong)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(said, schema)


def test_a_wheel_is_looked_into_and_nothing_is_left(shop: Workshop, tmp_path: Path) -> None:
    wheel = tmp_path / "ort-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("capi/libonnxruntime_providers_cuda.so", MODERN)
        archive.writestr("capi/__init__.py", "")
    shown = shown_of(shop, wheel)
    assert marks(shown, "capi/libonnxruntime_providers_cuda.so")["8.0"] == "N"
    assert list(shop.dist.iterdir()) == []


def test_a_wheel_without_libraries_is_named(shop: Workshop, tmp_path: Path) -> None:
    wheel = tmp_path / "pure-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("pure/__init__.py", "")
    with pytest.raises(NothingToDoError) as caught:
        shown_of(shop, wheel)
    assert str(caught.value) == (f"No shared library in {wheel}. Name a .so, a folder, a wheel or a package.")


@pytest.mark.parametrize("damage", ["cut", "flipped", "text"])
def test_a_damaged_wheel_is_told_and_nothing_is_left(shop: Workshop, tmp_path: Path, damage: str) -> None:
    wheel = tmp_path / "ort-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("capi/lib.so", MODERN * 50)
    data = bytearray(wheel.read_bytes())
    if damage == "flipped":
        data[60:90] = bytes(30)
    wheel.write_bytes({"cut": bytes(data[:-40]), "flipped": bytes(data), "text": b"hello"}[damage])
    with pytest.raises(ValidationError, match=r"is no wheel: .*It may be cut short; fetch it again\."):
        shown_of(shop, wheel)
    assert list(shop.dist.iterdir()) == []


@pytest.mark.parametrize("name", ["empty", "lib/README"])
def test_an_empty_folder_and_a_text_file_hold_no_library(
    shop: Workshop, folder: Path, tmp_path: Path, name: str
) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(NothingToDoError) as caught:
        shown_of(shop, tmp_path / name)
    assert caught.value.exit_code == 3
    assert str(caught.value).startswith(f"No shared library in {tmp_path / name}.")


def test_a_path_that_is_nothing_is_told(shop: Workshop, tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match=r"gone\.so is neither a file nor a folder\."):
        shown_of(shop, tmp_path / "gone.so")


def test_every_cut_of_a_library_is_a_result(tmp_path: Path) -> None:
    path = tmp_path / "libcut.so"
    for size in range(0, len(MODERN), 7):
        path.write_bytes(MODERN[:size])
        (found,) = inspect([("libcut.so", path)])
        assert found.problem, size
        assert "cannot be read" in table([found])
