"""Tests of provenance against in-toto's Statement v1, SLSA's provenance v1, and its package.

Field names are spelled as in the specifications: in-toto/attestation, spec/v1/statement.md and
resource_descriptor.md; slsa.dev/spec/v1.1/provenance.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import Parse, ParseDict
from in_toto_attestation.predicates.provenance.v1.provenance_pb2 import Provenance
from in_toto_attestation.v1.statement import Statement as TheirStatement
from in_toto_attestation.v1.statement_pb2 import Statement as TheirMessage
from packageurl import PackageURL

from builder.config.build_plan import BuildPlan, Rendered
from builder.config.inputs import DebianPackage, Input, InputKind, Lock, Pin
from builder.config.variants import ImageSystem, Variant, base_inputs
from builder.contents.provenance import (
    PackageRun,
    Revision,
    base_parts,
    base_revision,
    check_provenance,
    provenance_json,
    used_inputs,
)
from builder.facts.gpu.architectures import Arch
from builder.files.digest import Digest
from builder.formats.json_values import json_text
from builder.formats.manifest import BaseEntry
from builder.formats.package_names import Profile
from tests.support.factories.documents import manifest
from tests.support.factories.packages import official, plan
from tests.support.json_texts import changed
from tests.support.messages import Told

ARCHIVE = "ortpacks-legacy-1.21.0-cuda12.9-lean-linux-x64.tar.zst"

SUBJECTS = {ARCHIVE: "1" * 64}

COMMIT = "7fd1a60b01f91b314f59955a4e4d4e80d8edf11d"

PTXAS = Input.wheel("nvidia-cuda-nvcc-cu12==12.9.86")

NVCC = Input(
    InputKind.DEBIAN, "pool/non-free/n/nvidia-cuda-toolkit/nvidia-cuda-toolkit_12.4.131~12.4.1-2_amd64.deb"
)

SOURCE = Input(InputKind.DEBIAN, "pool/main/o/onnxruntime/onnxruntime_1.21.0+dfsg.orig.tar.xz")

IMAGE = Input(InputKind.IMAGE, "nvidia/cuda:12.9.1-devel-ubuntu22.04")

DEPENDENCY = Input(InputKind.URL, "https://github.com/abseil/abseil-cpp/archive/v1.zip")

GIT = Input(InputKind.GIT, "https://github.com/microsoft/onnxruntime@v1.21.0")

Json = dict[str, Any]


def rendered() -> Rendered:
    return Rendered(
        dockerfile="",
        runtime_dockerfile="",
        contexts={"ptxas": PTXAS},
        debs=(NVCC,),
        sources=(SOURCE,),
        network=False,
        toolchain_key="0" * 8,
    )


def pin(item: Input) -> Pin:
    if item.kind is InputKind.GIT:
        return Pin(revision="ab" * 20)
    if item.kind is InputKind.IMAGE:
        return Pin(revision="sha256:" + "cd" * 32)
    return Pin(filename=item.spec.rpartition("/")[2], size=9, sha256=f"{len(item.spec):064x}")


def run(**changes: object) -> PackageRun:
    made = PackageRun(
        command="./run build --variant legacy --base assembled",
        started=1763744700.9,
        finished=1763748300,
        revision=Revision(COMMIT, dirty=False),
        config_sha256="e" * 64,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def used(decided: BuildPlan) -> dict[Input, Pin]:
    sources = (SOURCE,) if decided.base == "assembled" else (GIT, DEPENDENCY)
    return {item: pin(item) for item in used_inputs(decided, replace(rendered(), sources=sources))}


def made(decided: BuildPlan | None = None, more: Mapping[str, str] | None = None, **changes: object) -> Json:
    chosen = decided or plan()
    subjects = {**SUBJECTS, **(more or {})}
    text = provenance_json(chosen, manifest(chosen), used(chosen), subjects, run(**changes))
    return dict(json.loads(text))


def at(statement: Json, path: str) -> Any:  # noqa: ANN401 - JSON
    value: Any = statement
    for key in path.split("."):
        value = value[key]
    return value


def dependencies(statement: Json) -> dict[str, Json]:
    found = at(statement, "predicate.buildDefinition.resolvedDependencies")
    assert len({one["uri"] for one in found}) == len(found)
    return {one["uri"]: one for one in found}


def test_it_has_the_fields_of_both_specifications_and_no_others(told: Told) -> None:
    statement = made()
    definition = statement["predicate"]["buildDefinition"]
    descriptor = {"name", "uri", "digest", "content", "downloadLocation", "mediaType", "annotations"}
    assert all(one.keys() <= descriptor for one in definition.pop("resolvedDependencies"))
    told(json_text(statement))


def test_in_totos_own_library_reads_it() -> None:
    """The official protobuf classes of both reject unknown and mistyped fields."""
    for told in (made(), made(official()), made(plan(base="nvidia"))):
        statement = Parse(json.dumps(told), TheirMessage())
        TheirStatement.copy_from_pb(statement).validate()
        predicate = ParseDict(told["predicate"], Provenance())
        assert predicate.run_details.metadata.started_on.ToSeconds() == 1763744700


def test_the_pages_it_points_to_are_there(root: Path) -> None:
    page = (root / "docs/provenance.md").read_text()
    for path in ("predicate.buildDefinition.buildType", "predicate.runDetails.builder.id"):
        _, _, anchor = str(at(made(), path)).partition("/docs/provenance.md#")
        titles = re.findall(r"^#+ (.+)$", page, flags=re.MULTILINE)
        assert anchor in [title.lower().replace(" ", "-") for title in titles]


INTERNAL = "predicate.buildDefinition.internalParameters"


def test_what_widening_added_stands_there() -> None:
    assert at(made(plan(added=(Arch(10, 3), Arch(12, 1)))), INTERNAL)["added"] == "103 121"
    assert "added" not in at(made(), INTERNAL)


def test_the_second_assembler_is_named_where_it_made_any_code() -> None:
    blackwell = Variant(name="latest", sm=(Arch(9, 0), Arch(12, 0)), generations=("Hopper", "Blackwell"))
    assert at(made(plan(variant=blackwell)), INTERNAL)["ptxas"] == "12.9.86"
    for decided in (
        plan(),
        plan(variant=blackwell, base="nvidia", profile=Profile.FULL),
        official(variant=blackwell),
    ):
        assert "ptxas" not in at(made(decided), INTERNAL)


def test_objects_that_may_be_anybodys_are_told() -> None:
    assert at(made(shared_objects=True), INTERNAL)["compileCache"] == "shared"


def test_every_input_stands_there_by_its_public_name_and_digest() -> None:
    """Counted by hand: seven wheels of files, ptxas, nvcc, ORT's source, and the builder itself."""
    found = dependencies(made())
    assert len(found) == 7 + 3 + 1
    cublas = found["pkg:pypi/nvidia-cublas-cu12@12.9.1.4"]
    assert cublas["digest"] == {"sha256": f"{len('nvidia-cublas-cu12==12.9.1.4'):064x}"}
    nvcc = found["pkg:deb/debian/nvidia-cuda-toolkit@12.4.131~12.4.1-2?arch=amd64"]
    assert nvcc["name"] == NVCC.spec
    assert found["pkg:deb/debian/onnxruntime@1.21.0%2Bdfsg?arch=source"]["name"] == SOURCE.spec
    purls = [PackageURL.from_string(uri) for uri in found if uri.startswith("pkg:")]
    assert len(purls) == 10
    assert found["git+https://github.com/ortpacks/ortpacks"]["digest"] == {"gitCommit": COMMIT}


