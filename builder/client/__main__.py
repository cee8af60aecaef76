"""The entry point of the client, and its only module that reads the real environment."""

from __future__ import annotations

import io
import math
import os
import platform
import shutil
import site
import sys
import time
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Callable, Mapping, Tuple

from builder.client.cli import main
from builder.client.world import World
from builder.gpu.devices import platform_of

if TYPE_CHECKING:
    from builder.client.probe.detect import Surroundings
    from builder.files.http_client import Web

BROKEN_PIPE = 141
"""What a shell reports of a program that SIGPIPE ended."""


def run() -> int:
    """The command in ``sys.argv``, on this machine."""
    env = dict(os.environ)  # noqa: TID251 the client's own composition root
    world = World(
        surroundings=partial(_surroundings, env),
        connect=partial(_connect, env),
        platform=platform_of(platform.system(), platform.machine()),
        cores=os.cpu_count() or 1,
        ram_gib=_ram_gib(),
        say=_to_stderr,
        now=lambda: datetime.now(timezone.utc),
        free=lambda path: shutil.disk_usage(path).free,
        environments=_environments(),
        confirm=_confirm if sys.stdin is not None and sys.stdin.isatty() else None,
    )
    _escape_unprintable()
    try:
        return main(sys.argv[1:], world, env, _home(), _to_stdout, _to_stderr)
    except BrokenPipeError:  # whoever read has enough; Python would complain of it at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE


def _surroundings(env: Mapping[str, str]) -> Surroundings:
    from builder.client.probe.detect import Surroundings  # noqa: PLC0415 compiled where a probe is asked
    from builder.client.probe.processes import asker, worker  # noqa: PLC0415

    return Surroundings(env=env, ask=asker(env), work=worker(env), python=sys.executable or "python3")


def _connect(env: Mapping[str, str]) -> Web:
    from builder.files.http_client import Web, open_url, trusted_certificates  # noqa: PLC0415 as above

    return Web(
        open=partial(open_url, certificates=trusted_certificates(env)),
        sleep=time.sleep,
        progress=_progress(),
        hint="Check --index: packages lie beside index.json.",
    )


def _escape_unprintable() -> None:
    """Make stdout and stderr write an escape for characters that the terminal's encoding lacks."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _home() -> Path:
    """The home folder of the user; ``/`` where there is none, as in some containers."""
    try:
        return Path.home()
    except RuntimeError:
        return Path("/")


def _environments() -> Tuple[Path, ...]:
    """Where this Python looks for packages, and where it would look for the user's."""
    named = (*sys.path, *site.getsitepackages(), site.getusersitepackages())
    return tuple(Path(name) for name in dict.fromkeys(named) if Path(name).is_dir())


def _ram_gib() -> int:
    """Rounded up: a 16 GiB machine keeps some for its firmware. 0 where the system does not say."""
    if not hasattr(os, "sysconf") or "SC_PHYS_PAGES" not in os.sysconf_names:
        return 0
    return math.ceil(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30)


def _progress() -> Callable[[int, int], None]:
    """A progress line on a terminal; nothing elsewhere."""
    if sys.stderr is not None and sys.stderr.isatty():
        from builder.client.install.obtain import Meter  # noqa: PLC0415 as above

        return Meter(_move, time.monotonic)
    return lambda _done, _total: None


def _move(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


def _confirm(question: str) -> bool:
    """Yes unless the user says otherwise; the end of the input is no."""
    sys.stderr.write(f"{question} [Y/n] ")
    sys.stderr.flush()
    line = sys.stdin.readline()
    return bool(line) and line.strip().lower() in {"", "y", "yes"}


def _to_stdout(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _to_stderr(text: str) -> None:
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(run())
