"""Downloads by ``files.download`` whose progress and retries are reported."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from builder.errors import DiskError
from builder.files.digest import size_of
from builder.files.disk import require_space
from builder.files.download import WantedFile, fetch, forget
from builder.files.http_client import Web
from builder.files.http_opener import open_url, trusted_certificates


class TransferReporter(Protocol):
    """The part of ``console.Reporter`` that transfers need. ``ortpacks-inspect.pyz`` has only this one."""

    def say(self, line: str) -> None:
        """Report one line."""

    def progress(self, title: str, total: int) -> AbstractContextManager[Callable[[int], None]]:
        """Report how many of ``total`` bytes are done, during the block."""


class HttpTransfer:
    """A downloader that reports to ``reporter`` and trusts the certificates that ``env`` names."""

    def __init__(
        self, *, reporter: TransferReporter, sleep: Callable[[float], None], env: Mapping[str, str]
    ) -> None:
        self.reporter = reporter
        self._sleep = sleep
        self._open = partial(open_url, certificates=trusted_certificates(env))

    def download(self, url: str, dest: Path, *, size: int = 0) -> None:
        """Download ``url`` to ``dest``, continuing ``<dest>.part``. ``size`` is in bytes, 0 when unknown.

        Only the number of bytes is checked. Raises ``NotThereError``, ``TransferError``, ``IntegrityError``
        (another size) or ``DiskError``.
        """
        part = dest.with_name(f"{dest.name}.part")
        require_space(part, max(0, size - size_of(part)))
        with _Progress(self.reporter, urlsplit(url).path.rpartition("/")[2]) as progress:
            web = Web(open=self._open, sleep=self._sleep, progress=progress.show, say=self.reporter.say)
            try:
                fetch(WantedFile(url, size or None), part, web)
            except DiskError:
                forget(part)  # a full disk needs the space of the partial download
                raise
        part.replace(dest)
        forget(part)


class _Progress(ExitStack):
    """The reported progress of one download; a download that starts over opens a new bar."""

    def __init__(self, reporter: TransferReporter, title: str) -> None:
        super().__init__()
        self.reporter = reporter
        self._title = title
        self._done = -1
        self._advance: Callable[[int], None] = lambda _: None

    def show(self, done: int, total: int) -> None:
        if done < self._done or self._done < 0:
            self.close()
            self._advance = self.enter_context(self.reporter.progress(self._title, total))
            self._done = 0
        self._advance(done - self._done)
        self._done = done
