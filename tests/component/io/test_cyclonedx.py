"""Tests of SBOMs in CycloneDX: valid, complete, the same bytes for the same package, held to its manifest.

Package URLs are spelled as in the purl specification's examples and type definitions.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from packageurl import PackageURL

from builder.config.build_plan import BuildPlan
from builder.config.fields import Override
from builder.config.inputs import Input, InputKind, Lock, Pin
from builder.config.variants import GitSource, Project
from builder.contents import sbom
from builder.facts.ort.source import Dependency, SourceFacts
from builder.finding import Code
from builder.formats.manifest import Manifest
from builder.formats.package_names import Layout
from builder.io.cyclonedx import bom_problems, render_bom
from tests.support import ROOT
from tests.support.factories.documents import changed, manifest, members, name, wheels, without
from tests.support.factories.packages import lock, official, plan
from tests.support.messages import Told
from tests.support.tables import table

Json = dict[str, object]

COMMIT, ORT = "c" * 40, "pkg:github/microsoft/onnxruntime@v1.21.0"

NO_ADDRESS = {"type": "website", "url": "http://no address"}


def bom(layout: Layout = Layout.FULL, made: BuildPlan | None = None, pins: Lock | None = None) -> sbom.Bom:
    made = made or plan()
    files = [member for member in members(made, layout) if member.path != "sbom.cdx.json"]
    return sbom.describe_bom(made, name(made, layout), files, wheels(files), pins or lock())


def lines(document: Json) -> Iterator[str]:
    """Yield the document's own keys, then each component, its files indented, from plain JSON."""
    yield json.dumps({key: value for key, value in document.items() if key != "components"})
    components = document.get("components", [])
    assert isinstance(components, list)
    for one in components:
        yield from (f"  {line}" for line in lines(one))


@pytest.mark.parametrize(
    ("made", "layout"), [(plan(), Layout.FULL), (official(), Layout.THIN)], ids=["compiled", "repacked"]
)
def test_it_is_valid_and_says_what_is_in_the_package(made: BuildPlan, layout: Layout, told: Told) -> None:
    """The package has 22 files (3 of ORT, 7 of CUDA, 8 of cuDNN, 4 licence texts) and our own two.

    It speaks of no machine and no time.
    """
    rendered = render_bom(bom(layout, made))
    assert bom_problems(rendered) == ()
    assert list(sbom.check_sbom(manifest(made, layout), rendered, ())) == []
    said = list(lines(json.loads(rendered)))
    assert sum('"type": "file"' in line for line in said) == 24
    told("\n".join(said))


def test_the_serial_number_follows_from_the_content_alone() -> None:
    first = bom()
    assert document()["serialNumber"] == f"urn:uuid:{first.serial}"
    other = replace(first.files[0], sha256="0" * 64)
    assert replace(first, files=(other, *first.files[1:])).serial != first.serial


@pytest.mark.parametrize(
    "change",
    [
        lambda bom: bom.update(colour="red"),
        lambda bom: bom["components"][0].pop("name"),
        lambda bom: bom["components"][0].update(externalReferences=[NO_ADDRESS]),
        lambda bom: bom.update(specVersion="1.4"),
    ],
)
def test_what_is_not_strictly_valid_is_told_by_key(told: Told, change: Callable[[Json], object]) -> None:
    document = json.loads(render_bom(bom()))
    change(document)
    problems = bom_problems(json.dumps(document).encode())
    assert problems
    told("\n".join(problems))


DEEP = (b"[" * 100_000, b'{"x":' * 900 + b"0" + b"}" * 900)


@pytest.mark.parametrize("document", [b"", b"{", b"\xff", b"null", b"[]", b'"x"', b'["\\ud800"]', *DEEP])
def test_what_is_no_document_at_all_is_told_and_never_a_traceback(document: bytes) -> None:
    assert bom_problems(document)


CUDNN = "lib/libcudnn.so.9"


def document(layout: Layout = Layout.FULL) -> Json:
    return dict(json.loads(render_bom(bom(layout))))


def on_base(project: Project, base: str) -> BuildPlan:
    """Return a plan with a base of the project, whose versions are those of variants.yaml."""
    made = plan()
    return replace(made, base=base, project=replace(made.project, bases=project.bases))


