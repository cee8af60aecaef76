"""Tests of plan: base, origin, version and profile, each with the reason that the user reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from builder.compile.plan import PROVIDERS_IN_WHEELS, Planner, PlanOptions
from builder.config.build_plan import BuildPlan
from builder.config.inputs import Input
from builder.config.load import load_project
from builder.config.variants import Origin, Project, Variant
from builder.contents.reading import needed_libraries
from builder.errors import (
    BuilderError,
    CompatibilityError,
    IntegrityError,
    ToolMissingError,
    TransferError,
    ValidationError,
)
from builder.facts.gpu.architectures import Arch
from builder.formats.package_names import LINUX, WINDOWS, Host, Profile
from tests.support.factories import packages
from tests.support.factories.binaries import elf
from tests.support.factories.pe import pe
from tests.support.fakes.ports import FakeEngine, FakeReporter, FakeStore, NoEngine

IMAGE = "nvidia/cuda:12.9.1-devel-ubuntu22.04"

OFFICIAL = (60, 70, 75, 80, 86, 90)
"""Architectures in every container of the 1.23.2 wheel's provider, listed by cuobjdump."""

REFUSED = TransferError(
    f"{IMAGE} cannot be resolved",
    cause="no such host",
    advice="Check the network, or use --base assembled, which needs no image registry.",
)

LEGACY = Variant(name="legacy", sm=tuple(map(Arch.parse, ("50", "52", "60", "61", "70"))), generations=())

MODERN = Variant(name="modern", sm=tuple(map(Arch.parse, ("75", "80", "86"))), generations=())

CPU = Variant(name="cpu", sm=(), generations=(), provider="cpu")

LATEST = Variant(name="latest", sm=tuple(map(Arch.parse, ("89", "90", "100", "120"))), generations=())


@dataclass(kw_only=True)
class Refusing(FakeEngine):
    """An engine whose registry answers with an error, as Docker does when a registry's name is unknown."""

    error: TransferError = REFUSED

    def resolve(self, reference: str) -> str:
        raise self.error


class Offline(FakeEngine):
    """An engine whose registry must not be asked."""

    def resolve(self, reference: str) -> str:
        pytest.fail(f"a registry was asked for {reference}")


class Untouchable(Offline):
    """An engine that must not be asked, nor its registry."""

    def has_image(self, reference: str) -> bool:
        pytest.fail(f"the engine was asked for {reference}")


def project() -> Project:
    """Return a project whose nvidia base compiles 1.23.2 and whose assembled base compiles 1.21.0."""
    made = packages.plan().project
    nvidia = replace(made.bases["nvidia"], ort_version="1.23.2")
    return replace(
        made,
        onnxruntime=replace(made.onnxruntime, version="1.23.2"),
        bases={**made.bases, "nvidia": nvidia},
    )


class Desk:
    """A planner with fakes, which records messages and the libraries that were read."""

    def __init__(self, folder: Path) -> None:
        self.store = FakeStore(folder)
        self.reporter = FakeReporter()
        self.read: list[Path] = []

    def plan(
        self,
        variant: Variant,
        *,
        engine: FakeEngine | None = None,
        of: Project | None = None,
        pin: Callable[[str], None] | None = None,
        **plan_options: object,
    ) -> BuildPlan:
        planner = Planner(
            options=PlanOptions(**plan_options),  # type: ignore[arg-type]
            engine=engine or FakeEngine(images={IMAGE}),
            unpack=self.store.unpack,
            native_sm=cache(self.native_sm),
            needed_libraries=self.needed_libraries,
            reporter=self.reporter,
            pin=pin,
        )
        return planner.plan(of or project(), variant)

    def native_sm(self, library: Path) -> Sequence[Arch]:
        self.read.append(library)
        return [Arch.parse(str(number)) for number in OFFICIAL]

    def needed_libraries(self, library: Path) -> Sequence[str]:
        """Read the library if a test made one; the wheels of other tests are for CUDA 12."""
        return needed_libraries(library) if library.is_file() else ("libcublas.so.12", "libcudart.so.12")

    def lay(self, wheel: str, content: bytes, platform: str = LINUX) -> None:
        """Write the CUDA provider of an unpacked wheel."""
        path = self.store.folder / wheel / PROVIDERS_IN_WHEELS[platform]
        path.parent.mkdir(parents=True)
        path.write_bytes(content)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


