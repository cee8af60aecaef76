"""Tests of plan: base, origin, version and profile, each with the reason that the user reads."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from unittest.mock import Mock

import pytest

from builder import errors
from builder.compile.plan import PROVIDERS_IN_WHEELS, Planner, PlanOptions, coverage_to_come
from builder.config.build_plan import BuildPlan, compile_plan
from builder.config.inputs import Input
from builder.config.variants import Origin, Project, Variant
from builder.contents.reading import needed_libraries
from builder.errors import (
    CompatibilityError,
    IntegrityError,
    ToolMissingError,
    TransferError,
    ValidationError,
)
from builder.facts.gpu.architectures import Arch
from builder.facts.ort.source_rules import SourceRules
from builder.formats.package_names import LINUX, WINDOWS, Host, PackageForm, Profile
from tests.support.factories import packages
from tests.support.factories.binaries import elf
from tests.support.factories.pe import pe
from tests.support.factories.plugins import plugin_rules
from tests.support.fakes.ports import FakeEngine, FakeReporter, FakeStore, NoEngine
from tests.support.messages import Refused, Told
from tests.support.tables import table

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


class Refusing(FakeEngine):
    """An engine whose registry answers with an error, as Docker does when a registry's name is unknown."""

    def resolve(self, reference: str) -> str:
        raise REFUSED


class Offline(FakeEngine):
    """An engine whose registry must not be asked."""

    def resolve(self, reference: str) -> str:
        pytest.fail(f"a registry was asked for {reference}")


class Untouchable(Offline):
    """An engine that must not be asked, nor its registry."""

    def has_image(self, reference: str) -> bool:
        pytest.fail(f"the engine was asked for {reference}")


PROJECT = replace(
    packages.PROJECT,
    onnxruntime=replace(packages.PROJECT.onnxruntime, version="1.23.2"),
    bases={
        **packages.PROJECT.bases,
        "nvidia": replace(packages.PROJECT.bases["nvidia"], ort_version="1.23.2"),
    },
)
"""A project whose nvidia base compiles 1.23.2 and whose assembled base compiles 1.21.0."""


class Desk:
    """A planner with fakes, which records messages and the libraries that were read."""

    def __init__(self, folder: Path) -> None:
        self.store = FakeStore(folder)
        self.reporter = FakeReporter()
        self.read: list[Path] = []
        self.held: Callable[[Path], Sequence[object]] = lambda _: OFFICIAL
        """Returns the architectures that a provider has."""

    def plan(
        self,
        variant: Variant,
        *,
        engine: FakeEngine | None = None,
        of: Project | None = None,
        pin: Callable[[str], None] | None = None,
        rules: SourceRules | None = None,
        other_host: str = "",
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
            rules=lambda _: rules,
            other_host=lambda _: other_host,
        )
        return planner.plan(of or PROJECT, variant)

    def native_sm(self, library: Path) -> Sequence[Arch]:
        self.read.append(library)
        return [Arch.parse(str(arch)) for arch in self.held(library)]

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


VARIANTS = {
    **{one.name: one for one in (MODERN, LEGACY, LATEST, CPU, DIRECTML)},
    "accelerated": ACCELERATED,
    "widened": replace(LATEST, widen=True),
    "windows": replace(LEGACY, name="windows", platform=WINDOWS),
}

ENGINES = {
    "": FakeEngine(images={IMAGE}),
    "pulled": FakeEngine(digests={IMAGE: "sha256:" + "a" * 64}),
    "refusing": Refusing(),
    "none": NoEngine(),
    "untouchable": Untouchable(),
    "offline": Offline(),
    "offline with it": Offline(images={IMAGE}),
}

KINDS = {"origin": Origin, "profile": Profile, "host": Host, "base": str, "mixed": bool, "offline": bool}


