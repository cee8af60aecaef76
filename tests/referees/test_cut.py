"""Tests of cutting an OpenAPI description and of its lookups, with a short description."""

from __future__ import annotations

import pytest

from tests.referees.cut import cut
from tests.referees.openapi import Json, misfits, query_names, template

ROOT = "/repos/{owner}/{repo}"


def ref(kind: str, name: str) -> Json:
    return {"$ref": f"#/components/{kind}/{name}"}


def answers(**by_status: Json) -> Json:
    return {status.strip("_"): answer for status, answer in by_status.items()}


def json_of(schema: Json) -> Json:
    return {"content": {"application/json": {"schema": schema}}}


def whole() -> Json:
    listed: Json = {
        "parameters": [ref("parameters", "page"), {"name": "owner", "in": "path"}],
        "responses": answers(_200=json_of({"type": "array", "items": ref("schemas", "release")})),
    }
    made: Json = {
        "requestBody": json_of({"type": "object", "properties": {"tag_name": {"type": "string"}}}),
        "responses": answers(_201=json_of(ref("schemas", "release")), _422=ref("responses", "invalid")),
    }
    asset: Json = {"get": {"responses": answers(_200=json_of({"type": "object"}), _302={"description": ""})}}
    return {
        "openapi": "3.0.3",
        "info": {},
        "servers": [],
        "tags": ["left out"],
        "paths": {
            f"{ROOT}/issues": {"get": {"responses": answers(_200=json_of(ref("schemas", "issue")))}},
            f"{ROOT}/releases": {"get": listed, "post": made},
            f"{ROOT}/releases/{{release_id}}": {"get": {"responses": {}}},
            f"{ROOT}/releases/latest": {"get": {"responses": {}}},
            f"{ROOT}/releases/assets/{{asset_id}}": asset,
        },
        "components": {
            "parameters": {"page": {"name": "page", "in": "query"}, "unused": {}},
            "responses": {"invalid": json_of({"type": "object", "required": ["message"]})},
            "schemas": {
                "issue": {},
                "release": {
                    "type": "object",
                    "required": ["id", "author"],
                    "properties": {"id": {"type": "integer"}, "author": ref("schemas", "user")},
                },
                "user": {"type": "object", "nullable": True, "required": ["login"]},
            },
        },
    }


@pytest.fixture
def description() -> Json:
    return cut(whole())


def test_what_releases_refer_to_stays_and_nothing_else(description: Json) -> None:
    paths, components = description["paths"], description["components"]
    assert isinstance(paths, dict)
    assert isinstance(components, dict)
    assert f"{ROOT}/issues" not in paths
    assert {kind: sorted(items) for kind, items in components.items()} == {
        "parameters": ["page"],
        "responses": ["invalid"],
        "schemas": ["release", "user"],
    }
    assert "tags" not in description


def test_the_whole_description_is_left_as_it_was(description: Json) -> None:
    first = whole()
    cut(first)
    assert first == whole()


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/repos/o/r/releases", f"{ROOT}/releases"),
        ("/repos/o/r/releases/7", f"{ROOT}/releases/{{release_id}}"),
        ("/repos/o/r/releases/latest", f"{ROOT}/releases/latest"),
        ("/repos/o/r/releases/7/8", ""),
    ],
)
def test_a_path_is_told_by_its_words(description: Json, path: str, found: str) -> None:
    assert template(description, path) == found


def test_only_query_parameters_are_named(description: Json) -> None:
    assert query_names(description, "GET", f"{ROOT}/releases") == {"page"}


@pytest.mark.parametrize(
    ("status", "answer", "said"),
    [
        (201, {"id": 1, "author": {"login": "octocat"}}, []),
        (201, {"id": 1, "author": None}, []),
        (201, {"id": None, "author": None}, ['id: null is not of type "integer"']),
        (201, {"id": 1}, [': "author" is a required property']),
        (422, {}, [': "message" is a required property']),
        (500, {}, [f"500 is no answer to POST {ROOT}/releases"]),
    ],
)
def test_an_answer_is_held_to_its_schema(
    description: Json, status: int, answer: Json, said: list[str]
) -> None:
    assert misfits(description, "POST", f"{ROOT}/releases", status, answer) == said


def test_a_redirect_has_no_json_to_look_at(description: Json) -> None:
    assert misfits(description, "GET", f"{ROOT}/releases/assets/{{asset_id}}", 302, None) == []
