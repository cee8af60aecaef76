"""Compile caches that machines share: a folder, a Redis server, an S3 bucket; and a server in front of them.

A build container reaches the caches through a socket (``builder.farm.storage``), which ``served`` answers, so
addresses, passwords and signatures stay on this machine.

``REDISCLI_AUTH`` has the password of Redis, as for redis-cli; obstore reads AWS's own variables
(``AWS_ENDPOINT_URL``, ``AWS_ACCESS_KEY_ID`` …). With a key, each object carries a code that only those who
have the key can make (``SealedCache``).
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingUnixStreamServer
from typing import Protocol, TypeVar
from urllib.parse import urlsplit

from obstore.exceptions import BaseError
from obstore.store import S3Store
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    InvalidResponse,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)
from redis.retry import Retry

from builder.console import Reporter
from builder.errors import (
    BuilderError,
    CheckFailedError,
    DiskError,
    IntegrityError,
    TransferError,
    ValidationError,
    os_error,
)
from builder.farm import agent
from builder.farm.storage import MAY_PUT, NO, POLL, WAITING, YES
from builder.files.atomic_write import write_file
from builder.files.disk import absolute, is_file, is_folder, is_writable
from builder.formats.text import redacted, refuse_registry
from builder.io.wiring import COMPILE_CACHE_KEY

_SECONDS = 5
"""Seconds that a server may take to answer; ccache waits 10."""

_PREFIX = "ortpacks/"
"""The prefix of keys in Redis, since other programs may use the same server."""

_REDIS = re.compile(r"rediss?://[^/?#]+(/[0-9]*)?")

_REFUSED = re.compile(
    r"status code: (?P<status>(?P<number>4\d\d) [\w ]+)(?:[^\0]*?<Code>(?P<code>\w+)</Code>)?"
)
"""The form of obstore's message for a refusal by S3."""

_FOR_NOW = {"408", "409", "429"}
"""HTTP statuses of refusals by S3 that may be temporary."""

_NO_FOLDER = re.compile(r"(rediss?|s3)(:|//)")
"""The beginning of an address that is no folder's."""

_SYSTEM = re.compile(r'\b(?:message|error): "([^"\n]+)"')
"""The operating system's reason in the second part of obstore's message."""

_NO_REDIS = "Start it, or correct the address (rediss:// for TLS). Then run the same command again."

_STORES_NOTHING = (OutOfMemoryError, ReadOnlyError)
"""Errors by which Redis refuses to store, though it may be read."""

_NO_WRITES = ("MISCONF ", "NOREPLICAS ")
"""The beginnings of such errors that have no class: its disk is full, its replicas are not there."""

_NO_S3 = "Check AWS_ENDPOINT_URL, the bucket's name and the network. Then run the same command again."

_NO_BUCKET = "Make the bucket, or correct its name."

_UNKNOWN_TLS = "its TLS certificate was not accepted"

_BAD_URL = "Generic URL error"
"""The beginning of obstore's message for an address that it does not take."""

_S3 = re.compile(r"s3://[^/?#]+(/[^?#]*)?")

T = TypeVar("T")


class CompileCache(Protocol):
    """A cache of ccache's objects by their keys, which several machines share.

    Every method raises ``TransferError`` when the server does not answer and ``ValidationError`` when the
    server refuses; the methods of a folder raise ``DiskError`` instead, and its ``has`` raises nothing.
    """

    name: str
    """The cache's address, as messages show it."""

    def require(self) -> None:
        """Raise an error unless the cache answers."""

    def get(self, key: str) -> bytes | None:
        """Return the object of a key; ``None`` if the cache has none."""

    def has(self, key: str) -> bool:
        """Return whether the cache has an object for a key."""

    def put(self, key: str, value: bytes) -> None:
        """Store an object under a key, whole or not at all."""


