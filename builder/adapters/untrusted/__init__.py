"""Readers of untrusted archives and container images; only libraries and manifests are unpacked."""