def wished(desk: Desk, variant: str, engine: str, wishes: str) -> BuildPlan:
    """Return the plan for a row's words; a wish is like ``base=nvidia``."""
    given = (wish.split("=") for wish in wishes.split())
    options = {name: KINDS[name](value) for name, value in given}
    return desk.plan(VARIANTS[variant], engine=ENGINES[engine], **options)


@pytest.mark.parametrize(("variant", "engine", "wishes", "decided"), table("compile/plans.txt"))
def test_what_is_decided_and_why(
    desk: Desk, told: Callable[[object], None], variant: str, engine: str, wishes: str, decided: str
) -> None:
    made = wished(desk, variant, engine, wishes)
    assert f"{made.base} {made.origin.value} {made.ort_version}" == decided
    assert made.added == ()
    told("\n".join([*desk.reporter.lines, made.ort_wheel.key]))


@pytest.mark.parametrize(
    ("source", "asked", "host", "codes"),
    [
        ("x", None, Host.SOURCE, []),
        ("x", Host.WHEEL, Host.WHEEL, ["C018"]),
        (None, None, Host.WHEEL, ["C018"]),
    ],
)
def test_a_host_library_of_another_source_is_not_taken_for_a_trial_and_else_doubted(
    desk: Desk, source: str | None, asked: Host | None, host: Host, codes: list[str]
) -> None:
    why = "onnxruntime-gpu==1.21.0 was built from commit a, and not from b"
    made = desk.plan(
        LEGACY, base="assembled", origin=Origin.SOURCE, other_host=why, source=source, host=asked
    )
    assert made.host is host
    assert re.findall(r"! warning (C018)", "\n".join(desk.reporter.lines)) == codes
    assert why in "\n".join(desk.reporter.lines)


@pytest.mark.parametrize(("variant", "engine", "wishes", "kind"), table("compile/no-plans.txt"))
def test_what_cannot_be_decided_is_told(
    desk: Desk, refused: Refused, variant: str, engine: str, wishes: str, kind: str
) -> None:
    """A base that was insisted on is never replaced; nothing is compiled for Windows."""
    with refused(getattr(errors, kind)):
        wished(desk, variant, engine, wishes)


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
    with pytest.raises(TransferError, match="git:nvidia"):
        desk.plan(LEGACY, pin=pinner, base="nvidia")
    with pytest.raises(ToolMissingError) as caught:
        desk.plan(LEGACY, pin=Pinner(*PROJECT.bases))
    assert all(f"{base} lacks a part: git:{base}: " in str(caught.value) for base in PROJECT.bases)


def test_a_part_that_exists_nowhere_is_no_reason_to_take_another_base(desk: Desk) -> None:
    """A wrong version in variants.yaml would else make packages of another base's version."""
    with pytest.raises(ValidationError, match="no tag"):
        desk.plan(LEGACY, pin=Mock(side_effect=ValidationError("https://github.com/o/n has no tag v1.99.0")))


def test_a_repacked_wheel_asks_for_no_pin_of_a_source(desk: Desk) -> None:
    """``--mixed`` takes the wheel of ``onnxruntime.version`` on any base: its source is not compiled."""
    pinner = Pinner("nvidia")
    assert desk.plan(MODERN, pin=pinner, mixed=True).base == "nvidia"
    assert pinner.asked == []
    assert desk.plan(LEGACY, pin=pinner, mixed=True).base == "assembled"


def test_the_projects_own_origin_and_profile_are_the_default(desk: Desk) -> None:
    ort = replace(PROJECT.onnxruntime, origin=Origin.SOURCE, profile=Profile.FULL, host=Host.SOURCE)
    decided = desk.plan(MODERN, of=replace(PROJECT, onnxruntime=ort))
    assert (decided.origin, decided.profile, decided.host) == (Origin.SOURCE, Profile.FULL, Host.SOURCE)
    compiled = replace(PROJECT, onnxruntime=replace(PROJECT.onnxruntime, host=Host.SOURCE))
    decided = desk.plan(MODERN, of=compiled, mixed=True)
    assert (decided.origin, decided.host) == (Origin.SOURCE, Host.SOURCE)
    assert desk.read == [], "a version without a wheel can be built"
    assert desk.plan(MODERN, of=compiled, host=Host.WHEEL).origin is Origin.WHEEL


