"""The end user's side: detect, select, install, env. Ships alone as ``ortpacks.pyz``."""

__version__ = "1.0.0"
