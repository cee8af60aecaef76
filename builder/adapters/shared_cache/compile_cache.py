"""Compile caches that machines share: a folder, a Redis server, an S3 bucket, an OCI registry.

``REDISCLI_AUTH`` has the password of Redis, as for redis-cli; obstore reads AWS's own variables
(``AWS_ENDPOINT_URL``, ``AWS_ACCESS_KEY_ID`` …); a registry's login is that of ``docker login``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TypeVar
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

from builder.adapters.shared_cache import sealed_cache
from builder.adapters.shared_cache.registry_cache import RegistryCache
from builder.adapters.shared_cache.sealed_cache import SealedCache
from builder.errors import ConfigError, DiskError, TransferError, ValidationError, os_error
from builder.files.atomic_write import write_file
from builder.files.digest import size_of
from builder.files.disk import absolute, disk_errors, is_file, is_folder, is_writable
from builder.formats.oci import is_oci, parse_address
from builder.formats.text import redacted
from builder.ports import CompileCache

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
"""Statuses by which S3 refuses what it may do later."""

_NO_FOLDER = re.compile(r"(rediss?|s3|oci)(:|//)")
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

_OBJECT = re.compile(r"[0-9a-z]{10,100}")
"""The name of an object's file."""

T = TypeVar("T")


def compile_cache(address: str, where: str, env: Mapping[str, str]) -> CompileCache:
    """Return the cache at an address.

    An address is ``redis[s]://HOST[:PORT][/NUMBER]``, ``s3://BUCKET[/PREFIX]``, ``oci://HOST[:PORT]/NAME`` or
    a folder; ``where`` is the flag or variable that gave the address. With ``ORTPACKS_COMPILE_CACHE_KEY``
    only objects that were stored with this key are used. Raises ``ValidationError`` for an address of another
    form, or with a password, and for a short key, or an empty one.
    """
    try:
        password = urlsplit(address).password
        cache = _cache_at(address, env)
    except ValueError:
        password, cache = None, None
    if password is not None:
        raise ValidationError(
            f"{where} holds a password",
            cause="command lines and logs are no place for secrets",
            advice="Take it out of the address: REDISCLI_AUTH takes that of Redis, `docker login` that of a "
            "registry.",
        )
    if cache is None:
        raise ValidationError(
            f"{where} {redacted(address)!r} is no compile cache",
            advice="Like redis://HOST:6379, s3://BUCKET/PREFIX, oci://HOST/NAME or a folder.",
        )
    key = env.get(sealed_cache.VARIABLE)
    return cache if key is None else SealedCache(cache, key)


def _cache_at(address: str, env: Mapping[str, str]) -> CompileCache | None:
    if _REDIS.fullmatch(address):
        return RedisCache(address, env.get("REDISCLI_AUTH"))
    if _S3.fullmatch(address):
        return S3Cache(address)
    if is_oci(address):
        return _registry(address)
    if "://" in address or not address or _NO_FOLDER.match(address):
        return None
    return FolderCache(absolute(Path(address)))


def _registry(text: str) -> RegistryCache | None:
    """Return the cache in a repository; ``None`` for a malformed address, or one with a tag or a login."""
    try:
        address = parse_address(text)
    except ConfigError:
        return None
    return None if address.reference or address.login else RegistryCache(address, _SECONDS)


