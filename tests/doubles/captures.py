"""Stand-in for nvidia-smi with outputs of real machines, the files of ``tests/data/nvidia-smi``."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.doubles.gpus import program

CAPTURES = Path(__file__).parents[1] / "data" / "nvidia-smi"
QUERIES = ("uuid,name", "compute_cap", "memory.total", "driver_version", "mig.mode.current")
LOG_FIELDS = {"Product Name": "name", "GPU UUID": "uuid"}


@dataclass
class Quoted:
    """The content of a file of ``tests/data/nvidia-smi``: a row of fields for each GPU."""

    rows: list[dict[str, str]] = field(default_factory=list)
    refusals: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Output and exit code of a failed query, by its fields; under ``""`` those of any command."""

    def answer(self, fields: str) -> tuple[str, int]:
        """Return the output and the exit code of ``--query-gpu=index,<fields>``."""
        for refused in ("", fields):
            if refused in self.refusals:
                return self.refusals[refused]
        wanted = fields.split(",")
        lines = (
            ", ".join([str(index), *(row.get(name, "[N/A]") for name in wanted)])
            for index, row in enumerate(self.rows)
        )
        return "\n".join(lines), 0

    def program(self, folder: Path) -> str:
        """Write an ``nvidia-smi`` with these answers into ``folder`` and return its path."""
        answers = {fields: self.answer(fields) for fields in QUERIES}
        cases = [
            f"  --query-gpu=index,{fields}) echo {shlex.quote(text)}; exit {status} ;;"
            for fields, (text, status) in answers.items()
        ]
        return program(folder, "\n".join(['case "$1" in', *cases, "esac"]))


def quoted(name: str) -> Quoted:
    """Return the content of the capture ``name``."""
    result = Quoted()
    for command, output, status in _commands((CAPTURES / f"{name}.txt").read_text()):
        asked = re.search(r"--query-gpu=(\S+)", command)
        if status:
            result.refusals[asked[1] if asked else ""] = (output, status)
            continue
        for index, row in enumerate(_rows(command, output, asked[1].split(",") if asked else [])):
            result.rows += [{}] * (index + 1 - len(result.rows))
            result.rows[index] = {**result.rows[index], **row}
    return result


def _commands(text: str) -> Iterator[tuple[str, str, int]]:
    for match in re.finditer(r"^\$ (.*)\n((?:.*\n)*?)exit: (\d+)$", text, re.MULTILINE):
        yield match[1], match[2].rstrip("\n"), int(match[3])


def _rows(command: str, output: str, fields: list[str]) -> Iterator[dict[str, str]]:
    if fields:
        lines = output.splitlines()[0 if "noheader" in command else 1 :]
        yield from (dict(zip(fields, line.split(", "), strict=True)) for line in lines)
    elif " -L" in command:
        yield from _listed(output)
    else:
        yield from _logged(output)


def _listed(output: str) -> Iterator[dict[str, str]]:
    divided = {"mig.mode.current": "Enabled"} if "\n  MIG " in output else {}
    for match in re.finditer(r"^GPU \d+: (.*) \(UUID: (.*)\)$", output, re.MULTILINE):
        yield {"name": match[1], "uuid": match[2], **divided}


def _logged(output: str) -> Iterator[dict[str, str]]:
    head, *gpus = re.split(r"^GPU .*$", output, flags=re.MULTILINE)
    shared = {"driver_version": _pairs(head)["Driver Version"]}
    for gpu in gpus:
        said = _pairs(gpu)
        yield {**shared, **{name: said[key] for key, name in LOG_FIELDS.items()}}


def _pairs(text: str) -> dict[str, str]:
    parts = (line.partition(" : ") for line in text.splitlines())
    return {key.strip(): value.strip() for key, _, value in parts}
