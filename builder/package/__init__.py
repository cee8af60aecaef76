"""This package describes one package: contents, manifest, NOTICE, SBOM, provenance, build record.

Diffs.
"""
