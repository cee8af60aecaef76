"""The end user's client, which finds, installs and checks a package. It ships alone as ``ortpacks.pyz``."""

__version__ = "1.0.0"
