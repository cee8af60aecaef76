"""The folder that packages are installed in: digests, archives, extraction, locks."""
