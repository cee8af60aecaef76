"""Double of a machine for the client: GPU and driver by variables, a fixed clock, no pauses."""

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from builder.client.cli import main
from builder.client.context import CommandContext
from builder.client.probe.processes import asker, worker
from builder.files.http_client import Web
from builder.files.http_opener import open_url
from tests.doubles.gpus import machine as bare
from tests.support.schemas import schema

NOW = datetime(2026, 11, 21, 2, 0, tzinfo=UTC)
"""The date and time that every machine's clock shows."""


@dataclass
class Machine:
    """A machine that runs client commands in this process and keeps the output of the last one."""

    home: Path
    env: Mapping[str, str] = field(
        default_factory=lambda: {"ORTPACKS_FORCE_CC": "8.6", "ORTPACKS_FORCE_DRIVER": "570.133.07"}
    )
    free: int = 2**40
    platform: str = "linux-x64"
    environments: tuple[Path, ...] = ()
    pip: Mapping[str, str] = field(default_factory=lambda: {"PIP_INDEX_URL": "http://127.0.0.1:1/simple"})
    """Environment of pip, with PATH for the interpreters in which the client looks for pip."""
    python: str = sys.executable
    says: list[bool] = field(default_factory=list)
    """Answers of the user, in order; if the list is empty, a command cannot ask."""
    asked: list[str] = field(default_factory=list)
    program: Path | None = None
    columns: int = 0
    """The width of its terminal."""
    waits: list[float] = field(default_factory=list)
    out: str = ""
    err: str = ""

    @property
    def prefix(self) -> Path:
        return self.home / ".local" / "share" / "ortpacks"

    @property
    def lib(self) -> Path:
        return self.prefix / "current" / "lib"

    def run(self, *argv: str) -> int:
        self.out = self.err = ""
        return main(argv, self.context(), self.env, self.home, self._out, self._err)

    def answer(self, *argv: str) -> dict[str, Any]:
        """Run a command with ``--json``, which must succeed and follow the schema, and return its output."""
        assert self.run(*argv, "--json") == 0, self.err
        value: dict[str, Any] = json.loads(self.out)
        schema("client").validate(value)
        return value

    def web(self) -> Web:
        return Web(
            open=open_url,
            sleep=self.waits.append,
            progress=lambda done, total: None,
            say=self._err,
        )

    def context(self) -> CommandContext:
        pip = {"PIP_CONFIG_FILE": os.devnull, "PIP_RETRIES": "0", **self.pip}
        around = replace(
            bare(self.home / "no-such-root"),
            env=self.env,
            ask=asker({}),
            work=worker(pip),
            python=self.python,
        )
        return CommandContext(
            surroundings=lambda: around,
            connect=self.web,
            platform=self.platform,
            cores=8,
            ram_gib=16,
            say=self._err,
            now=lambda: NOW,
            free=lambda path: self.free,
            environments=self.environments,
            confirm=self._confirm if self.says else None,
            program=self.program,
            columns=self.columns,
        )

    def litter(self) -> list[str]:
        """Return the paths of temporary files, which must not exist after an install."""
        return [
            str(path)
            for path in self.prefix.rglob("*")
            if ".part" in path.name or path.parent.name in {"downloads", "parts"}
        ]

    def _confirm(self, question: str, default: bool) -> bool:
        self.asked.append(f"{question} {'[Y/n]' if default else '[y/N]'}")
        return self.says.pop(0)

    def _out(self, text: str) -> None:
        self.out += f"{text}\n"

    def _err(self, text: str) -> None:
        self.err += f"{text}\n"
