"""This module runs the ortpacks client, ``ortpacks.pyz``, in a process of its own.

The client answers questions about GPUs, packages and failures, in JSON of
``docs/schemas/client.schema.json``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import module_from_spec
from pathlib import Path
from typing import Any
from zipimport import zipimporter

CLIENT = "ORTPACKS_CLIENT"
"""The environment variable with the path of an ``ortpacks.pyz`` other than the one in this folder."""

_SECONDS = 60

_READ_MODEL = """\
import json, pathlib, sys
sys.path.insert(0, sys.argv[1])
from builder.errors import BuilderError
from builder.formats.onnx_file import read_onnx
try:
    model = read_onnx(pathlib.Path(sys.argv[2]))
    print(json.dumps({"opsets": model.opsets, "operators": model.operators}))
except BuilderError as error:
    print(json.dumps({"error": {"message": str(error)}}))
"""
"""A program that reads a model with the client's own reader, which no command of the client runs alone."""

_IMPLY = """\
import json, sys
sys.path.insert(0, sys.argv[1])
from builder.facts.gpu.architectures import Capability
from builder.facts.gpu.compatibility import implied
known = {Capability.parse(name): support for name, support in json.loads(sys.argv[2]).items()}
print(json.dumps({"support": implied(known, Capability.parse(sys.argv[3]))}))
"""
"""A program that asks the client's own rule, by which ``select`` serves a GPU that a package predates."""

_GENERAL = ("D401",)
"""Code of a finding that says that a failure's cause is not known."""

_NO_DRIVER = ("D003",)
"""Code of the note that there is no GPU and no driver, which is the cause if ``libcuda`` is not found."""


class ClientError(RuntimeError):
    """The client cannot be started, does not answer, or answers with an error."""


def ask(*arguments: str, seconds: int | None = _SECONDS) -> dict[str, Any]:
    """Return the answer of a client's command, which has ``seconds``; ``None``: as long as it takes.

    Raises ``ClientError``, also for an answer that is an error.
    """
    return _answer([_client(), *arguments, "--json"], seconds)


def describe(model: Path) -> dict[str, Any]:
    """Return ``opsets`` that a model asks for and its ``operators``, by domain; ONNX's own is ``ai.onnx``.

    Raises ``ClientError``, also for a file that is cut short or lacks its weights.
    """
    return _answer(["-I", "-S", "-c", _READ_MODEL, _client(), str(model)])


def implied(capabilities: Mapping[str, str], capability: str) -> str:
    """Return the support of a GPU that ``capabilities`` of a package do not name, as they imply it.

    Raises ``ClientError``.
    """
    return str(
        _answer(["-I", "-S", "-c", _IMPLY, _client(), json.dumps(capabilities), capability])["support"]
    )


def _answer(arguments: Sequence[str], seconds: int | None = _SECONDS) -> dict[str, Any]:
    argv = [sys.executable, *arguments]
    try:
        done = subprocess.run(
            argv, capture_output=True, encoding="utf-8", errors="replace", timeout=seconds, check=False
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
    """Return the NVIDIA GPUs that CUDA may use, in CUDA's order, each with its ``profile``.

    The client runs only once, so the memory that this process takes later makes no profile smaller. Raises
    ``ClientError``.
    """
    return tuple(ask("detect")["devices"])


def loaded_libraries() -> tuple[str, ...]:
    """Return the paths of ONNX Runtime's and CUDA's libraries in this process; empty where nothing tells.

    The client's own code reads them, in this process: another one has other libraries.
    """
    try:
        found = zipimporter(f"{_client()}/builder/client/probe").find_spec("loaded")
        if found is None or found.loader is None:
            return ()
        module = module_from_spec(found)
        found.loader.exec_module(module)
        return tuple(module.loaded_libraries())
    except (ClientError, ImportError, OSError):
        return ()


def advice(failure: str) -> str:
    """Return the advice of ``doctor`` on a failure's message; empty if it has none."""
    try:
        findings = ask("doctor", "--said", failure)["findings"]
    except ClientError:
        return ""
    wanted = (*_NO_DRIVER,) if "libcuda" in failure else ()
    causes = (finding for finding in findings if finding["severity"] == "error" or finding["code"] in wanted)
    return next((str(cause["do"]) for cause in causes if cause["code"] not in _GENERAL), "")


def _client() -> str:
    named = os.environ.get(CLIENT) or str(Path(__file__).with_name("ortpacks.pyz"))
    if getattr(sys, "frozen", False):
        raise ClientError("in a frozen program there is no Python that could run the ortpacks client")
    if not sys.executable or not Path(named).exists():
        raise ClientError(f"the ortpacks client is not at {named}. Install the wheel, or set {CLIENT}.")
    return named
