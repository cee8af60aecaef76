"""The routes ``/embed``, ``/v1/embeddings``, ``/add`` and ``/search``, and what belongs to them."""

from __future__ import annotations

import base64
import sys
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import orjson
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ortpacks_service import VERSION, forms
from ortpacks_service.bodies import (
    Body,
    JsonObject,
    count_of,
    json_answer,
    object_of,
    require_fields,
    texts_of,
)
from ortpacks_service.embedding import Embeddings
from ortpacks_service.errors import RequestError, shown
from ortpacks_service.service import Service
from ortpacks_service.store import Entry

_MOST_FOUND, _MOST_ID = 1000, (1 << 63) - 1

_OK, _WHOLE = "float", "base64"
"""OpenAI's values of ``encoding_format``: numbers, or little-endian float32 in base64."""

_ONLY = {
    "prompt_name": ((), "prompts are not kept here. Put the prompt before each text."),
    "truncation_direction": (("right", "Right"), "a long text can lose its end only: right"),
}
"""Fields of Text Embeddings Inference that have no other values here, these, and why."""

_CUT = "Ortpacks-Truncated"
"""The header with the places of texts that were cut, for answers that have no field for them."""

_TOKENS = (
    "input: numbers of tokens are not taken, as each model has its own; texts are wanted. LangChain's "
    "OpenAIEmbeddings sends texts with check_embedding_ctx_length=False."
)


async def _embedded(service: Service, body: JsonObject, texts: Sequence[str]) -> tuple[Embeddings, list[int]]:
    """Return the texts' vectors, and the places of those that were cut.

    Raises ``RequestError`` where the request wants none cut.
    """
    truncate = body.get("truncate")
    if not isinstance(truncate, bool | None):
        raise RequestError("truncate: true or false is wanted")
    dimensions = service.ready_embedder().dimensions
    if body.get("dimensions") not in (None, dimensions):
        raise RequestError(f"dimensions: {service.embedder_name} has {dimensions}; vectors are not shortened")
    body.body.grow(len(texts) * dimensions * np.float32().nbytes)
    found = await service.embed(texts)
    places = [int(at) for at in np.flatnonzero(found.cut)]
    if places and truncate is False:
        raise RequestError(
            f"text {places[0]}, counted from 0, has more than {service.ready_embedder().most_tokens} tokens, "
            f"the most that {service.embedder_name} takes. Shorten it, or let it be cut with truncate: true.",
            413,
        )
    return found, places


async def embed(request: Request) -> Response:
    """Answer ``{"texts": text or [text, …]}`` with ``{"embeddings": [[…], …], …}``."""
    service: Service = request.app.state.service
    body = await object_of(request)
    if "inputs" in body:
        return await _tei(service, body)
    require_fields(body, forms.EmbedRequest)
    found, places = await _embedded(service, body, texts_of(body, "texts", service.options.texts))
    answer: forms.EmbedAnswer = {
        "embeddings": cast("forms.Vectors", found.vectors),
        "dimensions": found.vectors.shape[1],
        "model": service.embedder_name,
        "provider": service.models.session(service.embedder_name).report.provider,
        "truncated": places,
    }
    return json_answer(answer, body.body)


async def tei_embed(request: Request) -> Response:
    """Answer the ``POST /`` of Text Embeddings Inference."""
    return await _tei(request.app.state.service, await object_of(request))


async def _tei(service: Service, body: JsonObject) -> Response:
    require_fields(body, forms.TeiRequest)
    for name, (allowed, why) in _ONLY.items():
        if body.get(name) not in (None, *allowed):
            raise RequestError(f"{name}: {why}")
    if not isinstance(body.get("normalize"), bool | None):
        raise RequestError("normalize: true or false is wanted")
    found, places = await _embedded(service, body, texts_of(body, "inputs", service.options.texts))
    vectors = found.vectors * found.lengths[:, None] if body.get("normalize") is False else found.vectors
    return json_answer(vectors, body.body, {_CUT: ",".join(map(str, places))} if places else {})


async def tei_info(request: Request) -> Response:
    """Answer the ``GET /info`` of Text Embeddings Inference."""
    service: Service = request.app.state.service
    embedder, options = service.ready_embedder(), service.options
    dtype = service.models.session(service.embedder_name).report.dtype or "float32"
    model: dict[str, Any] = {"model_id": service.embedder_name, "model_dtype": dtype}
    model |= {"model_type": {"embedding": {"pooling": "mean"}}, "max_input_length": embedder.most_tokens}
    limits = {"max_client_batch_size": options.texts, "max_batch_requests": options.batch}
    return JSONResponse({**model, **limits, "auto_truncate": True, "version": VERSION})


async def openai_embeddings(request: Request) -> Response:
    """Answer OpenAI's ``POST /v1/embeddings``."""
    service: Service = request.app.state.service
    body = await object_of(request)
    _require_known(body, service)
    texts = texts_of(body, "input", service.options.texts)
    encoded = body.get("encoding_format") == _WHOLE
    found, places = await _embedded(service, body, texts)
    tokens, vectors = int(found.tokens.sum()), found.vectors
    each = [base64.b64encode(one.tobytes()).decode() for one in vectors] if encoded else vectors
    answer: forms.OpenaiAnswer = {
        "object": "list",
        "data": [{"object": "embedding", "index": at, "embedding": one} for at, one in enumerate(each)],
        "model": service.embedder_name,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        "truncated": places,
    }
    return json_answer(answer, body.body)


def _require_known(body: Mapping[str, Any], service: Service) -> None:
    require_fields(body, forms.OpenaiRequest)
    given = body.get("input")
    _require_name(body.get("model"), service)
    if body.get("encoding_format") not in (None, _OK, _WHOLE):
        raise RequestError(f"encoding_format: {_OK} or {_WHOLE} is wanted")
    if isinstance(given, list) and given and isinstance(given[0], int | list):
        raise RequestError(_TOKENS)


