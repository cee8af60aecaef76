"""Releases on GitHub: requests, refusals and when they are tried again."""
