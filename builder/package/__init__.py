"""This package describes one package (contents, manifest, NOTICE, SBOM, provenance, build record).

It also finds the differences of two packages.
"""
