"""Releases on GitHub, the requests they take, and the refusals that are waited for."""
