"""``python -m ortpacks_runtime doctor`` shows the provider that a session gets, and why not a better one."""

from __future__ import annotations

import argparse
import io
import json
import logging
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from ortpacks_runtime.one_node import ONE_NODE
from ortpacks_runtime.providers import ProviderError
from ortpacks_runtime.report import Report

_BROKEN_PIPE, _INTERRUPTED = 141, 130
"""The exit codes that a shell reports for a program that SIGPIPE or SIGINT ended: 128 + 13, 128 + 2."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit code.

    0: a session was opened; 1: none was, or not on the provider that ``--strict`` requires, or the report
    cannot be written.
    """
    given = _parser().parse_args(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):  # its encoding may lack a character of a model's name
        sys.stdout.reconfigure(errors="backslashreplace")
    log = logging.getLogger("ortpacks_runtime")
    log.disabled = True  # the report has the same
    try:
        report = _report(given)
    except (ProviderError, OSError) as error:
        sys.stderr.write(f"ortpacks_runtime: {error}\n")
        return 1
    except ImportError as error:
        do = "" if "pip install" in str(error) else ": pip install onnxruntime, or onnxruntime-gpu for CUDA"
        sys.stderr.write(f"ortpacks_runtime: {error}{do}\n")
        return 1
    except Exception as error:  # noqa: BLE001 - ONNX Runtime's exceptions share no class
        model = given.model or "a model of one node"
        sys.stderr.write(f"ortpacks_runtime: {model} does not open on the CPU either: {error}\n")
        return 1
    finally:
        log.disabled = False
    lines = [json.dumps(report.value(), indent=2)] if given.json else report.lines()
    try:
        print("\n".join(lines), flush=True)  # noqa: T201 - unlike write, it accepts a closed stdout
    except OSError as error:
        with suppress(OSError):
            sys.stdout.close()  # else Python's exit writes once more, and fails
        if isinstance(error, BrokenPipeError):  # the reader of stdout has closed it
            return _BROKEN_PIPE
        sys.stderr.write(f"ortpacks_runtime: the report cannot be written: {error.strerror}\n")
        return 1
    return 0


def _report(given: argparse.Namespace) -> Report:
    if given.model:
        return _report_on(given.model, given)
    with tempfile.TemporaryDirectory(prefix="ortpacks-doctor-") as folder:
        model = Path(folder, "one-node.onnx")
        model.write_bytes(ONE_NODE)
        return _report_on(model, given)


def _report_on(model: Path, given: argparse.Namespace) -> Report:
    from ortpacks_runtime import open_session  # noqa: PLC0415 - onnxruntime may not be there

    return open_session(model, given.provider, given.device, given.level, given.strict or None).report


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m ortpacks_runtime")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    doctor = commands.add_parser("doctor", help="open a session, and say why it got its provider")
    doctor.add_argument("--model", type=Path, metavar="FILE", help="default: a model of one node")
    doctor.add_argument("--provider", metavar="NAME", help="auto, cpu, cuda, tensorrt, directml or coreml")
    doctor.add_argument("--device", metavar="N|UUID", help="a GPU; default: the one that fits best")
    doctor.add_argument("--level", metavar="LEVEL", help="low, medium or high")
    doctor.add_argument("--strict", action="store_true", help="fail where the provider is not available")
    doctor.add_argument("--json", action="store_true", help="print JSON")
    return parser


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