def findings(whole: Manifest, told: Json) -> list[str]:
    return [f"{one.code.name} {one.path}" for one in sbom.check_sbom(whole, json.dumps(told).encode(), ())]


def test_what_is_compiled_into_onnx_runtime_is_listed_with_its_versions(project: Project, told: Told) -> None:
    rendered = render_bom(bom(made=on_base(project, "assembled")))
    assert not bom_problems(rendered)
    (ort,) = (one for one in json.loads(rendered)["components"] if one["name"] == "onnxruntime")
    linked = [one for one in ort["components"] if one["type"] == "library"]
    told("\n".join(sorted(f"{one['name']} {one['version']}" for one in linked)))
    whole = manifest(layout=Layout.FULL)
    assert not [one for one in findings(whole, json.loads(rendered)) if one.startswith("B014")]


DEPS = (ROOT / "tests/data/formats/deps-1.21.0.txt").read_text()
"""Lines of cmake/deps.txt in Debian's 1.21.0, without those that nothing here needs but googletest."""


def test_of_a_git_tag_the_archives_of_its_own_list_are_compiled_in(project: Project, told: Told) -> None:
    source = project.bases["nvidia"].source.item
    rows = (line.split(";") for line in DEPS.splitlines()[1:] if not line.startswith("googletest"))
    read = SourceFacts("1.23.2", tuple(Dependency(name, name, url, sha1, 1) for name, url, sha1 in rows))
    pins = Lock({source.key: Pin(revision="1" * 40)}, {source.key: read})
    found = bom(made=on_base(project, "nvidia"), pins=pins)
    assert not bom_problems(render_bom(found))
    (ort,) = (one for one in found.components if one.name == "onnxruntime")
    told("\n".join(sorted(f"{one.name} {one.version} {one.supplier} {one.purl}" for one in ort.linked)))
    eigen = PackageURL.from_string(next(one.purl for one in ort.linked if one.name == "eigen"))
    assert (eigen.type, eigen.namespace, eigen.name) == ("generic", "libeigen", "eigen")
    assert str(eigen.qualifiers["download_url"]) in DEPS


@pytest.mark.parametrize(("key", "purl", "supplier"), table("formats/source-purls.txt"))
def test_a_source_that_is_no_release_is_named_as_what_it_is(
    project: Project, key: str, purl: str, supplier: str
) -> None:
    base = replace(project.bases["nvidia"], source=GitSource(Input.parse(key)))
    made = on_base(replace(project, bases={**project.bases, "nvidia": base}), "nvidia")
    pins = Lock({**lock().pins, key: Pin(revision=COMMIT)})
    found, entry = bom(made=made, pins=pins), sbom.source_entry(made, pins)
    (ort,) = (one for one in found.components if one.name == "onnxruntime")
    assert (ort.purl, ort.supplier, entry and entry.purl) == (purl, supplier, purl)
    whole = manifest(made)
    whole = replace(whole, onnxruntime=replace(whole.onnxruntime, source=entry))
    assert list(sbom.check_sbom(whole, render_bom(found), ())) == []


def test_what_stands_in_an_archives_place_is_compiled_in_in_its_place(project: Project, told: Told) -> None:
    items = {
        "json": Input(InputKind.URL, "https://h.example/json-3.tar.gz"),
        "onnx": Input(InputKind.FILE, "/home/ada/onnx 1.tar.gz"),
        "re2": Input(InputKind.TREE, "/home/ada/re2"),
        "cutlass": Input(InputKind.WHEEL, "flashinfer-python==0.5.2"),
    }
    others = {**{name: Override(item) for name, item in items.items()}, "date": Override(None)}
    base = replace(project.bases["nvidia"], dependencies=others)
    made = on_base(replace(project, bases={**project.bases, "nvidia": base}), "nvidia")
    names = ("abseil_cpp", *others)
    read = SourceFacts(
        "1.23.2", tuple(Dependency(one, one, f"https://h.example/{one}-1.zip", "", 1) for one in names)
    )
    found = bom(made=made, pins=Lock({}, {base.source.item.key: read}))
    assert not bom_problems(render_bom(found))
    (ort,) = (one for one in found.components if one.name == "onnxruntime")
    told("\n".join(sorted(f"{one.name} {one.version} {one.supplier} {one.purl}" for one in ort.linked)))


