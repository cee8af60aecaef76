"""Writers and readers of package archives; writing is deterministic, reading trusts no archive."""
