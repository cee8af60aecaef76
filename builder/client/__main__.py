"""The entry point of the client. No other module of the client reads the real environment."""

from __future__ import annotations

import math
import os
import platform
import shutil
import signal
import site
import sys
import time
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Callable, Mapping, Optional, Tuple

from builder.client.cli import INTERRUPTED, main
from builder.client.context import CommandContext
from builder.client.output import Meter, Output
from builder.errors import DiskError
from builder.facts.gpu.devices import platform_of
from builder.files.disk import is_folder
from builder.formats.text import shown

if TYPE_CHECKING:
    from builder.client.probe.detect import Surroundings
    from builder.files.http_client import Web

BROKEN_PIPE = 141
"""The exit code that a shell reports for a program that SIGPIPE ended: 128 + 13."""


def run() -> int:
    """Run the command in ``sys.argv`` on this machine and return its exit code."""
    env = dict(os.environ)  # noqa: TID251 the client's own composition root
    output = Output(sys.stdout, sys.stderr)
    context = CommandContext(
        surroundings=partial(_surroundings, env),
        connect=partial(_connect, env, output),
        platform=platform_of(platform.system(), platform.machine()),
        cores=os.cpu_count() or 1,
        ram_gib=_ram_gib(),
        say=output.say,
        now=lambda: datetime.now(timezone.utc),
        free=lambda path: shutil.disk_usage(path).free,
        environments=_environments(),
        program=_program(),
        confirm=partial(_confirm, output) if sys.stdin is not None and sys.stdin.isatty() else None,
        columns=shutil.get_terminal_size().columns if sys.stdout is not None and sys.stdout.isatty() else 0,
    )
    _end_like_an_interrupt()
    try:
        return main(sys.argv[1:], context, env, _home(), output.answer, output.say)
    except BrokenPipeError:  # the reader of stdout has closed it
        return BROKEN_PIPE
    except OSError as error:
        output.say(f"ortpacks: the answer cannot be written: {error.strerror}. Completed changes stay.")
        return DiskError.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED


def _end_like_an_interrupt() -> None:
    """Make SIGTERM and SIGHUP raise ``KeyboardInterrupt``, so that child processes are ended too.

    A signal that has a handler already, or is ignored, keeps it.
    """
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)


def _surroundings(env: Mapping[str, str]) -> Surroundings:
    from builder.client.probe.detect import Surroundings  # noqa: PLC0415 compiled where a probe is asked
    from builder.client.probe.processes import asker, worker  # noqa: PLC0415

    return Surroundings(env=env, ask=asker(env), work=worker(env), python=sys.executable or "python3")


def _connect(env: Mapping[str, str], output: Output) -> Web:
    from builder.files.http_client import Web  # noqa: PLC0415 as above
    from builder.files.http_opener import open_url, trusted_certificates  # noqa: PLC0415 as above

    return Web(
        open=partial(open_url, certificates=trusted_certificates(env)),
        sleep=time.sleep,
        progress=_progress(output),
        say=output.say,
        hint="Check --index: packages lie beside index.json.",
    )


def _program() -> Optional[Path]:
    """Return the zip file that this module is imported from; ``None`` when it runs from the source tree."""
    root = Path(__file__).parents[2]
    return root.resolve() if root.is_file() else None


def _home() -> Path:
    """Return the home folder of the user; ``/`` where there is none, as in some containers."""
    try:
        return Path.home()
    except (RuntimeError, KeyError):  # Python 3.9 raises KeyError for a user who has no entry in passwd
        return Path("/")


def _environments() -> Tuple[Path, ...]:
    """Return the folders that this Python imports packages from, and its user's ``site-packages``."""
    named = (*sys.path, *site.getsitepackages(), site.getusersitepackages())
    return tuple(Path(name) for name in dict.fromkeys(named) if is_folder(Path(name)))


def _ram_gib() -> int:
    """Return this machine's memory in GiB, rounded up because firmware keeps some; 0 where it is unknown."""
    return math.ceil(_ram_bytes() / 2**30)


def _ram_bytes() -> int:
    if sys.platform == "win32":
        import ctypes  # noqa: PLC0415 as above

        status = (ctypes.c_ulonglong * 8)(64)  # MEMORYSTATUSEX: its own size first, then all memory
        return status[1] if ctypes.windll.kernel32.GlobalMemoryStatusEx(status) else 0
    if "SC_PHYS_PAGES" not in os.sysconf_names:
        return 0
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _progress(output: Output) -> Callable[[int, int], None]:
    if sys.stderr is not None and sys.stderr.isatty():
        return Meter(output.move, time.monotonic, lambda: shutil.get_terminal_size().columns)
    return lambda _done, _total: None


def _confirm(output: Output, question: str, default: bool) -> bool:
    """Ask ``question`` and return the answer: ``default`` for an empty line, false at the input's end."""
    output.write(f"{shown(question)} {'[Y/n]' if default else '[y/N]'} ")
    try:
        line = sys.stdin.readline()
    except ValueError:  # the bytes are no text
        return False
    if not line:  # Ctrl-D leaves the cursor behind the question
        output.write("\n")
    return bool(line) and line.strip().lower() in {"y", "yes", *([""] if default else [])}


if __name__ == "__main__":
    sys.exit(run())
