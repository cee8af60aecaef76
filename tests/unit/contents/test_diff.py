"""Tests of the differences between two manifests; each expectation was written from the planted change."""

import json
from dataclasses import fields, replace

import pytest

from builder.contents.diff import PackageDifference, difference, difference_lines, document
from builder.formats import manifest
from builder.formats.missing_kernels import MissingKernels
from tests.support.factories.documents import changed
from tests.support.factories.records import MODERN, PROVIDER
from tests.support.factories.releases import file_entry
from tests.support.messages import Told
from tests.support.schemas import schema

CUBLAS = "wheel:nvidia-cublas-cu12==12.9.1.4"


def file(path: str, size: int = 10, **changes: object) -> manifest.FileEntry:
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
    MODERN,
    name="ortpacks-modern-1.21.0-cuda12.9-linux-x64",
    sm=("75", "80"),
    onnxruntime=manifest.OrtEntry(
        version="1.21.0", origin="wheel", origin_reason="because", profile=None, host="wheel"
    ),
    driver=manifest.Driver(floor="525.60.13", ceiling=None),
    capabilities={"7.5": "native", "12.0": "none"},
    coverage=(manifest.CoverageEntry(path=PROVIDER, containers=184, sass=("75", "80"), ptx=()),),
    models=(manifest.ModelRule(model="0.6b-cpu", device="cpu"),),
    wheels=(manifest.WheelEntry(source=CUBLAS, file="cublas.whl", size=9, sha256="c" * 64),),
    files=(
        file("LICENSE"),
        CUBLAS_FILE,
        file(PROVIDER, 404_601_392),
        file("licenses/nvidia-cuda.txt", 59_262, licence="licenses/nvidia-cuda.txt"),
    ),
)


LACKING = (MissingKernels("", ("Affine", "Crop")), MissingKernels("com.microsoft", ()))


def triples(found: PackageDifference, group: str) -> list[tuple[str, str | None, str | None]]:
    return [(change.what, change.a, change.b) for change in getattr(found, group)]


def text(found: PackageDifference) -> str:
    schema("inspect-diff", "packages").validate(json.loads(json.dumps(document(found))))
    return "\n".join(difference_lines(found))


THIN = replace(
    changed(OLD, "lib/libcublas.so.12", packed=False),
    layout="thin",
    name="ortpacks-modern-1.21.0-cuda12.9-thin-linux-x64",
)

DIFFERENT = {
    "ONNX Runtime": replace(OLD, onnxruntime=replace(OLD.onnxruntime, version="1.23.2", profile="lean")),
    "cuDNN": replace(OLD, cudnn="9.28.0.42", base=replace(OLD.base, revision="sha256:1")),
    "a wheel": replace(OLD, wheels=(replace(OLD.wheels[0], source="wheel:nvidia-cublas-cu12==12.8.4.1"),)),
    "architectures": replace(OLD, sm=("75",), capabilities={"7.5": "jit", "12.1": "none"}),
    "driver": replace(OLD, driver=manifest.Driver(floor="550.54.14", ceiling="580")),
    "coverage": replace(OLD, coverage=(replace(OLD.coverage[0], sass=("80",), ptx=("90",), containers=2),)),
    "a licence": changed(OLD, PROVIDER, licence="licenses/onnxruntime.txt"),
    "a licence's text": changed(OLD, "licenses/nvidia-cuda.txt", sha256="b" * 64),
    "moved": changed(OLD, "lib/libcublas.so.12", packed=False),
    "models": replace(OLD, models=(replace(OLD.models[0], cores=8),)),
    "what it cannot run": replace(OLD, onnxruntime=replace(OLD.onnxruntime, cannot_run=LACKING)),
    "a domain that it cannot run": replace(OLD, onnxruntime=replace(OLD.onnxruntime, cannot_run=LACKING[:1])),
    "files": replace(
        OLD, files=(file(PROVIDER, 5, sha256="d" * 64), CUBLAS_FILE, OLD.files[3], file("NOTICE", 77))
    ),
    "thin": THIN,
}

GROUPS = ("versions", "architectures", "licences", "moved", "models")


@pytest.mark.parametrize("what", DIFFERENT)
def test_what_changed_and_from_what_to_what(what: str, told: Told) -> None:
    found, back = difference(OLD, DIFFERENT[what], 1000, 500), difference(DIFFERENT[what], OLD)
    assert not found.equal
    told(text(found))
    for group in GROUPS:
        turned = [(name, b, a) for name, a, b in triples(found, group)]
        assert sorted(triples(back, group), key=str) == sorted(turned, key=str)
    assert (back.added, back.removed) == (found.removed, found.added)


def test_the_same_package_has_no_difference(told: Told) -> None:
    for size in (100, None):  # an archive that nobody measured is not told
        found = difference(OLD, OLD, 100, size)
        assert (found.equal, document(found)["equal"]) == (True, True)
        told(text(found))


OTHER = {
    "sm": ("90",),
    "generations": ("Hopper",),
    "onnxruntime": replace(OLD.onnxruntime, host="source"),
    "base": replace(OLD.base, reason="no engine is here"),
    "driver": manifest.Driver(floor="1", ceiling=None),
    "capabilities": {},
    "coverage": (),
    "models": (),
    "wheels": (replace(OLD.wheels[0], sha256="e" * 64),),
    "files": (),
}
"""Another value for each field that is not text."""


@pytest.mark.parametrize(
    "name", [one.name for one in fields(manifest.Manifest) if one.name not in {"format", "name"}]
)
def test_no_field_of_a_manifest_changes_unseen(name: str) -> None:
    new = replace(OLD, **{name: OTHER.get(name, "other")})  # type: ignore[arg-type]
    assert not difference(OLD, new).equal


@pytest.mark.parametrize("name", [one.name for one in fields(manifest.FileEntry) if one.name != "path"])
def test_no_field_of_a_file_changes_unseen(name: str) -> None:
    others: dict[str, object] = {"size": 1, "packed": False, "modified": True, "needed": ("libz.so.1",)}
    assert not difference(OLD, changed(OLD, "lib/libcublas.so.12", **{name: others.get(name, "other")})).equal