@pytest.mark.parametrize(("profile", "turing"), [(Profile.FULL, False), (Profile.LEAN, True)])
def test_a_gpu_on_which_some_units_do_not_run_is_not_promised(
    desk: Desk, profile: Profile, turing: bool
) -> None:
    """On 7.5 ONNX Runtime launches ``fmha_sm75.cu``, which ``legacy`` has no use for: docs/quirks.md."""
    decided = desk.plan(LEGACY, profile=profile, base="assembled")
    line = coverage_to_come(decided, compile_plan(decided).whole_list.sass)
    assert ("Volta (7.0)" in line, "Turing" in line) == (True, turing)


def test_a_repacked_wheel_needs_no_compiler_that_reaches(desk: Desk) -> None:
    desk.held = lambda _: LATEST.sm
    decided = desk.plan(LATEST, base="assembled", origin=Origin.WHEEL)
    assert (decided.origin, decided.ort_version) == (Origin.WHEEL, "1.21.0")


def test_the_wheel_of_the_bases_version_is_read_and_compiled_instead_where_it_lacks_one(desk: Desk) -> None:
    wheel = desk.store.folder / "onnxruntime-gpu==1.23.2"
    desk.held = lambda library: MODERN.sm if library.is_relative_to(wheel) else LATEST.sm
    compiled = desk.plan(MODERN, base="assembled")
    assert (compiled.origin, compiled.ort_version) == (Origin.SOURCE, "1.21.0")
    assert compiled.origin_reason == "onnxruntime-gpu==1.21.0 lacks native code for sm_75, sm_80, sm_86"
    assert desk.plan(MODERN, base="assembled", mixed=True).origin is Origin.WHEEL
    assert desk.read[-1] == wheel / PROVIDERS_IN_WHEELS[LINUX]


def test_a_wheel_without_the_bases_patches_is_not_repacked(desk: Desk) -> None:
    """The official 1.21.0 ends with SIGSEGV without a driver; --mixed takes a version without patches."""
    assembled = replace(PROJECT.bases["assembled"], patches=("patches/late.patch",))
    patched = replace(PROJECT, bases={**PROJECT.bases, "assembled": assembled})
    compiled = desk.plan(MODERN, of=patched, base="assembled")
    assert (compiled.origin, compiled.ort_version) == (Origin.SOURCE, "1.21.0")
    assert compiled.origin_reason == "onnxruntime-gpu==1.21.0 lacks patches/late.patch"
    lacking = desk.plan(LEGACY, of=patched, base="assembled").origin_reason
    assert lacking == "onnxruntime-gpu==1.21.0 lacks native code for sm_50, sm_52, sm_61"
    assert desk.plan(MODERN, of=patched, base="assembled", origin=Origin.WHEEL).origin is Origin.WHEEL
    assert desk.plan(MODERN, of=patched, base="assembled", mixed=True).origin is Origin.WHEEL
    assert desk.plan(MODERN, of=patched, base="nvidia").origin is Origin.WHEEL


@pytest.mark.parametrize(("provider", "origin"), [("13", Origin.SOURCE), ("12", Origin.WHEEL)])
def test_where_the_bases_wheel_is_for_another_cuda_its_source_is_compiled(
    desk: Desk, provider: str, origin: Origin
) -> None:
    """Defect: the wheel was chosen by its architectures alone, and then refused for its CUDA."""
    desk.lay("onnxruntime-gpu==1.23.2", elf({}, needed=[f"libcudart.so.{provider}"]))
    decided = desk.plan(MODERN, base="nvidia")
    assert (decided.origin, decided.origin_reason.endswith("is for CUDA 13")) == (origin, provider == "13")


