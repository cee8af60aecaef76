"""Tests of the differences between two manifests; each expectation was written from the planted change."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from builder.contents.diff import PackageDifference, difference, difference_lines, document
from builder.formats.manifest import (
    CoverageEntry,
    Driver,
    FileEntry,
    Manifest,
    ModelRule,
    OrtEntry,
    WheelEntry,
)
from builder.formats.missing_kernels import MissingKernels
from tests.support.factories import records
from tests.support.factories.documents import changed
from tests.support.factories.records import MODERN, PROVIDER
from tests.support.factories.releases import file_entry
from tests.support.schemas import schema

CUBLAS = "wheel:nvidia-cublas-cu12==12.9.1.4"


def file(path: str, size: int = 10, **changes: object) -> FileEntry:
    return replace(file_entry(path, size), **{"sha256": "a" * 64, **changes})  # type: ignore[arg-type]


CUBLAS_FILE = file(
    "lib/libcublas.so.12",
    105_140_976,
    source=CUBLAS,
    member="nvidia/cublas/lib/libcublas.so.12",
    licence="licenses/nvidia-cuda.txt",
    vendor="nvidia",
    soname="libcublas.so.12",
    needed=("libcublasLt.so.12", "libc.so.6"),
)

OLD = replace(
    records.manifest(MODERN),
    name="ortpacks-modern-1.21.0-cuda12.9-linux-x64",
    sm=("75", "80"),
    onnxruntime=OrtEntry(
        version="1.21.0", origin="wheel", origin_reason="because", profile=None, host="wheel"
    ),
    driver=Driver(floor="525.60.13", ceiling=None),
    capabilities={"7.5": "native", "12.0": "none"},
    coverage=(CoverageEntry(path=PROVIDER, containers=184, sass=("75", "80"), ptx=()),),
    models=(ModelRule(model="0.6b-cpu", device="cpu"),),
    wheels=(WheelEntry(source=CUBLAS, file="cublas.whl", size=9, sha256="c" * 64),),
    files=(
        file("LICENSE"),
        CUBLAS_FILE,
        file(PROVIDER, 404_601_392),
        file("licenses/nvidia-cuda.txt", 59_262, licence="licenses/nvidia-cuda.txt"),
    ),
)


LACKING = (MissingKernels("", ("Affine", "Crop")), MissingKernels("com.microsoft", ()))


def said(found: PackageDifference) -> dict[str, Any]:
    return dict(json.loads(json.dumps(document(found))))


def triples(found: PackageDifference, group: str) -> list[tuple[str, str | None, str | None]]:
    return [(change.what, change.a, change.b) for change in getattr(found, group)]


def test_the_same_package_has_no_difference(root: Path) -> None:
    found = difference(OLD, OLD, 100, 100)
    assert found.equal
    assert said(found)["equal"] is True
    schema("inspect-diff", "packages").validate(said(found))
    assert list(difference_lines(found)) == [
        f"{OLD.name} → {OLD.name}",
        "no difference: the same files, versions, architectures and licences",
        "bytes",
        "  archive  100 in both",
        "  unpacked  509,801,640 in both",
        "  installed  509,801,640 in both",
    ]


@pytest.mark.parametrize(
    ("new", "group", "wanted"),
    [
        (
            replace(OLD, onnxruntime=replace(OLD.onnxruntime, version="1.23.2", profile="lean")),
            "versions",
            [("onnxruntime.version", "1.21.0", "1.23.2"), ("onnxruntime.profile", None, "lean")],
        ),
        (
            replace(OLD, cudnn="9.28.0.42", base=replace(OLD.base, revision="sha256:1")),
            "versions",
            [("base.revision", None, "sha256:1"), ("cudnn", "9.10.2.21", "9.28.0.42")],
        ),
        (
            replace(OLD, wheels=(replace(OLD.wheels[0], source="wheel:nvidia-cublas-cu12==12.8.4.1"),)),
            "versions",
            [("wheel:nvidia-cublas-cu12", "12.9.1.4", "12.8.4.1")],
        ),
        (
            replace(OLD, sm=("75",), capabilities={"7.5": "jit", "12.1": "none"}),
            "architectures",
            [
                ("sm", "75 80", "75"),
                ("capabilities.7.5", "native", "jit"),
                ("capabilities.12.0", "none", None),
                ("capabilities.12.1", None, "none"),
            ],
        ),
        (
            replace(OLD, driver=Driver(floor="550.54.14", ceiling="580")),
            "architectures",
            [("driver.floor", "525.60.13", "550.54.14"), ("driver.ceiling", None, "580")],
        ),
        (
            replace(OLD, coverage=(replace(OLD.coverage[0], sass=("80",), ptx=("90",), containers=2),)),
            "architectures",
            [
                (f"{PROVIDER} SASS", "75 80", "80"),
                (f"{PROVIDER} PTX", "none", "90"),
                (f"{PROVIDER} containers", "184", "2"),
            ],
        ),
        (
            changed(OLD, PROVIDER, licence="licenses/onnxruntime.txt"),
            "licences",
            [(PROVIDER, "LICENSE", "licenses/onnxruntime.txt")],
        ),
        (
            changed(OLD, "licenses/nvidia-cuda.txt", sha256="b" * 64),
            "licences",
            [("licenses/nvidia-cuda.txt sha256", "a" * 64, "b" * 64)],
        ),
        (
            changed(OLD, "lib/libcublas.so.12", packed=False),
            "moved",
            [("lib/libcublas.so.12", "packed", "fetched")],
        ),
        (
            replace(OLD, models=(replace(OLD.models[0], cores=8),)),
            "models",
            [
                (
                    "models.0",
                    "model 0.6b-cpu, device cpu, vram_mib 0, cores 0, ram_gib 0",
                    "model 0.6b-cpu, device cpu, vram_mib 0, cores 8, ram_gib 0",
                )
            ],
        ),
    ],
)
def test_what_changed_and_from_what_to_what(
    root: Path, new: Manifest, group: str, wanted: list[tuple[str, str | None, str | None]]
) -> None:
    found = difference(OLD, new)
    assert triples(found, group) == wanted
    assert not found.equal
    schema("inspect-diff", "packages").validate(said(found))
    back = [(what, b, a) for what, a, b in wanted]
    assert sorted(triples(difference(new, OLD), group)) == sorted(back)


def test_files_that_came_went_and_changed(root: Path) -> None:
    files = (*(one for one in OLD.files if one.path != "LICENSE"), file("NOTICE", 77))
    other = replace(changed(OLD, PROVIDER, size=5, sha256="d" * 64), files=files)
    new = replace(
        other, files=(file(PROVIDER, 5, sha256="d" * 64), *(f for f in files if f.path != PROVIDER))
    )
    found = difference(OLD, new, 1000, 500)
    assert [(one.path, one.size) for one in found.added] == [("NOTICE", 77)]
    assert [(one.path, one.size) for one in found.removed] == [("LICENSE", 10)]
    (provider,) = found.changed
    assert provider.path == PROVIDER
    assert [(one.what, one.a, one.b) for one in provider.changes] == [
        ("size", "404601392", "5"),
        ("sha256", "a" * 64, "d" * 64),
    ]
    schema("inspect-diff", "packages").validate(said(found))
    assert list(difference_lines(found)) == [
        f"{OLD.name} → {OLD.name}",
        "files",
        "  + NOTICE  77 bytes",
        "  - LICENSE  10 bytes",
        f"  ~ {PROVIDER}  size  404,601,392 → 5, sha256  aaaaaaaaaaaa → dddddddddddd",
        "bytes",
        "  archive  1,000 → 500 (-50.0%)",
        "  unpacked  509,801,640 → 105,200,320 (-79.4%)",
        "  installed  509,801,640 → 105,200,320 (-79.4%)",
    ]


def test_full_and_thin_hold_the_same_files_elsewhere() -> None:
    thin = changed(OLD, "lib/libcublas.so.12", packed=False)
    thin = replace(thin, layout="thin", name="ortpacks-modern-1.21.0-cuda12.9-thin-linux-x64")
    found = difference(OLD, thin, 1000, 300)
    assert (found.added, found.removed, found.changed) == ((), (), ())
    assert triples(found, "versions") == [("layout", "full", "thin")]
    assert list(difference_lines(found))[1:] == [
        "versions",
        "  layout  full → thin",
        "files",
        "  > lib/libcublas.so.12  packed → fetched",
        "bytes",
        "  archive  1,000 → 300 (-70.0%)",
        "  unpacked  509,801,640 → 404,660,664 (-20.6%)",
        "  installed  509,801,640 in both",
    ]


def test_an_archive_that_nobody_measured_is_not_told() -> None:
    assert said(difference(OLD, OLD))["sizes"][0] == {"what": "archive", "a": None, "b": None}
    assert not [line for line in difference_lines(difference(OLD, OLD, 7)) if "archive" in line]


OTHER = {
    "sm": ("90",),
    "generations": ("Hopper",),
    "onnxruntime": replace(OLD.onnxruntime, host="source"),
    "base": replace(OLD.base, reason="no engine is here"),
    "driver": Driver(floor="1", ceiling=None),
    "capabilities": {},
    "coverage": (),
    "models": (),
    "wheels": (replace(OLD.wheels[0], sha256="e" * 64),),
    "files": (),
}
"""Another value for each field that is not text."""


@pytest.mark.parametrize("name", [one.name for one in fields(Manifest) if one.name not in {"format", "name"}])
def test_no_field_of_a_manifest_changes_unseen(name: str) -> None:
    new = replace(OLD, **{name: OTHER.get(name, "other")})  # type: ignore[arg-type]
    assert not difference(OLD, new).equal


@pytest.mark.parametrize("name", [one.name for one in fields(FileEntry) if one.name != "path"])
def test_no_field_of_a_file_changes_unseen(name: str) -> None:
    others: dict[str, object] = {"size": 1, "packed": False, "modified": True, "needed": ("libz.so.1",)}
    assert not difference(OLD, changed(OLD, "lib/libcublas.so.12", **{name: others.get(name, "other")})).equal


@pytest.mark.parametrize("name", [one.name for one in fields(WheelEntry) if one.name not in {"file", "size"}])
def test_no_other_wheel_goes_unseen(name: str) -> None:
    """The wheel's hash stands for its bytes; its size and file name follow from them."""
    wheel = replace(OLD.wheels[0], **{name: "other"})  # type: ignore[arg-type]
    assert not difference(OLD, replace(OLD, wheels=(wheel,))).equal


def test_what_a_package_cannot_run_is_a_line_for_each_domain(root: Path) -> None:
    lean = replace(OLD, onnxruntime=replace(OLD.onnxruntime, cannot_run=LACKING))
    found = difference(lean, OLD)
    assert triples(found, "versions") == [
        ("onnxruntime.cannot_run ai.onnx", "Affine Crop", None),
        ("onnxruntime.cannot_run com.microsoft", "every operator", None),
    ]
    assert "  onnxruntime.cannot_run com.microsoft  every operator → none" in difference_lines(found)
    schema("inspect-diff", "packages").validate(said(found))
    fewer = replace(lean, onnxruntime=replace(lean.onnxruntime, cannot_run=LACKING[:1]))
    assert [what for what, _, _ in triples(difference(lean, fewer), "versions")] == [
        "onnxruntime.cannot_run com.microsoft"
    ]