def test_one_that_is_not_valid_is_told_line_by_line_and_read_no_further() -> None:
    found = list(sbom.check_sbom(manifest(), b"{", ["$.a: is wrong", "$.b: too"]))
    assert {one.code for one in found} == {Code.B014}
    assert [one.message for one in found] == ["$.a: is wrong", "$.b: too"]


@pytest.mark.parametrize(
    "change",
    [
        {"sha256": "0" * 64},
        {"source": "wheel:nvidia-cudnn-cu12==9.11.0.98"},
        {"packed": False},
        {"modified": True},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_file_that_the_manifest_tells_otherwise_is_named(change: dict[str, object], told: Told) -> None:
    (finding,) = sbom.check_sbom(changed(manifest(), CUDNN, **change), json.dumps(document()).encode(), ())
    assert (finding.code, finding.path) == (Code.B015, CUDNN)
    told(finding)


def items(parent: Json) -> list[Json]:
    found = parent.get("components", [])
    assert isinstance(found, list)
    return found


def named(parent: Json, name: str) -> Json:
    return next(one for one in items(parent) if one["name"] == name)


MISTAKES: dict[str, Callable[[Json, Json], object]] = {
    "missing": lambda wheel, told: items(wheel).remove(named(wheel, CUDNN)),
    "listed twice": lambda wheel, told: items(told).append(named(wheel, CUDNN)),
    "without a hash": lambda wheel, told: named(wheel, CUDNN).pop("hashes"),
    "a file of the package itself": lambda wheel, told: items(told).append(
        items(wheel).pop(items(wheel).index(named(wheel, CUDNN)))
    ),
}


@pytest.mark.parametrize("change", MISTAKES.values(), ids=MISTAKES)
def test_what_an_sbom_can_get_wrong_is_found(change: Callable[[Json, Json], object]) -> None:
    told = document()
    change(named(told, "nvidia-cudnn-cu12"), told)
    assert findings(manifest(), told) == [f"B015 {CUDNN}"]
    assert findings(without(manifest(), CUDNN), document()) == [f"B015 {CUDNN}"]


def test_the_sbom_of_a_compiled_package_is_not_that_of_a_repacked_one() -> None:
    """The official provider and bridge are from the wheel; the provider is also modified."""
    differing = {finding.split()[1] for finding in findings(manifest(official()), document())}
    ours = {f"lib/libonnxruntime_providers_{name}.so" for name in ("cuda", "shared")}
    assert differing == {"sbom.cdx.json", *ours}


def test_a_purl_is_spelled_as_specified_and_reads_back(told: Told) -> None:
    made = (
        sbom.pypi_purl("nvidia-cublas-cu12==12.9.1.4"),
        sbom.pypi_purl("onnxruntime==1.23.2@macos-arm64"),
        sbom.pypi_purl("Torch_Fork==2.1+cu12.post1"),
        sbom.github_purl("Microsoft/onnxruntime", "v1.21.0"),
        sbom.image_purl("nvidia/cuda:12.9.1-devel-ubuntu22.04"),
        sbom.image_purl("nvidia/cuda@sha256:244fd47e07d1"),
        sbom.debian_purl("pool/non-free/n/x/nvidia-cuda-toolkit_12.4.131~12.4.1-2_amd64.deb"),
        sbom.debian_purl("pool/main/o/onnxruntime/onnxruntime_1.21.0+dfsg.orig.tar.xz"),
        sbom.debian_purl("pool/main/x/odd name.zip"),
        sbom.deb_purl("g++", "4:12.2.0-3", "amd64"),
    )
    archive = sbom.archive_purl("https://host/whatever-1.2.tgz")
    told("\n".join([*made, archive]))
    assert [PackageURL.from_string(purl).to_string() for purl in made] == [*made]
    assert PackageURL.from_string(archive).qualifiers == {"download_url": "https://host/whatever-1.2.tgz"}