DIRECTML = Variant(
    name="directml",
    sm=(),
    generations=(),
    provider="directml",
    platform=WINDOWS,
    wheel=Input.wheel("onnxruntime-directml==1.23.0", WINDOWS),
)

ACCELERATED = replace(LATEST, sm=tuple(map(Arch.parse, ("89", "90", "120a"))))

PULLED = FakeEngine(digests={IMAGE: "sha256:" + "a" * 64})

AWAY = Refusing(error=TransferError("the registry is offline"))


def shown(value: object) -> str | None:
    """Return the id of a parameter."""
    if isinstance(value, Variant):
        return value.name
    if isinstance(value, dict):
        return " ".join(f"{key}={wish}" for key, wish in value.items())
    return type(value).__name__ if isinstance(value, FakeEngine) else None


@pytest.mark.parametrize(
    ("variant", "engine", "plan_options", "decided"),
    [
        (MODERN, FakeEngine(images={IMAGE}), {}, "nvidia wheel 1.23.2"),
        (MODERN, PULLED, {}, "nvidia wheel 1.23.2"),
        (MODERN, Refusing(), {}, "assembled wheel 1.21.0"),
        (MODERN, AWAY, {}, "assembled wheel 1.21.0"),
        (MODERN, NoEngine(), {}, "assembled wheel 1.21.0"),
        (MODERN, Untouchable(), {"base": "assembled"}, "assembled wheel 1.21.0"),
        (MODERN, Offline(images={IMAGE}), {"offline": True}, "nvidia wheel 1.23.2"),
        (MODERN, Offline(), {"offline": True}, "assembled wheel 1.21.0"),
        (MODERN, None, {"base": "assembled", "mixed": True}, "assembled wheel 1.23.2"),
        (LEGACY, None, {}, "nvidia source 1.23.2"),
        (LEGACY, Refusing(), {}, "assembled source 1.21.0"),
        (LEGACY, None, {"base": "assembled", "mixed": True}, "assembled source 1.21.0"),
        (LATEST, None, {"base": "nvidia"}, "nvidia source 1.23.2"),
        (LATEST, None, {"base": "assembled", "profile": Profile.FULL}, "assembled source 1.21.0"),
        (LATEST, None, {"base": "assembled", "profile": Profile.LEAN}, "assembled source 1.21.0"),
        (LATEST, None, {"base": "assembled", "profile": Profile.MINIMAL}, "assembled source 1.21.0"),
        (LATEST, None, {"base": "assembled", "host": Host.SOURCE}, "assembled source 1.21.0"),
        (replace(LATEST, widen=True), None, {"base": "assembled"}, "assembled source 1.21.0"),
        (CPU, None, {}, "none wheel 1.23.2"),
        (CPU, Refusing(), {}, "none wheel 1.21.0"),
        (CPU, NoEngine(), {}, "none wheel 1.21.0"),
        (CPU, NoEngine(), {"base": "nvidia"}, "none wheel 1.23.2"),
        (CPU, None, {"base": "assembled", "mixed": True}, "none wheel 1.23.2"),
        (DIRECTML, NoEngine(), {"base": "nvidia", "profile": Profile.LEAN}, "none wheel 1.23.0"),
    ],
    ids=shown,
)
def test_what_is_decided_and_why(
    desk: Desk,
    told: Callable[[object], None],
    variant: Variant,
    engine: FakeEngine | None,
    plan_options: dict[str, Any],
    decided: str,
) -> None:
    made = desk.plan(variant, engine=engine, **plan_options)
    assert f"{made.base} {made.origin.value} {made.ort_version}" == decided
    assert made.added == ()
    told("\n".join(desk.reporter.lines))


@pytest.mark.parametrize(
    ("variant", "engine", "plan_options", "code"),
    [
        (LEGACY, Refusing(), {"base": "nvidia"}, 10),
        (MODERN, NoEngine(), {"base": "nvidia"}, 4),
        (MODERN, Offline(), {"base": "nvidia", "offline": True}, 10),
        (LEGACY, None, {"base": "nvidai"}, 2),
        (LEGACY, None, {"origin": Origin.WHEEL}, 2),
        (ACCELERATED, None, {"base": "assembled", "origin": Origin.SOURCE}, 2),
        (replace(LEGACY, name="windows", platform=WINDOWS), None, {}, 2),
    ],
    ids=shown,
)
def test_what_cannot_be_decided_is_told(
    desk: Desk,
    told: Callable[[object], None],
    variant: Variant,
    engine: FakeEngine | None,
    plan_options: dict[str, Any],
    code: int,
) -> None:
    """A base that was insisted on is never replaced; nothing is compiled for Windows."""
    with pytest.raises(BuilderError) as caught:
        desk.plan(variant, engine=engine, **plan_options)
    assert caught.value.exit_code == code
    told(caught.value)


