"""What was read, as heat maps, pictures, sentences and records."""
