"""One package: contents, manifest, NOTICE, SBOM, provenance, build record; and differences of two."""
