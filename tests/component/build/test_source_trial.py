"""Tests of ``--source``: another ONNX Runtime for the bases, from real repositories, folders and archives.

Everything else has made-up pins; nothing is fetched but the source and the archives of its ``deps.txt``.
"""

from __future__ import annotations

import re
import shutil
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from builder.build import source_reading
from builder.build.packing import Packer, command_of
from builder.build.pinning import pin_base, pin_inputs
from builder.build.source_reading import rules_of, store_rules
from builder.build.source_trial import named_source, try_source
from builder.build.verbs.flags import ChosenVariants
from builder.compile.plan import PlanOptions, decide
from builder.compile.render import render
from builder.config.build_plan import NOTHING_RENDERED
from builder.config.inputs import Input, InputKind, Lock, Pin
from builder.config.load import load_project, parse_lock, render_lock
from builder.config.variants import GitSource, Origin, Source, TarballSource, TreeSource, base_inputs
from builder.errors import (
    BuilderError,
    ConfigError,
    IntegrityError,
    ParseError,
    TransferError,
    ValidationError,
)
from builder.facts.ort.configured import SourceLine
from builder.facts.ort.known_rules import DATA, ReadSource, loads, read_sources
from builder.farm.repair import Repair
from builder.formats.package_names import Host
from builder.io.wiring import Wiring
from tests.support import ROOT
from tests.support.factories.packages import pinned
from tests.support.factories.sources import (
    NAMES,
    archive,
    commit,
    git,
    lay_mirror,
    lay_source,
    url_of,
)
from tests.support.fakes.ports import FakeEngine, FakeReporter, reported
from tests.support.messages import Refused, Told

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")

PROJECT = (ROOT / "tests/data/config/packaged.yaml").read_text(encoding="utf-8")
PIN = Pin(filename="x", size=1, sha256="1" * 64, revision="2" * 40)
IMAGES = {"nvidia/cuda:12.9.1-devel-ubuntu22.04", "ubuntu:22.04"}
RE2 = "      re2: pool/main/r/re2/re2_20240702.orig.tar.gz\n"


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Wiring:
    return make_shop(tmp_path, monkeypatch, PROJECT)


def make_shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> Wiring:
    """Return a wiring whose inputs are pinned, but for sources, and images, which its engine holds."""
    monkeypatch.setenv("ORTPACKS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ORTPACKS_ARCHIVE_MIRROR", str(tmp_path / "mirror"))
    folder = tmp_path / "project"
    folder.mkdir(exist_ok=True)
    (folder / "variants.yaml").write_text(text, encoding="utf-8")
    project = load_project(text, "variants.yaml")
    sources = {base.source.item.key for base in project.bases.values()}
    pins = {key: pin for key, pin in pinned(project).pins.items() if key not in sources}
    (folder / "inputs.lock").write_text(render_lock(Lock(pins)))
    made = Wiring(folder, reporter=FakeReporter())
    made.__dict__["engine"] = FakeEngine(images=IMAGES)
    return made


def again(shop: Wiring) -> Wiring:
    """Return the wiring of another run."""
    made = Wiring(shop.root, reporter=FakeReporter())
    made.__dict__["engine"] = shop.engine
    return made


def kept(shop: Wiring) -> Lock:
    """Return what is written of trials."""
    return parse_lock(shop.pins_file.read_text(encoding="utf-8"), "trials.lock")


