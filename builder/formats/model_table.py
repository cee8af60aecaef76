"""An application's own table of models is a JSON file with ``models`` in the form of ``index.json``.

A minimum that a line omits is 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator, Tuple

from builder.errors import ValidationError
from builder.formats.json_values import from_json, parse_json
from builder.formats.manifest import ModelRule

_FLOORS = {"vram_mib": 0, "cores": 0, "ram_gib": 0}


@dataclass(frozen=True)
class ModelTable:
    """A table of models. The first line whose minimums a machine meets is recommended."""

    models: Tuple[ModelRule, ...]


def loads(text: str, where: str) -> ModelTable:
    """Return the table in ``text``; each error begins with ``where``.

    Raises ``ParseError``, ``SchemaError`` or ``ValidationError``, as for an index.
    """
    value = parse_json(text, where)
    if isinstance(value, dict) and isinstance(value.get("models"), list):
        lines = [{**_FLOORS, **line} if isinstance(line, dict) else line for line in value["models"]]
        value = {**value, "models": lines}
    table = from_json(ModelTable, value, where)
    problems = [problem for number, rule in enumerate(table.models) for problem in _problems_of(rule, number)]
    if problems or not table.models:
        raise ValidationError(
            [f"{where}: {problem}" for problem in problems or ["models: the list is empty"]]
        )
    return table


def _problems_of(rule: ModelRule, number: int) -> Iterator[str]:
    where = f"models[{number}]"
    if not rule.model:
        yield f"{where}.model: the name is empty"
    if rule.device not in {"gpu", "cpu"}:
        yield f"{where}.device: {rule.device!r}; known: gpu, cpu"
    if rule.device == "cpu" and rule.vram_mib:
        yield f"{where}.vram_mib: a cpu line has no floor of GPU memory"
    for name in _FLOORS:
        if getattr(rule, name) < 0:
            yield f"{where}.{name}: {getattr(rule, name)} is below 0"
