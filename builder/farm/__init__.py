"""Programs inside the build container, with only the standard library of Python 3.10 (Ubuntu 22.04)."""