@dataclass(frozen=True)
class CompileCaches:
    """The compile caches that a build uses besides the engine's own."""

    shared: CompileCache | None = None
    """The cache of ``--compile-cache``, which objects are read from and written to."""
    ahead: CompileCache | None = None
    """The cache of ``--from``, which objects are only read from."""
    into: CompileCache | None = None
    """The cache of ``--into``, which objects are read from and written to; it is the build's result."""

    @property
    def readable(self) -> tuple[CompileCache, ...]:
        """Return the caches to read from, in the order in which they are tried."""
        return tuple(cache for cache in (self.ahead, self.into, self.shared) if cache)

    @property
    def writable(self) -> tuple[CompileCache, ...]:
        """Return the caches that new objects are written to."""
        return tuple(cache for cache in (self.into, self.shared) if cache)


def compile_cache(address: str, where: str, env: Mapping[str, str]) -> CompileCache:
    """Return the cache at an address.

    An address is ``redis[s]://HOST[:PORT][/NUMBER]``, ``s3://BUCKET[/PREFIX]`` or a folder; ``where`` is the
    flag or variable that gave the address. With ``ORTPACKS_COMPILE_CACHE_KEY`` only objects that were stored
    with this key are used. Raises ``ConfigError`` for an address of another form, or with a password, and for
    a short key, or an empty one.
    """
    refuse_registry(address)
    try:
        password = urlsplit(address).password
        cache = _cache_at(address, env)
    except ValueError:
        password, cache = None, None
    if password is not None:
        raise ValidationError(
            f"{where} holds a password",
            cause="command lines and logs are no place for secrets",
            advice="Take it out of the address: REDISCLI_AUTH takes that of Redis.",
        )
    if cache is None:
        raise ValidationError(
            f"{where} {redacted(address)!r} is no compile cache",
            advice="Like redis://HOST:6379, s3://BUCKET/PREFIX or a folder.",
        )
    key = env.get(COMPILE_CACHE_KEY)
    return cache if key is None else SealedCache(cache, key)


def _cache_at(address: str, env: Mapping[str, str]) -> CompileCache | None:
    if _REDIS.fullmatch(address):
        return RedisCache(address, env.get("REDISCLI_AUTH"))
    if _S3.fullmatch(address):
        return S3Cache(address)
    if "://" in address or not address or _NO_FOLDER.match(address):
        return None
    return FolderCache(absolute(Path(address)))


class FolderCache:
    """A compile cache in a folder, laid out as ccache's own ``file:`` storage."""

    def __init__(self, folder: Path) -> None:
        self.name = str(folder)
        self._folder = folder

    def require(self) -> None:
        """See ``CompileCache.require``. A missing folder is made with the first object."""
        if is_folder(self._folder):
            return
        if os.path.lexists(self._folder):
            raise ValidationError(f"{self.name} is no folder", advice="Name a folder or a new path.")
        if not is_writable(self._folder):
            raise DiskError(f"{self.name} cannot be made", advice="Name another folder, or allow it.")

    def get(self, key: str) -> bytes | None:
        """See ``CompileCache.get``."""
        try:
            return (self._folder / key).read_bytes()
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            return None
        except OSError as error:
            raise os_error(error) from error

    def has(self, key: str) -> bool:
        """See ``CompileCache.has``."""
        return is_file(self._folder / key)

    def put(self, key: str, value: bytes) -> None:
        """See ``CompileCache.put``."""
        write_file(self._folder / key, value)


