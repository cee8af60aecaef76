"""Tests of ``--source``: another ONNX Runtime for the bases, from real repositories, folders and archives.

Everything else has made-up pins; nothing is fetched but the source and the archives of its ``deps.txt``.
"""

import re
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from builder import errors
from builder.build import source_reading, variant_build
from builder.build.packing import Packer, command_of
from builder.build.pinning import pin_base, pin_inputs
from builder.build.source_reading import other_host, rules_of, store_rules
from builder.build.source_trial import named_source, try_source
from builder.build.verbs.flags import ChosenVariants
from builder.compile.plan import PlanOptions, decide
from builder.compile.render import render
from builder.config.build_plan import NOTHING_RENDERED
from builder.config.inputs import Input, InputKind, Lock, Pin
from builder.config.load import load_project, parse_lock, render_lock
from builder.config.variants import GitSource, Origin, base_inputs
from builder.errors import ConfigError, IntegrityError, ParseError, TransferError, ValidationError
from builder.facts.ort.configured import SourceLine
from builder.facts.ort.known_rules import DATA, ReadSource, loads, read_sources
from builder.facts.ort.source_rules import SourceRules
from builder.farm.repair import Repair
from builder.formats.package_names import Host, PackageForm
from builder.io.wiring import Wiring
from tests.support import ROOT
from tests.support.factories.packages import pinned
from tests.support.factories.sources import NAMES, archive, commit, git, lay_mirror, lay_source, url_of
from tests.support.fakes.ports import FakeEngine, FakeReporter, reported
from tests.support.messages import Refused
from tests.support.tables import data_text, table

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")

PROJECT = data_text("config/packaged.yaml")
PIN = Pin(filename="x", size=1, sha256="1" * 64, revision="2" * 40)
IMAGES = {"nvidia/cuda:12.9.1-devel-ubuntu22.04", "ubuntu:22.04"}
RE2 = "      re2: pool/main/r/re2/re2_20240702.orig.tar.gz\n"

Shops = Callable[..., Wiring]
"""The fixture ``shops``: it returns a wiring whose ``variants.yaml`` has other texts in place of some."""


@pytest.fixture
def shops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shops:
    monkeypatch.setenv("ORTPACKS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ORTPACKS_ARCHIVE_MIRROR", str(tmp_path / "mirror"))
    folder = tmp_path / "project"
    folder.mkdir()

    def make(*changes: tuple[str, str]) -> Wiring:
        """All inputs are pinned, but for sources, and images, which the engine holds."""
        text = PROJECT
        for old, new in changes:
            text = text.replace(old, new, 1)
        (folder / "variants.yaml").write_text(text, encoding="utf-8")
        project = load_project(text, "variants.yaml")
        sources = {base.source.item.key for base in project.bases.values()}
        pins = {key: pin for key, pin in pinned(project).pins.items() if key not in sources}
        (folder / "inputs.lock").write_text(render_lock(Lock(pins)))
        return again(Wiring(folder, reporter=FakeReporter()))

    return make


@pytest.fixture
def shop(shops: Shops) -> Wiring:
    return shops()


def again(shop: Wiring) -> Wiring:
    """Return the wiring of another run."""
    made = Wiring(shop.root, reporter=FakeReporter())
    made.__dict__["engine"] = FakeEngine(images=IMAGES)
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


