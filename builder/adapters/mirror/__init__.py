"""A mirror of releases: a folder that a static web server shows."""
