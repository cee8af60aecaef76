"""This package checks the packages in ``dist/``, compares a release with its host, and publishes it."""
