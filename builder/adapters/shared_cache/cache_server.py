"""The server through which a build container uses the compile caches that machines share.

A request comes through a socket (``builder.inside.storage``), so addresses, passwords and signatures stay on
this machine.
"""

from __future__ import annotations

import re
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from socket import socket
from socketserver import BaseServer, StreamRequestHandler, ThreadingUnixStreamServer
from typing import TypeVar

from builder.errors import BuilderError, CheckFailedError, DiskError, ValidationError
from builder.inside import agent
from builder.inside.storage import MAY_PUT, NO, POLL, WAITING, YES
from builder.ports import CompileCache, CompileCaches, Reporter

_REQUEST = re.compile(rb"(GET|HEAD|PUT) ([0-9a-z]{2}/[0-9a-z]{10,100})\n")

_LONGEST = 75
"""Most bytes of the temporary folder's path: that of a socket in it has at most 107, on a Mac 103."""

_GOES_ON = "The build goes on without it."

T = TypeVar("T")


@contextmanager
def served(caches: CompileCaches, reporter: Reporter) -> Iterator[Path]:
    """Yield the path of a socket that serves the build container, and report the counts when the block ends.

    A cache that fails is not used again, of which one line warns; one that refuses to store objects is still
    read. When the block ends, raises the error by which ``caches.into`` failed, or ``CheckFailedError`` if
    that cache got nothing.
    """
    requests = _RequestServer(caches, reporter)
    temporary = tempfile.gettempdir()
    is_unfit = len(temporary.encode()) > _LONGEST or "," in temporary  # buildx splits the path at a comma
    with tempfile.TemporaryDirectory(prefix="ortpacks-", dir="/tmp" if is_unfit else None) as folder:  # noqa: S108
        path = Path(folder, "socket")
        with ThreadingUnixStreamServer(str(path), partial(_Handler, requests.answer)) as server:
            server.daemon_threads = True
            server.socket.listen(WAITING)
            threading.Thread(target=server.serve_forever, args=(POLL,), daemon=True).start()
            try:
                yield path
            finally:
                server.shutdown()
    requests.close()


class _Handler(StreamRequestHandler):
    def __init__(
        self, answer: Callable[[bytes], bytes], request: socket, address: object, server: BaseServer
    ) -> None:
        self._answer = answer
        super().__init__(request, address, server)

    def handle(self) -> None:
        with suppress(OSError):  # the build has ended meanwhile, say by Ctrl-C
            agent.serve(self.rfile, self.wfile, self._answer)


class _RequestServer:
    """The server of one build's requests, which have the form of ``builder.inside.storage``."""

    def __init__(self, caches: CompileCaches, reporter: Reporter) -> None:
        self._caches = caches
        self._reporter = reporter
        self._lost: dict[CompileCache, BuilderError] = {}
        self._read_only: dict[CompileCache, BuilderError] = {}
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def answer(self, request: bytes) -> bytes:
        """Return the answer to a request."""
        if request == MAY_PUT:
            return YES if self._caches.writable else NO
        parts = _REQUEST.match(request)
        if parts is None:
            return NO
        what, key = (part.decode() for part in parts.groups())
        if what == "GET":
            found = self._get(key)
            self._count("asked" if found is None else "found")
            return NO if found is None else YES + found
        if what == "HEAD":
            is_there = all(self._on(cache, partial(cache.has, key), True) for cache in self._caches.writable)
            self._count("there" if is_there else "missed")
            return YES if is_there else NO
        value = request[parts.end() :]
        kept = [self._put(cache, key, value) for cache in self._caches.writable]
        if any(kept):
            self._count("kept")
        return YES

    def close(self) -> None:
        """Report how many objects were found and kept. Raises what ``served`` raises."""
        counts, into = self._counts, self._caches.into
        failed = self._lost | self._read_only
        if into is not None and into in failed:
            raise failed[into]
        if into is not None and not counts["kept"] + counts["there"] + counts["found"]:
            raise CheckFailedError(f"{into.name} got no object: ccache stored none of the compiled ones")
        asked = counts["found"] + counts["asked"]
        self._reporter.say(
            f"{' and '.join(cache.name for cache in self._caches.readable)}: {counts['found']} of {asked} "
            f"objects found, {counts['kept']} new"
        )

    def _get(self, key: str) -> bytes | None:
        into = self._caches.into
        for cache in self._caches.readable:
            found = self._on(cache, partial(cache.get, key), None)
            if found is not None and len(found) < agent.LARGEST:
                if into is not None and into is not cache:
                    self._put(into, key, found)
                return found
        return None

    def _put(self, cache: CompileCache, key: str, value: bytes) -> bool:
        """Return whether a cache stored an object. One that refuses to is not asked to again."""
        if cache in self._lost or cache in self._read_only:
            return False
        try:
            cache.put(key, value)
        except (ValidationError, DiskError) as error:
            self._note(self._read_only, cache, error, "Nothing more is stored there.")
        except BuilderError as error:
            self._note(self._lost, cache, error, _GOES_ON)
        else:
            return True
        return False

    def _on(self, cache: CompileCache, call: Callable[[], T], otherwise: T) -> T:
        """Return the result of ``call``; ``otherwise`` from the cache's first failure on, with a warning."""
        if cache in self._lost:
            return otherwise
        try:
            return call()
        except BuilderError as error:
            self._note(self._lost, cache, error, _GOES_ON)
            return otherwise

    def _note(
        self, failed: dict[CompileCache, BuilderError], cache: CompileCache, error: BuilderError, what: str
    ) -> None:
        """Note a cache's first error in ``failed``, and warn of it and of what follows."""
        with self._lock:
            is_first = failed.setdefault(cache, error) is error
        if is_first:
            self._reporter.warn(error.warning(what))

    def _count(self, what: str) -> None:
        with self._lock:
            self._counts[what] += 1
