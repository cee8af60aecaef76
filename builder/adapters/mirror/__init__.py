"""Hosts of releases besides GitHub: a folder for a static web server, and an OCI registry."""
