"""The inputs that variants, bases and tests need, found in the values of ``variants.yaml``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace

from builder.formats.package_names import LINUX, LINUX_ARM64
from builder.project.bases import RedistToolkit
from builder.project.inputs import TEST_INPUTS, Input, Lock, ort_wheel
from builder.project.variants import Project, on_platform, provider_wheel


def base_inputs(project: Project, base: str, lock: Lock) -> tuple[Input, ...]:
    """Return the inputs of the base of this name, without packages of its root file system, sorted by key.

    Empty for ``NO_BASE``.
    """
    return _sorted(_inputs_in(project.bases.get(base)), lock)


def open_inputs(project: Project, base: str, lock: Lock) -> list[str]:
    """Return the keys of a base's inputs without a pin."""
    return [item.key for item in base_inputs(project, base, lock) if lock.is_open(item)]


def all_inputs(project: Project, lock: Lock) -> tuple[Input, ...]:
    """Return every input that any variant on any base can need, and those of the tests, sorted by key.

    The archives that a git tag's own build would download are included once ``lock`` has the tag.
    """
    versions = project.ort_versions
    official = [one for one in project.variants.values() if one.is_official]
    variants = {*project.providers.values()}
    variants |= {on_platform(one, LINUX_ARM64) for one in variants if one.platform == LINUX}
    providers = (provider_wheel(variant, version) for variant in variants for version in versions)
    images = (Input.wheel(wheel.spec, LINUX_ARM64) for wheel in project.image.wheels.values())
    repacked = (
        ort_wheel(version, variant.platform)
        for variant in official
        for version in project.official_versions(variant)
    )
    bundled = (wheel for variant in official for wheel in project.of(variant).bundled)
    own = {*_inputs_in(replace(project, toolkits={})), *map(ort_wheel, versions)}
    found = {*own, *repacked, *bundled, *providers, *images, *TEST_INPUTS}
    return _sorted(found, lock)


def _sorted(found: Iterable[Input], lock: Lock) -> tuple[Input, ...]:
    """Return the inputs, and the archives that git tags among them need, sorted by key."""
    named = set(found)
    return tuple(
        sorted({*named, *(file for item in named for file in lock.files_of(item))}, key=lambda item: item.key)
    )


def python_wheel_requirements(project: Project) -> tuple[str, ...]:
    """Return the official wheels, ``name==version``, that ``./run wheel`` uses for every Python."""
    versions = project.ort_versions
    linux = (one for one in project.providers.values() if one.platform == LINUX)
    others = {provider_wheel(one, version).requirement for one in linux for version in versions}
    return tuple(sorted(others | {ort_wheel(version).requirement for version in versions}))


def _inputs_in(value: object) -> Iterator[Input]:
    """Yield all inputs below a value, so that the inputs of a new key are found too."""
    if isinstance(value, Input):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _inputs_in(part)
    elif isinstance(value, tuple):
        for part in value:
            yield from _inputs_in(part)
    elif is_dataclass(value):
        yield from value.archives if isinstance(value, RedistToolkit) else ()
        for key in fields(value):
            yield from _inputs_in(getattr(value, key.name))