def test_auto_repacks_the_wheel_where_it_serves_the_whole_set(desk: Desk) -> None:
    decided = desk.plan(MODERN)
    assert decided.origin is Origin.WHEEL
    assert decided.origin_reason == "onnxruntime-gpu==1.23.2 holds native code for all of sm_75, sm_80, sm_86"
    assert (decided.profile, decided.host, decided.ort_version) == (None, Host.WHEEL, "1.23.2")
    assert decided.ort_wheel == Input.wheel("onnxruntime-gpu==1.23.2")
    assert desk.read == [desk.store.folder / "onnxruntime-gpu==1.23.2" / PROVIDERS_IN_WHEELS[LINUX]]
    assert desk.reporter.lines[-1] == "ort      1.23.2, as released"


class Pinner:
    """Pins every base but those in ``unpinnable``."""

    def __init__(self, *unpinnable: str) -> None:
        self.unpinnable = unpinnable
        self.asked: list[str] = []

    def __call__(self, base: str) -> None:
        self.asked.append(base)
        if base in self.unpinnable:
            raise TransferError(f"git:{base}", cause="Could not resolve host", advice="Check the network.")


def test_a_base_is_taken_whose_parts_are_pinned_or_can_be(desk: Desk) -> None:
    """Defect: a base was taken by its image alone, and its source could not be pinned."""
    pinner = Pinner("nvidia")
    decided = desk.plan(LEGACY, pin=pinner)
    assert (decided.base, pinner.asked) == ("assembled", ["nvidia", "assembled"])
    assert decided.base_reason == "nvidia lacks a part: git:nvidia: Could not resolve host"
    assert desk.plan(LEGACY, pin=Pinner()).base == "nvidia"


def test_a_base_that_was_asked_for_is_not_replaced(desk: Desk) -> None:
    with pytest.raises(TransferError, match="git:nvidia"):
        desk.plan(LEGACY, pin=Pinner("nvidia"), base="nvidia")


def test_a_part_that_exists_nowhere_is_no_reason_to_take_another_base(desk: Desk) -> None:
    """A wrong version in variants.yaml would else make packages of another base's version."""

    def pin(_base: str) -> None:
        raise ValidationError("https://github.com/o/n has no tag v1.99.0")

    with pytest.raises(ValidationError, match="no tag"):
        desk.plan(LEGACY, pin=pin)


def test_all_bases_that_lack_a_part_are_told(desk: Desk) -> None:
    with pytest.raises(ToolMissingError) as caught:
        desk.plan(LEGACY, pin=Pinner(*project().bases))
    assert all(f"{base} lacks a part: git:{base}: " in str(caught.value) for base in project().bases)


def test_a_repacked_wheel_asks_for_no_pin_of_a_source(desk: Desk) -> None:
    """``--mixed`` takes the wheel of ``onnxruntime.version`` on any base: its source is not compiled."""
    pinner = Pinner("nvidia")
    assert desk.plan(MODERN, pin=pinner, mixed=True).base == "nvidia"
    assert pinner.asked == []
    assert desk.plan(LEGACY, pin=pinner, mixed=True).base == "assembled"


