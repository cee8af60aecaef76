"""``python -m tests.shim PACKAGE_OR_FOLDER``: nodes per provider and launches, its and the official's."""

from __future__ import annotations

import argparse
import sys
import tempfile
from itertools import product
from pathlib import Path

from builder.errors import BuilderError
from tests.answers import pairs
from tests.answers.models import models
from tests.shim.compiling import fake_environment
from tests.shim.placement import ALL, BASIC, CAPABILITIES, Placement, place

LEVELS = {"basic": BASIC, "all": ALL}


def main() -> int:
    """Print a line for each model and capability; 1 where the two differ."""
    parser = argparse.ArgumentParser(prog="python -m tests.shim", description=__doc__)
    parser.add_argument("given", type=Path, help="package, its folder, or a folder with a compiled provider")
    parser.add_argument("--level", choices=LEVELS, default="all", help="graph optimisation (default: all)")
    arguments = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory() as folder:
            return 0 if _compare(arguments.given, Path(folder), LEVELS[arguments.level]) else 1
    except BuilderError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code


def _compare(given: Path, scratch: Path, level: int) -> bool:
    (scratch / "ours").mkdir()
    mine = pairs.ours(given, scratch / "ours")
    other = pairs.official(mine.ort_version)
    env = fake_environment([mine.provider, other.provider], scratch)
    alike = []
    for model, capability in product(models(scratch), CAPABILITIES):
        print(f"{model.name} on {capability}", flush=True)  # noqa: T201
        alike.append(_tell(*(place(pair, model, env, capability, scratch, level) for pair in (mine, other))))
    return all(alike)


def _tell(ours: Placement, theirs: Placement) -> bool:
    same = ours == theirs
    print(f"    ours     {_line(ours)}\n    official {_line(theirs)}")  # noqa: T201
    print("    " + ("the same" if same else "DIFFERENT"), flush=True)  # noqa: T201
    return same


def _line(placement: Placement) -> str:
    nodes = ", ".join(f"{provider} {count}" for provider, count in placement.counts.items())
    # ORT puts its own functions' signatures first and the reason last.
    return f"{nodes}; {placement.launched} launches {placement.error[-200:]}"


if __name__ == "__main__":
    sys.exit(main())
