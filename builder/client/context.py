"""Each command takes a ``CommandContext`` and ``ClientOptions`` and returns a ``CommandAnswer``.

The probes' surroundings and the network are made when a command first uses them, and their types are imported
for the type checker only: ``env`` imports the modules of neither.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Callable, Dict, Mapping, Optional, Tuple, Union

from builder.client.install.prefix import Prefix
from builder.errors import NothingToDoError

if TYPE_CHECKING:
    from builder.client.probe.detect import Surroundings
    from builder.files.http_client import Web

FORMAT = 1


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
    no user can be asked."""
    program: Optional[Path] = None
    """The running file ``ortpacks.pyz``; ``None`` when the client runs from its sources."""

    @cached_property
    def around(self) -> Surroundings:
        """Return the machine that the probes examine, made on first use."""
        return self.surroundings()

    @cached_property
    def web(self) -> Web:
        """Return the network, made on first use."""
        return self.connect()


@dataclass(frozen=True)
class ClientOptions:
    """The user's options, with defaults filled in."""

    prefix: Prefix
    index: Union[str, Path, None]
    """A URL, or the path of a file or folder."""
    variant: Optional[str] = None
    device: Optional[str] = None
    """Numbers or UUIDs of GPUs, separated by commas."""
    dialect: Optional[str] = None
    """The shell that ``env`` writes for; ``None`` for the platform's own."""
    as_json: bool = False
    layout: Optional[str] = None
    """``full`` or ``thin``; ``None`` where the client chooses."""
    look_in: Tuple[Path, ...] = ()
    """Environments that may hold NVIDIA's libraries."""
    wheels: Tuple[Path, ...] = ()
    """Folders that may hold NVIDIA's wheels."""
    offline: bool = False
    """Whether nothing may be fetched."""
    root: Optional[bytes] = None
    """The client's ``root.json``, whose keys must have signed the release; ``None`` where a signature is not
    required."""
    unsigned: bool = False
    """Whether the user accepts a release without signatures."""
    check: bool = False
    """Whether ``self-update`` only reports that the release has another client."""
    ask: bool = False
    """Whether to ask the user before a change."""
    explain: bool = False
    local: bool = False
    """Whether ``list`` leaves the release out."""
    old: bool = False
    """Whether ``uninstall`` removes only packages that are not in use."""
    models: Tuple[str, ...] = ()
    """Model files of ``--try``: ``PATH``, for ``recommend`` also ``NAME=PATH``."""
    table: Optional[Path] = None
    """The file with a table of models that replaces the index's."""
    said: Optional[str] = None
    """The text of an application's error, for ``doctor``."""


@dataclass(frozen=True)
class CommandAnswer:
    """The result of a command: ``value`` is printed with ``--json``, ``lines`` without."""

    value: Mapping[str, object]
    lines: Tuple[str, ...]
    code: int = 0
    script: bool = False
    """Whether a shell will run the lines, so that no character in them may be escaped."""


def head(command: str) -> Dict[str, object]:
    """Return the keys with which every JSON answer begins."""
    return {"format": FORMAT, "command": command}


def require_yes(
    context: CommandContext, options: ClientOptions, question: str, *, default: bool = True
) -> None:
    """Raise ``NothingToDoError`` when the user is asked and says no.

    ``default`` is the answer that an empty line gives.
    """
    if options.ask and context.confirm is not None and not context.confirm(question, default):
        raise NothingToDoError("Not confirmed: nothing was changed. --yes answers for you.")
