"""Compare a package's answers to onnx's backend tests with those of the official wheel of its version."""

import argparse
import sys
import tempfile
from pathlib import Path

from builder.errors import BuilderError
from tests.answers import pairs
from tests.answers.card import plain_environment
from tests.answers.cases import ONNX_WHEEL, find_cases
from tests.answers.table import Table, ask_library, ask_wheel, differing, summary


def main() -> int:
    """Print both comparisons and return 1 if an answer differs, else 0, or an error's exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.answers", description=__doc__)
    parser.add_argument("given", type=Path, help="package, its folder, or a folder with a compiled provider")
    given = parser.parse_args().given
    try:
        with tempfile.TemporaryDirectory() as scratch:
            return _compare(given, Path(scratch))
    except BuilderError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code


def _compare(given: Path, scratch: Path) -> int:
    (scratch / "ours").mkdir()
    pair = pairs.ours(given, scratch / "ours")
    cases = find_cases(pairs.store().unpack(ONNX_WHEEL))
    env = plain_environment(scratch)
    mine = ask_library(pair, cases, env, "cuda")
    official = ask_library(pairs.official(pair.ort_version), cases, env, "cuda")
    python = ask_wheel(pair.ort_version, cases, env)
    differ = _tell("the official libraries, C API", mine, official)
    return 1 if _tell("the official wheel, Python API", mine, python) or differ else 0


def _tell(who: str, mine: Table, other: Table) -> bool:
    lines = differing(mine, other)
    print(f"against {who} (ours | official):", summary(mine, other), *lines, "", sep="\n")  # noqa: T201
    return bool(lines)


if __name__ == "__main__":
    sys.exit(main())
