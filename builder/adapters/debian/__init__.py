"""Debian: files of its archive, the mirrors that apt uses, and root file systems."""