BLACKWELL = (*OFFICIAL, "120a")
"""Architectures of wheels from 1.28 on (pull request 29711)."""


@pytest.mark.parametrize(
    ("sm", "cuda", "version", "assembled"),
    [
        ("89 90 120", None, "12.9", "120"),  # by the newer ptxas
        ("89 90 120", "13", "13.0", ""),
        ("89 120a", None, "13.0", ""),  # the suffix is out of reach of nvcc 12.4
    ],
)
def test_another_cuda_compiles_where_it_is_asked_for_or_needed(
    desk: Desk,
    project: Project,
    told: Callable[[object], None],
    sm: str,
    cuda: str,
    version: str,
    assembled: str,
) -> None:
    made = with_newer_ort(desk, project, sm, cuda=cuda)
    assert (made.origin, made.project.cuda.version) == (Origin.SOURCE, version)
    assert " ".join(map(str, compile_plan(made).targets.assembled)) == assembled
    lines = [line for line in desk.reporter.lines if line.startswith("cuda ")]
    assert len(lines) == (version == "13.0")
    assert all("driver 580.65.06 or newer" in line for line in lines), "CUDA 13.0's release notes"
    told("\n".join(lines))


@pytest.mark.parametrize(
    ("sm", "base", "cuda"),
    [
        ("70 80", "assembled", "13"),
        ("80", "nvidia", "13"),
        ("80", "assembled", "14"),
        ("70 120a", "assembled", None),
    ],
)
def test_what_no_other_cuda_compiles_is_told(
    desk: Desk, project: Project, refused: Refused, sm: str, base: str, cuda: str | None
) -> None:
    with refused(ValidationError if cuda == "14" else CompatibilityError):
        with_newer_ort(desk, project, sm, base, cuda=cuda)


def test_a_source_that_no_newer_cuda_compiles_is_refused_by_its_line(
    desk: Desk, project: Project, refused: Refused
) -> None:
    """1.21.0 names cub::Max, which CUDA 13's CUB lacks."""
    with refused(CompatibilityError):
        desk.plan(MODERN, of=project, base="assembled", cuda="13")


def with_newer_ort(
    desk: Desk, project: Project, sm: str, base: str = "assembled", cuda: str | None = None
) -> BuildPlan:
    """Return the plan of a set in the repository's project, whose assembled base compiles 1.23.0."""
    assembled = replace(project.bases["assembled"], ort_version="1.23.0", patches=())
    newer = replace(project, bases={**project.bases, "assembled": assembled})
    variant = replace(LATEST, sm=tuple(map(Arch.parse, sm.split())))
    return desk.plan(variant, of=newer, base=base, cuda=cuda)


def warnings(desk: Desk) -> list[str]:
    return [line[10:14] for line in desk.reporter.lines if line.startswith("! warning ")]


def test_a_full_plugin_that_lacks_operators_names_the_form_that_has_them(
    desk: Desk, project: Project, told: Told
) -> None:
    plugin = replace(LATEST, form=PackageForm.PLUGIN)
    desk.plan(plugin, of=project, base="assembled", rules=plugin_rules(), profile=Profile.FULL)
    told("\n".join(desk.reporter.lines))


@pytest.mark.parametrize("flag", [True, False])
def test_a_set_is_widened_by_its_flag_or_by_its_key(desk: Desk, flag: bool) -> None:
    decided = desk.plan(replace(LATEST, widen=not flag), base="nvidia", widen=flag)
    assert warnings(desk) == ["C011"]
    assert " ".join(map(str, decided.variant.sm)) == "89 90 100 103 120 121"
    assert decided.variant.widen
    assert [line for line in desk.reporter.lines if line.startswith("widen ")] == [
        "widen    sm_103, sm_121 added: ONNX Runtime's CMake narrows the set to its own GPUs"
    ]


