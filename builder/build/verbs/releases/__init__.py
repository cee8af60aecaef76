"""This package holds the work of the verbs that make, publish, mirror, sign and rebuild a release."""