@pytest.mark.parametrize(
    ("variant", "plan_options", "decided", "reason"),
    [
        (MODERN, {"origin": Origin.SOURCE}, (Origin.SOURCE, Profile.LEAN, Host.WHEEL), "asked for"),
        (
            MODERN,
            {"profile": Profile.LEAN},
            (Origin.SOURCE, Profile.LEAN, Host.WHEEL),
            "profile lean was asked for",
        ),
        (
            MODERN,
            {"profile": Profile.MINIMAL},
            (Origin.SOURCE, Profile.MINIMAL, Host.WHEEL),
            "profile minimal was asked for",
        ),
        (
            MODERN,
            {"host": Host.SOURCE},
            (Origin.SOURCE, Profile.LEAN, Host.SOURCE),
            "host source was asked for",
        ),
        (MODERN, {"profile": Profile.FULL}, (Origin.WHEEL, None, Host.WHEEL), ""),
        (MODERN, {"host": Host.WHEEL}, (Origin.WHEEL, None, Host.WHEEL), ""),
        (LEGACY, {"profile": Profile.FULL}, (Origin.SOURCE, Profile.FULL, Host.WHEEL), ""),
    ],
)
def test_what_is_compiled_by_the_flags(
    desk: Desk, variant: Variant, plan_options: dict[str, Any], decided: tuple[object, ...], reason: str
) -> None:
    """An empty ``reason`` stands for a decision that follows from reading the wheel."""
    made = desk.plan(variant, **plan_options)
    assert (made.origin, made.profile, made.host) == decided
    assert (made.origin_reason == reason) == bool(reason)
    assert bool(desk.read) == (not reason)


def test_the_projects_own_origin_and_profile_are_the_default(desk: Desk) -> None:
    made = project()
    ort = replace(made.onnxruntime, origin=Origin.SOURCE, profile=Profile.FULL, host=Host.SOURCE)
    decided = desk.plan(MODERN, of=replace(made, onnxruntime=ort))
    assert (decided.origin, decided.profile, decided.host) == (Origin.SOURCE, Profile.FULL, Host.SOURCE)


def test_a_repacked_wheel_needs_no_compiler_that_reaches(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk, "native_sm", lambda _: LATEST.sm)
    decided = desk.plan(LATEST, base="assembled", origin=Origin.WHEEL)
    assert (decided.origin, decided.ort_version) == (Origin.WHEEL, "1.21.0")


@pytest.mark.parametrize(("base", "version"), [("nvidia", "1.23.2"), ("assembled", "1.21.0")])
@pytest.mark.parametrize("variant", [LEGACY, MODERN, LATEST, CPU], ids=lambda variant: variant.name)
def test_all_packages_of_a_base_have_one_version(
    desk: Desk, variant: Variant, base: str, version: str
) -> None:
    """R010 refuses packages with several versions, so one base must not make such packages."""
    decided = desk.plan(variant, base=base)
    assert decided.ort_version == version
    assert decided.ort_wheel == Input.wheel(f"onnxruntime{'' if variant is CPU else '-gpu'}=={version}")


def test_the_wheel_of_the_bases_version_is_read_and_compiled_instead_where_it_lacks_one(desk: Desk) -> None:
    held = {"onnxruntime-gpu==1.21.0": LATEST.sm, "onnxruntime-gpu==1.23.2": MODERN.sm}
    desk.native_sm = lambda library: held[library.relative_to(desk.store.folder).parts[0]]  # type: ignore[method-assign]
    compiled = desk.plan(MODERN, base="assembled")
    assert (compiled.origin, compiled.ort_version) == (Origin.SOURCE, "1.21.0")
    assert compiled.origin_reason == "onnxruntime-gpu==1.21.0 lacks native code for sm_75, sm_80, sm_86"
    mixed = desk.plan(MODERN, base="assembled", mixed=True)
    assert (mixed.origin, mixed.ort_wheel) == (Origin.WHEEL, Input.wheel("onnxruntime-gpu==1.23.2"))


def test_a_wheel_without_the_bases_patches_is_not_repacked(desk: Desk) -> None:
    """The official 1.21.0 ends with SIGSEGV without a driver; --mixed takes a version without patches."""
    made = project()
    assembled = replace(made.bases["assembled"], patches=("patches/late.patch",))
    patched = replace(made, bases={**made.bases, "assembled": assembled})
    compiled = desk.plan(MODERN, of=patched, base="assembled")
    assert (compiled.origin, compiled.ort_version) == (Origin.SOURCE, "1.21.0")
    assert compiled.origin_reason == "onnxruntime-gpu==1.21.0 lacks patches/late.patch"
    lacking = desk.plan(LEGACY, of=patched, base="assembled").origin_reason
    assert lacking == "onnxruntime-gpu==1.21.0 lacks native code for sm_50, sm_52, sm_61"
    assert desk.plan(MODERN, of=patched, base="assembled", origin=Origin.WHEEL).origin is Origin.WHEEL
    assert desk.plan(MODERN, of=patched, base="assembled", mixed=True).origin is Origin.WHEEL
    assert desk.plan(MODERN, of=patched, base="nvidia").origin is Origin.WHEEL