def rules(shop: Wiring, base: str = "assembled") -> SourceRules:
    """Return the rules that are read of a base's source."""
    read = rules_of(shop, shop.project.bases[base], shop.reporter)
    assert read is not None
    return read


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone with two commits: a tag 1.28.0, and 1.29.0 on the branch ``work/größer`` and ``HEAD``."""
    folder = lay_source(tmp_path / "ein Köder" / "onnx runtime", "1.28.0")
    commit(folder, "v1.28.0")
    lay_source(folder, "1.29.0")
    commit(folder)
    git(folder, "branch", "work/größer")
    return folder


@pytest.mark.parametrize(("named", "version"), table("config/trials.txt"))
def test_the_bases_compile_what_is_named(
    shop: Wiring, clone: Path, tmp_path: Path, named: str, version: str
) -> None:
    git(tmp_path, "clone", "--quiet", "--bare", clone.as_uri(), "bare")
    git(tmp_path, "clone", "--quiet", "--depth=1", clone.as_uri(), "shallow")
    tar = tmp_path / "ä b.tar.gz"
    git(clone, "archive", "--prefix=onnxruntime-1.28.0/", f"--output={tar}", "v1.28.0")
    first, before = git(clone, "rev-parse", "v1.28.0"), shop.lock_file.read_bytes()
    places = {"clone": clone, "bare": tmp_path / "bare", "shallow": tmp_path / "shallow", "tar": tar}
    try_source(shop, named.format(first=first, **places))
    assert {base.ort_version for base in shop.project.bases.values()} == {version}
    item = shop.project.bases["nvidia"].source.item
    assert [one.name for one in shop.lock.sources[item.key].dependencies] == [*NAMES]
    assert shop.lock_file.read_bytes() == before
    assert (item.key in kept(shop).pins) == (item.kind is not InputKind.TREE)
    if item.kind is not InputKind.FILE:
        wanted = first if version == "1.28.0" else git(clone, "rev-parse", "HEAD")
        said = f"ONNX Runtime {version} of {item.spec}, commit {wanted}"
        assert shop.lock.pins[item.key].revision == wanted
        assert any(said in line for line in reported(shop))


def test_a_trial_is_rendered_with_the_archives_that_its_source_downloads(
    shop: Wiring, clone: Path, tmp_path: Path
) -> None:
    """Another run fetches nothing again, and inputs.lock stays as it was."""
    lay_mirror(tmp_path / "mirror")
    before = shop.lock_file.read_bytes()
    try_source(shop, f"{clone}@v1.28.0")
    dockerfile = made_of(shop, "nvidia")
    assert 'unpack onnxruntime "onnx_runtime-v1.28.0.tar" 0\n' in dockerfile
    for name in NAMES:
        place = url_of(name).removeprefix("https://")
        file = f'"/sources/{place.replace("/", "_")}"'
        assert f'install -D --mode=0644 {file} "/src/onnxruntime/mirror/{place}"' in dockerfile
    assert "FETCHCONTENT_" not in dockerfile
    assert "onnx.patch" not in dockerfile, "its own build applies it"
    assert shop.lock_file.read_bytes() == before
    assert {f"url:{url_of(name)}" for name in NAMES} < kept(shop).pins.keys()
    assert "trials.lock has these 3 pins now" in reported(shop)
    shutil.rmtree(tmp_path / "mirror")
    other = again(shop)
    try_source(other, f"{clone}@v1.28.0")
    assert made_of(other, "nvidia") == dockerfile


def test_what_a_base_has_in_place_of_archives_stays_where_the_source_wants_it(
    clone: Path, tmp_path: Path, shops: Shops
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
    shop = shops((RE2, RE2 + others))
    try_source(shop, str(clone))
    replaced = shop.project.bases["assembled"].dependencies
    assert [*replaced] == ["abseil_cpp", "eigen", "json"], "nothing else is downloaded"
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


@pytest.mark.parametrize(
    ("asked", "has", "stays"),
    [
        ("refs/tags/v1.17.0.zip", "pool/main/o/onnx/onnx_1.17.0.orig.tar.gz", True),
        ("refs/tags/v1.9.0.zip", "pool/main/o/onnx/onnx_1.17.0.orig.tar.gz", True),
        ("refs/tags/v1.18.0.zip", "pool/main/o/onnx/onnx_1.17.0.orig.tar.gz", False),
        (f"{'a' * 40}.zip", "pool/main/o/onnx/onnx_1.17.0.orig.tar.gz", False),
        ("refs/tags/v1.18.0.zip", "/srv/onnx", True),
    ],
)
def test_an_older_onnx_of_a_base_does_not_stay(
    clone: Path, tmp_path: Path, shops: Shops, asked: str, has: str, *, stays: bool
) -> None:
    """Its operators are ONNX Runtime's: 1.23 with ONNX 1.17 failed in 319 units, after 20 minutes.

    What stays is patched as ONNX Runtime's own build patches what it downloads: without, a unit failed.
    """
    shop = shops((RE2, f"{RE2}      onnx: {has}\n"))
    with (clone / "cmake/deps.txt").open("a") as rows:
        rows.write(f"onnx;https://github.com/onnx/onnx/archive/{asked};{'0' * 40}\n")
    with (clone / "cmake/CMakeLists.txt").open("a") as commands:
        commands.write("FetchContent_Declare(onnx URL ${DEP_URL_onnx})\n")
    try_source(shop, str(clone))
    assert ("onnx" in shop.project.bases["assembled"].dependencies) is stays
    if stays and has.startswith("pool/"):
        lay_mirror(tmp_path / "mirror")
        unpacked, patched = (
            'unpack onnx "onnx_1.17.0.orig.tar.gz" 1',
            "/src/onnxruntime/cmake/patches/onnx/onnx.patch",
        )
        assert unpacked in (text := made_of(shop, "assembled"))
        assert patched in text.partition(unpacked)[2]


def test_a_dependency_of_the_command_line_counts_before_the_bases(
    clone: Path, shops: Shops, refused: Refused
) -> None:
    shop = shops((RE2, f"{RE2}      json: none\n"))
    try_source(shop, str(clone), ["json=/srv/json", "eigen=flashinfer-python==0.5.2#flashinfer/data/eigen"])
    for name in ("nvidia", "assembled"):
        replaced = shop.project.bases[name].dependencies
        assert replaced.keys() == {"json", "eigen"}
        assert replaced["json"].item == Input(InputKind.TREE, "/srv/json")
    for wrong in ("json", "json=no", "onnx=none", "abseil_cpp=abseil==1.0"):
        with refused(ValidationError):
            try_source(again(shop), str(clone), [wrong])


def test_an_archive_that_cannot_be_had_or_has_other_bytes_is_told_with_its_line(
    shop: Wiring, clone: Path, tmp_path: Path, refused: Refused
) -> None:
    shop.env = {**shop.env, "ORTPACKS_ARCHIVE_MIRROR": "http://127.0.0.1:1"}
    shop.sleep = lambda _: None
    try_source(shop, f"{clone}@v1.28.0")
    with refused(TransferError) as caught:
        pin_base(shop, "nvidia", shop.reporter, Host.SOURCE)
    assert f"abseil_cpp of line 2 in cmake/deps.txt of {clone}@v1.28.0 " in str(caught.value)
    assert "dependencies.abseil_cpp of the base" in str(caught.value)
    mirror = lay_mirror(tmp_path / "mirror")
    (mirror / url_of("json").removeprefix("https://")).write_bytes(archive("other"))
    other = again(shop)
    try_source(other, str(clone))
    with pytest.raises(IntegrityError, match=r"names SHA-1 [0-9a-f]{40}, its host sent"):
        pin_base(other, "nvidia", other.reporter, Host.SOURCE)
    assert f"url:{url_of('json')}" not in other.lock.pins


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
        run.lock = run.lock.with_more(Lock({f"url:{url_of(name)}": PIN for name in NAMES}))
        options = PlanOptions(host=Host.SOURCE)
        plan = decide(run.project, run.project.variants["legacy"], options, "nvidia", Origin.SOURCE)
        return pin.sha256, pin.is_dirty, render(plan, run.lock, Wiring(ROOT).loader).toolchain_key

    clean = tried()
    lay_source(clone / "build")
    assert tried() == clean
    (clone / "new.cc").write_text("int b;\n")
    edited = tried()
    assert (clean[0] != edited[0], clean[1:], edited[1:]) == (True, (False, clean[2]), (True, clean[2]))


def test_a_branch_is_looked_up_in_each_run_and_not_offline_only(shop: Wiring, clone: Path) -> None:
    for version in ("1.29.0", "1.30.0"):
        (lay_source(clone, version) / "x").write_text(version)
        head, key, run = commit(clone), f"git:{clone}@main", again(shop)
        run.offline = version == "1.30.0"  # a clone of this machine is at hand
        try_source(run, f"{clone}@main")
        assert (run.lock.pins[key].revision, run.lock.sources[key].version) == (head, version)


@pytest.mark.parametrize(
    ("named", "names", "told"),
    [
        ("{clone}@v1.28.0", "{first}", ""),
        ("{clone}", "{head}", ""),
        ("https://github.com/microsoft/onnxruntime@v1.28.0", "{head}", ""),
        ("{clone}@v1.28.0", "{head}", "was built from commit {head}, and not from {first}"),
        ("{edited}", "{head}", "was built from commit {head}, and not from {head} with changes"),
        ("{tar}", "{first}", "was built from commit {first}, and not from ort.tar.gz"),
    ],
)
def test_the_official_host_library_is_of_the_commit_that_it_names(
    shop: Wiring, clone: Path, tmp_path: Path, named: str, names: str, told: str
) -> None:
    tar, edited = tmp_path / "ort.tar.gz", tmp_path / "edited"
    git(clone, "archive", "--prefix=onnxruntime/", f"--output={tar}", "v1.28.0")
    git(tmp_path, "clone", "--quiet", clone.as_uri(), "edited")
    (edited / "VERSION_NUMBER").write_text("1.29.0\n\n")
    first, head = (git(clone, "rev-parse", ref)[:10] for ref in ("v1.28.0", "HEAD"))
    library = tmp_path / "wheel/onnxruntime/capi/libonnxruntime.so.1"
    library.parent.mkdir(parents=True)
    library.write_bytes(
        b"\0ORT Build Info: git-commit-id=%s, x\0" % names.format(first=first, head=head).encode()
    )
    base = shop.project.bases["nvidia"]
    if named.startswith("https:"):
        shop.is_trial = True
        base = replace(base, source=named_source(named), ort_version="1.28.0")
    else:
        try_source(shop, named.format(clone=clone, edited=edited, tar=tar))
        base = shop.project.bases["nvidia"]
    why = other_host(shop, base, lambda _: tmp_path / "wheel")
    assert why == (why and f"onnxruntime-gpu=={base.ort_version} {told.format(first=first, head=head)}")
    assert bool(why) is bool(told)


def test_the_host_library_of_a_base_without_a_commit_is_not_doubted(shop: Wiring) -> None:
    base = shop.project.bases["assembled"]
    other = replace(base, source=named_source("https://example.org/ort.tar.gz"))
    for one in (base, other):
        assert other_host(shop, one, lambda _: pytest.fail("asked")) == ""


def test_patches_are_those_of_their_version(clone: Path, shops: Shops) -> None:
    patched = "onnxruntime: 1.28.0\n    patches: [patches/a.patch]\n"
    for named, patches in ((f"{clone}@v1.28.0", ("patches/a.patch",)), (str(clone), ())):
        shop = shops(("onnxruntime: 1.21.0\n", patched))
        try_source(shop, named)
        assert shop.project.bases["nvidia"].patches == patches


@pytest.mark.parametrize(("named", "kind"), table("config/no-sources.txt"))
def test_what_is_no_source_is_told(
    shop: Wiring, clone: Path, tmp_path: Path, refused: Refused, named: str, kind: str
) -> None:
    folder, file, broken = tmp_path / "folder", tmp_path / "onnxruntime.zip", tmp_path / "broken.tar.gz"
    folder.mkdir()
    for path in (file, broken):
        path.write_bytes(b"PK")
    for branch, gone in (("empty", "VERSION_NUMBER"), ("old", "cmake/deps.txt"), ("dev", "")):
        git(clone, "checkout", "--quiet", "-b", branch, "main")
        if gone:
            git(clone, "rm", "--quiet", gone)
        else:
            (clone / "VERSION_NUMBER").write_text("1.30.0-dev\n")
        commit(clone)
    tar = tmp_path / "flat.tar.xz"
    with tarfile.open(tar, "w:xz") as flat:
        flat.add(clone / "VERSION_NUMBER", "VERSION_NUMBER")
    places = {"folder": folder, "file": file, "clone": clone, "tar": tar, "broken": broken}
    with refused(getattr(errors, kind)):
        try_source(shop, named.format(**places))


def test_nothing_of_a_wrong_folder_is_copied(shop: Wiring, tmp_path: Path) -> None:
    """Defect: of a home without a source 2.6 GB were packed into the cache, and then refused."""
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "thesis.txt").write_text("mine")
    with pytest.raises(errors.ParseError, match="it has no VERSION_NUMBER"):
        try_source(shop, str(folder))
    assert [path.name for path in shop.cache.rglob("*home*")] == []


@pytest.mark.parametrize("text", ["~no-such-user/ort", "~no-such-user/ort@v1"])
def test_a_home_of_nobody_is_told(text: str) -> None:
    with pytest.raises(ConfigError, match="no home is known for that user"):
        named_source(text)


def test_a_folder_whose_name_has_an_at_sign_is_a_folder(tmp_path: Path) -> None:
    folder = lay_source(tmp_path / "ort@work")
    assert named_source(str(folder)).item == Input(InputKind.TREE, str(folder))
    assert named_source(f"{folder}@v1").item == Input(InputKind.GIT, f"{folder}@v1")


def test_the_command_of_a_trial_names_no_folder_of_this_machine(shop: Wiring, clone: Path) -> None:
    given = ("json=/srv/json", "eigen=x==1#y", "abseil_cpp=none")
    try_source(shop, f"{clone}@v1.28.0", given)
    options = PlanOptions(source=f"{clone}@v1.28.0", dependencies=given)
    plan = decide(shop.project, shop.project.variants["legacy"], options, "nvidia", Origin.SOURCE)
    flags = "--source onnx runtime@v1.28.0 --dependency json=json --dependency eigen=x==1#y"
    assert command_of(plan, options).endswith(f" {flags} --dependency abseil_cpp=none")


def test_a_package_of_a_trial_has_no_revision_of_its_base(shop: Wiring, clone: Path) -> None:
    """So publish refuses it (R009). A commit in variants.yaml has one, unless it is of this machine."""
    far, here = GitSource(Input(InputKind.GIT, "https://github.com/you/ort@v1")), named_source(str(clone))
    for source, tried, has_one in ((far, None, True), (far, "x", False), (here, None, False)):
        base = replace(shop.project.bases["assembled"], source=source)
        project = replace(shop.project, bases={"assembled": base})
        shop.lock = Lock({item.key: PIN for item in base_inputs(project, "assembled", Lock({}))})
        packer = Packer(
            wiring=shop,
            place=shop.place("legacy"),
            plan=decide(project, project.variants["legacy"], PlanOptions(), "assembled", Origin.SOURCE),
            rendered=NOTHING_RENDERED,
            plan_options=PlanOptions(source=tried),
            began=0,
            tools=None,
            store=shop.store(shop.lock),
            reporter=shop.reporter,
        )
        assert (packer._base_revision() is not None) is has_one


def test_a_source_is_tried_once_for_all_variants(shop: Wiring, clone: Path) -> None:
    options, builders = PlanOptions(source=str(clone), base="nvidia"), {"builder": None, "context": None}
    chosen = ChosenVariants(
        wiring=shop, names=("legacy",), every=False, plan_options=options, builders=builders
    )
    for _ in range(2):
        assert [*chosen.builds()] == ["legacy"]
    assert sum("ONNX Runtime 1.29.0 of " in line for line in reported(shop)) == 1


def test_a_trial_of_a_version_without_an_official_wheel_compiles_its_host_library(
    shop: Wiring, clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: object) -> Path:
        raise ValidationError("the index has no onnxruntime-gpu 1.29.0.")

    monkeypatch.setattr(variant_build, "unpack_pinned", missing)
    shop.env = {**shop.env, "PIP_NO_INDEX": "1"}
    lay_mirror(tmp_path / "mirror")
    options, builders = PlanOptions(source=str(clone), base="nvidia"), {"builder": None, "context": None}
    chosen = ChosenVariants(
        wiring=shop, names=("legacy",), every=False, plan_options=options, builders=builders
    )
    made = chosen.builds()["legacy"].plan()
    assert (made.host, made.host_reason) == (Host.SOURCE, "the index has no onnxruntime-gpu 1.29.0")


OFFICIAL = "git: https://github.com/microsoft/onnxruntime@v1.21.0"
NEWER = ("onnxruntime: 1.21.0\n", "onnxruntime: 1.28.0\n")


def test_a_base_that_names_another_version_or_sha256_than_its_source_is_refused(
    clone: Path, tmp_path: Path, shops: Shops, refused: Refused
) -> None:
    shop = shops((OFFICIAL, f'git: "{clone}@v1.28.0"'))
    before = shop.lock_file.read_bytes()
    with refused(ConfigError):
        pin_base(shop, "nvidia", shop.reporter, Host.SOURCE)
    item = shop.project.bases["nvidia"].source.item
    made, left = pin_inputs(shop, [item], Lock({}), shop.reporter)
    assert (made, [one.key for one in left]) == (Lock({}), [item.key]), "lock --missing keeps nothing of it"
    assert shop.lock_file.read_bytes() == before
    tar = tmp_path / "x.tar.gz"
    git(clone, "archive", "--prefix=x/", f"--output={tar}", "v1.28.0")
    shop = shops((OFFICIAL, f'tarball: "{tar}"\n      sha256: {"a" * 64}'), NEWER)
    with pytest.raises(ConfigError, match=rf"sha256: {re.escape(str(tar))} has [0-9a-f]{{64}}, not a{{64}}"):
        pin_base(shop, "nvidia", shop.reporter, Host.SOURCE)


def test_a_base_in_variants_yaml_may_have_a_clone_of_this_machine_and_a_folder_is_never_locked(
    clone: Path, tmp_path: Path, shops: Shops
) -> None:
    lay_mirror(tmp_path / "mirror")
    git(clone, "checkout", "--quiet", "v1.28.0")
    for new, is_kept in ((f'git: "{clone}@v1.28.0"', True), (f'tree: "{clone}"', False)):
        shop = shops((OFFICIAL, new), NEWER)
        pin_base(shop, "nvidia", shop.reporter, Host.SOURCE)
        item, file = shop.project.bases["nvidia"].source.item, shop.committed_lock
        assert (item.key in file.pins, item.key in file.sources) == (is_kept, is_kept)
        assert shop.lock.sources[item.key].version == "1.28.0"
        assert f"url:{url_of('json')}" in file.pins
        assert made_of(shop, "nvidia").count("/src/onnxruntime/mirror/") == len(NAMES)


def readings(shop: Wiring) -> int:
    """Return how often this run read a source."""
    return sum("reading " in line for line in reported(shop))


def test_the_source_of_a_trial_is_read_once_for_each_nvcc(shop: Wiring, tmp_path: Path) -> None:
    folder = lay_source(tmp_path / "source", "1.30.0")
    try_source(shop, str(folder))
    *_, read = (rules(shop, name) for name in ("nvidia", "assembled", "assembled"))
    assert (read.version, read.stands_in, bool(read.launches)) == ("1.30.0", False, True)
    assert "contrib_ops/cuda/big/one.cu" in read.paths
    assert readings(shop) == 2
    other = again(shop)
    try_source(other, str(folder))
    assert (rules(other), readings(other)) == (read, 0)
    (folder / "cmake/cuda_provider.cmake").write_text("(", encoding="utf-8")
    with pytest.raises(ParseError, match=r"source: cmake/cuda_provider\.cmake:1 of .* Parse error"):
        try_source(again(shop), str(folder))


def test_rules_are_read_from_the_source_as_it_is_repaired(
    shop: Wiring, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Units that a repair gives a target are no more missed; one that does not fit stops the plan."""
    gone = Repair(
        *("a", "big needs 7.5", "cmake/cuda_provider.cmake", "from.75", "^from.75 list.$", "from(50 list)"),
        *("from.50", 75, ("1.40",)),
    )
    beside = replace(gone, name="b", file="onnxruntime/core/a.cc", symptom="a", pattern="a;", beside="c")
    monkeypatch.setattr(source_reading, "of_form", lambda _: {"a": gone, "b": beside})
    try_source(shop, str(lay_source(tmp_path / "source", "1.30.0")))
    read = rules(shop)
    assert read.repairs == {"a": SourceLine("cmake/cuda_provider.cmake", 40)}
    assert "big" not in {group.name for group in read.groups}
    monkeypatch.setattr(source_reading, "of_form", lambda _: {"a": replace(gone, pattern="nothing")})
    with pytest.raises(ParseError, match=r"repair a does not fit cmake/cuda_provider\.cmake: its pattern"):
        rules(shop)


