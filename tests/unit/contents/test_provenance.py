"""Tests of provenance against in-toto's Statement v1, SLSA's provenance v1, its package, and as a recipe.

Field names are spelled as in the specifications: in-toto/attestation, spec/v1/statement.md and
resource_descriptor.md; slsa.dev/spec/v1.1/provenance.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
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
    Resource,
    Revision,
    base_parts,
    build_arguments,
    check_provenance,
    dependency,
    provenance_json,
    read_recipe,
    tree_differences,
    used_inputs,
)
from builder.errors import ConfigError, SchemaError
from builder.facts.gpu.architectures import Arch
from builder.facts.ort.source import Dependency, SourceFacts
from builder.files.digest import Digest
from builder.formats.json_values import json_text
from builder.formats.manifest import BaseEntry
from builder.formats.package_names import Profile
from tests.support.factories.documents import manifest
from tests.support.factories.packages import official, plan
from tests.support.factories.provenance import COMMIT, CONFIG, document
from tests.support.json_texts import changed
from tests.support.messages import Told
from tests.support.tables import table

ARCHIVE = "ortpacks-legacy-1.21.0-cuda12.9-lean-linux-x64.tar.zst"

SUBJECTS = {ARCHIVE: "1" * 64}

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


def made(
    decided: BuildPlan | None = None,
    pins: Mapping[Input, Pin] = MappingProxyType({}),
    parts: Sequence[Resource] = (),
    **changes: object,
) -> Json:
    chosen = decided or plan()
    pinned = {**used(chosen), **pins}
    text = provenance_json(chosen, manifest(chosen), pinned, SUBJECTS, run(**changes), parts)
    return dict(json.loads(text))


def definition(statement: Json) -> Json:
    return dict(statement["predicate"]["buildDefinition"])


SYSTEM = (
    DebianPackage("pool/main/g/gcc-defaults/gcc_12.2.0-3_amd64.deb", "gcc", "4:12.2.0-3", "amd64", "7" * 64),
    DebianPackage("pool/main/a/adduser/adduser_3.134_all.deb", "adduser", "3.134", "all", "8" * 64),
)


def assembled(system: tuple[DebianPackage, ...] = SYSTEM) -> Json:
    decided = plan()
    inputs = base_inputs(decided.project, "assembled", Lock(pins={}))
    return made(parts=base_parts(decided, Lock(pins={item.key: pin(item) for item in inputs}), system))


BLACKWELL = Variant(name="latest", sm=(Arch(9, 0), Arch(12, 0)), generations=("Hopper", "Blackwell"))

STATEMENTS: dict[str, Callable[[], Json]] = {
    "compiled": made,
    "on NVIDIA's image": lambda: made(plan(base="nvidia"), revision=Revision(COMMIT, dirty=True)),
    "repacked": lambda: made(official(), revision=None),
    "two assemblers, wide, shared objects": lambda: made(
        plan(variant=BLACKWELL, added=(Arch(10, 3), Arch(12, 1))), shared_objects=True
    ),
    "an assembled base": assembled,
    "two assemblers in NVIDIA's image": lambda: made(
        plan(variant=BLACKWELL, base="nvidia", profile=Profile.FULL)
    ),
    "nobody could resolve it": lambda: made(plan(base="nvidia"), pins={IMAGE: Pin(), GIT: Pin()}),
}


@pytest.mark.parametrize("name", STATEMENTS)
def test_what_a_statement_says_of_its_build_and_its_inputs(name: str, told: Told) -> None:
    """The inputs have their public names and digests."""
    build = definition(STATEMENTS[name]())
    dependencies = build["resolvedDependencies"]
    uris = [one["uri"] for one in dependencies]
    assert len({PackageURL.from_string(uri) if uri.startswith("pkg:") else uri for uri in uris}) == len(uris)
    internal = {key: value for key, value in build["internalParameters"].items() if key != "rules"}
    told("\n".join(map(json.dumps, [internal, *dependencies])))


def test_the_rules_of_a_compile_are_stated_with_file_and_line() -> None:
    rules = definition(made(plan(base="nvidia", profile=Profile.FULL)))["internalParameters"]["rules"]
    assert rules["minimums"]["gcc"] == "cmake/CMakeLists.txt:59: 9"
    assert rules["options"]["onnxruntime_USE_CUDA"].endswith(": OFF")
    assert {launch["line"] for launch in rules["launches"]} >= {
        "onnxruntime/contrib_ops/cuda/bert/flash_attention/flash_api.cc:413"
    }
    assert rules["units"] == {}
    assert "rules" not in definition(made(official()))["internalParameters"]


def test_it_has_the_fields_of_both_specifications_and_no_others(told: Told) -> None:
    statement = made()
    statement["predicate"]["buildDefinition"].pop("resolvedDependencies")
    statement["predicate"]["buildDefinition"]["internalParameters"].pop("rules")
    told(json_text(statement))


def test_in_totos_own_library_reads_it() -> None:
    """The official protobuf classes of both reject unknown and mistyped fields."""
    for told in (made(), made(official()), made(plan(base="nvidia"))):
        statement = Parse(json.dumps(told), TheirMessage())
        TheirStatement.copy_from_pb(statement).validate()
        predicate = ParseDict(told["predicate"], Provenance())
        assert predicate.run_details.metadata.started_on.ToSeconds() == 1763744700


def test_the_revision_of_a_base_on_an_image_counts_image_commit_lists_and_archives(told: Told) -> None:
    decided = plan(base="nvidia")
    base = decided.project.bases["nvidia"]
    listed = Input(InputKind.URL, "https://snapshot.ubuntu.com/ubuntu/20251101T000000Z/dists/jammy/InRelease")
    assert isinstance(base.system, ImageSystem)
    snapshot = replace(base, system=replace(base.system, snapshot=(listed,)))
    project = replace(decided.project, bases={"nvidia": snapshot})
    files = {DEPENDENCY.key: pin(DEPENDENCY), listed.key: pin(listed), "wheel:cmake==3.31.6": pin(PTXAS)}
    pins = {**files, IMAGE.key: pin(IMAGE), GIT.key: pin(GIT)}
    read = SourceFacts("1.21.0", (Dependency("abseil_cpp", "abseil_cpp", DEPENDENCY.spec, "0" * 40, 9),))
    parts = base_parts(replace(decided, project=project), Lock(pins, {GIT.key: read}), ())
    told("\n".join(f"{part.uri} {part.digest} {part.annotations}" for part in parts))


@pytest.mark.parametrize(
    ("key", "pin"),
    [
        ("git:https://host/o/n@v1", Pin(revision="1" * 40)),
        ("git:https://host/o/n@main", Pin(revision="1" * 40, ref="refs/heads/main")),
        ("git:https://host/o/n@HEAD", Pin(revision="1" * 40, ref="HEAD")),
        (f"git:https://host/o/n@{'1' * 40}", Pin(revision="1" * 40)),
        ("git:/home/ada/ä b@main", Pin(revision="1" * 40, ref="refs/heads/main")),
        ("file:/home/ada/x.tar.gz", Pin(filename="01-x.tar.gz", size=1, sha256="2" * 64)),
        ("tree:/home/ada/ä b", Pin(filename="01-a.tar", size=1, sha256="2" * 64)),
        ("tree:/home/ada/ort", Pin(filename="x", size=1, sha256="2" * 64, revision="1" * 40, is_dirty=True)),
    ],
)
def test_a_source_is_named_without_the_folders_of_the_machine(key: str, pin: Pin, told: Told) -> None:
    """What is of this machine has no digest, so a base that is compiled from it has no revision."""
    part = dependency(Input.parse(key), pin)
    assert "ada" not in part.uri
    told(f"{part.uri} {dict(part.digest)} {dict(part.annotations)}")


def revision_by_hand(statement: Json) -> str:
    """Compute the revision after docs/trust.md: a line ``SHA256  URI`` for each part, sorted."""
    listed = definition(statement)["resolvedDependencies"]
    parts = [one for one in listed if one.get("annotations") == {"base": True}]
    lines = [f"{one['digest']['sha256']}  {one['uri']}" for one in parts]
    return hashlib.sha256("".join(f"{line}\n" for line in sorted(lines)).encode()).hexdigest()


def test_the_revision_of_an_assembled_base_follows_from_the_list_and_from_nothing_else(told: Told) -> None:
    revision = "sha256:" + revision_by_hand(assembled())
    assert problems(assembled(), revision=revision) == []
    assert problems(assembled(SYSTEM[::-1]), revision=revision) == []
    for other in (SYSTEM[:1], (SYSTEM[0], replace(SYSTEM[1], sha256="9" * 64))):
        (problem,) = problems(assembled(other), revision=revision)
        told(problem)
    assert problems(made()) == [], "a package of before has no revision and no list"
    assert len(problems(made(), revision=revision)) == 1


def test_the_same_values_give_the_same_text_whatever_the_order_of_the_pins() -> None:
    pins = list(used(plan()).items())
    one, other = (
        provenance_json(plan(), manifest(), dict(order), SUBJECTS, run()) for order in (pins, pins[::-1])
    )
    assert one == other


WHOLE = Digest(9, "1" * 64)


def problems(statement: object, digest: Digest = WHOLE, revision: str | None = None) -> list[str]:
    data = statement if isinstance(statement, bytes) else json.dumps(statement).encode()
    found = list(check_provenance(ARCHIVE, digest, data, BaseEntry("assembled", "asked for", revision)))
    assert {one.code.name for one in found} <= {"B016"}
    assert {one.path for one in found} <= {f"{ARCHIVE}.provenance.json"}
    return [one.message for one in found]


def test_that_of_other_bytes_or_of_another_package_is_found(told: Told) -> None:
    other = changed(json.dumps(made()), "subject/0/name", "x.tar.zst").encode()
    for found in (problems(made(), digest=Digest(9, "2" * 64)), problems(other)):
        told("\n".join(found))


@pytest.mark.parametrize(("path", "value"), table("formats/provenance-values.txt"))
def test_what_is_no_provenance_is_told_by_key(path: str, value: str) -> None:
    text = changed(json.dumps(made()), path, json.loads(value))
    assert any(path.replace("/", ".") in message for message in problems(text.encode()))


@pytest.mark.parametrize("data", [b"", b"{", b"\xff\xfe", b"null", b"[]", b"[" * 100_000])
def test_what_cannot_be_read_is_a_finding_and_never_a_traceback(data: bytes) -> None:
    assert problems(data)


def test_keys_that_nobody_knows_are_no_fault() -> None:
    """Both specifications: consumers ignore unrecognized fields."""
    text = changed(json.dumps(made()), "predicate/buildDefinition/futureParameters", {})
    assert problems(text.encode()) == []


OTHER = "0" * 40

LOCK = Lock(
    {
        "wheel:nvidia-cublas-cu12==12.9.1.4": Pin(filename="cublas.whl", sha256="1" * 64),
        "wheel:nvidia-cublas-cu12==12.9.1.4@win-x64": Pin(filename="cublas_win.whl", sha256="2" * 64),
    }
)


def differences(
    recipe: bytes, commit: str = COMMIT, *, dirty: bool = False, config: str = CONFIG
) -> list[str]:
    revision = Revision(commit, dirty) if commit else None
    return [*tree_differences(read_recipe(recipe, "p"), revision, config, LOCK)]


def test_each_departure_is_a_sentence(told: Told) -> None:
    for found in (
        differences(document(), OTHER),
        differences(document(), ""),
        differences(document(), dirty=True),
        differences(document(), config="d" * 64),
        differences(document(resolvedDependencies__0__annotations={"dirty": True})),
        differences(document(resolvedDependencies__1__digest={"sha256": "4" * 64})),
        differences(document(resolvedDependencies__1__uri="pkg:pypi/numpy@1.0")),
    ):
        (sentence,) = found
        told(sentence)


def test_the_same_tree_departs_in_nothing_whatever_platform_an_input_is_for() -> None:
    assert differences(document()) == []
    assert differences(document(resolvedDependencies__1__digest={"sha256": "2" * 64})) == []


def test_the_command_is_taken_apart() -> None:
    recipe = read_recipe(document(), "p")
    assert build_arguments(recipe) == ["--variant", "legacy", "--profile", "minimal", "--base", "assembled"]
    assert (recipe.variant, recipe.base_revision) == ("legacy", "sha256:ba5e")
    assert recipe.subjects == {"p.tar.zst": "9" * 64}
    newer = read_recipe(document(externalParameters__command="./run build --variant latest --cuda 13"), "p")
    assert build_arguments(newer) == ["--variant", "latest", "--cuda", "13"]


FOREIGN = (
    f"./run build --variant legacy {more}" for more in ("--dist /etc", "; rm -rf /", "$(id)", " legacy")
)


@pytest.mark.parametrize("command", ["./run image --variant legacy", "", *FOREIGN])
def test_no_other_command_of_a_foreign_file_is_run(command: str) -> None:
    recipe = read_recipe(document(externalParameters__command=command), "p")
    with pytest.raises(ConfigError, match="is no command that makes a package"):
        build_arguments(recipe)
    with pytest.raises(SchemaError):
        read_recipe(b"{}", "p")
