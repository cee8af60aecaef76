"""Adapters for the Docker Engine, BuildKit, registries, and cuobjdump in a container."""
