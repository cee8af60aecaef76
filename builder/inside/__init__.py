"""What runs inside the build container: standard library of Python 3.10 only, Ubuntu 22.04's."""
