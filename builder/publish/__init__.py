"""From ``dist/`` to users: a release on GitHub or in a mirror, signatures, wheels, images."""