class RedisCache:
    """A compile cache on a Redis server."""

    def __init__(self, address: str, password: str | None) -> None:
        self.name = address
        self._client = Redis.from_url(
            address,
            password=password,
            protocol=2,
            retry=Retry(NoBackoff(), 0),
            socket_timeout=_SECONDS,
            socket_connect_timeout=_SECONDS,
        )

    def require(self) -> None:
        """See ``CompileCache.require``."""
        with self._told():
            if not self._client.ping():
                raise InvalidResponse("PING was not answered with PONG")

    def get(self, key: str) -> bytes | None:
        """See ``CompileCache.get``."""
        with self._told():
            value = self._client.get(_PREFIX + key)
            if value is not None and not isinstance(value, bytes):
                raise InvalidResponse("GET was not answered with an object")
            return value

    def has(self, key: str) -> bool:
        """See ``CompileCache.has``."""
        with self._told():
            return bool(self._client.exists(_PREFIX + key))

    def put(self, key: str, value: bytes) -> None:
        """See ``CompileCache.put``."""
        with self._told():
            try:
                self._client.set(_PREFIX + key, value)
            except ResponseError as error:
                if not isinstance(error, _STORES_NOTHING) and not str(error).startswith(_NO_WRITES):
                    raise
                advice = "Make room there, or let it take writes: its log says more."
                raise DiskError(f"{self.name} stores nothing", cause=str(error), advice=advice) from error

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Raise ours in place of the client's errors."""
        try:
            yield
        except (AuthenticationError, NoPermissionError) as error:
            advice = "Set the password in REDISCLI_AUTH; the user's name goes into the address."
            raise ValidationError(f"{self.name} refuses", cause=str(error), advice=advice) from error
        except ResponseError as error:
            if "DB index" in str(error):
                advice = "Correct the number at the end of the address."
                raise ValidationError(f"{self.name} refuses", cause=str(error), advice=advice) from error
            raise TransferError(f"{self.name} refuses", cause=str(error)) from error
        except (RedisError, TypeError, ValueError) as error:
            is_host = isinstance(error, UnicodeError)  # one with an empty or long part
            is_other = isinstance(error, InvalidResponse | TypeError | ValueError) and not is_host
            what = f"{self.name} does not answer{' as Redis' if is_other else ''}"
            raise TransferError(what, cause=str(error), advice=_NO_REDIS) from error


class S3Cache:
    """A compile cache in a bucket of a service with S3's protocol, below a prefix."""

    def __init__(self, address: str) -> None:
        self.name = address
        try:
            self._store = S3Store.from_url(
                address,
                client_options={"allow_http": True, "timeout": timedelta(seconds=_SECONDS)},
                retry_config={"max_retries": 0},
            )
        except BaseError as error:
            cause = str(error).partition("\n")[0]
            wrong = "the address" if cause.startswith(_BAD_URL) else "the variable AWS_… that has this value"
            raise ValidationError(
                f"{address} cannot be opened", cause=cause, advice=f"Correct {wrong}."
            ) from error

    def require(self) -> None:
        """See ``CompileCache.require``."""
        with self._told():
            self._store.list_with_delimiter()

    def get(self, key: str) -> bytes | None:
        """See ``CompileCache.get``."""
        with suppress(FileNotFoundError), self._told():
            return bytes(self._store.get(key).bytes())
        return None

    def has(self, key: str) -> bool:
        """See ``CompileCache.has``."""
        with suppress(FileNotFoundError), self._told():
            self._store.head(key)
            return True
        return False

    def put(self, key: str, value: bytes) -> None:
        """See ``CompileCache.put``."""
        try:
            with self._told():
                self._store.put(key, value)
        except FileNotFoundError as error:
            what, cause = f"{self.name} stores nothing", "the bucket is not there"
            raise TransferError(what, cause=cause, advice=_NO_BUCKET) from error

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Raise ours in place of the store's errors; ``FileNotFoundError`` where an object is not there."""
        try:
            yield
        except BaseError as error:
            if refused := _REFUSED.search(str(error)):
                advice = "The variables are AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
                cause = ": ".join(filter(None, refused.group("status", "code")))
                if refused["number"] in _FOR_NOW:
                    again = "Run the same command again later."
                    raise TransferError(f"{self.name} refuses for now", cause=cause, advice=again) from error
                if refused["code"] == "NoSuchBucket":
                    advice = _NO_BUCKET
                raise ValidationError(f"{self.name} refuses", cause=cause, advice=advice) from error
            said, _, details = str(error).partition("\n")
            system = _SYSTEM.search(details)
            cause = system[1] if system else said.rpartition(" - ")[2]
            raise TransferError(
                f"{self.name} does not answer",
                cause=_UNKNOWN_TLS if "InvalidCertificate" in details else cause,
                advice=_NO_S3,
            ) from error


_LEAST = 16
"""The least number of characters of a key."""

