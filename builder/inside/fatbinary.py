#!/usr/bin/python3
"""Stands in for the toolkit's ``fatbinary``: two options more, the rest is NVIDIA's own.

``--assemble=100:120``
    The PTX image that nvcc hands over is not stored: ``ptxas-newer``, a ptxas of a later toolkit, assembles
    it into one image of SASS for each number. This is how nvcc 12.4, which ends at sm_90, gives native code
    for Blackwell. Architectures with suffixes are not to be had so: their instructions are not in the PTX.
``--raw``
    Images are stored as they are. ORT asks for ``-compress-all`` (LZ4), which an archive's zstd cannot undo.

nvcc passes both through with ``-Xfatbin=``, so they stand in the compiler's command and in ccache's key.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence

TOOLKITS_OWN = "fatbinary-toolkit"
"""NVIDIA's fatbinary, renamed."""
NEWER_PTXAS = "ptxas-newer"
_ASSEMBLE = "--assemble="
_RAW = "--raw"
_COMPRESS = frozenset({"-compress-all", "--compress-all"})
_PTX = re.compile(r"--image3=kind=ptx,sm=\d+[af]?,file=(?P<file>.+)")


def main(argv: Sequence[str]) -> None:
    """Assemble what is asked for, then become NVIDIA's program. Exits with 1 where ptxas fails."""
    wanted = [option.removeprefix(_ASSEMBLE) for option in argv if option.startswith(_ASSEMBLE)]
    targets = [target for option in wanted for target in option.split(":")]
    passed = [option for option in argv if not option.startswith(_ASSEMBLE)]
    if targets:
        passed = list(assembled(passed, targets))
    if _RAW in passed:
        passed = ["--compress=false", *(option for option in passed if option not in {_RAW, *_COMPRESS})]
    os.execvp(TOOLKITS_OWN, [TOOLKITS_OWN, *passed])


def assembled(options: Sequence[str], targets: Sequence[str]) -> Iterator[str]:
    """The options with each PTX image replaced by images of SASS; without one nothing is assembled.

    nvcc also calls fatbinary for a link of device code, which brings no PTX.
    """
    for option in options:
        image = _PTX.fullmatch(option)
        if image is None:
            yield option
            continue
        for target in targets:
            yield f"--image3=kind=elf,sm={target},file={assemble(image['file'], target)}"


def assemble(ptx: str, target: str) -> str:
    """The path of SASS for ``sm_<target>`` made from a file of PTX, in nvcc's own temporary folder."""
    cubin = f"{ptx.removesuffix('.ptx')}.sm_{target}.cubin"
    done = subprocess.run([NEWER_PTXAS, f"-arch=sm_{target}", "-m64", ptx, "-o", cubin], check=False)
    if done.returncode:
        sys.exit(f"fatbinary: {NEWER_PTXAS} could not assemble {ptx} for sm_{target}")
    return cubin


if __name__ == "__main__":
    main(sys.argv[1:])
