"""Values and files made for tests."""
