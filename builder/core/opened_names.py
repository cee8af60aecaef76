"""The libraries that a library opens at run time and names in no NEEDED, read from its bytes.

Only cuDNN's and NVRTC's are looked at: a name in their ``.rodata``, alone between zero bytes, is one that
they hand to ``dlopen``. As found in the wheels for CUDA 12.9:

- cuDNN 9.10.2: ``libcudnn.so.9`` names adv, cnn, graph and ops; its graph library engines_precompiled,
  engines_runtime_compiled, heuristic and ``libnvrtc.so.%d``; engines_precompiled ``libnvrtc.so.12``.
- cuDNN 9.28.0: the main library names ext too, and graph engines_tensor_ir; ext ``libnvrtc.so.`` and
  ``libnvrtc-builtins.so.``, to which it adds the number.
- NVRTC 12.9: ``libnvrtc-builtins.so.12.9``.

cuDNN names its own parts without their number. Names of ``libcuda`` are left out, for the driver is the
host's, and so is 9.10's second try, ``libnvrtc.so``, which no run-time wheel holds.
"""

from __future__ import annotations

import re
from typing import Set, Tuple

from builder.core.elf import Buffer, Elf

_OPENING = ("libcudnn", "libnvrtc.")
_NAME = re.compile(
    rb"lib(?:cudnn_\w{1,80}\.so|nvrtc\.so\.(?:%d|\d{1,4})?|nvrtc-builtins\.so\.(?:\d{1,4}\.\d{1,4})?)\0"
)
_RODATA = ".rodata"
_MOST = 64
"""Names that are read at most; real libraries have five."""


def opened_names(buffer: Buffer, name: str, elf: Elf) -> Tuple[str, ...]:
    """The names as they stand in the bytes of the library of this file name, sorted; see ``closure``."""
    section = next((one for one in elf.sections if one.name == _RODATA and one.in_file), None)
    if section is None or not name.startswith(_OPENING):
        return ()
    found: Set[str] = set()
    for match in _NAME.finditer(buffer, section.offset, section.offset + section.size):
        if match.start() == section.offset or buffer[match.start() - 1] == 0:  # 9.10's graph begins with one
            found.add(match[0][:-1].decode("ascii"))
        if len(found) == _MOST:
            break
    return tuple(sorted(found))
