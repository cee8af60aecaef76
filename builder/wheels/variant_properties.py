"""This module finds properties by which an installer chooses the wheel that ``select`` chooses for a GPU.

NVIDIA's provider (``nvidia-variant-provider``, built into uv) gives a GPU of capability 8.6 the values
``86_real``, ``85_real`` … ``80_real``, ``80_virtual`` of ``sm_arch``, best first, and its driver the values
up to its CUDA version of ``cuda_version_lower_bound``, which have priority over ``sm_arch``. So 12.1 also
accepts ``120_real``, whatever code the wheel has: a value is used only if each GPU that accepts it is served.
Sources: drafts PEP 825 and PEP 850, variantlib 0.2.2, uv 0.13.9.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from builder.errors import ValidationError
from builder.formats.index import Index, IndexPackage
from builder.formats.package_names import CUDA, LINUX
from builder.gpu.architectures import Capability
from builder.gpu.compatibility import NATIVE
from builder.gpu.cuda_toolkits import cuda_of_driver, dotted, version_of
from builder.gpu.devices import Device
from builder.gpu.table import LISTED_GPUS
from builder.selection.select import select

SCHEMA = "https://variants-schema.wheelnext.dev/v0.2.0.json"

_PROVIDER = {
    "requires": ["nvidia-variant-provider>=0.0.1,<1.0.0"],
    "plugin-api": "nvidia_variant_provider.plugin:NvidiaVariantPlugin",
}

_NAMESPACE = "nvidia"

CARDS = tuple(gpu.capability for gpu in LISTED_GPUS if not gpu.module)
"""GPUs that NVIDIA lists, without Jetson modules, which do not install wheels for x86-64."""

Properties = Mapping[str, tuple[str, ...]]
"""Values by feature, of NVIDIA's namespace."""


@dataclass(frozen=True)
class Labels:
    """The properties of each variant by its name, and the GPUs for which no property was found."""

    properties: Mapping[str, Properties]
    lost: tuple[str, ...]
    """A sentence for each GPU that a variant serves and that no installer chooses the variant for."""


def labels(index: Index) -> Labels:
    """Return the properties of the index's packages for CUDA.

    Raises ``ValidationError`` for two packages of one variant.
    """
    packages = {package.variant: package for package in index.packages if package.provider == CUDA}
    if len(packages) != sum(package.provider == CUDA for package in index.packages):
        raise ValidationError("Two packages are of one variant: an index of wheels takes one.")
    floors = sorted({_floor(package) for package in packages.values()}, key=version_of)
    served = {device for device in CARDS if floors and _choose(device, floors[-1], index)}
    found: dict[str, dict[str, None]] = {name: {} for name in packages}
    lost: dict[str, None] = {}
    for device, floor in ((device, floor) for floor in floors for device in CARDS):
        choice = _choose(device, floor, index)
        if choice is None:
            continue
        name, native = choice
        astray = [one for one in _takers(device, native=native) if one not in served]
        if astray:
            others = ", ".join(map(str, astray))
            lost[f"{name} serves {device}, and no wheel is chosen for it: {others} would take it too"] = None
        else:
            found[name][_value(device, native=native)] = None
    properties = {
        name: {
            "cuda_version_lower_bound": (dotted(cuda_of_driver(_floor(packages[name]))),),
            "sm_arch": tuple(sorted(values)),
        }
        for name, values in found.items()
        if values
    }
    return Labels(properties, tuple(lost))


def variants_json(properties: Mapping[str, Properties]) -> str:
    """Return the JSON document of a version's variants for an index, or of one variant for its wheel."""
    document = {
        "$schema": SCHEMA,
        "default-priorities": {"namespace": [_NAMESPACE]},
        "providers": {_NAMESPACE: _PROVIDER},
        "variants": {name: {_NAMESPACE: dict(values)} for name, values in sorted(properties.items())},
    }
    return json.dumps(document, indent=2) + "\n"


def _choose(device: Capability, driver: str, index: Index) -> tuple[str, bool] | None:
    """Return the variant that ``select`` chooses, and whether it is native.

    ``None`` means that no variant is chosen, or one that runs on the CPU.
    """
    machine = Device(0, "", "a GPU", device, None, driver)
    choice = select([machine], index, LINUX)
    if choice.package is None or not choice.on_gpu:
        return None
    return choice.package.variant, choice.support == NATIVE


def _value(device: Capability, *, native: bool) -> str:
    return f"{device.number}_real" if native else f"{device.major}0_virtual"


def _takers(device: Capability, *, native: bool) -> Iterator[Capability]:
    """Yield the GPUs to which the provider gives this value."""
    for other in CARDS:
        if other.major == device.major and (not native or other.minor >= device.minor):
            yield other


def _floor(package: IndexPackage) -> str:
    return package.driver.floor if package.driver else "0"
