"""What tests share: factories of values and files, fakes, injected faults, readers of real packages."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
"""The repository."""
