"""Tests of ``/openapi.json``: it is made of the routes and their types, and real answers have these types.

``.venv/bin/python -m pytest tests/component/service/test_openapi.py --golden`` writes it anew.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from jsonschema_rs import Draft202012Validator
from ortpacks_service import VERSION
from ortpacks_service.app import make_app
from ortpacks_service.forms import FORMS
from ortpacks_service.options import EMBEDDER, read_options
from pydantic import TypeAdapter
from starlette.routing import Route
from starlette.testclient import TestClient

from tests.component.service.conftest import Start
from tests.support import ROOT

FILE = ROOT / "service/ortpacks_service/openapi.json"

REF = "#/components/schemas/{model}"


def operations(models: Path) -> Iterator[tuple[str, str, Route]]:
    """Yield method, path and route of everything that the application serves."""
    for route in make_app(read_options(["--models", str(models)], {})).routes:
        assert isinstance(route, Route)
        for method in sorted((route.methods or set()) - {"HEAD"}):
            yield method, route.path, route


def document(models: Path) -> dict[str, Any]:
    adapters = {
        (name, side): TypeAdapter(kind)
        for name, sides in FORMS.items()
        for side, kind in zip(("request", "answer"), sides, strict=True)
        if kind is not None
    }
    mode: Literal["validation"] = "validation"
    schemas, common = TypeAdapter.json_schemas(
        [(key, mode, adapter) for key, adapter in adapters.items()], ref_template=REF
    )
    paths: dict[str, dict[str, Any]] = {}
    for method, path, route in operations(models):
        name = f"{method} {path}"
        operation: dict[str, Any] = {"responses": {"200": {"description": "the answer"}}}
        if told := inspect.getdoc(route.endpoint):
            operation["summary"] = told.splitlines()[0]
        operation["parameters"] = [
            {"name": one.partition(":")[0], "in": "path", "required": True, "schema": {"type": "string"}}
            for one in route.param_convertors
        ]
        answer = schemas.get(((name, "answer"), "validation"))
        if answer:
            operation["responses"]["200"]["content"] = {"application/json": {"schema": answer}}
        request = schemas.get(((name, "request"), "validation"))
        if request and method == "POST":
            operation["requestBody"] = {
                "required": True,
                "content": {"application/json": {"schema": request}},
            }
        elif request:
            properties = common["$defs"][request["$ref"].rpartition("/")[2]]["properties"]
            operation["parameters"] += [
                {"name": key, "in": "query", "schema": value} for key, value in properties.items()
            ]
        paths.setdefault(path.replace(":path", ""), {})[method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "ortpacks service", "version": VERSION},
        "security": [{"key": []}],
        "paths": paths,
        "components": {
            "schemas": common["$defs"],
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def test_the_description_is_that_of_the_routes_and_their_types(
    models: Path, request: pytest.FixtureRequest
) -> None:
    text = json.dumps(document(models), indent=1) + "\n"
    if request.config.getoption("--golden"):
        FILE.write_text(text)
    assert FILE.read_text() == text
    assert set(FORMS) <= {f"{method} {path}" for method, path, _ in operations(models)}


ASKED: list[tuple[str, dict[str, Any] | None]] = [
    ("/embed", {"texts": ["east", "north"], "truncate": True}),
    ("/embed", {"inputs": "east", "normalize": False}),
    ("/", {"inputs": ["east"]}),
    ("/info", None),
    ("/v1/embeddings", {"input": "east", "model": EMBEDDER}),
    ("/v1/embeddings", {"input": ["east"], "encoding_format": "base64"}),
    ("/v1/models", None),
    ("/v1/models/{name}", None),
    ("/add", {"texts": ["east", "north"], "keys": ["e", "n"], "metadata": [{"a": 1}, None]}),
    ("/texts", None),
    ("/search", {"text": "east", "k": 1}),
    ("/delete", {"ids": [1], "keys": ["n"]}),
    ("/readyz", None),
]


def test_requests_and_answers_have_the_forms_that_are_described(start: Start) -> None:
    service = start()
    described = service.get("/openapi.json").json()
    for path, body in ASKED:
        url, method = path.replace("{name}", EMBEDDER), "get" if body is None else "post"
        operation = described["paths"][path][method]
        if body is not None:
            of(described, operation["requestBody"]).validate(body)
        answer = asked(service, url, body)
        of(described, operation["responses"]["200"]).validate(answer)
    assert {f"{'POST' if body else 'GET'} {path}" for path, body in ASKED} == {
        name.replace(":path", "") for name in FORMS
    }


def of(described: dict[str, Any], part: dict[str, Any]) -> Draft202012Validator:
    return Draft202012Validator(
        {**part["content"]["application/json"]["schema"], "components": described["components"]}
    )


def asked(service: TestClient, url: str, body: object) -> object:
    answer = service.get(url) if body is None else service.post(url, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()
