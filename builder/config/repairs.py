"""The repairs of ORT's source, ``repairs.toml``: which of them a set needs."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict
from functools import cache
from importlib.resources import files

from builder.facts.gpu.architectures import Arch, Capability
from builder.facts.ort.source_rules import SourceRules
from builder.farm.repair import Repair
from builder.formats.missing_kernels import MICROSOFT, MissingBelow
from builder.formats.package_names import PackageForm
from builder.formats.text import grouped

DATA = "builder/config/repairs.toml"
"""The file of the repairs, from the project's root."""


@cache
def all_repairs() -> Mapping[str, Repair]:
    """Return all repairs by their names, in the order in which they are made."""
    text = files("builder.config").joinpath("repairs.toml").read_text(encoding="utf-8")
    return {name: Repair(name=name, **values) for name, values in tomllib.loads(text).items()}


def of_form(form: PackageForm) -> Mapping[str, Repair]:
    """Return the repairs of what a package of this form is compiled from."""
    return {name: one for name, one in all_repairs().items() if one.form in {"", form.value}}


def repairs_for(
    rules: SourceRules,
    sm: Iterable[Arch],
    dependencies: Collection[str],
    form: PackageForm = PackageForm.PROVIDER,
) -> tuple[Repair, ...]:
    """Return the repairs that a set needs of a source, and of what it is compiled with (``dependencies``).

    The build sees by the symptom whether a dependency needs its repairs.
    """
    numbers = [arch.number for arch in sm]
    return tuple(
        repair
        for name, repair in of_form(form).items()
        if (name in rules.repairs or repair.dependency in dependencies)
        and (min(numbers, default=repair.below) < repair.below and rules.standard >= repair.cxx)
    )


def cannot_run_below(repairs: Iterable[Repair]) -> tuple[MissingBelow, ...]:
    """Return the operators that do not run on the oldest GPUs with repairs, by the first that runs them."""
    named = grouped((one.below, name) for one in repairs for name in filter(None, one.operators.split(", ")))
    return tuple(
        MissingBelow(MICROSOFT, tuple(sorted(names)), str(Capability(*divmod(below, 10))))
        for below, names in sorted(named.items())
    )


def dumps(repairs: Iterable[Repair]) -> str:
    """Return the JSON text that ``builder/farm/repair.py`` reads."""
    return json.dumps([asdict(one) for one in repairs], indent=1)
