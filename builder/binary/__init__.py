"""Readers of the bytes of libraries: ELF, fatbin containers, PE and Mach-O headers, and GPU coverage.

No module of this package opens a file or starts a process.
"""
