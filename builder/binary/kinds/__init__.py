"""Readers of other files with device code than ELF libraries, and of device code outside of containers."""
