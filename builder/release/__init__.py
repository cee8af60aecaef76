"""A release of the packages in ``dist/``: checked, compared with its host, completed, then published."""
