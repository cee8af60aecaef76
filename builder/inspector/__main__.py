"""The entry point of ``ortpacks-inspect.pyz``, and its only module that reads the real environment."""

from __future__ import annotations

import argparse
import io
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from builder.adapters.archive.decompression import HAS_ZSTD
from builder.adapters.transfer import HttpTransfer
from builder.adapters.untrusted.opener import Opener
from builder.binary.payloads.payload_bytes import has_lz4
from builder.errors import BuilderError, DiskError, os_error
from builder.formats.text import printable
from builder.inspector.answers import checked_options, require_all, show
from builder.inspector.sources import inspect_sources

_INTERRUPTED, _BROKEN_PIPE = 130, 141

_NO_ZSTD = (
    "note: this Python reads no zstd, so images packed with zstd are assumed to hold code. Python 3.14 "
    "reads it, older ones with the package backports.zstd"
)

_NO_LZ4 = "note: this Python has no package lz4, so LZ4 is unpacked by Python itself, 15 times as slowly"


class _Lines:
    """A reporter that writes results and warnings to stderr, line by line, and shows no progress."""

    def say(self, line: str) -> None:
        sys.stderr.write(f"{printable(line)}\n")

    warn = say

    @contextmanager
    def step(self, _title: str) -> Iterator[None]:
        yield

    @contextmanager
    def progress(self, _title: str, _total: int) -> Iterator[Callable[[int], None]]:
        yield lambda _done: None

    @contextmanager
    def live(self, _title: str) -> Iterator[Callable[[float, str], None]]:
        yield lambda _share, _said: None


def main(argv: Sequence[str]) -> int:
    """Run the command ``argv`` and return its exit code; errors go to stderr without a traceback."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # a locale may lack a character of a file's name
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        _inspect(argv)
        sys.stdout.flush()
    except BuilderError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    except BrokenPipeError:  # the reader of stdout has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _BROKEN_PIPE
    except OSError as error:
        failure = os_error(error)
        sys.stderr.write(f"error: {failure}\n")
        return failure.exit_code
    except KeyboardInterrupt:
        return _INTERRUPTED
    return 0


def _inspect(argv: Sequence[str]) -> None:
    given = _parser().parse_args(argv)
    options = checked_options(
        given.path,
        {"--sarif": given.sarif},
        require=given.require,
        jit=given.jit_ok,
        as_json=given.json,
        diff=given.diff,
        sizes=given.sizes,
    )
    reporter = _Lines()
    if not HAS_ZSTD:
        reporter.warn(_NO_ZSTD)
    env = dict(os.environ)  # noqa: TID251 this is the program's composition root
    opener = Opener(
        transfer=HttpTransfer(reporter=reporter, sleep=time.sleep, env=env),
        reporter=reporter,
        scratch=_temporary_folder() / "ortpacks-inspect",
    )
    if given.deep and not has_lz4():
        reporter.warn(_NO_LZ4)
    sources = inspect_sources(opener, given.path, deep=given.deep)
    show(sources, options, {}, _tell, reporter.say)
    require_all(sources, options)


def _temporary_folder() -> Path:
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        raise DiskError(
            "archives are unpacked in a folder for temporary files",
            cause=str(error.strerror),
            advice="Set TMPDIR to a folder that may be written to.",
        ) from error


def _tell(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ortpacks-inspect",
        description="Shows which NVIDIA GPUs the device code in files runs on, from their bytes.",
        epilog="Exit codes: 2 wrong arguments, 3 no library found, 4 zstd, which this Python does not read, "
        "6 a library that cannot be read, does not run where it must or is not what its manifest says, "
        "7 damaged file, 10 failed transfer, 11 disk.",
    )
    parser.add_argument(
        "path", nargs="+", help="a library, fatbin, folder, wheel, package, zip, tar or image file, or a URL"
    )
    parser.add_argument(
        "--require", metavar="5.2,8.6,12.0", help="capabilities that each must run on: else exit code 6"
    )
    parser.add_argument("--jit-ok", action="store_true", help="with --require: running by JIT is enough")
    parser.add_argument("--sarif", metavar="FILE", type=Path, help="write all findings as SARIF 2.1.0")
    parser.add_argument("--diff", action="store_true", help="how the second of two sources differs")
    parser.add_argument("--sizes", action="store_true", help="bytes of each architecture's code")
    parser.add_argument("--deep", action="store_true", help="unpack every image: kernels, stubs, damage")
    parser.add_argument("--json", action="store_true", help="as JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