def made_of(shop: Wiring, base: str) -> str:
    """Pin what is open of a base and return its Dockerfile."""
    pin_base(shop, base, shop.reporter, Host.SOURCE)
    variant = shop.project.variants["legacy"]
    plan = decide(shop.project, variant, PlanOptions(source="x", host=Host.SOURCE), base, Origin.SOURCE)
    return render(plan, shop.lock, Wiring(ROOT).loader).dockerfile


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone with two commits: a tag 1.28.0, and 1.29.0 on the branch ``work/größer`` and ``HEAD``."""
    folder = lay_source(tmp_path / "ein Köder" / "onnx runtime", "1.28.0")
    commit(folder, "v1.28.0")
    lay_source(folder, "1.29.0")
    commit(folder)
    git(folder, "branch", "work/größer")
    return folder


@pytest.mark.parametrize(
    ("named", "version"),
    [
        ("{clone}", "1.29.0"),
        ("{clone}/", "1.29.0"),
        ("{clone}@v1.28.0", "1.28.0"),
        ("{clone}@work/größer", "1.29.0"),
        ("{clone}@{first}", "1.28.0"),
        ("{clone}@HEAD", "1.29.0"),
        ("{bare}", "1.29.0"),
        ("{bare}@v1.28.0", "1.28.0"),
        ("{shallow}@main", "1.29.0"),
        ("file://{bare}@v1.28.0", "1.28.0"),
        ("{tar}", "1.28.0"),
    ],
)
def test_the_bases_compile_what_is_named(
    shop: Wiring, clone: Path, tmp_path: Path, named: str, version: str
) -> None:
    git(tmp_path, "clone", "--quiet", "--bare", clone.as_uri(), "bare")
    git(tmp_path, "clone", "--quiet", "--depth=1", clone.as_uri(), "shallow")
    tar = tmp_path / "ä b.tar.gz"
    git(clone, "archive", "--prefix=onnxruntime-1.28.0/", f"--output={tar}", "v1.28.0")
    first = git(clone, "rev-parse", "v1.28.0")
    places = {"clone": clone, "bare": tmp_path / "bare", "shallow": tmp_path / "shallow", "tar": tar}
    before = shop.lock_file.read_bytes()
    try_source(shop, named.format(first=first, **places))
    bases = shop.project.bases
    assert {base.ort_version for base in bases.values()} == {version}
    item = bases["nvidia"].source.item
    assert [one.name for one in shop.lock.sources[item.key].dependencies] == [*NAMES]
    assert shop.lock_file.read_bytes() == before
    assert (item.key in kept(shop).pins) == (item.kind is not InputKind.TREE)
    if item.kind is not InputKind.FILE:
        wanted = first if version == "1.28.0" else git(clone, "rev-parse", "HEAD")
        assert shop.lock.pins[item.key].revision == wanted
        assert any(
            f"ONNX Runtime {version} of {item.spec}, commit {wanted}" in line for line in reported(shop)
        )


def test_a_trial_is_rendered_with_the_archives_that_its_source_downloads(
    shop: Wiring, clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run fetches nothing again, and inputs.lock stays as it was."""
    lay_mirror(tmp_path / "mirror")
    before = shop.lock_file.read_bytes()
    try_source(shop, f"{clone}@v1.28.0")
    dockerfile = made_of(shop, "nvidia")
    assert 'unpack onnxruntime "onnx_runtime-v1.28.0.tar" 0\n' in dockerfile
    for name in NAMES:
        place = url_of(name).removeprefix("https://")
        laid = (
            f'install -D --mode=0644 "/sources/{place.replace("/", "_")}" "/src/onnxruntime/mirror/{place}"'
        )
        assert laid in dockerfile
    assert "FETCHCONTENT_" not in dockerfile
    assert shop.lock_file.read_bytes() == before
    assert {f"url:{url_of(name)}" for name in NAMES} < kept(shop).pins.keys()
    assert "trials.lock has these 3 pins now" in reported(shop)
    shutil.rmtree(tmp_path / "mirror")
    other = again(shop)
    try_source(other, f"{clone}@v1.28.0")
    assert made_of(other, "nvidia") == dockerfile


