"""Proofs that a package is good: of its bytes, by a self-test in a container, on virtual cards."""
