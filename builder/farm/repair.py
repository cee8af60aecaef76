"""This program repairs a source of ONNX Runtime: text that our compilers or GPUs cannot have is replaced.

    repair.py FOLDER REPAIRS

``REPAIRS`` is a JSON list of repairs (``config.repairs``). ``FOLDER`` has the source, ``onnxruntime``, and
its dependencies. A repair that does not fit ends the build: it would compile what does not link, or what
computes wrong numbers.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Repair:
    """A text of ORT's source that is replaced by ours. All patterns are of ``re``, with its flag ``(?m)``."""

    name: str
    why: str
    file: str
    """Path below the top of the source, or of ``dependency``. Without that file, nothing is to repair."""
    symptom: str
    """What shows that a file needs the repair."""
    pattern: str
    """What is replaced: it must match exactly once."""
    replacement: str
    """Our text, in which ``\\g<0>`` stands for what is replaced."""
    repaired: str
    """What a repaired file has, whoever repaired it."""
    below: int
    """It is for sets with an architecture older than this, ``53``."""
    tried: Sequence[str]
    """The sources that it was tried on."""
    beside: str = ""
    """The repair without which nothing needs this one."""
    operators: str = ""
    """The operators that do not run on GPUs older than ``below``."""
    units: Sequence[str] = ()
    """What the paths of the units begin with that are compiled in no target where it was made."""
    dependency: str = ""
    """The dependency whose file it is, by its name in ``cmake/deps.txt``; empty for ORT's own."""
    cxx: int = 0
    """The C++ standard from which on it is needed, ``20``."""
    form: str = ""
    """``provider`` or ``plugin`` for what is compiled for packages of that form alone; empty for both."""


def repaired(text: str, repair: Repair) -> tuple[str, int]:
    """Return a file's text with a repair, and the line where it begins; 0 where none is needed.

    Raises ``ValueError`` with the reason if it does not fit.
    """
    if _search(repair.repaired, text) or not (symptom := _search(repair.symptom, text)):
        return text, 0
    matches = list(re.finditer(repair.pattern, text, re.MULTILINE))
    if len(matches) != 1:
        raise ValueError(
            f"its pattern matches {len(matches)} times, not once, and line {_line(text, symptom)} needs it"
        )
    made = text[: matches[0].start()] + matches[0].expand(repair.replacement) + text[matches[0].end() :]
    if not _search(repair.repaired, made):
        raise ValueError(f"what it makes of line {_line(text, matches[0])} is not as it says (repaired)")
    return made, _line(text, matches[0])


def _search(pattern: str, text: str) -> re.Match[str] | None:
    return re.search(pattern, text, re.MULTILINE)


def _line(text: str, match: re.Match[str]) -> int:
    return text.count("\n", 0, match.start()) + 1


def main(folder: Path, repairs: Path) -> int:
    """Repair a source, say what was done, and return the exit status."""
    status = 0
    for repair in (Repair(**values) for values in json.loads(repairs.read_text(encoding="utf-8"))):
        file = folder / (repair.dependency or "onnxruntime") / repair.file
        try:
            text = file.read_bytes().decode() if file.is_file() else ""
            made, line = repaired(text, repair)
        except ValueError as error:
            print(f"ortpacks: repair {repair.name} does not fit {repair.file}: {error}. {advice(repair)}")
            status = 1
            continue
        if line:
            file.write_bytes(made.encode())
        print(f"ortpacks: repair {repair.name}: {f'{repair.file}:{line}' if line else 'not needed'}")
    return status


def advice(repair: Repair) -> str:
    """Return what to do about a repair that does not fit."""
    return (
        f"It was tried on {', '.join(repair.tried)}. Mend it in builder/config/repairs.toml for this source, "
        "take out the patch that changes this text, or name another source."
    )


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
