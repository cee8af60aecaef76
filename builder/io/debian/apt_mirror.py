"""Downloads of files of Debian's archive from the mirrors that apt on this machine uses.

``man sources.list`` describes both formats of apt's source files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from urllib.parse import quote

from builder.config.inputs import Input, Pin
from builder.errors import TransferError
from builder.files.http_client import NotThereError
from builder.formats.text import redacted
from builder.io.transfer import HttpTransfer


def download_debian(
    mirrors: AptMirrors, transfer: HttpTransfer, item: Input, pin: Pin | None, folder: Path
) -> Path:
    """Download a file of Debian's archive, ``pool/...`` (``io.store.Source``).

    If a mirror lacks the file, the next one is tried.
    """
    dest = folder / PurePosixPath(item.spec).name
    addresses = mirrors.find()
    for mirror in addresses:
        try:
            transfer.download(url_of(mirror, item.spec), dest, size=pin.size if pin else 0)
        except NotThereError:
            continue
        return dest
    tried_mirrors = redacted(" or ".join(addresses))
    raise TransferError(
        f"{item.key} is not on {tried_mirrors}",
        cause="Debian's archive no longer has this version",
        advice="In variants.yaml, name a version that the archive has; or set ORTPACKS_DEBIAN_MIRROR to "
        "a mirror that keeps old versions.",
    )


def url_of(mirror: str, path: str) -> str:
    """Return the file's URL, with ``+`` escaped because some servers read ``+`` as a blank."""
    return f"{mirror}/{quote(path)}"


_SUITE = re.compile(
    r"(buster|bullseye|bookworm|trixie|forky|duke|sid|stable|oldstable|testing|unstable)(-updates|-backports)?"
)
"""The suites of Debian's main archive. A build needs nothing from the security archive."""

DEBIAN = "https://deb.debian.org/debian"
"""Debian's own address, which redirects to a mirror nearby, for systems whose apt has no Debian mirror."""

_OPTIONS = re.compile(r"\[[^\]]*\]")

_SNAPSHOT = re.compile(r"\b\d{8}T\d{6}Z\b")
"""The time in a URL of snapshot.debian.org or of a similar archive."""

_MIRROR_FILE = "mirror+file:"


_Entry = tuple[str, Sequence[str], Sequence[str]]
"""URI, suites and components of an entry of apt's sources."""


class AptMirrors:
    """The Debian mirrors of this machine; ``override`` replaces apt's, ``folder`` is ``/etc/apt``."""

    def __init__(self, *, folder: Path, override: str | None = None) -> None:
        self._folder = folder
        self._override = override

    @property
    def snapshot(self) -> str:
        """Return the time in the URL ``override``, ``20251101T000000Z``; empty for a current archive."""
        match = _SNAPSHOT.search(self._override or "")
        return match[0] if match else ""

    def find(self) -> tuple[str, ...]:
        """Return the URLs of the mirrors, best first, without a final slash; ``DEBIAN`` if apt has none."""
        if self._override:
            return (self._override.rstrip("/"),)
        addresses = debian_mirrors(self._sources())
        mirrors = tuple(mirror for uri in addresses for mirror in self._expand(uri))
        return mirrors or (DEBIAN,)

    def _sources(self) -> dict[str, str]:
        parts = self._folder / "sources.list.d"
        files = [
            self._folder / "sources.list",
            *sorted(parts.glob("*.list")),
            *sorted(parts.glob("*.sources")),
        ]
        return {file.name: file.read_text(errors="replace") for file in files if file.is_file()}

    def _expand(self, uri: str) -> Iterator[str]:
        """Yield the mirrors of a URI.

        A URI of ``mirror+file:``, as in Debian's cloud images, names a file with one mirror a line.
        """
        if not uri.startswith(_MIRROR_FILE):
            yield uri.rstrip("/")
            return
        listed = Path("/", uri.removeprefix(_MIRROR_FILE).lstrip("/"))
        lines = listed.read_text(errors="replace").splitlines() if listed.is_file() else []
        yield from (line.split()[0].rstrip("/") for line in lines if line.startswith("http"))


def debian_mirrors(sources: Mapping[str, str]) -> tuple[str, ...]:
    """Return the distinct URIs of Debian's main archive in apt's source files (text by file name).

    URIs that end in ``/debian`` come first, because other vendors' archives use Debian's suite names too.
    """
    entries = (entry for name, text in sources.items() for entry in _entries(name, text))
    uris = dict.fromkeys(uri.rstrip("/") for uri, *where in entries if _is_debian(uri, *where))
    return tuple(sorted(uris, key=lambda uri: not uri.endswith(("/debian", "/debian.list"))))


def _is_debian(uri: str, suites: Sequence[str], components: Sequence[str]) -> bool:
    named = any(_SUITE.fullmatch(suite) for suite in suites)
    return named and "main" in components and uri.startswith(("http://", "https://", _MIRROR_FILE))


def _entries(name: str, text: str) -> Iterable[_Entry]:
    return _deb822(text) if name.endswith(".sources") else _one_line(text)


def _one_line(text: str) -> Iterator[_Entry]:
    """Yield the entries of lines like ``deb [arch=amd64] URI SUITE COMPONENT...``."""
    for line in text.splitlines():
        words = _OPTIONS.sub("", line.partition("#")[0]).split()
        if len(words) > 3 and words[0] in {"deb", "deb-src"}:  # noqa: PLR2004
            yield words[1], words[2:3], words[3:]


def _deb822(text: str) -> Iterator[_Entry]:
    for stanza in stanzas(text):
        fields = {key.lower(): value.split() for key, value in stanza.items()}
        if fields.get("enabled") == ["no"]:
            continue
        for uri in fields.get("uris", ()):
            yield uri, fields.get("suites", ()), fields.get("components", ())


def stanzas(text: str) -> Iterator[Mapping[str, str]]:
    """Yield the fields of each stanza of ``text`` (``man 5 deb822``); a continued value becomes one line."""
    whole = re.sub(r"\n[ \t]+(?=\S)", " ", re.sub(r"^#.*\n?", "", text, flags=re.MULTILINE))
    for stanza in re.split(r"\n\s*\n", whole):
        lines = (line.partition(":") for line in stanza.splitlines())
        fields = {key: value.strip() for key, _, value in lines}
        if fields:
            yield fields
