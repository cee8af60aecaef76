"""Package archives: made deterministically in one pass, read without trust."""