def _require_name(name: object, service: Service) -> None:
    if name not in (None, *service.model_names):
        names = ", ".join(service.model_names)
        what = f"model: {shown(name)[:100]!r} is not served here; {names} is. --aliases adds names."
        raise RequestError(what, 404)


def _openai_model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "ortpacks"}


async def openai_models(request: Request) -> Response:
    """Answer OpenAI's ``GET /v1/models`` with the names of the model of ``/v1/embeddings``."""
    names = request.app.state.service.model_names
    return JSONResponse({"object": "list", "data": [_openai_model(name) for name in names]})


async def openai_model(request: Request) -> Response:
    """Answer OpenAI's ``GET /v1/models/NAME``."""
    name = request.path_params["name"]
    _require_name(name, request.app.state.service)
    return JSONResponse(_openai_model(name))


async def add(request: Request) -> Response:
    """Answer ``{"texts": …}`` with ``{"ids": [1, 2, …]}``, after the texts are on disk."""
    service: Service = request.app.state.service
    body = await object_of(request, changes=True)
    require_fields(body, forms.AddRequest)
    texts = texts_of(body, "texts", service.options.texts)
    keys = _each(body, "keys", len(texts), str)
    metadata = [None if one is None else _json(one) for one in _each(body, "metadata", len(texts), dict)]
    body.body.grow(sum(map(sys.getsizeof, metadata)))
    if len(set(keys)) < len(keys) - keys.count(None):
        raise RequestError("keys: one is there twice")
    entries = [Entry(*entry) for entry in zip(texts, keys, metadata, strict=True)]
    found, places = await _embedded(service, body, texts)
    ids = await service.in_store(lambda store: store.add(entries, found.vectors))
    return json_answer(forms.AddAnswer(ids=ids, truncated=places), body.body)


def _json(metadata: Mapping[str, Any]) -> str:
    try:
        return orjson.dumps(metadata).decode()
    except orjson.JSONEncodeError as error:  # reads deeper than it writes
        raise RequestError("metadata: at most 254 objects and lists within each other are kept") from error


def _each(body: Mapping[str, Any], key: str, count: int, kind: type) -> list[Any]:
    """Return a list under ``key`` with an entry, or ``None``, for each of ``count`` texts."""
    given = body.get(key)
    if given is None:
        return [None] * count
    if not isinstance(given, list) or not all(one is None or isinstance(one, kind) for one in given):
        raise RequestError(f"{key}: a list of {'texts' if kind is str else 'objects'} is wanted")
    if len(given) != count:
        raise RequestError(f"{key}: {len(given)} for {count} texts; one for each is wanted")
    return given


async def delete(request: Request) -> Response:
    """Answer ``{"ids": […], "keys": […]}`` with the numbers of the texts that are deleted."""
    service: Service = request.app.state.service
    body = await object_of(request, changes=True)
    require_fields(body, forms.DeleteRequest)
    ids, keys = body.get("ids") or [], body.get("keys") or []
    whole = isinstance(ids, list) and all(type(one) is int and 0 < one <= _MOST_ID for one in ids)
    if not whole or not isinstance(keys, list) or not all(isinstance(one, str) for one in keys):
        raise RequestError("ids: a list of numbers is wanted, or keys: a list of texts")
    if not 0 < len(ids) + len(keys) <= service.options.texts:
        raise RequestError(f"ids, keys: 1 to {service.options.texts} together are wanted (--texts)")
    return json_answer({"deleted": await service.in_store(lambda store: store.delete(ids, keys))}, body.body)


async def texts(request: Request) -> Response:
    """Answer ``?after=0&limit=100`` with stored texts in the order of their numbers."""
    service: Service = request.app.state.service
    given = request.query_params.items()
    asked = {name: int(text) if text.isdecimal() and len(text) < 20 else text for name, text in given}  # noqa: PLR2004
    require_fields(asked, forms.TextsQuery)
    after, limit = count_of(asked, "after", 0, _MOST_ID, 0), count_of(asked, "limit", 100, _MOST_FOUND)
    counted = Body(service.bodies)
    found = await service.in_store(lambda store: store.texts(after, limit, counted.grow))
    following = found[-1]["id"] if len(found) == limit else None
    answer: forms.TextsAnswer = {"texts": cast("Any", found), "next": following}
    return json_answer(answer, counted)


async def search(request: Request) -> Response:
    """Answer ``{"text": …, "k": 5}`` with ``{"results": [{"id", "text", "score"}, …]}``, nearest first."""
    service: Service = request.app.state.service
    body = await object_of(request)
    require_fields(body, forms.SearchRequest)
    if not isinstance(body.get("text", ""), str):
        raise RequestError("text: a text is wanted")
    count = count_of(body, "k", 5, _MOST_FOUND)
    found, places = await _embedded(service, body, texts_of(body, "text", 1))
    nearest = await service.in_store(lambda store: store.search(found.vectors[0], count, body.body.grow))
    return json_answer({"results": nearest, "truncated": places}, body.body)


ROUTES = [
    Route("/embed", embed, methods=["POST"]),
    Route("/", tei_embed, methods=["POST"]),
    Route("/info", tei_info),
    Route("/v1/embeddings", openai_embeddings, methods=["POST"]),
    Route("/v1/models", openai_models),
    Route("/v1/models/{name:path}", openai_model),
    Route("/add", add, methods=["POST"]),
    Route("/delete", delete, methods=["POST"]),
    Route("/texts", texts),
    Route("/search", search, methods=["POST"]),
]
