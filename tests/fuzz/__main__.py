"""Run the readers on mutations of real and made-up files."""

import argparse
import sys
from pathlib import Path

from tests.fuzz.campaign import Result, run
from tests.fuzz.real import real
from tests.fuzz.seeds import synthetic


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--executions", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="folder for the files that broke a property")
    chosen = parser.parse_args()
    result = run((*synthetic(), *real()), chosen.executions, chosen.seed)
    sys.stdout.write(f"seed {chosen.seed}: {result}\n")
    _report(result, chosen.keep)
    return 1 if result.crashes else 0


def _report(result: Result, keep: Path | None) -> None:
    for number, crash in enumerate(result.crashes[:20]):
        sys.stdout.write(f"  {crash.reason}, {len(crash.data)} bytes\n")
        if keep:
            keep.mkdir(parents=True, exist_ok=True)
            (keep / f"{number}.bin").write_bytes(crash.data)


if __name__ == "__main__":
    sys.exit(main())
