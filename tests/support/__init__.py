"""Code that several folders of tests use: factories of values and files, fakes, faults, real packages."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
"""The repository's root folder."""
