"""Comparison of a compiled plan with the official build of the same ORT version: differences with reasons.

The tables have the architectures and options of Microsoft's own builds for Linux x64, by ORT version. One
build makes the wheel ``onnxruntime-gpu`` (``build_linux_python_package.sh``), which ``origin: wheel`` repacks
and ``host: wheel`` takes the host library from. The other makes the archive of the C API
(``build_cuda_c_api_package.sh``). Both scripts are in ``tools/ci_build/github/linux``. Source for 1.21.0: the
scripts in its source tree; for later lists: the pull requests named with them, and the scripts at that time.
Where the containers of a wheel were counted, they agree with its list.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from builder.config.build_plan import BuildPlan, CompilePlan, compile_plan
from builder.config.build_plan import lost as lost_capabilities
from builder.config.profiles import options_of
from builder.config.toolkits import check_version, toolkit_of
from builder.facts.gpu.compatibility import runs_sass
from builder.facts.gpu.table import CAPABILITIES
from builder.facts.ort.units import Compiled, read_list, refused, rewritten
from builder.facts.ort.versions import ALWAYS, ReleaseRange, needs, sm_names
from builder.formats.package_names import Profile


@dataclass(frozen=True)
class ArchList:
    """The values of CMAKE_CUDA_ARCHITECTURES of the official wheel and C API archive, built with CUDA 12."""

    wheel: str
    archive: str
    span: ReleaseRange
    source: str


@dataclass(frozen=True)
class Setting:
    """A CMake option: its value in the official build, and its default."""

    name: str
    value: str
    default: str
    source: str
    span: ReleaseRange = ALWAYS
    argued: str = ""
    """The reason why this project's value differs, where it does not depend on the profile; else empty."""


_UP_TO_80 = "60-real;70-real;75-real;80-real"

_LISTS = (
    ArchList(
        *(f"{_UP_TO_80};86-real;90", f"{_UP_TO_80};90", ReleaseRange(last=(1, 22))),
        "1.21.0's scripts; pull request 23671; the wheel 1.21.0: 155 containers 60 70 75 80 86 90, PTX 90",
    ),
    ArchList(
        *(f"{_UP_TO_80};86-real;90a-real;90a-virtual", f"{_UP_TO_80};90a-real;90a-virtual"),
        ReleaseRange(first=(1, 23, 0), last=(1, 23, 0)),
        "pull requests 25126, 26002 and 26087",
    ),
    ArchList(
        *(f"{_UP_TO_80};86-real;90a-real;90-virtual", f"{_UP_TO_80};90a-real;90-virtual"),
        ReleaseRange(first=(1, 23, 1)),
        "pull request 26230; the wheel 1.23.2: 184 containers 60 70 75 80 86 90a, PTX 90",
    ),
)

_BUILD_PY = "1.21.0's tools/ci_build/build.py"

_LTO = (
    "link-time optimisation of C++ (1.21.0's adjust_global_compile_flags.cmake line 104; CMakeLists.txt line "
    "728 leaves it out of CUDA builds on Windows); device code is as without it: the wheels hold no LTO IR"
)

_CPUINFO = "its source is not in Debian's archive, and only the host library asks for it"

_HARDENED = "-O3 -fstack-protector-strong -fcf-protection -D_FORTIFY_SOURCE=2 ..."