def test_on_nvidias_image_the_image_and_the_tag_are_there_with_what_they_stand_for() -> None:
    found = dependencies(made(plan(base="nvidia")))
    assert found["pkg:docker/nvidia/cuda@12.9.1-devel-ubuntu22.04"]["digest"] == {"sha256": "cd" * 32}
    tag = found["git+https://github.com/microsoft/onnxruntime@refs/tags/v1.21.0"]
    assert tag["digest"] == {"gitCommit": "ab" * 20}
    assert "sha256" in str(found[DEPENDENCY.spec]["digest"]), "what its own build would download"


def test_the_revision_of_a_base_on_an_image_counts_image_commit_lists_and_archives() -> None:
    """By hand, after docs/provenance.md: a sorted line of digest and address for each part."""
    decided = plan(base="nvidia")
    base = decided.project.bases["nvidia"]
    listed = Input(InputKind.URL, "https://snapshot.ubuntu.com/ubuntu/20251101T000000Z/dists/jammy/InRelease")
    assert isinstance(base.system, ImageSystem)
    snapshot = replace(base, system=replace(base.system, snapshot=(listed,)))
    project = replace(decided.project, bases={"nvidia": snapshot})
    files = {DEPENDENCY.key: pin(DEPENDENCY), listed.key: pin(listed), "wheel:cmake==3.31.6": pin(PTXAS)}
    pins = {**files, IMAGE.key: pin(IMAGE), GIT.key: replace(pin(GIT), files=(DEPENDENCY.spec,))}
    parts = base_parts(replace(decided, project=project), Lock(pins=pins), ())
    lines = [
        f"{'cd' * 32}  pkg:docker/nvidia/cuda@12.9.1-devel-ubuntu22.04\n",
        f"{'ab' * 20}  git+https://github.com/microsoft/onnxruntime@refs/tags/v1.21.0\n",
        f"{pin(DEPENDENCY).sha256}  {DEPENDENCY.spec}\n",
        f"{pin(listed).sha256}  {listed.spec}\n",
        f"{pin(PTXAS).sha256}  pkg:pypi/cmake@3.31.6\n",
    ]
    by_hand = hashlib.sha256("".join(sorted(lines)).encode()).hexdigest()
    digests = [(part.uri, digest) for part in parts for digest in part.digest.values()]
    assert base_revision(digests) == f"sha256:{by_hand}"