def test_what_a_base_has_in_place_of_archives_stays_where_the_source_wants_it(
    clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names of ``FetchContent`` change from version to version; those of ``deps.txt`` do not."""
    folder = tmp_path / "abseil mit ß"
    folder.mkdir()
    (folder / "CMakeLists.txt").write_text("project(absl)\n")
    others = (
        f"      abseil_cpp: {folder}\n"
        "      eigen: flashinfer-python==0.5.2#flashinfer/data/eigen\n"
        "      json: pool/main/n/nlohmann-json3/nlohmann-json3-dev_3.11.3-1_all.deb\n"
    )
    shop = make_shop(tmp_path, monkeypatch, PROJECT.replace(RE2, RE2 + others))
    try_source(shop, str(clone))
    base = shop.project.bases["assembled"]
    assert [*base.dependencies] == ["abseil_cpp", "eigen", "json"], "nothing else is downloaded"
    dockerfile = made_of(shop, "assembled")
    (abseil,) = re.findall(r'unpack abseil_cpp "([0-9a-f]{8}-abseil_mit_\.tar)" 0\n', dockerfile)
    assert shop.store(shop.lock).fetch(Input(InputKind.TREE, str(folder))).name == abseil
    for line in (
        "COPY --from=eigen flashinfer/data/eigen/ /src/eigen3/\n",
        'dpkg -x "/debs/nlohmann-json3-dev_3.11.3-1_all.deb" /unpacked\n',
        "cp -a --parents nlohmann* /src/nlohmann_json/include/",
        "add_library(nlohmann_json::nlohmann_json ALIAS nlohmann_json)\n",
        'set(FETCHCONTENT_SOURCE_DIR_EIGEN3 /src/eigen3 CACHE PATH "")\n',
        'set(FETCHCONTENT_FULLY_DISCONNECTED ON CACHE BOOL "every dependency is already here")\n',
    ):
        assert line in dockerfile


def test_a_dependency_of_the_command_line_counts_before_the_bases(
    clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    shop = make_shop(tmp_path, monkeypatch, PROJECT.replace(RE2, f"{RE2}      json: none\n"))
    try_source(shop, str(clone), ["json=/srv/json", "eigen=flashinfer-python==0.5.2#flashinfer/data/eigen"])
    for name, others in (("nvidia", {"json", "eigen"}), ("assembled", {"json", "eigen"})):
        base = shop.project.bases[name]
        assert base.dependencies.keys() == others
        assert base.dependencies["json"].item == Input(InputKind.TREE, "/srv/json")
    for wrong in ("json", "json=no", "onnx=none", "abseil_cpp=abseil==1.0"):
        with refused(ValidationError):
            try_source(again(shop), str(clone), [wrong])


def test_an_archive_that_cannot_be_had_is_told_with_its_line_and_two_ways_out(
    shop: Wiring, clone: Path, refused: Refused
) -> None:
    shop.env = {**shop.env, "ORTPACKS_ARCHIVE_MIRROR": "http://127.0.0.1:1"}
    shop.sleep = lambda _: None
    try_source(shop, f"{clone}@v1.28.0")
    with refused(TransferError) as caught:
        pin_base(shop, "nvidia", shop.reporter, Host.SOURCE)
    for part in (
        f"abseil_cpp of line 2 in cmake/deps.txt of {clone}@v1.28.0 ",
        "dependencies.abseil_cpp of the base",
    ):
        assert part in str(caught.value)


def test_an_archive_with_other_bytes_than_its_line_is_refused(
    shop: Wiring, clone: Path, tmp_path: Path
) -> None:
    mirror = lay_mirror(tmp_path / "mirror")
    (mirror / url_of("json").removeprefix("https://")).write_bytes(archive("other"))
    try_source(shop, str(clone))
    with pytest.raises(IntegrityError, match=r"names SHA-1 [0-9a-f]{40}, its host sent"):
        pin_base(shop, "nvidia", shop.reporter, Host.SOURCE)
    assert f"url:{url_of('json')}" not in shop.lock.pins


def test_a_folder_is_built_as_it_is_in_each_run(shop: Wiring, clone: Path) -> None:
    """Files that git ignores make no other source; the toolchain's key stays the same whatever is edited, so
    that only what differs is compiled anew."""
    item = Input(InputKind.TREE, str(clone))

    def tried() -> tuple[str, bool, str]:
        run = again(shop)
        try_source(run, str(clone))
        pin = run.lock.pins[item.key]
        assert reported(run)[-1].endswith(" and changes") == pin.is_dirty
        assert item.key not in kept(run).pins
        return pin.sha256, pin.is_dirty, made_of_key(run)

    clean = tried()
    lay_source(clone / "build")
    assert tried() == clean
    (clone / "new.cc").write_text("int b;\n")
    edited = tried()
    assert (clean[0] != edited[0], clean[1:], edited[1:]) == (True, (False, clean[2]), (True, clean[2]))


def made_of_key(shop: Wiring) -> str:
    """Return the name of the Ninja tree in the Dockerfile of a base whose archives have made-up pins."""
    files = {f"url:{url_of(name)}": next(iter(pinned(shop.project).pins.values())) for name in NAMES}
    shop.lock = shop.lock.with_more(Lock(files))
    variant = shop.project.variants["legacy"]
    plan = decide(shop.project, variant, PlanOptions(host=Host.SOURCE), "nvidia", Origin.SOURCE)
    return render(plan, shop.lock, Wiring(ROOT).loader).toolchain_key


def test_a_branch_is_looked_up_in_each_run_and_not_offline_only(shop: Wiring, clone: Path) -> None:
    for version in ("1.29.0", "1.30.0"):
        lay_source(clone, version)
        (clone / "x").write_text(version)
        head = commit(clone)
        run = again(shop)
        run.offline = version == "1.30.0"  # a clone of this machine is at hand
        try_source(run, f"{clone}@main")
        key = f"git:{clone}@main"
        assert (run.lock.pins[key].revision, run.lock.sources[key].version) == (head, version)


def test_patches_are_those_of_their_version(
    clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = PROJECT.replace(
        "onnxruntime: 1.21.0\n", "onnxruntime: 1.28.0\n    patches: [patches/a.patch]\n", 1
    )
    shop = make_shop(tmp_path, monkeypatch, text)
    for named, patches in ((f"{clone}@v1.28.0", ("patches/a.patch",)), (str(clone), ())):
        run = again(shop)
        try_source(run, named)
        assert run.project.bases["nvidia"].patches == patches


@pytest.mark.parametrize(
    ("named", "kind"),
    [
        ("{folder}/none", ValidationError),
        ("{folder}/none@v1", ValidationError),
        ("no/such/thing", ValidationError),
        ("{file}", ValidationError),
        ("{clone}@v1.27.0", ValidationError),
        ("{clone}@v1:28", ValidationError),
        ("{clone}@" + "a" * 40, ValidationError),
        ("{folder}", ParseError),
        ("{folder}@main", TransferError),
        ("{clone}@empty", ParseError),
        ("{clone}@old", ParseError),
        ("{clone}@dev", ParseError),
        ("{tar}", ParseError),
        ("{broken}", ParseError),
    ],
)
def test_what_is_no_source_is_told(
    shop: Wiring, clone: Path, tmp_path: Path, refused: Refused, named: str, kind: type[BuilderError]
) -> None:
    folder, file, broken = tmp_path / "folder", tmp_path / "onnxruntime.zip", tmp_path / "broken.tar.gz"
    folder.mkdir()
    for path in (file, broken):
        path.write_bytes(b"PK")
    for branch, gone in (("empty", "VERSION_NUMBER"), ("old", "cmake/deps.txt")):
        git(clone, "checkout", "--quiet", "-b", branch, "main")
        git(clone, "rm", "--quiet", gone)
        commit(clone)
    git(clone, "checkout", "--quiet", "-b", "dev", "main")
    (clone / "VERSION_NUMBER").write_text("1.30.0-dev\n")
    commit(clone)
    tar = tmp_path / "flat.tar.xz"
    with tarfile.open(tar, "w:xz") as flat:
        flat.add(clone / "VERSION_NUMBER", "VERSION_NUMBER")
    places = {"folder": folder, "file": file, "clone": clone, "tar": tar, "broken": broken}
    with refused(kind):
        try_source(shop, named.format(**places))


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("https://github.com/you/ort", GitSource(Input(InputKind.GIT, "https://github.com/you/ort@HEAD"))),
        ("https://github.com/you/ort@x/y", GitSource(Input(InputKind.GIT, "https://github.com/you/ort@x/y"))),
        ("git@github.com:you/ort", GitSource(Input(InputKind.GIT, "git@github.com:you/ort@HEAD"))),
        ("ssh://git@host:22/ort@v1", GitSource(Input(InputKind.GIT, "ssh://git@host:22/ort@v1"))),
        ("https://h/ort-1.tar.gz", TarballSource(Input(InputKind.URL, "https://h/ort-1.tar.gz"))),
        ("pool/o/ort_1.orig.tar.xz", TarballSource(Input(InputKind.DEBIAN, "pool/o/ort_1.orig.tar.xz"))),
    ],
)
def test_what_is_not_of_this_machine_is_named_by_its_form(text: str, source: Source) -> None:
    assert named_source(text) == source


def test_a_folder_whose_name_has_an_at_sign_is_a_folder(tmp_path: Path) -> None:
    folder = lay_source(tmp_path / "ort@work")
    assert named_source(str(folder)) == TreeSource(Input(InputKind.TREE, str(folder)))
    assert named_source(f"{folder}@v1") == GitSource(Input(InputKind.GIT, f"{folder}@v1"))


def test_the_command_of_a_trial_names_no_folder_of_this_machine(shop: Wiring, clone: Path) -> None:
    given = ("json=/srv/json", "eigen=x==1#y", "abseil_cpp=none")
    try_source(shop, f"{clone}@v1.28.0", given)
    options = PlanOptions(source=f"{clone}@v1.28.0", dependencies=given)
    plan = decide(shop.project, shop.project.variants["legacy"], options, "nvidia", Origin.SOURCE)
    flags = "--source onnx runtime@v1.28.0 --dependency json=json --dependency eigen=x==1#y"
    assert command_of(plan, options).endswith(f" {flags} --dependency abseil_cpp=none")


def test_a_package_of_a_trial_has_no_revision_of_its_base(shop: Wiring, clone: Path) -> None:
    """So publish refuses it (R009). A commit in variants.yaml has one, unless it is of this machine."""
    far = GitSource(Input(InputKind.GIT, "https://github.com/you/ort@v1"))
    for source, is_trial, has_one in (
        (far, False, True),
        (far, True, False),
        (named_source(str(clone)), False, False),
    ):
        base = replace(shop.project.bases["assembled"], source=source)
        project = replace(shop.project, bases={"assembled": base})
        shop.lock = Lock({item.key: PIN for item in base_inputs(project, "assembled", Lock({}))})
        plan = decide(project, project.variants["legacy"], PlanOptions(), "assembled", Origin.SOURCE)
        packer = Packer(
            wiring=shop,
            place=shop.place("legacy"),
            plan=plan,
            rendered=NOTHING_RENDERED,
            plan_options=PlanOptions(source="x" if is_trial else None),
            began=0,
            tools=None,
            store=shop.store(shop.lock),
            reporter=shop.reporter,
        )
        assert (packer._base_revision() is not None) is has_one


def test_a_source_is_tried_once_for_all_variants(shop: Wiring, clone: Path) -> None:
    options = PlanOptions(source=str(clone), base="nvidia")
    chosen = ChosenVariants(
        wiring=shop,
        names=("legacy",),
        every=False,
        plan_options=options,
        builders={"builder": None, "context": None},
    )
    for _ in range(2):
        assert [*chosen.builds()] == ["legacy"]
    assert sum("ONNX Runtime 1.29.0 of " in line for line in reported(shop)) == 1


def test_a_base_that_names_another_version_than_its_source_is_refused(
    clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: Told
) -> None:
    old = "git: https://github.com/microsoft/onnxruntime@v1.21.0"
    shop = make_shop(tmp_path, monkeypatch, PROJECT.replace(old, f'git: "{clone}@v1.28.0"'))
    before = shop.lock_file.read_bytes()
    with pytest.raises(ConfigError) as caught:
        pin_base(shop, "nvidia", shop.reporter, Host.SOURCE)
    told(caught.value)
    item = shop.project.bases["nvidia"].source.item
    made, left = pin_inputs(shop, [item], Lock({}), shop.reporter)
    assert (made, [one.key for one in left]) == (Lock({}), [item.key]), "lock --missing keeps nothing of it"
    assert shop.lock_file.read_bytes() == before


def test_a_base_in_variants_yaml_may_have_a_clone_of_this_machine_and_a_folder_is_never_locked(
    clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lay_mirror(tmp_path / "mirror")
    old = "git: https://github.com/microsoft/onnxruntime@v1.21.0"
    for new, is_kept in ((f'git: "{clone}@v1.28.0"', True), (f'tree: "{clone}"', False)):
        text = PROJECT.replace(old, new).replace("onnxruntime: 1.21.0\n", "onnxruntime: 1.28.0\n", 1)
        shop = make_shop(tmp_path, monkeypatch, text)
        git(clone, "checkout", "--quiet", "v1.28.0")
        pin_base(shop, "nvidia", shop.reporter, Host.SOURCE)
        item = shop.project.bases["nvidia"].source.item
        file = shop.committed_lock
        assert (item.key in file.pins, item.key in file.sources) == (is_kept, is_kept)
        assert shop.lock.sources[item.key].version == "1.28.0"
        assert f"url:{url_of('json')}" in file.pins
        assert made_of(replace_reporter(shop), "nvidia").count("/src/onnxruntime/mirror/") == len(NAMES)


def replace_reporter(shop: Wiring) -> Wiring:
    shop.reporter = FakeReporter()
    return shop


def test_a_sha256_in_variants_yaml_is_compared(
    clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tar = tmp_path / "x.tar.gz"
    git(clone, "archive", "--prefix=x/", f"--output={tar}", "v1.28.0")
    old = "git: https://github.com/microsoft/onnxruntime@v1.21.0"
    text = PROJECT.replace(old, f'tarball: "{tar}"\n      sha256: {"a" * 64}')
    shop = make_shop(tmp_path, monkeypatch, text.replace("onnxruntime: 1.21.0\n", "onnxruntime: 1.28.0\n", 1))
    with pytest.raises(ConfigError, match=rf"sha256: {re.escape(str(tar))} has [0-9a-f]{{64}}, not a{{64}}"):
        pin_base(shop, "nvidia", shop.reporter, Host.SOURCE)


def readings(shop: Wiring) -> int:
    """Return how often this run read a source."""
    return sum("reading " in line for line in reported(shop))


def test_the_source_of_a_trial_is_read_once_for_each_nvcc(shop: Wiring, tmp_path: Path) -> None:
    folder = lay_source(tmp_path / "source", "1.21.0")
    try_source(shop, str(folder))
    rules = None
    for name in ("nvidia", "assembled", "assembled"):
        rules = rules_of(shop, shop.project.bases[name], shop.reporter)
        assert rules is not None
        assert rules.launches
        assert (rules.version, rules.stands_in) == ("1.21.0", False)
        assert "contrib_ops/cuda/big/one.cu" in rules.paths
    assert readings(shop) == 2
    other = again(shop)
    try_source(other, str(folder))
    assert rules_of(other, other.project.bases["assembled"], other.reporter) == rules
    assert readings(other) == 0
    (folder / "cmake/cuda_provider.cmake").write_text("(", encoding="utf-8")
    changed = again(shop)
    with pytest.raises(ParseError, match=r"source: cmake/cuda_provider\.cmake:1 of .* Parse error"):
        try_source(changed, str(folder))


def test_launches_that_the_check_does_not_know_leave_nothing_out(shop: Wiring, tmp_path: Path) -> None:
    """A package that lacked code by such a rule was refused (A005) after its compile."""
    try_source(shop, str(lay_source(tmp_path / "source", "1.30.0")))
    rules = rules_of(shop, shop.project.bases["assembled"], shop.reporter)
    assert rules is not None
    assert (rules.version, rules.launches, rules.without_device_code) == ("1.30.0", (), ())


def test_rules_are_read_from_the_source_as_it_is_repaired(
    shop: Wiring, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Units that a repair gives a target are no more missed; one that does not fit stops the plan."""
    gone = Repair(
        *("a", "big needs 7.5", "cmake/cuda_provider.cmake", "from.75", "^from.75 list.$", "from(50 list)"),
        *("from.50", 75, ("1.40",)),
    )
    beside = replace(gone, name="b", file="onnxruntime/core/a.cc", symptom="a", pattern="a;", beside="c")
    monkeypatch.setattr(source_reading, "all_repairs", lambda: {"a": gone, "b": beside})
    folder = lay_source(tmp_path / "source", "1.30.0")
    try_source(shop, str(folder))
    rules = rules_of(shop, shop.project.bases["assembled"], shop.reporter)
    assert rules is not None
    assert rules.repairs == {"a": SourceLine("cmake/cuda_provider.cmake", 40)}
    assert "big" not in {group.name for group in rules.groups}
    monkeypatch.setattr(source_reading, "all_repairs", lambda: {"a": replace(gone, pattern="nothing")})
    with pytest.raises(ParseError, match=r"repair a does not fit cmake/cuda_provider\.cmake: its pattern"):
        rules_of(shop, shop.project.bases["assembled"], shop.reporter)


def test_a_release_and_a_source_without_a_pin_have_the_stored_rules(shop: Wiring) -> None:
    for base in shop.project.bases.values():
        assert rules_of(shop, base, shop.reporter) is None
    item = Input(InputKind.GIT, "https://host.example/fork@v1.21.0")
    fork = replace(shop.project.bases["nvidia"], source=GitSource(item))
    assert rules_of(shop, fork, shop.reporter) is None
    assert not readings(shop)


def test_rules_of_a_release_that_is_pinned_are_stored_once(
    shop: Wiring, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = lay_source(tmp_path / "source", "1.29.0")
    tree = Input(InputKind.TREE, str(folder))
    official = Input(InputKind.GIT, "https://github.com/microsoft/onnxruntime@v1.29.0")
    monkeypatch.setattr(shop.store(Lock({})).__class__, "fetch", lambda store, _: _tar(store, tree))
    base = replace(shop.project.bases["nvidia"], source=GitSource(official), ort_version="1.29.0")
    shop.project = replace(shop.project, bases={"nvidia": base})
    (shop.root / DATA).parent.mkdir(parents=True)
    store_rules(shop, shop.reporter)
    assert not (shop.root / DATA).exists()
    shop.lock = Lock({official.key: Pin(revision="1" * 40)})
    store_rules(shop, shop.reporter)
    written = loads(tuple[ReadSource, ...], (shop.root / DATA).read_text(encoding="utf-8"))
    assert [one.source for one in written] == [
        *(one.source for one in read_sources()[:-1]),
        "v1.29.0",
        read_sources()[-1].source,
    ]
    monkeypatch.setattr(source_reading, "is_read", lambda _: True)
    (shop.root / DATA).unlink()
    store_rules(shop, shop.reporter)
    assert not (shop.root / DATA).exists()


def _tar(store: object, tree: Input) -> Path:
    made: Path = store._download(tree, None)  # type: ignore[attr-defined]
    return made
