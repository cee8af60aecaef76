"""Factory of the client's downloads: its web without waits, and packages fetched into a new prefix."""

from pathlib import Path

from builder.client.install.obtain import obtain
from builder.client.install.prefix import Prefix
from builder.client.install.source import Located
from builder.files.http_client import Web
from builder.files.http_opener import open_url
from builder.formats.index import IndexPackage


def web() -> Web:
    return Web(open=open_url, sleep=lambda seconds: None, progress=lambda done, total: None)


def fetched(package: IndexPackage, located: Located, folder: Path, through: Web | None = None) -> bytes:
    """Return a package's archive as the client fetches it into a prefix in the new ``folder``."""
    prefix = Prefix(folder)
    prefix.downloads.mkdir(parents=True)
    return obtain(package, located, prefix, through or web()).read_bytes()
