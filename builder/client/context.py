"""Each command takes a ``CommandContext`` and the values of its flags, and returns a ``CommandAnswer``.

The probes' surroundings and the network are made when a command first uses them, and their types are imported
for the type checker only: ``env`` imports the modules of neither.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Callable, Mapping, Optional, Tuple, Union

from builder.client.install.prefix import Prefix
from builder.errors import NothingToDoError

if TYPE_CHECKING:
    from builder.client.probe.detect import Surroundings
    from builder.files.http_client import Web


@dataclass(frozen=True)
class CommandContext:
    """The machine as the commands see it. Tests pass another one."""

    surroundings: Callable[[], Surroundings]
    connect: Callable[[], Web]
    platform: str
    cores: int
    ram_gib: int
    say: Callable[[str], None]
    now: Callable[[], datetime]
    free: Callable[[Path], int]
    environments: Tuple[Path, ...]
    """The folders that the running Python imports packages from, and its user's ``site-packages``."""
    confirm: Optional[Callable[[str, bool], bool]] = None
    """``confirm(question, default)`` returns the user's answer, ``default`` for an empty line; ``None`` where
    no user is asked."""
    program: Optional[Path] = None
    """The running file ``ortpacks.pyz``; ``None`` when the client runs from its sources."""
    columns: int = 0
    """The width of the terminal that shows answers; 0 where it is none."""

    @cached_property
    def around(self) -> Surroundings:
        """Return the machine that the probes examine, made on first use."""
        return self.surroundings()

    @cached_property
    def web(self) -> Web:
        """Return the network, made on first use."""
        return self.connect()


@dataclass(frozen=True)
class ReleaseSource:
    """The place of the release that the user named, and the keys that must have signed it."""

    index: Union[str, Path, None]
    """A URL, or the path of a file or folder."""
    prefix: Prefix
    """The folder that remembers which versions were taken from each place."""
    root: Optional[bytes] = None
    """The client's ``root.json``; ``None`` where a signature is not required."""
    first_root: Optional[bytes] = None
    """The project's first root, whose sha256 is the project's name in ``state``."""
    state: Optional[Path] = None
    """The folder in which this user's clients store what they know of projects; ``None``: nothing is
    stored."""
    unsigned: bool = False
    """Whether the user accepts a release without signatures."""


@dataclass(frozen=True)
class Wish:
    """The user's limits on the choice of a package and a model."""

    variant: Optional[str] = None
    device: Optional[str] = None
    """Numbers or UUIDs of GPUs, separated by commas."""
    table: Optional[Path] = None
    """The file with a table of models that replaces the index's."""
    host: Optional[str] = None
    """The application's ONNX Runtime: a version, a path, or ``none``; ``None`` where it is looked for."""
    form: Optional[str] = None
    """``provider`` or ``plugin``; ``None`` where the client chooses."""


@dataclass(frozen=True)
class CommandAnswer:
    """The result of a command: ``value`` is printed with ``--json``, after common keys, else ``lines``."""

    value: Mapping[str, object]
    lines: Tuple[str, ...]
    code: int = 0
    script: bool = False
    """Whether a shell will run the lines, so that no character in them may be escaped."""


def require_yes(context: CommandContext, question: str, *, default: bool = True) -> None:
    """Raise ``NothingToDoError`` when the user is asked and says no.

    ``default`` is the answer that an empty line gives.
    """
    if context.confirm is not None and not context.confirm(question, default):
        raise NothingToDoError("Not confirmed: nothing was changed. --yes answers for you.")
