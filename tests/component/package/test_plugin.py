"""Tests of plug-ins on their way from a plan to a package: what differs from a provider."""

import json
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
from jinja2 import FileSystemLoader

from builder.build.verbs.flags import ChosenVariants
from builder.compile.explain import explain
from builder.compile.plan import PlanOptions, decide
from builder.compile.render import render
from builder.config.build_plan import BuildPlan, compile_plan, package_name
from builder.config.profiles import options_of
from builder.config.variants import Origin, Project
from builder.contents.integrity import check_name
from builder.contents.package_manifest import promised
from builder.contents.required_files import required_files
from builder.contents.rules.dependencies import check_closure
from builder.errors import ConfigError, ValidationError
from builder.facts.ort.known_rules import rules_for, stated
from builder.facts.ort.source_rules import SourceRules
from builder.finding import Code
from builder.formats.index import entry_of
from builder.formats.manifest import PluginEntry, loads
from builder.formats.missing_kernels import MissingKernels
from builder.formats.package_names import Host, PackageForm, PackageName, Profile
from builder.formats.stored_file import StoredFile
from builder.io.archive.unpacking import extract, manifest_bytes
from builder.io.process import Completed
from builder.prove.selftest import selftest
from tests.support import ROOT
from tests.support.factories import packages
from tests.support.factories.bundling import site_in
from tests.support.factories.plugins import OPTION, plugin_rules
from tests.support.factories.selftests import LISTING, bench
from tests.support.fakes.ports import FakeEngine

NAME = "ortpacks-legacy-1.30.0-cuda12.9-plugin"

PROVIDER = "lib/libonnxruntime_providers_cuda.so"

TEXTS = ("LICENSE", "ThirdPartyNotices.txt")

ENTRY = PluginEntry(PROVIDER, ("CUDAExecutionProvider",), "1.24.4", 30, "ab" * 32)


def planned(read: SourceRules | None = None, profile: Profile = Profile.FULL, **changes: object) -> BuildPlan:
    made = packages.plan(
        source_rules=read or plugin_rules(), profile=profile, host=None, ort_version="1.30.0"
    )
    return replace(made, variant=replace(made.variant, form=PackageForm.PLUGIN), **changes)  # type: ignore[arg-type]


def test_a_source_without_plugins_is_refused_with_a_way_out() -> None:
    for read in (rules_for("1.21.0"), replace(plugin_rules(), plugin=None)):
        plan = planned(read)
        with pytest.raises(ConfigError, match=rf"{read.version}.*{OPTION}.*--form provider"):
            options_of(plan, compile_plan(plan))


def test_a_plugin_has_no_host_library(project: Project) -> None:
    variant = replace(project.variants["legacy"], form=PackageForm.PLUGIN)
    made = decide(project, variant, PlanOptions(), "assembled", Origin.SOURCE)
    assert (made.host, made.host_origin, made.variant.folder) == (None, "none", "legacy-plugin")
    with pytest.raises(ValidationError, match="a plug-in has none"):
        decide(project, variant, PlanOptions(host=Host.SOURCE), "assembled", Origin.SOURCE)


def test_what_is_compiled_may_be_asked_for_as_a_plugin(project: Project) -> None:
    made = ChosenVariants(
        wiring=Mock(project=project),
        names=(),
        every=True,
        plan_options=PlanOptions(),
        form=PackageForm.PLUGIN,
        builders={},
    )
    assert {(one.name, one.form) for one in made.variants()} == {
        (name, PackageForm.PLUGIN) for name in ("legacy", "modern", "latest")
    }
    as_providers = replace(made, form=PackageForm.PROVIDER).variants()
    assert as_providers == replace(made, form=None).variants()
    with pytest.raises(ValidationError, match="cpu would be an official wheel"):
        replace(made, names=("cpu",)).variants()


@pytest.mark.parametrize("profile", Profile)
def test_its_options_are_set(profile: Profile) -> None:
    plan = planned(profile=profile)
    made = {option.name: option.value for option in options_of(plan, compile_plan(plan))}
    assert (made[OPTION], made["onnxruntime_PLUGIN_EP_VERSION"]) == ("ON", "0.2.0")
    assert "onnxruntime_CUDA_MINIMAL" not in made
    assert ("ORTPACKS_MINIMAL" in made) == (profile is Profile.MINIMAL)
    for flag in (
        "--version-script=/src/plugin.lds",
        "-z,defs",
        "-z,noexecstack",
        "-soname,libonnxruntime_providers_cuda.so",
    ):
        assert flag in made["CMAKE_MODULE_LINKER_FLAGS"]