def test_a_release_and_a_source_without_a_pin_have_the_stored_rules(shop: Wiring) -> None:
    item = Input(InputKind.GIT, "https://host.example/fork@v1.21.0")
    fork = replace(shop.project.bases["nvidia"], source=GitSource(item))
    for base in (*shop.project.bases.values(), fork):
        assert rules_of(shop, base, shop.reporter) is None
    assert not readings(shop)


def test_rules_of_a_release_that_is_pinned_are_stored_once(
    shop: Wiring, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = Input(InputKind.TREE, str(lay_source(tmp_path / "source", "1.29.0")))
    official = Input(InputKind.GIT, "https://github.com/microsoft/onnxruntime@v1.29.0")
    kind = type(shop.store(Lock({})))
    monkeypatch.setattr(kind, "fetch", lambda store, _: store._download(tree, None))
    base = replace(shop.project.bases["nvidia"], source=GitSource(official), ort_version="1.29.0")
    shop.project = replace(shop.project, bases={"nvidia": base})
    file = shop.root / DATA
    file.parent.mkdir(parents=True)
    store_rules(shop, shop.reporter)
    assert not file.exists()
    shop.lock = Lock({official.key: Pin(revision="1" * 40)})
    store_rules(shop, shop.reporter)
    written = [one.source for one in loads(tuple[ReadSource, ...], file.read_text(encoding="utf-8"))]
    *others, newest = (one.source for one in read_sources())
    assert written == [*others, "v1.29.0", newest]
    monkeypatch.setattr(source_reading, "is_read", lambda _: True)
    file.unlink()
    store_rules(shop, shop.reporter)
    assert not file.exists()


def test_what_a_plugin_leaves_out_is_read_with_its_source(shop: Wiring, tmp_path: Path) -> None:
    folder = lay_source(tmp_path / "source")
    kernel = "ONNX_OPERATOR_KERNEL_EX({}, kMSDomain, 1, kCudaExecutionProvider, x);\n"
    more = {
        "plugin-ep-cuda/MIN_ONNXRUNTIME_VERSION": "1.24.4\n",
        "include/onnxruntime/core/session/onnxruntime_c_api.h": "#define ORT_API_VERSION 29\n",
        "include/onnxruntime/core/graph/constants.h": 'constexpr const char* kMSDomain = "com.microsoft";\n',
        "onnxruntime/contrib_ops/cuda/search.cc": kernel.format("BeamSearch"),
        "onnxruntime/contrib_ops/cuda/gelu.cc": kernel.format("FastGelu"),
    }
    for path, text in more.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    with (folder / "cmake/cuda_provider.cmake").open("a") as script:
        script.write(
            'target_sources(onnxruntime_providers_cuda PRIVATE "${CODE}/contrib_ops/cuda/gelu.cc")\n'
            "if(NOT onnxruntime_BUILD_CUDA_EP_AS_PLUGIN)\n"
            '  target_sources(onnxruntime_providers_cuda PRIVATE "${CODE}/contrib_ops/cuda/search.cc")\n'
            "endif()\n"
        )
    try_source(shop, str(folder))
    read = rules_of(shop, shop.project.bases["assembled"], shop.reporter, PackageForm.PLUGIN)
    assert read
    assert read.plugin
    assert read.plugin.left_out == {"com.microsoft": ("BeamSearch",)}
