"""Kinds of files that device code comes in beside ELF libraries, and code that lies in no container."""
