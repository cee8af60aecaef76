"""Coverage-guided fuzzing of a parser by atheris: ``python -m tests.fuzz.guided PARSER``.

atheris is not a dependency: install it with the project's dependencies into an environment of its own.
libFuzzer's flags follow the parser's name: ``-runs=1000000 -max_len=4096 FOLDER``. An exception of the
parser, or more than a second of processor time, ends the run and keeps the file.
"""

import sys
from pathlib import Path
from tempfile import mkdtemp
from time import process_time

import atheris

with atheris.instrument_imports(include=["builder"]):
    from tests.fuzz.parsers import PARSERS

LONGEST = 1.0
"""Largest processor time in seconds for a file."""


def main() -> None:
    """Run libFuzzer on the parser that the command line names."""
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
