"""The Docker Engine, BuildKit, and cuobjdump in a container."""
