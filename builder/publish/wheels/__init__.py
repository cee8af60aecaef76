"""This package makes wheels for pip and uv: official wheels with a package's CUDA provider."""
