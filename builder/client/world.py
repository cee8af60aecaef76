"""The arguments and the result of every command: the machine, the options, the answer.

What a command may do without is made when it is first asked for, and its types are imported for the type
checker only: ``env`` waits neither for the network's modules nor for the probes'.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Callable, Dict, Mapping, Optional, Tuple, Union

from builder.client.install.current import Symlink, make_symlink
from builder.client.install.prefix import Prefix
from builder.errors import NothingToDoError

if TYPE_CHECKING:
    from builder.client.probe.detect import Surroundings
    from builder.files.http_client import Web

FORMAT = 1


@dataclass(frozen=True)
class World:
    """The machine as the commands see it; a test hands in another one."""

    surroundings: Callable[[], Surroundings]
    connect: Callable[[], Web]
    platform: str
    cores: int
    ram_gib: int
    say: Callable[[str], None]
    now: Callable[[], datetime]
    free: Callable[[Path], int]
    environments: Tuple[Path, ...]
    """``site-packages`` of the Python that runs this."""
    confirm: Optional[Callable[[str, bool], bool]] = None
    """Asks a question, whose answer is the flag where nothing is typed; ``None``: nobody is there."""
    symlink: Symlink = make_symlink
    program: Optional[Path] = None
    """The file ``ortpacks.pyz`` that runs; ``None`` for its sources."""

    @cached_property
    def around(self) -> Surroundings:
        """What the probes look at."""
        return self.surroundings()

    @cached_property
    def web(self) -> Web:
        """The network."""
        return self.connect()


@dataclass(frozen=True)
class ClientOptions:
    """What the user asked for, defaults filled in."""

    prefix: Prefix
    index: Union[str, Path, None]
    """A URL, or the path of a file or folder."""
    variant: Optional[str] = None
    device: Optional[str] = None
    """GPUs by number or UUID, separated by commas."""
    dialect: Optional[str] = None
    """Shell that ``env`` writes for; ``None``: the platform's own."""
    as_json: bool = False
    layout: Optional[str] = None
    """``full`` or ``thin``; ``None``: whichever is better here."""
    look_in: Tuple[Path, ...] = ()
    """Environments that may hold NVIDIA's libraries."""
    wheels: Tuple[Path, ...] = ()
    """Folders that may hold NVIDIA's wheels."""
    offline: bool = False
    """Nothing may be fetched."""
    root: Optional[bytes] = None
    """Names the keys that have to have signed the release; ``None``: it need not be signed."""
    unsigned: bool = False
    """Whether the user trusts what nobody signed."""
    check: bool = False
    """``self-update`` that says and does not act."""
    ask: bool = False
    """Whether the user wants to be asked before anything changes."""
    explain: bool = False
    local: bool = False
    """``list`` without the release."""
    old: bool = False
    """``uninstall`` of what is not in use only."""
    models: Tuple[str, ...] = ()
    """Model files for ``--try``: ``PATH``, for ``recommend`` also ``NAME=PATH``."""
    table: Optional[Path] = None
    """A models table that counts instead of the index's."""
    said: Optional[str] = None
    """The words of a failure, for ``doctor``."""


@dataclass(frozen=True)
class CommandAnswer:
    """``value`` is printed with ``--json``, ``lines`` without."""

    value: Mapping[str, object]
    lines: Tuple[str, ...]
    code: int = 0
    script: bool = False
    """Whether the lines are for a shell, which must get every character of them as it is."""


def head(command: str) -> Dict[str, object]:
    """What every JSON answer begins with."""
    return {"format": FORMAT, "command": command}


def require_yes(world: World, options: ClientOptions, question: str, *, default: bool = True) -> None:
    """``NothingToDoError`` when the user is there to be asked and says no; ``default`` is what Enter says."""
    if options.ask and world.confirm is not None and not world.confirm(question, default):
        raise NothingToDoError("Not confirmed: nothing was changed. --yes answers for you.")
