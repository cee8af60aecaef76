"""Libraries for archives, and what an opener finds in a source."""

from __future__ import annotations

from pathlib import Path

from builder.adapters.untrusted.opener import Opener
from tests.support.factories.binaries import elf, sass

LIBRARY = elf({".nv_fatbin": sass(75)})

OTHER = elf({".nv_fatbin": sass(80, 86)})


def found(opener: Opener, source: Path | str) -> dict[str, bytes]:
    """Return the bytes of the libraries in ``source`` by their names, of which none is there twice."""
    with opener.files(str(source)) as held:
        names = [name for name, _ in held.libraries]
        assert len(names) == len(set(names))
        return {name: path.read_bytes() for name, path in held.libraries}
