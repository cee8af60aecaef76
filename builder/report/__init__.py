"""What was found, for readers: heat maps, sentences, tables and pages."""