_CODE = 32
"""Bytes of a code."""


class SealedCache:
    """A cache that uses only those objects of ``cache`` that carry a code made with ``key``.

    The code is HMAC-SHA256 (RFC 2104) of the object's name and bytes. It stands before the bytes, 32 bytes
    long. Raises ``ValidationError`` for a short key. ``get`` and ``has`` also raise ``IntegrityError`` for an
    object with another code or none.
    """

    def __init__(self, cache: CompileCache, key: str) -> None:
        if len(key) < _LEAST:
            raise ValidationError(
                f"{COMPILE_CACHE_KEY} has fewer than {_LEAST} characters",
                cause="who may write to the cache could guess it",
                advice="Set a long random text on all machines (`openssl rand -hex 32`), or unset it.",
            )
        self.name = cache.name
        self.require = cache.require
        self._cache, self._key = cache, os.fsencode(key)

    def get(self, key: str) -> bytes | None:
        """See ``CompileCache.get``."""
        stored = self._cache.get(key)
        if stored is None:
            return None
        code, value = stored[:_CODE], stored[_CODE:]
        if not hmac.compare_digest(code, self._code(key, value)):
            raise IntegrityError(
                f"{self.name}: {key} was not stored with the key in {COMPILE_CACHE_KEY}",
                advice="Name an empty cache, or set the key with which this one was filled.",
            )
        return value

    def has(self, key: str) -> bool:
        """See ``CompileCache.has``."""
        return self.get(key) is not None

    def put(self, key: str, value: bytes) -> None:
        """See ``CompileCache.put``."""
        self._cache.put(key, self._code(key, value) + value)

    def _code(self, key: str, value: bytes) -> bytes:
        return hmac.digest(self._key, f"{key}\n".encode() + value, hashlib.sha256)


_REQUEST = re.compile(rb"(GET|HEAD|PUT) ([0-9a-z]{2}/[0-9a-z]{10,100})\n")

_LONGEST = 75
"""Most bytes of the temporary folder's path: that of a socket in it has at most 107, on a Mac 103."""

_GOES_ON = "The build goes on without it."


@contextmanager
def served(caches: CompileCaches, reporter: Reporter) -> Iterator[Path]:
    """Yield the path of a socket that serves the build container, and report the counts when the block ends.

    A cache that fails is not used again, and a warning says so. One that refuses to store objects is still
    read. When the block ends, raises the error by which ``caches.into`` failed, or ``CheckFailedError`` if
    that cache got nothing.
    """
    requests = _RequestServer(caches, reporter)

    class Handler(StreamRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):  # the build has ended meanwhile, say by Ctrl-C
                agent.serve(self.rfile, self.wfile, requests.answer)

    temporary = tempfile.gettempdir()
    is_unfit = len(temporary.encode()) > _LONGEST or "," in temporary  # buildx splits the path at a comma
    with tempfile.TemporaryDirectory(prefix="ortpacks-", dir="/tmp" if is_unfit else None) as folder:  # noqa: S108
        path = Path(folder, "socket")
        with ThreadingUnixStreamServer(str(path), Handler) as server:
            server.daemon_threads = True
            server.socket.listen(WAITING)
            threading.Thread(target=server.serve_forever, args=(POLL,), daemon=True).start()
            try:
                yield path
            finally:
                server.shutdown()
    requests.close()


class _RequestServer:
    """The server of one build's requests, which have the form of ``builder.farm.storage``."""

    def __init__(self, caches: CompileCaches, reporter: Reporter) -> None:
        self._caches = caches
        self._reporter = reporter
        self._lost: dict[CompileCache, BuilderError] = {}
        self._read_only: dict[CompileCache, BuilderError] = {}
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def answer(self, request: bytes) -> bytes:
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
            value = self._on(cache, partial(cache.get, key), None)
            if value is not None and len(value) < agent.LARGEST:
                if into is not None and into is not cache:
                    self._put(into, key, value)
                return value
        return None

    def _put(self, cache: CompileCache, key: str, value: bytes) -> bool:
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
