"""Queries of an OpenAPI description: the parameters of a request, and the validity of an answer."""

import re
from typing import cast

from jsonschema_rs import Draft4Validator

Json = dict[str, object]


def template(description: Json, path: str) -> str:
    """Return the description's path with the fewest placeholders that ``path`` matches; empty for none."""
    fits = [item for item in json_object(description["paths"]) if re.fullmatch(_pattern(item), path)]
    return min(fits, key=lambda item: item.count("{"), default="")


def query_names(description: Json, method: str, path: str) -> set[str]:
    """Return the names of an operation's query parameters. ``path`` is one of the description."""
    stated = cast("list[Json]", at(description, "paths", path, method.lower()).get("parameters", []))
    resolved = [_resolved(description, item) for item in stated]
    return {str(item["name"]) for item in resolved if item["in"] == "query"}


def misfits(description: Json, method: str, path: str, status: int, answer: object) -> list[str]:
    """Return a JSON answer's differences from the description; formats (dates, addresses) are ignored."""
    responses = at(description, "paths", path, method.lower(), "responses")
    if str(status) not in responses:
        return [f"{status} is no answer to {method} {path}"]
    content = _resolved(description, at(responses, str(status))).get("content", {})
    if "application/json" not in json_object(content):
        return []
    schema = {
        **at(json_object(content), "application/json", "schema"),
        "components": description["components"],
    }
    found = Draft4Validator(cast("Json", _nulls_spelt_out(schema))).iter_errors(answer)
    return sorted(f"{'/'.join(map(str, error.instance_path))}: {error.message}" for error in found)


def at(value: Json, *keys: str) -> Json:
    """Return the object at the path ``keys`` in ``value``."""
    for key in keys:
        value = json_object(value[key])
    return value


def json_object(value: object) -> Json:
    """Return ``value``, which must be a JSON object."""
    assert isinstance(value, dict), f"an object was wanted: {value!r}"
    return value


def _nulls_spelt_out(schema: object) -> object:
    """Return the schema with ``nullable``, which JSON Schema lacks, written as ``anyOf`` with null."""
    if isinstance(schema, list):
        return [_nulls_spelt_out(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {key: _nulls_spelt_out(value) for key, value in schema.items() if key != "nullable"}
    return {"anyOf": [plain, {"type": "null"}]} if schema.get("nullable") is True else plain


def _pattern(path: str) -> str:
    return re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(path))


def _resolved(description: Json, value: Json) -> Json:
    reference = value.get("$ref")
    return at(description, *str(reference).split("/")[1:]) if reference else value
