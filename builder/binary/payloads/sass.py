"""This module decides by its instructions whether a kernel's machine code does anything.

A compiler that has nothing to compile for an architecture (``#if __CUDA_ARCH__ >= 800`` around a body) makes
a *stub*: code that sets its stack pointer and exits, or traps. Instructions are named as NVIDIA's nvdisasm
12.4 and 13.5 name them in NVRTC 12.9's code for every architecture from sm_50 on:

- Up to Pascal an instruction has 8 bytes, and a word of control bits precedes each three. The opcode is in
  the highest bits, the predicate in bits 16 to 19.
- From Volta on an instruction has 16 bytes. The opcode is in the lowest 12 bits, the predicate in bits 12 to
  15.

An instruction with the predicate ``@!PT`` has no effect; Volta's kernels begin with such a shuffle.
"""

from __future__ import annotations

import struct

from builder.gpu.architectures import Arch

_FIRST, _VOLTA = 5, 7

_GROUP, _PAIRS = struct.Struct("<8x3Q"), struct.Struct("<Q8x")
"""Code layouts: control bits and three instructions up to Pascal; an instruction and its control bits."""

_OPCODE = 0xFFF
"""Mask of the opcode in the lower half of an instruction of 16 bytes."""

_NEVER = 15
"""The predicate ``@!PT``."""

_IDLE_OLD = {0xE30, 0xE24, 0xE3A, 0x50B}
"""Opcodes up to Pascal of EXIT, BRA, BPT and NOP, in the highest 12 bits."""

_IDLE = {0x94D, 0x947, 0x95C, 0x918}
"""Opcodes from Volta on of EXIT, BRA, BPT and NOP, in the lowest 12 bits."""

_ORIN, _ORIN_BEGINS = 87, {0xC0C, 0x956, 0xF55, 0x882}
"""Opcodes of ISETP, two BMOV and UMOV, with which each kernel for Jetson Orin begins. They only change
registers."""

_STACK_OLD = (0x4C98, 0x01)
"""``MOV R1, c[0x0][…]`` up to Pascal: the highest 16 bits, and the register in the lowest 8."""

_STACK = {0xA02, 0xB82}
"""Opcodes of ``MOV`` and ``LDC``, which set the stack pointer if their register, bits 16 to 23, is R1."""

_STACK_POINTER = 1

_LONGEST = 1 << 12
"""Most bytes of a body that is examined; a compiler's stub has 256 at most."""


def is_stub(body: bytes, arch: Arch) -> bool | None:
    """Return whether a kernel's ``body`` only exits or traps; ``None`` for short code from before Maxwell."""
    if not body or len(body) > _LONGEST:
        return False
    if arch.major < _FIRST:
        return None
    form, idle = (_PAIRS, _is_idle) if arch.major >= _VOLTA else (_GROUP, _is_idle_old)
    instructions = body[: len(body) // form.size * form.size]
    begins = _ORIN_BEGINS if arch.number == _ORIN else ()
    words = (word for group in form.iter_unpack(instructions) for word in group)
    return all(idle(word) or word & _OPCODE in begins for word in words)


def _is_idle(word: int) -> bool:
    opcode = word & _OPCODE
    if opcode in _IDLE or word >> 12 & 15 == _NEVER:
        return True
    return opcode in _STACK and word >> 16 & 0xFF == _STACK_POINTER


def _is_idle_old(word: int) -> bool:
    if word >> 52 in _IDLE_OLD or word >> 16 & 15 == _NEVER:
        return True
    return (word >> 48, word & 0xFF) == _STACK_OLD
