"""``python -m tests.fuzz.guided PARSER``: mutations that are kept where they reach new code, by atheris.

atheris is no dependency: ``pip install atheris`` into an environment of its own, with what is imported.
libFuzzer's own flags stand behind the parser's name: ``-runs=1000000 -max_len=4096 FOLDER``. A parser that
lets an exception out, or takes more than a second of the processor, ends the run with the file that did.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import mkdtemp
from time import process_time

import atheris

with atheris.instrument_imports(include=["builder"]):
    from tests.fuzz.parsers import PARSERS

LONGEST = 1.0
"""Seconds of the processor."""


def main() -> None:
    """Run libFuzzer until it has done ``-runs``."""
    name, *flags = sys.argv[1:]
    parser = PARSERS[name]
    folder = Path(mkdtemp(prefix=f"fuzz-{name}-"))
    for number, seed in enumerate(parser.corpus()):
        (folder / f"seed-{number}").write_bytes(seed)

    def once(data: bytes) -> None:
        before = process_time()
        parser.read(data)
        took = process_time() - before
        if took > LONGEST:
            raise TimeoutError(f"{took:.1f} s")

    atheris.Setup([sys.argv[0], *flags, str(folder)], once)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
