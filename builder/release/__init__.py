"""From ``dist/`` to a release that is complete or not there: prepared, compared, made equal, published."""
