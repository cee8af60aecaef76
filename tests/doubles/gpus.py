"""Doubles of a machine with GPUs: nvidia-smi as a script, and the driver's libraries in C.

Environment variables control the libraries; ``driver/steering.h`` lists them.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from builder.client.doctor.observations import Detection, Probe
from builder.client.probe.detect import Surroundings
from builder.client.probe.processes import asker, worker

SOURCES = Path(__file__).parent / "driver"


def machine(
    folder: Path,
    *,
    env: Mapping[str, str] | None = None,
    smi: tuple[str, ...] = (),
    cuda: str = "libno-such-cuda.so",
    nvml: str = "libno-such-nvml.so",
    system: str = "linux",
) -> Surroundings:
    """Return surroundings with the named programs and libraries alone, and files below ``folder``."""
    full = {"PATH": "/usr/bin:/bin", **(env or {})}
    return Surroundings(
        env=full,
        ask=asker(full),
        work=worker(full),
        python=sys.executable,
        cuda_libraries=(cuda,),
        smi_programs=smi or (str(folder / "no-such-nvidia-smi"),),
        nvml_libraries=(nvml,),
        os=system,
        root=folder,
        libc="glibc 2.36",
    )


def probes(found: Detection) -> dict[str, Probe]:
    """Return probes by name; the name of a file below ``/proc`` or ``/sys`` becomes ``proc`` or ``sys``."""
    return {re.sub(r".*/(proc|sys)/.*", r"\1", probe.name): probe for probe in found.replies.values()}


def program(folder: Path, script: str, name: str = "nvidia-smi") -> str:
    """Write a program as a shell script into ``folder`` and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def library(folder: Path, source: str) -> str:
    """Compile ``driver/<source>.c`` to a shared library in ``folder`` and return its path.

    The test is skipped where there is no C compiler.
    """
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler for the stand-in of a driver's library")
    target = folder / f"{source}.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-w", "-o", target, SOURCES / f"{source}.c"], check=True)
    return str(target)