def test_a_wheel_that_narrows_the_set_is_warned_of_and_not_taken_for_a_widened_one(desk: Desk) -> None:
    desk.held = lambda _: BLACKWELL
    consumer = replace(LATEST, sm=tuple(map(Arch.parse, ("90", "120"))))
    assert desk.plan(consumer).origin is Origin.WHEEL
    assert warnings(desk) == ["C012"]
    widened = replace(consumer, widen=True)
    decided = desk.plan(widened, base="nvidia")
    assert decided.origin_reason == "onnxruntime-gpu==1.23.2 lacks native code for compute capability 12.1"
    assert " ".join(map(str, decided.variant.sm)) == "90 120 121"
    with pytest.raises(
        CompatibilityError, match=r"^variant latest: --origin wheel is impossible: .* 12\.1\. "
    ):
        desk.plan(widened, origin=Origin.WHEEL)


FOR_13 = elf(needed=("libcublasLt.so.13", "libcublas.so.13", "libcudart.so.13", "libcuda.so.1", "libc.so.6"))
"""NEEDED of the provider in the wheel 1.31.1 (readelf -d), without GCC's and glibc's other libraries."""

FOR_12 = elf(needed=("libcufft.so.11", "libcublas.so.12", "libcurand.so.10", "libcudart.so.12", "libc.so.6"))
"""Some of NEEDED of the provider in the wheel 1.23.2 (readelf -d)."""

TOOLKIT_13, WIDER = replace(MODERN, toolkit="13"), replace(MODERN, sm=(*MODERN.sm, Arch.parse("100")))

ON_WINDOWS = replace(MODERN, name="windows", platform=WINDOWS)


def newest(desk: Desk, project: Project, provider: bytes, variant: Variant) -> BuildPlan:
    """Return the plan in the repository's project with ``provider`` in the wheel 1.31.1."""
    suffix = f"@{WINDOWS}" if variant.platform == WINDOWS else ""
    desk.lay(f"onnxruntime-gpu==1.31.1{suffix}", provider, variant.platform)
    desk.held = lambda _: WIDER.sm
    release = replace(project, onnxruntime=replace(project.onnxruntime, version="1.31.1"))
    return desk.plan(variant, of=release, base="assembled", mixed=True)


FOREIGN = {
    "13": (FOR_13, MODERN),
    "13 for a wider set": (FOR_13, WIDER),  # no variant for CUDA 13 covers it
    "12 for a toolkit 13": (FOR_12, TOOLKIT_13),
    "Windows": (pe(needed=("CUBLASLT64_13.dll", "cufft64_12.dll")), ON_WINDOWS),
    "11 on Windows": (pe(needed=("cudart64_110.dll",)), ON_WINDOWS),
    "cut short": (FOR_13[:100], MODERN),
}


@pytest.mark.parametrize("wheel", FOREIGN)
def test_a_wheel_for_another_cuda_is_told(desk: Desk, project: Project, refused: Refused, wheel: str) -> None:
    """Defect: the package would have had a provider for CUDA 13 beside the libraries of CUDA 12.9."""
    with refused(IntegrityError if wheel == "cut short" else CompatibilityError):
        newest(desk, project, *FOREIGN[wheel])


BUNDLED = {
    "12": (FOR_12, MODERN),
    "13 for a toolkit 13": (FOR_13, TOOLKIT_13),
    "Windows": (pe(needed=("cudart64_12.dll", "cufft64_11.dll", "KERNEL32.dll")), ON_WINDOWS),
    "compiled": (FOR_13, LEGACY),
}


@pytest.mark.parametrize("wheel", BUNDLED)
def test_a_wheel_for_the_bundled_cuda_is_repacked(desk: Desk, project: Project, wheel: str) -> None:
    made = newest(desk, project, *BUNDLED[wheel])
    compiled = (Origin.SOURCE, "1.21.0")
    assert (made.origin, made.ort_version) == (compiled if wheel == "compiled" else (Origin.WHEEL, "1.31.1"))