BLACKWELL = (*OFFICIAL, "120a")
"""Architectures of wheels from 1.28 on (pull request 29711)."""


def held(desk: Desk, sass: Sequence[object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk, "native_sm", lambda _: [Arch.parse(str(one)) for one in sass])


def warnings(desk: Desk) -> list[str]:
    return [line[10:14] for line in desk.reporter.lines if line.startswith("! warning ")]


@pytest.mark.parametrize("flag", [True, False])
def test_a_set_is_widened_by_its_flag_or_by_its_key(desk: Desk, flag: bool) -> None:
    decided = desk.plan(replace(LATEST, widen=not flag), base="nvidia", widen=flag)
    assert warnings(desk) == ["C011"]
    assert " ".join(map(str, decided.variant.sm)) == "89 90 100 103 120 121"
    assert decided.variant.widen
    assert [line for line in desk.reporter.lines if line.startswith("widen ")] == [
        "widen    sm_103, sm_121 added: ONNX Runtime's CMake narrows the set to its own GPUs"
    ]


def test_a_wheel_that_narrows_the_set_is_warned_of(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    held(desk, BLACKWELL, monkeypatch)
    consumer = replace(LATEST, sm=tuple(map(Arch.parse, ("90", "120"))))
    assert desk.plan(consumer).origin is Origin.WHEEL
    assert warnings(desk) == ["C012"]


def test_a_wheel_that_narrows_a_widened_set_is_not_taken(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    held(desk, BLACKWELL, monkeypatch)
    consumer = replace(LATEST, sm=tuple(map(Arch.parse, ("90", "120"))), widen=True)
    decided = desk.plan(consumer, base="nvidia")
    assert decided.origin_reason == "onnxruntime-gpu==1.23.2 lacks native code for compute capability 12.1"
    assert " ".join(map(str, decided.variant.sm)) == "90 120 121"
    with pytest.raises(
        CompatibilityError, match=r"^variant latest: --origin wheel is impossible: .* 12\.1\. "
    ):
        desk.plan(consumer, origin=Origin.WHEEL)


FOR_13 = ("libcublasLt.so.13", "libcublas.so.13", "libcudart.so.13", "libcuda.so.1", "libc.so.6")
"""NEEDED of the provider in the wheel 1.31.1 (readelf -d), without GCC's and glibc's other libraries."""

FOR_12 = ("libcufft.so.11", "libcublas.so.12", "libcurand.so.10", "libcudart.so.12", "libc.so.6")
"""Some of NEEDED of the provider in the wheel 1.23.2 (readelf -d)."""


def with_cuda13(path: Path) -> Project:
    """Return the project of this repository's ``variants.yaml``, whose newest wheel is that for CUDA 13."""
    made = load_project((path / "variants.yaml").read_text(), "variants.yaml")
    return replace(made, onnxruntime=replace(made.onnxruntime, version="1.31.1"))


@pytest.mark.parametrize("origin", [None, Origin.WHEEL])
def test_a_wheel_for_another_cuda_than_the_bundled_one_is_refused(
    desk: Desk, root: Path, origin: Origin | None
) -> None:
    """Defect: the package would have had a provider for CUDA 13 beside the libraries of CUDA 12.9."""
    desk.lay("onnxruntime-gpu==1.31.1", elf(needed=FOR_13))
    with pytest.raises(CompatibilityError) as caught:
        desk.plan(MODERN, of=with_cuda13(root), base="assembled", mixed=True, origin=origin)
    assert caught.value.exit_code == 2
    assert "onnxruntime-gpu==1.31.1 is for CUDA 13" in caught.value.what
    assert "CUDA 12.9 (nvidia-cuda-runtime-cu12==12.9.79)" in caught.value.what
    assert caught.value.cause.endswith("libcublasLt.so.13")
    assert "--variant cuda13." in caught.value.advice
    assert caught.value.advice.endswith("--origin source.")


def test_a_wheel_of_the_base_for_another_cuda_is_refused_too(desk: Desk) -> None:
    made = project()
    newer = replace(made, bases={"nvidia": replace(made.bases["nvidia"], ort_version="1.31.1")})
    desk.lay("onnxruntime-gpu==1.31.1", elf(needed=FOR_13))
    with pytest.raises(CompatibilityError) as caught:
        desk.plan(MODERN, of=newer)
    assert 'a variant with cuda: "13"' in caught.value.advice
    assert desk.plan(MODERN, of=newer, origin=Origin.SOURCE).origin is Origin.SOURCE


def test_a_set_that_no_variant_for_that_cuda_covers_is_told_how_to_get_one(
    desk: Desk, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.lay("onnxruntime-gpu==1.31.1", elf(needed=FOR_13))
    wider = replace(MODERN, sm=(*MODERN.sm, Arch.parse("100")))
    held(desk, wider.sm, monkeypatch)
    with pytest.raises(CompatibilityError) as caught:
        desk.plan(wider, of=with_cuda13(root), base="assembled", mixed=True)
    assert "--variant" not in caught.value.advice
    assert 'a variant with cuda: "13"' in caught.value.advice


def test_a_wheel_for_another_cuda_that_is_not_repacked_stops_nothing(desk: Desk, root: Path) -> None:
    desk.lay("onnxruntime-gpu==1.31.1", elf(needed=FOR_13))
    decided = desk.plan(LEGACY, of=with_cuda13(root), base="assembled", mixed=True)
    assert (decided.origin, decided.ort_version) == (Origin.SOURCE, "1.21.0")


def test_a_wheel_for_the_bundled_cuda_is_repacked(desk: Desk, root: Path) -> None:
    desk.lay("onnxruntime-gpu==1.23.2", elf(needed=FOR_12))
    desk.lay("onnxruntime-gpu==1.31.1", elf(needed=FOR_13))
    assert desk.plan(MODERN).origin is Origin.WHEEL
    made = with_cuda13(root)
    assert desk.plan(replace(MODERN, toolkit="13"), of=made).ort_version == "1.31.1"


def test_an_official_variant_has_the_libraries_of_its_own_toolkit(desk: Desk, root: Path) -> None:
    """A toolkit's version of ONNX Runtime and its version of CUDA are two keys, which can disagree."""
    desk.lay("onnxruntime-gpu==1.31.1", elf(needed=FOR_12))
    with pytest.raises(CompatibilityError) as caught:
        desk.plan(replace(MODERN, toolkit="13"), of=with_cuda13(root))
    assert "is for CUDA 12" in caught.value.what
    assert "CUDA 13.0 (nvidia-cuda-runtime==13.0.96)" in caught.value.what
    assert "--origin" not in caught.value.advice


@pytest.mark.parametrize(
    ("imports", "refused"),
    [
        (("cublasLt64_12.dll", "cudart64_12.dll", "cufft64_11.dll", "KERNEL32.dll"), False),
        (("CUBLASLT64_13.dll", "cufft64_12.dll"), True),
        (("cudart64_110.dll",), True),
    ],
)
def test_the_dlls_that_the_provider_for_windows_imports_are_compared_too(
    desk: Desk, root: Path, imports: Sequence[str], refused: bool
) -> None:
    desk.lay("onnxruntime-gpu==1.31.1@win-x64", pe(needed=imports), WINDOWS)
    windows = replace(MODERN, name="windows", platform=WINDOWS)
    if not refused:
        assert desk.plan(windows, of=with_cuda13(root), mixed=True).origin is Origin.WHEEL
        return
    with pytest.raises(CompatibilityError) as caught:
        desk.plan(windows, of=with_cuda13(root), mixed=True)
    assert caught.value.cause.endswith(imports[0])
    assert "onnxruntime-gpu for CUDA 12.9" in caught.value.advice


def test_a_provider_that_cannot_be_read_is_told(desk: Desk) -> None:
    desk.lay("onnxruntime-gpu==1.23.2", elf(needed=FOR_12)[:100])
    with pytest.raises(IntegrityError, match="cannot be read"):
        desk.plan(MODERN)


@pytest.mark.parametrize("plan_options", [{}, {"mixed": True}])
def test_a_project_whose_host_is_compiled_reads_no_wheel(desk: Desk, plan_options: dict[str, Any]) -> None:
    """The key has the flag's effect: a version without a wheel can be built."""
    made = project()
    compiled = replace(made, onnxruntime=replace(made.onnxruntime, host=Host.SOURCE))
    decided = desk.plan(MODERN, of=compiled, **plan_options)
    assert (decided.origin, decided.host, desk.read) == (Origin.SOURCE, Host.SOURCE, [])
    assert desk.plan(MODERN, of=compiled, host=Host.WHEEL).origin is Origin.WHEEL