SETTINGS: tuple[Setting, ...] = (
    Setting("CMAKE_BUILD_TYPE", "Release", "RelWithDebInfo", "--config Release"),
    Setting("onnxruntime_USE_CUDA", "ON", "OFF", "--use_cuda"),
    Setting("onnxruntime_BUILD_SHARED_LIB", "ON", "OFF", "--build_shared_lib"),
    Setting("onnxruntime_DISABLE_CONTRIB_OPS", "OFF", "OFF", "not set by the scripts"),
    Setting("onnxruntime_USE_FLASH_ATTENTION", "ON", "ON", "not set by the scripts"),
    Setting("onnxruntime_USE_LEAN_ATTENTION", "ON", "ON", "not set by the scripts"),
    Setting("onnxruntime_USE_MEMORY_EFFICIENT_ATTENTION", "ON", "ON", "not set by the scripts"),
    Setting("onnxruntime_CUDA_MINIMAL", "OFF", "OFF", f"{_BUILD_PY} line 1228"),
    Setting("onnxruntime_NVCC_THREADS", "1", "1", "--nvcc_threads 1"),
    Setting(
        *("onnxruntime_USE_FPA_INTB_GEMM", "OFF", "ON"),
        "the archive's script of 1.24",
        ReleaseRange(first=(1, 23)),
    ),
    Setting(
        *("onnxruntime_USE_FULL_PROTOBUF", "OFF", "OFF", f"{_BUILD_PY} line 1505", ALWAYS),
        "all of protobuf is linked into the provider statically: NEEDED is the same, and the pair of our "
        "provider and the wheel's host library was tried",
    ),
    Setting(
        *("onnxruntime_BUILD_UNIT_TESTS", "ON", "ON", "--skip_tests compiles and does not run them", ALWAYS),
        "they need a GPU to run, and are in no package",
    ),
    Setting("onnxruntime_ENABLE_LTO", "ON", "OFF", "--enable_lto", ALWAYS, _LTO),
    Setting("onnxruntime_ENABLE_CPUINFO", "ON", "ON", "1.21.0's CMakeLists.txt line 229", ALWAYS, _CPUINFO),
    Setting(
        *("onnxruntime_USE_TENSORRT", "ON", "OFF", "--use_tensorrt, the wheel's script alone", ALWAYS),
        "the TensorRT provider is a library of its own, which our packages do not hold",
    ),
    Setting(
        *("onnxruntime_USE_VCPKG", "ON", "OFF", "--use_vcpkg", ALWAYS),
        "where the dependencies' sources come from; both link them statically",
    ),
    Setting(
        *("CMAKE_CXX_FLAGS", _HARDENED, "", "--use_binskim_compliant_compile_flags", ALWAYS),
        "hardening of C++ code; build.py says of these flags that ORT works without them",
    ),
    Setting(
        *("CMAKE_BUILD_WITH_INSTALL_RPATH", "OFF", "OFF", "not set by the scripts", ALWAYS),
        "the library is taken from the build tree, and has to be free of its paths",
    ),
    Setting(
        *("CMAKE_INSTALL_RPATH", "", "", "the wheels' providers have no RUNPATH", ALWAYS),
        "the package brings the CUDA libraries, so the provider looks beside itself",
    ),
)
"""Options that the official build or this project sets, without those that always agree or are paths."""


def arch_list(version: str) -> ArchList:
    """Return the official lists of architectures for ``version``; for a newer one, the latest known lists."""
    return next(entry for entry in _LISTS if version in entry.span)


def settings(version: str) -> Iterator[Setting]:
    """Return the options of the official build of ``version``."""
    return (setting for setting in SETTINGS if version in setting.span)


@dataclass(frozen=True)
class Difference:
    """One option whose value differs from that of the official build."""

    option: str
    ours: str
    official: str
    reason: str

    def __str__(self) -> str:
        return f"{self.option}: {self.ours or 'empty'}, official {self.official or 'empty'}: {self.reason}"


_RAW = Difference(
    "CMAKE_CUDA_FLAGS",
    "-Xfatbin=--raw",
    "",
    "device code is stored as it is, not in LZ4, which an archive's zstd cannot undo (docs/decisions/0004)",
)


@dataclass(frozen=True)
class Explanation:
    """The result of ``render --explain`` for one plan."""

    title: str
    differences: tuple[Difference, ...]
    notes: tuple[str, ...]
    """Sentences on the effects of the ORT version on the plan."""


