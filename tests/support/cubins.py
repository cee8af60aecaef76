"""Kernels in files of SASS."""

from hashlib import sha256

from builder.binary.elf_headers import read_sections

_MACHINE, _X86_64 = 18, b"\x3e\0"
"""Offset of the machine in an ELF header, and x86-64's value (ELF-64 Object File Format; x86-64 psABI)."""


def kernels(cubin: bytes) -> dict[str, str]:
    """Return the sha256 of each kernel's instructions by mangled name."""
    as_ours = cubin[:_MACHINE] + _X86_64 + cubin[_MACHINE + 2 :]  # the only machine that the reader accepts
    return {
        section.name.removeprefix(".text."): sha256(
            cubin[section.offset : section.offset + section.size]
        ).hexdigest()
        for section in read_sections(as_ours)
        if section.name.startswith(".text.")
    }
