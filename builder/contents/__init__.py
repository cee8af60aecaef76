"""What a package is, as values: files, manifest, rules, checksums, provenance, SBOM."""
