"""Tests of who may ask: names of the service, pages of other sites, forms of browsers, and keys."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from ortpacks_service.app import make_app
from ortpacks_service.options import read_options
from starlette.testclient import TestClient

from tests.component.service.conftest import Start, Told, opened
from tests.support.service import write_embedder
from tests.support.tables import table

EVIL, KEY = "evil.example", "sk-1"

NAMED = ("--allowed-hosts", "ai.example.com, *.cluster.local")


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, TestClient]]:
    """Return a service with the defaults, one with names, one for any name, and one with keys."""
    folder = tmp_path_factory.mktemp("access")
    write_embedder(folder / "models" / "all-MiniLM-L6-v2")
    with ExitStack() as stack:

        def start(*flags: str, **env: str) -> TestClient:
            return stack.enter_context(opened(folder / "models", folder / "data", *flags, **env))

        yield {
            "plain": start(),
            "named": start(*NAMED),
            "any": start("--allowed-hosts", "*"),
            "keys": start(ORTPACKS_API_KEY=f"other,{KEY}"),
            "open": start("--metrics", "open", ORTPACKS_API_KEY=KEY),
        }


@pytest.mark.parametrize(("kind", "status", "headers"), table("service/who-may-ask.txt"))
def test_who_may_store_a_text(services: dict[str, TestClient], kind: str, status: str, headers: str) -> None:
    given = [(name.encode(), value.encode("latin-1")) for name, value in json.loads(headers).items()]
    answer = services[kind].post("/add", json={"texts": "east"}, headers=given)
    assert answer.status_code == int(status), answer.text


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""]
)
def test_what_a_page_may_send_unasked_changes_nothing(
    services: dict[str, TestClient], told: Told, kind: str
) -> None:
    before = services["plain"].get("/texts").json()
    given = [("/add", {"texts": "north"}), ("/delete", {"ids": [1]})]
    headers = {"Content-Type": kind}
    answers = [
        services["plain"].post(path, content=json.dumps(body), headers=headers) for path, body in given
    ]
    assert [answer.status_code for answer in answers] == [415, 415]
    told(answers[0].text)
    assert services["plain"].get("/texts").json() == before


@pytest.mark.parametrize("headers", [{"Host": EVIL}, {"Origin": f"https://{EVIL}"}, {}], ids=str)
def test_a_refusal_says_what_to_do(
    services: dict[str, TestClient], told: Told, headers: dict[str, str]
) -> None:
    answer = services["plain" if headers else "keys"].get("/texts", headers=headers)
    assert ("www-authenticate" in answer.headers) == (answer.status_code == 401)
    told(answer.text)


def test_what_is_open_without_a_key(services: dict[str, TestClient]) -> None:
    """Probes are, and the page; what they tell has no name of a model or a folder."""
    paths = [route.path for route in services["keys"].app.routes]  # type: ignore[attr-defined]
    given = [path for path in dict.fromkeys(paths) if services["keys"].get(path).status_code != 401]
    health = ["/ping", "/healthz", "/health", "/readyz", "/v2/health/live", "/v2/health/ready"]
    assert sorted(given) == sorted(["/", "/openapi.json", *health])
    assert services["keys"].post("/", json={"inputs": "east"}).status_code == 401
    assert services["keys"].get("/readyz").json() == {"ready": True}
    assert services["open"].get("/metrics").status_code == 200
    assert services["keys"].get("/").headers["content-security-policy"] == "frame-ancestors 'none'"


@pytest.mark.parametrize("keys", ["", " , ", "a b", "\xe9"])
def test_keys_that_protect_nothing_are_refused(
    models: Path, capsys: pytest.CaptureFixture[str], told: Told, keys: str
) -> None:
    with pytest.raises(SystemExit, match="2"):
        read_options(["--models", str(models)], {"ORTPACKS_API_KEY": keys})
    told(capsys.readouterr().err.splitlines()[-1])
    options = read_options(["--models", str(models)], {"ORTPACKS_API_KEY": "secret"})
    assert "secret" not in repr(options)
    assert make_app(options).state.access.has_key({"type": "http", "headers": []}) is False


def test_no_answer_leads_to_another_host(start: Start) -> None:
    answer = start("--allowed-hosts", "*").post("/embed/", headers={"Host": EVIL}, follow_redirects=False)
    assert (answer.status_code, "location" in answer.headers) == (404, False)
