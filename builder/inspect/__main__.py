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

from builder.binary.payloads import has_lz4, has_zstd
from builder.errors import BuilderError, DiskError, os_error
from builder.formats.text import commandless, printable, shown
from builder.inspect.answers import checked_options, require_all, show
from builder.inspect.opener import Opener
from builder.inspect.reading import inspect_sources
from builder.io.transfer import HttpTransfer

_INTERRUPTED, _BROKEN_PIPE = 130, 141

_NO_ZSTD = (
    "note: this Python reads no zstd, so images packed with zstd are assumed to hold code. Python 3.14 "
    "reads it, older ones with the package backports.zstd"
)

_NO_LZ4 = "note: this Python has no package lz4, so LZ4 is unpacked by Python itself, 15 times as slowly"


class _Lines:
    """A reporter that writes to stderr, line by line, and shows no progress."""

    def say(self, line: str) -> None:
        _warn(printable(line))

    @contextmanager
    def progress(self, _title: str, _total: int) -> Iterator[Callable[[int], None]]:
        yield lambda _done: None


def main(argv: Sequence[str]) -> int:
    """Run the command ``argv`` and return its exit code; errors go to stderr without a traceback."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # a locale may lack a character of a file's name
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        _inspect(argv)
        sys.stdout.flush()
    except BuilderError as error:
        _warn(f"error: {error}")
        return error.exit_code
    except BrokenPipeError:  # the reader of stdout has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _BROKEN_PIPE
    except OSError as error:
        failure = os_error(error)
        _warn(f"error: {failure}")
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
    if not has_zstd():
        reporter.say(_NO_ZSTD)
    env = dict(os.environ)  # noqa: TID251 this is the program's composition root
    opener = Opener(
        transfer=HttpTransfer(reporter=reporter, sleep=time.sleep, env=env),
        scratch=_temporary_folder() / "ortpacks-inspect",
    )
    if given.deep and not has_lz4():
        reporter.say(_NO_LZ4)
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
    sys.stdout.write(f"{commandless(text)}\n")


def _warn(text: str) -> None:
    sys.stderr.write(f"{shown(text)}\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ortpacks-inspect",
        description="Shows which NVIDIA GPUs the device code in files runs on, from their bytes.",
        epilog="Exit codes: 2 wrong arguments, 3 no library found, 4 zstd, which nothing here reads, "
        "6 a library that cannot be read, does not run where it must or is not what its manifest says, "
        "7 damaged file, 10 failed transfer, 11 disk.",
    )
    parser.add_argument(
        "path", nargs="+", help="a library, fatbin, folder, wheel, package, zip or tar, or a URL"
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