def test_what_is_rendered(project: Project) -> None:
    plan = planned(project=project)
    made = render(plan, packages.pinned(project), FileSystemLoader(ROOT / "templates")).dockerfile
    lines = [line.strip() for line in made.splitlines()]
    assert "VERS_1.30.0 { global: CreateEpFactories; ReleaseEpFactory; local: *; };" in lines
    assert "onnxruntime_providers_cuda_plugin" in lines
    assert "for library in libonnxruntime_providers_cuda.so; do" in lines
    assert "cp /src/onnxruntime/LICENSE /src/onnxruntime/ThirdPartyNotices.txt /out/" in lines
    assert "target=/build,sharing=locked" in made
    assert "id=ortpacks-legacy-plugin-full-none-" in made
    notes = "\n".join(explain(plan).notes)
    for fact in ("1.24.4 on register it (plugin/x:3)", "ORT_API_VERSION 30 (plugin/x:3)", "ab" * 32):
        assert fact in notes
    assert '"oldest_host": "plugin/x:3: 1.24.4"' in json.dumps(stated(plan.rules, []))  # provenance has it


def test_it_holds_no_host_library_no_bridge_and_nothing_it_does_not_link() -> None:
    files = {file.path: file for file in required_files(planned())}
    own = {path for path, file in files.items() if file.vendor == "onnxruntime" and path.startswith("lib/")}
    assert own == {PROVIDER}
    assert {"lib/libcudnn.so.9", "lib/libcufft.so.11", "lib/libcublasLt.so.12"} <= {*files}
    assert "lib/libcurand.so.10" not in files
    texts = [files[f"licenses/{name}.txt"] for name in ("onnxruntime", "onnxruntime-third-party")]
    assert [text.places for text in texts] == [("LICENSE",), ("ThirdPartyNotices.txt",)]
    assert {text.source for text in texts} == {None}
    codes = {finding.code for finding in check_closure([], packages.LIMITS, PackageForm.PLUGIN)}
    assert Code.E012 not in codes
    assert Code.E012 in {finding.code for finding in check_closure([], packages.LIMITS)}


def test_its_package_says_which_hosts_register_it(tmp_path: Path) -> None:
    made = site_in(tmp_path, *TEXTS).bundle(planned())
    assert {one.name.removesuffix(".zst").removesuffix(".gz") for one in made} == {
        *(f"{NAME}-linux-x64.tar", f"{NAME}-thin-linux-x64.tar")
    }
    manifest = loads(manifest_bytes(made[0].path), "it")
    assert (manifest.plugin, manifest.onnxruntime.host, manifest.form) == (ENTRY, "none", PackageForm.PLUGIN)
    assert manifest.onnxruntime.cannot_run == (MissingKernels("com.microsoft", ("BeamSearch",)),)
    stored = StoredFile(made[0].name, made[0].size, made[0].sha256)
    assert entry_of(manifest, stored).plugin == ENTRY
    assert promised(manifest) == planned().variant
    assert [*check_name(PackageName.parse(made[0].name), manifest)] == []
    other = PackageName.parse(made[0].name.replace("-plugin", ""))
    assert {finding.code for finding in check_name(other, manifest)} == {Code.B002}
    extract(made[0].path, tmp_path / "out")
    assert json.loads((tmp_path / "out/version.json").read_text()) == {"version": "0.2.0"}


def test_the_bare_container_loads_it_and_runs_nothing(tmp_path: Path) -> None:
    manifest = loads(manifest_bytes(site_in(tmp_path, *TEXTS).bundle(planned())[0].path), "it")
    said = {
        (f"{LISTING}\nsmoke\n", 0): [],
        (f"{LISTING}ldd /opt/p/lib/libx.so\n\tlibgone.so.1 => not found\n\nsmoke\n", 0): [Code.B018],
        (LISTING, 1): [Code.B010],
    }
    for (stdout, code), codes in said.items():
        engine = FakeEngine(answer=Completed(code=code, stdout=stdout, stderr=""))
        findings = selftest(manifest, {PROVIDER: tmp_path / "x"}, bench(engine))
        assert [finding.code for finding in findings] == codes
        (run,) = engine.runs
        assert run.argv[-1] == "true"


def test_names_are_read_back() -> None:
    for profile, end in ((None, ""), ("lean", "-lean")):
        name = replace(package_name(planned()), profile=profile)
        assert str(name) == f"{NAME}{end}-linux-x64"
        assert PackageName.parse(f"{name}.tar.zst") == name
