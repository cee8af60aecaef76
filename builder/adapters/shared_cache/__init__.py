"""Adapters for compile caches that machines share, and the server of a build container."""
