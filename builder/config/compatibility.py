"""What cannot go together though each part is fine. A rule looks only at values that were read cleanly."""

from __future__ import annotations

from collections.abc import Iterator

from builder.config.cursor import Cursor
from builder.config.shapes import items
from builder.errors import CompatibilityError
from builder.findings.finding import errors
from builder.formats.manifest import ModelRule
from builder.gpu.table import GENERATION_NUMBERS
from builder.project.variants import Project, Variant
from builder.rules.nvidia_libraries import hold_libraries
from builder.rules.toolkits import lint


def check_pins(project: Project, root: Cursor) -> None:
    """Report each pin that is of another version than the key beside it says."""
    for pin_path, version_path, version, agrees in _pins(project):
        pin = root.at(*pin_path.split("."))
        if root.problems.is_clean(pin_path, version_path) and not agrees:
            line = root.at(*version_path.split(".")).line
            hint = f"Change one of the two; {version_path} stands in line {line}."
            pin.report(CompatibilityError, f"is not of {version_path} {version}", hint=hint)


def check_variants(project: Project, root: Cursor) -> None:
    """Report variants whose architectures the toolkit, cuDNN or ORT cannot serve, or of other generations."""
    for variant in project.variants.values():
        place = root.at("variants", variant.name)
        sm, generations = place.at("sm"), place.at("generations")
        if root.problems.is_clean(sm.path, "cuda.version", "cudnn.version", "onnxruntime.version"):
            _lint(project, variant, sm)
        if root.problems.is_clean(sm.path, generations.path):
            _check_generations(variant, generations)


def check_providers(project: Project, root: Cursor) -> None:
    """Report names that two packages would have: both stand in the same files' names."""
    for name in project.providers.keys() & project.variants.keys():
        place, line = root.at("providers", name), root.at("variants", name).line
        hint = f"Name the variant in line {line} something else."
        place.report(CompatibilityError, "a variant has this name", found="", hint=hint)


def check_models(project: Project, root: Cursor) -> None:
    """Report lines of the model table that no machine can reach."""
    place = root.at("models")
    if not root.problems.is_clean(place.path):
        return
    for index, rule in enumerate(project.models):
        earlier = enumerate(project.models[:index])
        before = [first for first, other in earlier if _always_wins(other, rule)]
        if before:
            message = f"never reached: models[{before[0]}] fits every machine that this line fits"
            items(place)[index].report(CompatibilityError, message, found="")


def _pins(project: Project) -> Iterator[tuple[str, str, str, bool]]:
    """Path of a pin, path of the version it belongs to, that version, whether the pin is of it."""
    cuda, cudnn, bases = project.cuda, project.cudnn, project.bases
    wheel = cudnn.wheel.spec
    yield "cudnn.wheel", "cudnn.version", cudnn.version, wheel.endswith(f"=={cudnn.version}")
    cudart = cuda.libraries["cudart"].spec
    yield "cuda.libraries.cudart", "cuda.version", cuda.version, f"=={cuda.version}." in cudart
    tag, ort = bases.nvidia.source.spec.rpartition("@")[2], bases.nvidia.ort_version
    yield "bases.nvidia.source", "bases.nvidia.onnxruntime", ort, ort in tag
    tarball, ort = bases.assembled.source.spec, bases.assembled.ort_version
    yield "bases.assembled.source", "bases.assembled.onnxruntime", ort, f"_{ort}" in tarball
    compiler, nvcc = bases.assembled.debs["nvcc"].spec, bases.assembled.nvcc
    yield "bases.assembled.debs.nvcc", "bases.assembled.nvcc", nvcc, f"_{nvcc}." in compiler


def _lint(project: Project, variant: Variant, sm: Cursor) -> None:
    findings = lint(
        variant=variant.name,
        sm=variant.sm,
        cuda=project.cuda.version,
        cudnn=project.cudnn.version,
        ort=project.onnxruntime.version,
        nvcc=None,
    )
    wheels = (*project.cuda.libraries.values(), project.cudnn.wheel)
    findings += hold_libraries(sm.path, variant.sm, [wheel.spec for wheel in wheels])
    for finding in errors(findings):
        message = f"{finding.code.name} {finding.message}"
        sm.report(CompatibilityError, message, found=finding.got, allowed=finding.wanted)


def _check_generations(variant: Variant, place: Cursor) -> None:
    meant = tuple(
        name
        for name, numbers in GENERATION_NUMBERS.items()
        if any(arch.number in numbers for arch in variant.sm)
    )
    if set(meant) != set(variant.generations):
        found, allowed = ", ".join(variant.generations), ", ".join(meant)
        place.report(CompatibilityError, "not the generations of this sm set", found=found, allowed=allowed)


def _always_wins(earlier: ModelRule, later: ModelRule) -> bool:
    """Whether ``earlier`` fits each machine that ``later`` fits (see ``selection.select.recommend``)."""
    gpu_is_enough = earlier.device == "cpu" or (later.device == "gpu" and earlier.vram_mib <= later.vram_mib)
    return gpu_is_enough and earlier.cores <= later.cores and earlier.ram_gib <= later.ram_gib
