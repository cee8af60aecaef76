"""Readers of the unpacked images of fatbin containers, for ``inspect --deep``."""
