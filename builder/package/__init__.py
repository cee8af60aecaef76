"""One package: its contents, manifest, NOTICE, SBOM, provenance, and what sets two packages apart."""
