"""Wheels for pip and uv: the official ones with a package's CUDA provider in place of their own."""