def test_what_nobody_could_resolve_has_no_digest() -> None:
    decided = plan(base="nvidia")
    pins = {**used(decided), IMAGE: Pin(), GIT: Pin()}
    found = dependencies(json.loads(provenance_json(decided, manifest(decided), pins, SUBJECTS, run())))
    assert "digest" not in found["pkg:docker/nvidia/cuda@12.9.1-devel-ubuntu22.04"]
    assert "digest" not in found["git+https://github.com/microsoft/onnxruntime@refs/tags/v1.21.0"]


def test_a_repacked_package_follows_from_the_wheels_of_its_files_alone(told: Told) -> None:
    told("\n".join(item.key for item in used_inputs(official(), rendered())))


SYSTEM = (
    DebianPackage("pool/main/g/gcc-defaults/gcc_12.2.0-3_amd64.deb", "gcc", "4:12.2.0-3", "amd64", "7" * 64),
    DebianPackage("pool/main/a/adduser/adduser_3.134_all.deb", "adduser", "3.134", "all", "8" * 64),
)


def assembled(system: tuple[DebianPackage, ...] = SYSTEM) -> Json:
    decided = plan()
    inputs = base_inputs(decided.project, "assembled", Lock(pins={}))
    parts = base_parts(decided, Lock(pins={item.key: pin(item) for item in inputs}), system)
    text = provenance_json(decided, manifest(decided), used(decided), SUBJECTS, run(), parts)
    return dict(json.loads(text))


def revision_by_hand(statement: Json) -> str:
    """Compute the revision after docs/provenance.md: a line ``SHA256  URI`` for each part, sorted
    bytewise."""
    parts = [one for one in dependencies(statement).values() if one.get("annotations") == {"base": True}]
    lines = [f"{at(one, 'digest.sha256')}  {one['uri']}" for one in parts]
    return hashlib.sha256("".join(f"{line}\n" for line in sorted(lines)).encode()).hexdigest()


def test_an_assembled_base_is_listed_part_by_part() -> None:
    found = dependencies(assembled())
    assert found["pkg:deb/debian/gcc@4:12.2.0-3?arch=amd64"] == {
        "name": "pool/main/g/gcc-defaults/gcc_12.2.0-3_amd64.deb",
        "uri": "pkg:deb/debian/gcc@4:12.2.0-3?arch=amd64",
        "digest": {"sha256": "7" * 64},
        "annotations": {"base": True},
    }
    parts = {uri for uri, one in found.items() if one.get("annotations") == {"base": True}}
    named = {item.spec for item in base_inputs(plan().project, "assembled", Lock(pins={}))}
    assert {SOURCE.spec, PTXAS.spec} <= named
    assert len(parts) == len(named) + len(SYSTEM)
    assert "pkg:pypi/nvidia-cublas-cu12@12.9.1.4" in found.keys() - parts, "it goes into the package"


