"""Files of the builder: whole or not at all, locked, hashed."""
