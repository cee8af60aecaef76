"""The repairs of ORT's source, ``repairs.toml``: which of them a set needs."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict
from functools import cache
from importlib.resources import files

from builder.facts.gpu.architectures import Arch
from builder.facts.ort.source_rules import SourceRules
from builder.farm.repair import Repair

DATA = "builder/config/repairs.toml"
"""The file of the repairs, from the project's root."""


@cache
def all_repairs() -> Mapping[str, Repair]:
    """Return all repairs by their names, in the order in which they are made."""
    text = files("builder.config").joinpath("repairs.toml").read_text(encoding="utf-8")
    return {name: Repair(name=name, **values) for name, values in tomllib.loads(text).items()}


def repairs_for(rules: SourceRules, sm: Iterable[Arch], dependencies: Collection[str]) -> tuple[Repair, ...]:
    """Return the repairs that a set needs of a source, and of what it is compiled with (``dependencies``).

    The build sees by the symptom whether a dependency needs its repairs.
    """
    numbers = [arch.number for arch in sm]
    return tuple(
        repair
        for name, repair in all_repairs().items()
        if (name in rules.repairs or repair.dependency in dependencies)
        and (min(numbers, default=repair.below) < repair.below and rules.standard >= repair.cxx)
    )


def dumps(repairs: Iterable[Repair]) -> str:
    """Return the JSON text that ``builder/farm/repair.py`` reads."""
    return json.dumps([asdict(one) for one in repairs], indent=1)