def test_the_revision_of_an_assembled_base_follows_from_the_list_and_from_nothing_else(told: Told) -> None:
    revision = "sha256:" + revision_by_hand(assembled())
    assert problems(assembled(), revision=revision) == []
    assert problems(assembled(SYSTEM[::-1]), revision=revision) == []
    for other in (SYSTEM[:1], (SYSTEM[0], replace(SYSTEM[1], sha256="9" * 64))):
        (problem,) = problems(assembled(other), revision=revision)
        told(problem)
    assert problems(made()) == [], "a package of before has no revision and no list"
    assert len(problems(made(), revision=revision)) == 1


@pytest.mark.parametrize(
    ("revision", "digest", "annotations"),
    [
        (None, None, None),
        (Revision(COMMIT, dirty=False), {"gitCommit": COMMIT}, None),
        (Revision(COMMIT, dirty=True), {"gitCommit": COMMIT}, {"dirty": True}),
    ],
)
def test_the_builders_own_commit_and_whether_it_was_changed(
    revision: Revision | None, digest: Json | None, annotations: Json | None
) -> None:
    found = dependencies(made(revision=revision)).get("git+https://github.com/ortpacks/ortpacks", {})
    assert (found.get("digest"), found.get("annotations")) == (digest, annotations)


def test_the_same_values_give_the_same_text_whatever_the_order_of_the_pins() -> None:
    pins = list(used(plan()).items())
    texts = {
        provenance_json(plan(), manifest(), dict(order), SUBJECTS, run()) for order in (pins, reversed(pins))
    }
    assert len(texts) == 1


WHOLE = Digest(9, "1" * 64)


def problems(
    document: object, name: str = ARCHIVE, digest: Digest = WHOLE, revision: str | None = None
) -> list[str]:
    data = document if isinstance(document, bytes) else json.dumps(document).encode()
    found = list(check_provenance(name, digest, data, BaseEntry("assembled", "asked for", revision)))
    assert {one.code.name for one in found} <= {"B016"}
    assert {one.path for one in found} <= {f"{ARCHIVE}.provenance.json"}
    return [one.message for one in found]


def test_the_provenance_of_these_bytes_is_fine() -> None:
    assert problems(made()) == []


def test_that_of_other_bytes_or_of_another_package_is_found(told: Told) -> None:
    other = changed(json.dumps(made()), "subject/0/name", "x.tar.zst").encode()
    for found in (problems(made(), digest=Digest(9, "2" * 64)), problems(other)):
        told("\n".join(found))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("_type", "https://in-toto.io/Statement/v0.1"),
        ("predicateType", "https://slsa.dev/provenance/v0.2"),
        ("subject", []),
        ("subject", {}),
        ("subject", [None]),
        ("subject", [{"name": ARCHIVE}]),
        ("subject", [{"name": ARCHIVE, "digest": {"sha1": "1" * 40}}]),
        ("predicate", None),
        ("predicate.buildDefinition", []),
        ("predicate.buildDefinition.buildType", ""),
        ("predicate.buildDefinition.externalParameters", "legacy"),
        ("predicate.buildDefinition.resolvedDependencies", []),
        ("predicate.runDetails.builder", {}),
        ("predicate.runDetails.metadata.startedOn", 1763744700),
    ],
)
def test_what_is_no_provenance_is_told_by_key(path: str, value: object) -> None:
    document = changed(json.dumps(made()), path.replace(".", "/"), value).encode()
    assert any(path in message for message in problems(document))


@pytest.mark.parametrize("document", [b"", b"{", b"\xff\xfe", b"null", b"[]", b"[" * 100_000])
def test_what_cannot_be_read_is_a_finding_and_never_a_traceback(document: bytes) -> None:
    assert problems(document)


def test_keys_that_nobody_knows_are_no_fault() -> None:
    """Both specifications: consumers ignore unrecognized fields."""
    text = json.dumps(made())
    assert problems(changed(text, "predicate/buildDefinition/futureParameters", {}).encode()) == []
