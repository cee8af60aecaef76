"""Bytes of libraries to values: ELF, fatbin containers, PE and Mach-O headers, and the coverage that follows.

Nothing here opens a file or starts a process.
"""
