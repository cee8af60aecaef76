"""What tests share: factories of values and files, fakes of ports, injected faults."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
"""The repository."""
