"""Tests of making a runtime image with stand-ins: its layers' contents, what is pushed, and refusals."""

import hashlib
import json
import os
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from google.protobuf.json_format import ParseDict
from in_toto_attestation.predicates.provenance.v1.provenance_pb2 import Provenance
from in_toto_attestation.v1.statement import Statement
from in_toto_attestation.v1.statement_pb2 import Statement as Message
from packageurl import PackageURL

from builder.build.runtime_image import ImageOptions, RuntimeImage, locked_wheels
from builder.build.variant_build import VariantBuild
from builder.build.verbs.verb_answers import ImagesAnswer, dumps
from builder.compile.plan import PlanOptions
from builder.config.inputs import Lock
from builder.config.variants import Origin
from builder.contents.attestations import Part
from builder.errors import (
    CheckFailedError,
    ConfigError,
    DiskError,
    IntegrityError,
    NothingToDoError,
    ValidationError,
)
from builder.formats.package_names import LINUX
from builder.io.archive.unpacking import manifest_of
from builder.io.docker.engine import ImageBuild
from builder.io.docker.registry import PushedImage
from builder.publish.image import ImageWheel, write_layer
from tests.doubles.plugin import ENTRY
from tests.doubles.wheels import Wheel, indexing
from tests.support import ROOT
from tests.support.factories import repacked
from tests.support.factories.packages import lay_wheel
from tests.support.factories.workplace import Site, variant_build
from tests.support.messages import Told
from tests.support.schemas import schema

PUSH = ImageOptions(push="localhost:5000/ortpacks")

NVIDIAS = ("libcu", "libnv")

PARTS = ("cublas", "cuda-nvrtc", "cuda-runtime", "cudnn", "cufft", "curand")

NVIDIA_LAYERS = [f"nvidia-{part}-cu12" for part in PARTS]

NEWEST, HOST = "onnxruntime==1.32.0", "onnxruntime/capi/libonnxruntime.so.1.32.0"

PACKAGES = "usr/local/lib/python3.11/dist-packages"


@pytest.fixture
def site(site: Site, tmp_path: Path) -> Site:
    """Return the site with the wheels of packages without CUDA."""
    repacked.lay(tmp_path / "cache")
    return site


def road(site: Site, name: str) -> VariantBuild:
    origin = None if name == "cpu" else Origin.SOURCE
    return variant_build(site, name, plan=PlanOptions(base="assembled", origin=origin))


def seen(site: Site) -> tuple[list[ImageBuild], dict[str, list[tarfile.TarInfo]]]:
    """Return a list that fills with later image builds, and a dictionary of each layer's members."""
    builds: list[ImageBuild] = []
    layers: dict[str, list[tarfile.TarInfo]] = {}
    export = site.engine.on_build

    def look(request: ImageBuild, on_line: Callable[[str], None]) -> None:
        export(request, on_line)
        if request.target == "runtime":
            builds.append(request)
            for tar in request.context.iterdir():
                with tarfile.open(tar) as layer:
                    layers[tar.stem] = layer.getmembers()

    site.engine.on_build = look
    return builds, layers


def files(layer: list[tarfile.TarInfo], below: str) -> set[str]:
    return {one.name.removeprefix(f"{below}/") for one in layer if one.isfile()}


def test_layers_are_nvidias_libraries_python_and_the_rest_of_the_package(built: Site) -> None:
    builds, trees = seen(built)
    tags = road(built, "legacy").image(ImageOptions()).tags
    (request,) = builds
    assert set(trees) == {"system", *NVIDIA_LAYERS, "python", "package"}
    assert tags == request.tags == ("ortpacks/legacy:1.21.0",)
    assert (request.platform, request.network) == ("linux/amd64", False)
    nvidia = {name for layer in NVIDIA_LAYERS for name in files(trees[layer], "opt/ortpacks/lib")}
    assert len(nvidia) == 15
    assert all(name.startswith(NVIDIAS) for name in nvidia)
    package = files(trees["package"], "opt/ortpacks")
    assert {"manifest.json", "NOTICE", "sbom.cdx.json", "lib/libonnxruntime.so.1"} < package
    assert not any(name.startswith(tuple(f"lib/{one}" for one in NVIDIAS)) for name in package)
    python = files(trees["python"], PACKAGES)
    assert {"onnxruntime/capi/libonnxruntime_providers_shared.so", "ortpacks_runtime/ortpacks.pyz"} < python
    assert not {name for name in python if name.endswith(("providers_cuda.so", "tensorrt.so", ".so.1.21.0"))}


