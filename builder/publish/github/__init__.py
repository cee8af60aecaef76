"""Adapters for releases on GitHub: API requests, and refusals after which a request is repeated."""
