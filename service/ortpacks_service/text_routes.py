"""The routes ``/embed``, ``/v1/embeddings``, ``/add`` and ``/search``."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ortpacks_service.bodies import count_of, object_of, texts_of
from ortpacks_service.errors import RequestError, shown
from ortpacks_service.service import Service

_MOST_FOUND = 1000

_OK, _WHOLE = "float", "base64"
"""OpenAI's values of ``encoding_format``: numbers, or little-endian float32 in base64."""


def _json(value: object) -> Response:
    return Response(orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY), media_type="application/json")


async def embed(request: Request) -> Response:
    """Answer ``{"texts": text or [text, …]}`` with ``{"embeddings": [[…], …], …}``."""
    service: Service = request.app.state.service
    body = await object_of(request)  # it counts as memory up to the answer
    texts = texts_of(body, "texts", service.options.texts)
    found = await service.embed(texts)
    return _json(
        {
            "embeddings": found.vectors,
            "dimensions": found.vectors.shape[1],
            "model": service.embedder_name,
            "provider": service.models.session(service.embedder_name).report.provider,
        }
    )


async def openai_embeddings(request: Request) -> Response:
    """Answer OpenAI's ``POST /v1/embeddings``."""
    service: Service = request.app.state.service
    body = await object_of(request)
    _require_known(body, service)
    texts = texts_of(body, "input", service.options.texts)
    encoded = body.get("encoding_format") == _WHOLE
    found = await service.embed(texts)
    if body.get("dimensions") not in (None, found.vectors.shape[1]):
        raise RequestError(f"dimensions: {service.embedder_name} has {found.vectors.shape[1]}")
    tokens = int(found.tokens.sum())
    data = [
        {
            "object": "embedding",
            "index": at,
            "embedding": base64.b64encode(vector.tobytes()).decode() if encoded else vector,
        }
        for at, vector in enumerate(found.vectors)
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return _json({"object": "list", "data": data, "model": service.embedder_name, "usage": usage})


def _require_known(body: Mapping[str, Any], service: Service) -> None:
    model = body.get("model")
    if model not in (None, service.embedder_name):
        raise RequestError(
            f"model: {shown(model)[:100]!r} is not served here; {service.embedder_name} is", 404
        )
    if body.get("encoding_format") not in (None, _OK, _WHOLE):
        raise RequestError(f"encoding_format: {_OK} or {_WHOLE} is wanted")


async def openai_models(request: Request) -> Response:
    """Answer OpenAI's ``GET /v1/models`` with the model of ``/v1/embeddings``."""
    name = request.app.state.service.embedder_name
    listed = {"id": name, "object": "model", "created": 0, "owned_by": "ortpacks"}
    return _json({"object": "list", "data": [listed]})


async def add(request: Request) -> Response:
    """Answer ``{"texts": …}`` with ``{"ids": [1, 2, …]}``, after the texts are on disk."""
    service: Service = request.app.state.service
    body = await object_of(request)  # it counts as memory up to the answer
    texts = texts_of(body, "texts", service.options.texts)
    found = await service.embed(texts)
    return _json({"ids": await service.in_store(lambda store: store.add(texts, found.vectors))})


async def search(request: Request) -> Response:
    """Answer ``{"text": …, "k": 5}`` with ``{"results": [{"id", "text", "score"}, …]}``, nearest first."""
    service: Service = request.app.state.service
    body = await object_of(request)
    if not isinstance(body.get("text", ""), str):
        raise RequestError("text: a text is wanted")
    count = count_of(body, "k", 5, _MOST_FOUND)
    found = await service.embed(texts_of(body, "text", 1))
    nearest = await service.in_store(lambda store: store.search(found.vectors[0], count))
    return _json({"results": nearest})


ROUTES = [
    Route("/embed", embed, methods=["POST"]),
    Route("/v1/embeddings", openai_embeddings, methods=["POST"]),
    Route("/v1/models", openai_models),
    Route("/add", add, methods=["POST"]),
    Route("/search", search, methods=["POST"]),
]