def test_an_image_needs_a_pin_of_pythons_onnxruntime(built: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A project that compiles all of ONNX Runtime may have none."""
    gpu = "onnxruntime-gpu==1.21.0"
    pins = {key: pin for key, pin in built.shop.lock.pins.items() if key != f"wheel:{gpu}"}
    monkeypatch.setitem(built.shop.__dict__, "lock", Lock(pins=pins))
    (package,) = built.dist.glob("ortpacks-legacy-1.21.0-cuda12.9-linux-x64.tar.zst")
    with pytest.raises(ConfigError, match=rf"no pin of {gpu}.*bundle\.wheels: true"):
        RuntimeImage(built.shop, built.shop.place("legacy"), package, None, built.reporter).make()


def test_the_same_files_are_the_same_layer_and_anybody_may_read_it(tmp_path: Path) -> None:
    made = []
    for number, content in enumerate((b"1.21.0", b"1.23.2", b"1.21.0")):
        module = tmp_path / f"{number}/onnxruntime/version.py"
        module.parent.mkdir(parents=True, mode=0o700)
        module.write_bytes(content)
        module.chmod(0o600)
        os.utime(module, (number, number))
        tar = tmp_path / f"{number}.tar"
        write_layer({f"usr/local/{name}": module for name in ("b.py", "a.py")}, tar)
        made.append(tar.read_bytes())
    assert made[0] == made[2]
    assert made[0] != made[1]
    with tarfile.open(tmp_path / "0.tar") as layer:
        found = [(one.name, one.mode, one.mtime, one.uid, one.uname) for one in layer]
    modes = {"usr": 0o755, "usr/local": 0o755, "usr/local/a.py": 0o644, "usr/local/b.py": 0o644}
    assert found == [(name, mode, 1704067200, 0, "") for name, mode in modes.items()]


def test_an_image_that_does_not_fit_is_refused_before_its_package_is_built(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    near = replace(site.engine.facts(), folder=site.dist)
    monkeypatch.setattr(site.engine, "facts", lambda: near)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=10**8))
    with pytest.raises(DiskError, match=r"^the image of legacy does not fit: about .*image 0\.\d"):
        road(site, "legacy").image(ImageOptions())
    assert (site.engine.builds, [*site.dist.glob("ortpacks-*")]) == ([], [])


@pytest.fixture
def serving(site: Site, monkeypatch: pytest.MonkeyPatch) -> Site:
    """Return the site with two models and one wheel of the service."""
    models, tree = site.dist / "models", site.dist / "routing"
    for file in (models / "model.onnx", models / "model_fp16.onnx", tree / "routing.py"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"")
    wheel = ImageWheel(tree=tree, part=Part(purl="pkg:pypi/routing@1.0", sha256="7" * 64))
    monkeypatch.setattr("builder.build.runtime_image.locked_wheels", lambda *_: (wheel,))
    monkeypatch.setattr("builder.build.runtime_image.make_models", lambda *_: models)
    site.shop.env = {**site.shop.env, "ORTPACKS_CACHE": str(site.dist / "cache")}
    lay_wheel(site.store.folder / NEWEST, "onnxruntime-1.32.0.dist-info", {HOST: b"git-commit-id=fab30a4"})
    return site


@pytest.mark.parametrize(("name", "service"), [("legacy", False), ("cpu", True)])
def test_the_dockerfile_adds_the_layers_in_their_order(
    serving: Site, told: Told, name: str, service: bool
) -> None:
    """The service without CUDA has the newest ONNX Runtime, of which nothing is there twice.

    Docker asks the service itself also where a proxy is set: the CLI gives containers the proxy of its
    config.json, and busybox's wget reads no ``no_proxy``."""
    builds, trees = seen(serving)
    road(serving, name).image(ImageOptions(service=service))
    told((serving.dist / name / "image.Dockerfile").read_text())
    if service:
        assert files(trees["models"], "opt/ortpacks/models") == {"model.onnx"}
        own = {"routing.py", "ortpacks_service/app.py", "ortpacks_service/page.html"}
        assert own < files(trees["python"], PACKAGES)
        assert builds[0].tags == ("ortpacks/cpu:1.32.0-service", "ortpacks/cpu:service")
        assert set(trees) == {"system", "models", "python"}
        images = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
        assert images["cpu"]["image"] == "ortpacks/cpu:${ORTPACKS_TAG:-service}"


def test_an_image_of_a_plugin_has_the_newest_host_and_names_the_plugin(
    built: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The package is that of a provider but for its manifest."""
    (package,) = built.dist.glob("ortpacks-legacy-1.21.0-cuda12.9-linux-x64.tar.zst")
    made = replace(manifest_of(package), plugin=ENTRY)
    monkeypatch.setattr("builder.build.runtime_image.manifest_of", lambda _: made)
    place = built.shop.place("legacy")
    image = RuntimeImage(built.shop, place, package, None, built.reporter).make()
    assert (image.tag, NEWEST in built.store.asked) == ("ortpacks/legacy:1.21.0-plugin", True)
    assert "onnxruntime-gpu==1.21.0" not in built.store.asked
    text = (place.root / "image.Dockerfile").read_text()
    assert "ORTPACKS_EP_LIBRARY=/opt/ortpacks/lib/libonnxruntime_providers_cuda.so" in text
    assert "ORT_DYLIB_PATH" not in text


def test_what_the_services_lock_names_is_fetched_once_and_only_of_its_bytes(
    site: Site, tmp_path: Path
) -> None:
    numpy = Wheel("numpy", "1.0", {"numpy/__init__.py": b""})
    lock = tmp_path / "requirements.lock"
    with indexing([numpy]) as index:
        site.shop.env = {
            **site.shop.env,
            "PIP_INDEX_URL": index.url,
            "PIP_CONFIG_FILE": os.devnull,
            "ORTPACKS_CACHE": str(tmp_path / "own"),
        }
        lock.write_text(f"numpy==1.0 --hash=sha256:{'0' * 64}\n")
        with pytest.raises(IntegrityError, match=r"requirements\.lock: the package index serves other bytes"):
            locked_wheels(site.shop, lock, LINUX, site.reporter)
        sha256 = hashlib.sha256(numpy.content).hexdigest()
        lock.write_text(f"numpy==1.0 --hash=sha256:{sha256}\n")
        index.requests.clear()
        (found,) = locked_wheels(site.shop, lock, LINUX, site.reporter)
        assert (found.tree / "numpy/__init__.py").is_file()
        assert (found.part.purl, found.part.sha256) == ("pkg:pypi/numpy@1.0", sha256)
        assert locked_wheels(site.shop, lock, LINUX, site.reporter) == (found,)
        assert index.fetched == [numpy.file]


def test_what_is_pushed_is_named_by_an_index_of_version_newest_and_each_architecture(built: Site) -> None:
    builds, _ = seen(built)
    built.engine.registry = PushedImage("sha256:d1", built.engine.built, (20, 30))
    made = road(built, "legacy").image(PUSH)
    loaded, pushed = builds
    assert (loaded.push, pushed.tags) == ((), ())
    assert pushed.push == ("localhost:5000/ortpacks:1.21.0-legacy-amd64",)
    ((repository, tags, (entry,)),) = built.engine.published
    assert repository == "localhost:5000/ortpacks"
    own = ["1.21.0-legacy", "latest-legacy"]
    assert [*tags] == [*own, *(f"latest-sm{sm}" for sm in (50, 52, 60, 61, 70))]
    assert (entry.digest, entry.platform) == ("sha256:d1", "linux/amd64")
    assert made.pushed == "localhost:5000/ortpacks@sha256:index"
    assert made.pushed in built.reporter.lines
    document = json.loads(dumps(ImagesAnswer(format=1, images=(made,))))
    schema("images").validate(document)
    (image,) = document["images"]
    assert image == {"variant": "legacy", "tags": ["ortpacks/legacy:1.21.0"], "pushed": made.pushed}


def test_images_for_two_platforms_are_made_of_their_own_packages_and_named_by_one_index(site: Site) -> None:
    builds, _ = seen(site)
    options = replace(PUSH, platforms=("linux-x64", "linux-arm64"))
    tags = road(site, "cpu").image(options).tags
    assert tags == ("ortpacks/cpu:1.21.0", "ortpacks/cpu:1.21.0-arm64")
    pushed = "localhost:5000/ortpacks:1.21.0-cpu"
    assert [(one.platform, *one.tags, *one.push) for one in builds] == [
        ("linux/amd64", "ortpacks/cpu:1.21.0"),
        ("linux/amd64", f"{pushed}-amd64"),
        ("linux/arm64", "ortpacks/cpu:1.21.0-arm64"),
        ("linux/arm64", f"{pushed}-arm64"),
    ]
    assert (site.dist / "ortpacks-cpu-1.21.0-linux-arm64.tar.zst").is_file()
    ((_, names, entries),) = site.engine.published
    assert list(names) == ["1.21.0-cpu", "latest-cpu"]
    assert [entry.platform for entry in entries] == ["linux/amd64", "linux/arm64"]
    sbom = listed(json.loads(json.dumps(entries[1].statements[1])))
    purls = {one["externalRefs"][0]["referenceLocator"] for one in sbom if "externalRefs" in one}
    assert "pkg:deb/debian/libc6@1?arch=arm64" in purls
    assert not any("arch=amd64" in purl for purl in purls)


def test_two_platforms_of_the_service_are_not_pushed_under_one_tag(site: Site) -> None:
    options = replace(PUSH, service=True, platforms=("linux-x64", "linux-arm64"))
    with pytest.raises(ValidationError, match="one platform at a time"):
        road(site, "cpu").image(options)
    assert site.engine.builds == []


@pytest.mark.parametrize(("name", "platform"), [("legacy", "linux-arm64"), ("coreml", "macos-arm64")])
def test_a_platform_that_the_package_is_not_for_is_refused_before_anything_is_done(
    site: Site, name: str, platform: str
) -> None:
    with pytest.raises(NothingToDoError, match=rf"{name} has no runtime image for {platform}: .* are for"):
        road(site, name).image(ImageOptions(platforms=(platform,)))
    assert site.engine.builds == []


def test_an_sbom_and_provenance_of_all_that_an_image_is_made_of_go_along(serving: Site) -> None:
    site = serving
    road(site, "legacy").image(replace(PUSH, service=True))
    ((_, _, (entry,)),) = site.engine.published
    provenance, sbom = (json.loads(json.dumps(one)) for one in entry.statements)
    for one in (provenance, sbom):
        Statement.copy_from_pb(ParseDict(one, Message())).validate()
    ParseDict(provenance["predicate"], Provenance())
    (archive,) = (one for one in site.dist.glob("ortpacks-legacy-*.tar.zst") if "-thin-" not in one.name)
    packages = {
        one["externalRefs"][0]["referenceLocator"]: one for one in listed(sbom) if "externalRefs" in one
    }
    sums = {purl: one["checksums"][0]["checksumValue"] for purl, one in packages.items() if one["checksums"]}
    pins = site.store.pins.pins
    for name in ("silero-vad==6.2.3", "onnxruntime-gpu==1.21.0", "nvidia-cudnn-cu12==9.10.2.21"):
        assert sums[f"pkg:pypi/{name.replace('==', '@')}"] == pins[f"wheel:{name}"].sha256
    assert sums["pkg:deb/debian/libc6@1?arch=amd64"] == "5" * 64
    assert sums["pkg:pypi/routing@1.0"] == "7" * 64
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    assert sums[f"pkg:generic/{archive.name.partition('.tar')[0]}@1.21.0"] == digest
    assert packages["pkg:github/microsoft/onnxruntime@v1.21.0"]["checksums"] == []
    assert {"ortpacks-runtime", "ortpacks-service"} < {PackageURL.from_string(purl).name for purl in packages}
    assert "opt/ortpacks/lib/libcudart.so.12" in {one["name"] for one in listed(sbom)}
    made = provenance["predicate"]["buildDefinition"]
    assert made["externalParameters"]["package"] == archive.name
    told = {one["uri"]: one["digest"].get("sha256") for one in made["resolvedDependencies"]}
    assert {one for one in sums.items() if not one[0].startswith("pkg:docker/")} <= {*told.items()}


def test_the_service_for_the_cpu_is_made_of_the_newest_host_and_of_no_package(serving: Site) -> None:
    road(serving, "cpu").image(replace(PUSH, service=True))
    ((_, tags, (entry,)),) = serving.engine.published
    assert list(tags) == ["1.32.0-cpu-service", "latest-cpu-service"]
    provenance, sbom = (json.loads(json.dumps(one)) for one in entry.statements)
    named = {one["name"] for one in listed(sbom)}
    assert {"onnxruntime", "ortpacks-service", "silero-vad"} < named
    assert not {name for name in named if name.startswith(("ortpacks-cpu", "opt/ortpacks/lib"))}
    assert "package" not in provenance["predicate"]["buildDefinition"]["externalParameters"]


def listed(statement: Any) -> list[Any]:  # noqa: ANN401 - JSON
    return list(statement["predicate"]["packages"])


def test_a_registry_that_has_something_else_is_told(site: Site) -> None:
    site.engine.registry = PushedImage("sha256:d", ("sha256:1", "sha256:9"), (20, 30))
    with pytest.raises(IntegrityError, match=r"1\.21\.0-cpu-amd64 has other layers.*sha256:2.*sha256:9"):
        road(site, "cpu").image(PUSH)


def budget(site: Site, size: int) -> None:
    project = site.shop.project
    site.shop.__dict__["project"] = replace(project, image=replace(project.image, budget=size))


def test_without_cuda_an_image_is_held_to_the_bytes_of_its_files_on_any_engine(site: Site) -> None:
    _, layers = seen(site)
    road(site, "cpu").image(ImageOptions())
    size = sum(file.size for layer in layers.values() for file in layer)
    budget(site, size)
    road(site, "cpu").image(ImageOptions())
    budget(site, size - 1)
    with pytest.raises(
        CheckFailedError, match=rf"linux-x64 has {size:,} bytes; image\.budget .* is {size - 1:,}"
    ):
        road(site, "cpu").image(ImageOptions())


def test_with_cuda_it_is_held_to_what_is_pulled_own_sizes_layer(built: Site) -> None:
    built.engine.built = ("sha256:1",)
    built.engine.registry = PushedImage("sha256:d", ("sha256:1",), (20, *(900,) * 6, 30))
    budget(built, 50)
    road(built, "legacy").image(PUSH)
    budget(built, 49)
    with pytest.raises(CheckFailedError, match="has 50 bytes"):
        road(built, "legacy").image(PUSH)


def test_the_service_for_arm_keeps_its_package_and_that_version(serving: Site) -> None:
    options = ImageOptions(service=True, platforms=("linux-arm64",))
    assert road(serving, "cpu").image(options).tags == ("ortpacks/cpu:1.21.0-service-arm64",)
