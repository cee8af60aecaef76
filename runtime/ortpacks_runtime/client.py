"""The ortpacks client, ``ortpacks.pyz``: asked in a process of its own about GPUs, packages and failures.

Its answers are JSON of ``docs/schemas/client.schema.json``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

CLIENT = "ORTPACKS_CLIENT"
"""The environment variable that names another ``ortpacks.pyz`` than the one beside this file."""

_SECONDS = 60

_GENERAL = ("D401",)
"""A finding that names no cause: a session fails."""

_NO_DRIVER = ("D003",)
"""The note that there is no GPU and no driver, the cause where ``libcuda`` is not found."""


class ClientError(RuntimeError):
    """The client cannot be started, or does not answer."""


def ask(*arguments: str) -> dict[str, Any]:
    """The answer of a client's command. Raises ``ClientError``, also where the answer is an error."""
    argv = [sys.executable, _client(), *arguments, "--json"]
    try:
        done = subprocess.run(
            argv, capture_output=True, encoding="utf-8", errors="replace", timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise ClientError(f"the ortpacks client did not run: {error}") from error
    try:
        answer = json.loads(done.stdout)
    except ValueError as error:
        said = " ".join(done.stderr.split())[-300:] or "no word"
        raise ClientError(
            f"the ortpacks client gave no answer (exit code {done.returncode}): {said}"
        ) from error
    if "error" in answer:
        raise ClientError(answer["error"]["message"])
    return dict(answer)


@cache
def devices() -> tuple[dict[str, Any], ...]:
    """The NVIDIA GPUs that CUDA may use, in its order, each with its ``profile``. Raises ``ClientError``.

    They are asked for once: what this process takes of their memory makes no later profile smaller.
    """
    return tuple(ask("detect")["devices"])


def advice(failure: str) -> str:
    """What to do about the words of a failure, by ``doctor``; empty where it knows nothing."""
    try:
        findings = ask("doctor", "--said", failure)["findings"]
    except ClientError:
        return ""
    wanted = (*_NO_DRIVER,) if "libcuda" in failure else ()
    told = (one for one in findings if one["severity"] == "error" or one["code"] in wanted)
    return next((str(one["do"]) for one in told if one["code"] not in _GENERAL), "")


def _client() -> str:
    named = os.environ.get(CLIENT) or str(Path(__file__).with_name("ortpacks.pyz"))
    if getattr(sys, "frozen", False):
        raise ClientError("in a frozen program there is no Python that could run the ortpacks client")
    if not sys.executable or not Path(named).exists():
        raise ClientError(f"the ortpacks client is not at {named}. Install the wheel, or set {CLIENT}.")
    return named
