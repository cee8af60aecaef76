"""Files of Debian's archive by their path, from the mirror that apt uses."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from urllib.parse import quote

from builder.adapters.apt import AptMirrors
from builder.adapters.transfer import HttpTransfer, NotThereError
from builder.core.address import without_userinfo
from builder.core.inputs import Input, Pin
from builder.errors import TransferError


class DebianSource:
    """Implements ``adapters.store.Source`` for ``pool/...`` paths."""

    def __init__(self, *, mirrors: AptMirrors, transfer: HttpTransfer) -> None:
        self._mirrors = mirrors
        self._transfer = transfer

    def download(self, item: Input, pin: Pin | None, folder: Path) -> Path:
        """See ``adapters.store.Source``. A mirror that lacks the file is passed over for the next."""
        dest = folder / PurePosixPath(item.spec).name
        mirrors = self._mirrors.find()
        for mirror in mirrors:
            try:
                self._transfer.download(url_of(mirror, item.spec), dest, size=pin.size if pin else 0)
            except NotThereError:
                continue
            return dest
        asked = without_userinfo(" or ".join(mirrors))
        raise TransferError(
            f"{item.key} is not on {asked}: the archive has moved on. Name a version "
            "that it has in variants.yaml, or set ORTPACKS_DEBIAN_MIRROR to a mirror that keeps old ones."
        )


def url_of(mirror: str, path: str) -> str:
    """The file's address. A ``+`` is escaped: some servers read it as a blank."""
    return f"{mirror}/{quote(path)}"
