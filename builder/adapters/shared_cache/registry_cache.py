"""A compile cache in a repository of an OCI registry.

An object is an artifact with one layer, under a tag made from its key. The login is the Docker CLI's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import TypeVar

from pydantic import BaseModel, Field

from builder.adapters.docker.registry import BYTES_TYPE, RefusedError, artifact, open_repository
from builder.errors import TransferError, ValidationError
from builder.files.digest import named_digest
from builder.formats.oci import DIGEST_FORM, OciAddress
from builder.inside import agent

_OBJECT = "application/vnd.ortpacks.compiled.v1"
"""The ``artifactType`` of an object's manifest."""

_NOBODYS = "latest"
"""A tag that no key has, for a request that only tests the registry."""

T = TypeVar("T")


class _Layer(BaseModel):
    digest: str = Field(pattern=f"^{DIGEST_FORM.pattern}$")
    size: int


class _Object(BaseModel):
    """The fields that are read of an object's manifest."""

    kind: str = Field(alias="artifactType")
    layers: tuple[_Layer]


class _Any(BaseModel):
    """The field that every manifest has."""

    version: int = Field(alias="schemaVersion")


class RegistryCache:
    """A compile cache in the repository ``HOST/NAME``, which must allow a tag to be overwritten."""

    def __init__(self, address: OciAddress, seconds: float) -> None:
        """Open the repository; ``seconds`` is the longest wait for an answer."""
        self.name = address.shown
        self._registry = open_repository(address, seconds)

    def require(self) -> None:
        """See ``ports.CompileCache.require``."""
        manifest = self._ask(partial(self._registry.manifest, _NOBODYS))
        if manifest is not None and not _is_manifest(manifest):
            raise TransferError(
                f"{self.name} does not answer as a registry",
                cause="it sent something else than a manifest",
                advice="Check the registry's name.",
            )

    def get(self, key: str) -> bytes | None:
        """See ``ports.CompileCache.get``. Raises ``TransferError`` for bytes of another digest.

        Returns ``None`` if the registry has lost the bytes, so that the object is made and put again.
        """
        manifest = self._ask(partial(self._registry.manifest, _tag(key)))
        if manifest is None:
            return None
        layer = _layer(manifest)
        if layer is None:
            raise self._nonsense(f"{_tag(key)} is no object of a compile cache")
        value = self._ask(partial(self._registry.blob, layer.digest, agent.LARGEST))
        if value is not None and named_digest(value) != layer.digest:
            raise self._nonsense(f"for {_tag(key)} it sends other bytes than {layer.digest}")
        return value

    def has(self, key: str) -> bool:
        """See ``ports.CompileCache.has``."""
        return self._ask(partial(self._registry.manifest, _tag(key))) is not None

    def put(self, key: str, value: bytes) -> None:
        """See ``ports.CompileCache.put``. The manifest is written last."""
        self._ask(partial(self._put, key, value))

    def usage(self) -> tuple[int, int]:
        """See ``ports.CompileCache.usage``. Every manifest is read."""
        manifests = (
            self._ask(partial(self._registry.manifest, tag)) for tag in self._ask(self._registry.tags)
        )
        layers = (_layer(manifest) for manifest in manifests if manifest is not None)
        sizes = [layer.size for layer in layers if layer]
        return len(sizes), sum(sizes)

    def _put(self, key: str, value: bytes) -> None:
        layer = self._registry.put_blob(value, BYTES_TYPE)
        self._registry.put_manifest(_tag(key), artifact(_OBJECT, self._config, [layer], {}))

    @cached_property
    def _config(self) -> dict[str, object]:
        return self._registry.put_empty()

    def _ask(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except RefusedError as error:
            raise ValidationError(f"{self.name} refuses", cause=error.cause, advice=error.advice) from error

    def _nonsense(self, cause: str) -> TransferError:
        advice = "Remove the tag, or the repository: its objects are compiled again."
        return TransferError(f"{self.name} does not return what was stored there", cause=cause, advice=advice)


def _tag(key: str) -> str:
    return key.replace("/", "-")


def _is_manifest(data: bytes) -> bool:
    try:
        _Any.model_validate_json(data)
    except ValueError:
        return False
    return True


def _layer(manifest: bytes) -> _Layer | None:
    """Return the layer of an object; ``None`` for the manifest of anything else."""
    try:
        found = _Object.model_validate_json(manifest)
    except ValueError:
        return None
    return found.layers[0] if found.kind == _OBJECT else None