class FolderCache:
    """A compile cache in a folder, laid out as ccache's own ``file:`` storage."""

    def __init__(self, folder: Path) -> None:
        self.name = str(folder)
        self._folder = folder

    def require(self) -> None:
        """See ``ports.CompileCache.require``. A missing folder is made with the first object."""
        if is_folder(self._folder):
            return
        if os.path.lexists(self._folder):
            raise ValidationError(f"{self.name} is no folder", advice="Name a folder or a new path.")
        if not is_writable(self._folder):
            raise DiskError(f"{self.name} cannot be made", advice="Name another folder, or allow it.")

    def get(self, key: str) -> bytes | None:
        """See ``ports.CompileCache.get``."""
        try:
            return (self._folder / key).read_bytes()
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            return None
        except OSError as error:
            raise os_error(error) from error

    def has(self, key: str) -> bool:
        """See ``ports.CompileCache.has``."""
        return is_file(self._folder / key)

    def put(self, key: str, value: bytes) -> None:
        """See ``ports.CompileCache.put``."""
        write_file(self._folder / key, value)

    def usage(self) -> tuple[int, int]:
        """See ``ports.CompileCache.usage``."""
        if not self._folder.is_dir():
            advice = "" if os.path.lexists(self._folder) else "The first object that is stored makes it."
            raise ValidationError(f"{self.name} is no folder", advice=advice)
        with disk_errors(self._folder):
            objects = (file for file in self._folder.glob("??/*") if _OBJECT.fullmatch(file.name))
            sizes = [size_of(file) for file in objects if file.is_file()]
        return len(sizes), sum(sizes)


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
        """See ``ports.CompileCache.require``."""
        self._ask(self._ping)

    def get(self, key: str) -> bytes | None:
        """See ``ports.CompileCache.get``."""
        return self._ask(partial(self._get, key))

    def has(self, key: str) -> bool:
        """See ``ports.CompileCache.has``."""
        return bool(self._ask(partial(self._client.exists, _PREFIX + key)))

    def put(self, key: str, value: bytes) -> None:
        """See ``ports.CompileCache.put``."""
        self._ask(partial(self._put, key, value))

    def usage(self) -> tuple[int, int]:
        """See ``ports.CompileCache.usage``."""
        keys = self._ask(lambda: [*self._client.scan_iter(f"{_PREFIX}*", count=1000)])
        return len(keys), self._ask(lambda: sum(int(self._client.strlen(key)) for key in keys))

    def _ping(self) -> None:
        if not self._client.ping():
            raise InvalidResponse("PING was not answered with PONG")

    def _get(self, key: str) -> bytes | None:
        value = self._client.get(_PREFIX + key)
        if value is not None and not isinstance(value, bytes):
            raise InvalidResponse("GET was not answered with an object")
        return value

    def _put(self, key: str, value: bytes) -> None:
        try:
            self._client.set(_PREFIX + key, value)
        except ResponseError as error:
            if not isinstance(error, _STORES_NOTHING) and not str(error).startswith(_NO_WRITES):
                raise
            advice = "Make room there, or let it take writes: its log says more."
            raise DiskError(f"{self.name} stores nothing", cause=str(error), advice=advice) from error

    def _ask(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except (AuthenticationError, NoPermissionError) as error:
            advice = "Set the password in REDISCLI_AUTH; the user's name goes into the address."
            raise ValidationError(f"{self.name} refuses", cause=str(error), advice=advice) from error
        except ResponseError as error:
            if "DB index" in str(error):
                advice = "Correct the number at the end of the address."
                raise ValidationError(f"{self.name} refuses", cause=str(error), advice=advice) from error
            raise TransferError(f"{self.name} refuses", cause=str(error)) from error
        except (InvalidResponse, TypeError, ValueError) as error:  # the client's errors for other answers
            is_host = isinstance(error, UnicodeError)  # one with an empty or long part
            what = f"{self.name} does not answer{'' if is_host else ' as Redis'}"
            raise TransferError(what, cause=str(error), advice=_NO_REDIS) from error
        except RedisError as error:
            what = f"{self.name} does not answer"
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
        """See ``ports.CompileCache.require``."""
        self._ask(self._store.list_with_delimiter)

    def get(self, key: str) -> bytes | None:
        """See ``ports.CompileCache.get``."""
        with suppress(FileNotFoundError):
            return self._ask(lambda: bytes(self._store.get(key).bytes()))
        return None

    def has(self, key: str) -> bool:
        """See ``ports.CompileCache.has``."""
        with suppress(FileNotFoundError):
            self._ask(lambda: self._store.head(key))
            return True
        return False

    def put(self, key: str, value: bytes) -> None:
        """See ``ports.CompileCache.put``."""
        try:
            self._ask(lambda: self._store.put(key, value))
        except FileNotFoundError as error:
            raise TransferError(
                f"{self.name} stores nothing",
                cause="the bucket is not there",
                advice=_NO_BUCKET,
            ) from error

    def usage(self) -> tuple[int, int]:
        """See ``ports.CompileCache.usage``."""
        sizes = self._ask(lambda: [one["size"] for chunk in self._store.list() for one in chunk])
        return len(sizes), sum(sizes)

    def _ask(self, call: Callable[[], T]) -> T:
        """Return the result of ``call``. Raises ``FileNotFoundError`` when an object is not there."""
        try:
            return call()
        except FileNotFoundError:
            raise
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