def explain(plan: BuildPlan) -> Explanation:
    """Return the differences between a plan and the official build; none for a plan that compiles nothing."""
    version = plan.ort_version
    if plan.profile is None:
        title = f"{plan.variant.name}: the official build of ONNX Runtime {version} itself, repacked"
        return Explanation(title, (), ())
    division = compile_plan(plan)
    return Explanation(
        title=f"{plan.variant.name}: profile {plan.profile.value} on base {plan.base}, against the official "
        f"build of ONNX Runtime {version}",
        differences=tuple(_differences(plan, division)),
        notes=tuple(_notes(plan, division)),
    )


def _differences(plan: BuildPlan, division: CompilePlan) -> Iterator[Difference]:
    yield _architectures(plan, division)
    yield _RAW
    ours = {option.name: option for option in options_of(plan, division)}
    for official in settings(plan.ort_version):
        option = ours.get(official.name)
        value = option.value if option else official.default
        if value != official.value:
            reason = official.argued or (option.reason if option else "")
            yield Difference(official.name, value, official.value, reason)


def _architectures(plan: BuildPlan, division: CompilePlan) -> Difference:
    version, sm = plan.ort_version, plan.variant.sm
    official = arch_list(version)
    wheel, archive = read_list(official.wheel, version), read_list(official.archive, version)
    ours = Compiled(sm, ()) if refused(sm, version) else division.whole_list
    reason = f"variants.{plan.variant.name}.sm; theirs is the wheel's for CUDA 12, the archive's is {archive}"
    return Difference("CMAKE_CUDA_ARCHITECTURES", str(ours), str(wheel), reason)


def _notes(plan: BuildPlan, division: CompilePlan) -> Iterator[str]:
    sm, version = plan.variant.sm, plan.ort_version
    least = needs(version)
    if not refused(sm, version):
        yield from _made_of(plan, division)
    yield f"this version is compiled with CUDA {least.cuda}, gcc {least.gcc} and CMake {least.cmake} or newer"
    yield from (f"the source is patched with {patch}, which says why" for patch in plan.patches)
    yield from (f"{finding.code.name} {finding.message}" for finding in check_version(toolkit_of(plan)))


def _made_of(plan: BuildPlan, division: CompilePlan) -> Iterator[str]:
    for asked, becomes in rewritten(division.targets.compiled, plan.ort_version):
        devices = ", ".join(str(device) for device in CAPABILITIES if runs_sass(becomes, device))
        lost = ", ".join(map(str, lost_capabilities([asked], [becomes])))
        alone = f" alone, not on {lost}" if lost else ""
        yield f"sm_{asked} becomes sm_{becomes}, which runs on {devices}{alone}"
    if plan.added:
        yield f"added for the GPUs that this loses (widen): {sm_names(plan.added)}"
    if plan.profile is Profile.FULL:
        yield from _left_out(division)
    for new, old in division.parts[-1].ptx.items():
        if new != old and new not in division.targets.assembled:
            made = f"SASS for sm_{new} is made from the PTX of compute_{old}"
            yield f"{made}: no source asks for more than that"


def _left_out(division: CompilePlan) -> Iterator[str]:
    """Yield sentences on the units that are left out or compiled for fewer architectures, with the reason."""
    for launch in division.left_out:
        yield f"{launch.name} is left out: no architecture of the set launches it ({launch.source})"
    parts = [(part.launch, part.ptx) for part in division.parts if part.launch]
    for launch, ptx in parts:
        if {*ptx} == {*division.sm}:
            continue
        targets = " ".join(map(str, ptx))
        yield f"{launch.name} is compiled for {targets}: nothing else launches it ({launch.source})"
        for arch in sorted(launch.launched(division.sm) - ptx.keys()):
            older = launch.served[arch.number]
            yield f"{launch.name}: sm_{arch} runs the SASS for sm_{older}, made from the same PTX"
    for launch, ptx in parts:
        for new, old in ptx.items():
            if new != old == launch.ptx:
                yield f"{launch.name}: SASS for sm_{new} is made from compute_{old}'s PTX, which is the same"
