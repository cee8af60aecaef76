"""Compiles what stands in for NVIDIA's driver, or for the whole GPU."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from builder.core.inputs import Input
from builder.errors import ToolMissingError
from tests.answers import pairs

HERE = Path(__file__).parent
COMPILER = "gcc"
NO_COMPILER = f"no {COMPILER} here: it compiles what stands in for a GPU"
_OURS = re.compile(r"cuda|__cuda|cublas|cudnn|cufft")
"""What the stand-in answers for, by how the names begin."""


def plain_environment(scratch: Path) -> dict[str, str]:
    """CUDA's libraries, and the machine's driver or, where it has none, one that knows no device.

    A provider of 1.21 with the contrib ops cannot be loaded without a ``libcuda.so.1``: see ``driver.c``.
    """
    env = pairs.environment()
    return env if pairs.has_driver() else with_driver(env, scratch)


def fake_environment(providers: Sequence[Path], scratch: Path) -> dict[str, str]:
    """One fake GPU for all of ``providers``, preloaded; ``FAKE_CAPABILITY`` is still to be said."""
    stubs, library = scratch / "stubs.c", scratch / "libfake.so"
    names = set[str]().union(*map(_imports, providers)) - _answered()
    stubs.write_text("".join(_stub(name) for name in sorted(names)), encoding="ascii")
    _compile([HERE / "device.c", stubs], library, *_includes())
    return {**with_driver(pairs.environment(), scratch), "LD_PRELOAD": str(library)}


def with_driver(env: dict[str, str], scratch: Path) -> dict[str, str]:
    """``env`` with the driver that knows no device."""
    _compile([HERE / "driver.c"], scratch / "libcuda.so.1", "-Wl,-soname,libcuda.so.1")
    return pairs.with_folder(env, scratch)


def _compile(sources: Sequence[Path], library: Path, *flags: str) -> None:
    if shutil.which(COMPILER) is None:
        raise ToolMissingError(f"{NO_COMPILER}. Install {COMPILER} and binutils.")
    argv: list[str | Path] = [
        COMPILER,
        "-shared",
        "-fPIC",
        "-O1",
        "-Wall",
        "-Wextra",
        *flags,
        "-o",
        library,
        *sources,
    ]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not done.stderr, done.stderr


def _imports(library: Path) -> set[str]:
    """The functions of CUDA's libraries that a provider asks the loader for."""
    argv: list[str | Path] = ["nm", "-D", "--undefined-only", library]
    lines = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()
    names = {line.split()[-1].partition("@")[0] for line in lines}
    return {name for name in names if _OURS.match(name)}


def _answered() -> set[str]:
    """The functions ``device.c`` defines: each begins its line, after its type."""
    text = (HERE / "device.c").read_text(encoding="ascii")
    found = set(re.findall(r"^[a-z]\w*(?: \w+)*[ *]+((?:__)?cu\w+)\(", text, re.MULTILINE))
    # The header renames it by a macro.
    return found | {"cudaGetDeviceProperties_v2"}


def _stub(name: str) -> str:
    """Success; what makes something makes a zeroed block. cuFFT's handle is a number, not a pointer."""
    if "Create" in name and not name.startswith("cufft"):
        body = f'(void **made) {{ return *made = calloc(1, 64), counted("{name}"); }}'
    else:
        body = f'(void) {{ return counted("{name}"); }}'
    return (
        f"extern void *calloc(unsigned long, unsigned long);\nint counted(const char *);\nint {name}{body}\n"
    )


def _includes() -> list[str]:
    """Of the headers ``device.c`` takes its types from, ``-isystem``: their warnings are NVIDIA's."""
    project = pairs.shop().project
    toolchain = project.bases.assembled.wheels
    wheels: list[Input] = [
        project.cuda.libraries["cudart"],
        project.cuda.libraries["cublas"],
        project.cudnn.wheel,
    ]
    wheels += [toolchain["nvcc"], toolchain["cccl"]]
    trees = map(pairs.store().unpack, wheels)
    return [f"-isystem{folder}" for tree in trees for folder in tree.glob("nvidia/*/include")]
