"""Fixtures of the referees, which are installed once a session; without them their tests are skipped.

GitHub's OpenAPI description is reduced to releases and tags: from 13 MB to 0.2 MB, with which Prism starts
within a second.
"""

import json
from collections.abc import Iterator, Mapping
from copy import deepcopy
from itertools import chain

import pytest

from builder.io.wiring import Wiring
from tests.referees.install import Referees, UnavailableError, install
from tests.referees.openapi import Json, at, json_object
from tests.support import ROOT

_REPOSITORY = "/repos/{owner}/{repo}"
_RELEASES = f"{_REPOSITORY}/releases"
_ASSET = f"{_RELEASES}/assets/{{asset_id}}"
_BESIDE = {
    f"{_REPOSITORY}/immutable-releases",
    f"{_REPOSITORY}/git/ref/{{ref}}",
    f"{_REPOSITORY}/git/tags/{{tag_sha}}",
}
_OWN_JSON = "application/vnd.github+json"
_BYTES = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}, "example": "bytes"}}


def cut(whole: Json) -> Json:
    """Return the description of a repository, its releases and their tags, with all components they refer to.

    The result differs in three rules: a request's body may have only properties that GitHub names; answers
    have GitHub's own media type for JSON too (docs.github.com, "Getting started with the REST API"); an
    asset can be answered as bytes ("Get a release asset").
    """
    paths = {path: item for path, item in json_object(whole["paths"]).items() if _wanted(path)}
    kept = {"paths": paths, "components": _reached(json_object(whole["components"]), paths)}
    description = {**{key: whole[key] for key in ("openapi", "info", "servers")}, **deepcopy(kept)}
    for operation in _operations(description):
        _name_every_property(operation)
    for content in _json_contents(description):
        content[_OWN_JSON] = content["application/json"]
    if _ASSET in paths:
        at(description, "paths", _ASSET, "get", "responses", "200", "content").update(_BYTES)
    return description


def _wanted(path: str) -> bool:
    return path in {_REPOSITORY, _RELEASES, *_BESIDE} or path.startswith(f"{_RELEASES}/")


def _reached(components: Mapping[str, object], paths: object) -> Json:
    """Return the components that ``paths`` refer to, directly or through other components."""
    kept: dict[str, Json] = {}
    waiting = list(_references(paths))
    while waiting:
        _, _, kind, name = waiting.pop().split("/")
        if name in kept.setdefault(kind, {}):
            continue
        kept[kind][name] = json_object(components[kind])[name]
        waiting += _references(kept[kind][name])
    return {**kept}


def _references(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for item in value.values():
            yield from _references(item)
    elif isinstance(value, list):
        for item in value:
            yield from _references(item)


def _operations(description: Json) -> Iterator[Json]:
    for item in json_object(description["paths"]).values():
        yield from (json_object(value) for value in json_object(item).values() if isinstance(value, dict))


def _name_every_property(operation: Json) -> None:
    for media in json_object(json_object(operation.get("requestBody", {})).get("content", {})).values():
        schema = at(json_object(media), "schema")
        if schema.get("type") == "object":
            schema["additionalProperties"] = False


def _json_contents(description: Json) -> Iterator[Json]:
    """Yield the contents, by media type, of each answer that can be JSON."""
    shared = json_object(json_object(description["components"]).get("responses", {})).values()
    stated = (json_object(operation["responses"]).values() for operation in _operations(description))
    for response in chain(shared, *stated):
        content = json_object(json_object(response).get("content", {}))
        if "application/json" in content:
            yield content


@pytest.fixture(scope="session")
def referees() -> Referees:
    shop = Wiring(ROOT)
    try:
        return install(shop.cache, shop.env)
    except UnavailableError as error:
        pytest.skip(f"the referees cannot be had: {error}")


@pytest.fixture(scope="session")
def description(referees: Referees) -> Json:
    """Return the part of GitHub's OpenAPI description that concerns releases."""
    return cut(json.loads(referees.description.read_bytes()))
