"""The repairs of ORT's source, ``repairs.toml``: which of them a set needs."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from functools import cache
from importlib.resources import files

from builder.facts.gpu.architectures import Arch
from builder.farm.repair import Repair

DATA = "builder/config/repairs.toml"
"""The file of the repairs, from the project's root."""


@cache
def all_repairs() -> Mapping[str, Repair]:
    """Return all repairs by their names, in the order in which they are made."""
    text = files("builder.config").joinpath("repairs.toml").read_text(encoding="utf-8")
    return {name: Repair(name=name, **values) for name, values in tomllib.loads(text).items()}


def repairs_for(names: Iterable[str], sm: Iterable[Arch]) -> tuple[Repair, ...]:
    """Return those of the repairs of these names that a set needs."""
    oldest = min(arch.number for arch in sm)
    wanted = frozenset(names)
    return tuple(one for name, one in all_repairs().items() if name in wanted and oldest < one.below)


def dumps(repairs: Iterable[Repair]) -> str:
    """Return the JSON text that ``builder/farm/repair.py`` reads."""
    return json.dumps([asdict(one) for one in repairs], indent=1)
