"""Libraries for archives, and what an opener finds in a source."""

from collections.abc import Callable
from pathlib import Path

import pytest

from builder.errors import IntegrityError
from builder.inspect.opener import Opener
from tests.support.factories.binaries import elf, sass

LIBRARY = elf({".nv_fatbin": sass(75)})

OTHER = elf({".nv_fatbin": sass(80, 86)})


def found(opener: Opener, source: Path | str) -> dict[str, bytes]:
    """Return the bytes of the libraries in ``source`` by their names, of which none is there twice."""
    with opener.files(str(source)) as held:
        names = [name for name, _ in held.libraries]
        assert len(names) == len(set(names))
        return {name: path.read_bytes() for name, path in held.libraries}


def refused(opener: Opener, source: Path) -> str:
    """Return the message on ``source``, which is damaged; it begins with the source's path."""
    with pytest.raises(IntegrityError) as caught:
        found(opener, source)
    assert str(caught.value).startswith(str(source))
    return str(caught.value)


Holds = Callable[[bytes], dict[str, bytes]]
"""A function that returns what ``found`` finds in a file of these bytes."""

Refuses = Callable[[bytes], str]
"""A function that returns what ``refused`` returns for a file of these bytes."""
