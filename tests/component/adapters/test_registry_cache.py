"""Tests of a compile cache in a registry: the stored artifacts, and the faults of registries.

``tests/integration/test_compile_caches`` tests with Debian's ``docker-registry``.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path

import pytest

from builder.adapters.shared_cache.compile_cache import compile_cache
from builder.errors import TransferError, ValidationError
from builder.formats.oci import TAG_FORM
from builder.ports import CompileCache, CompileCaches
from tests.component.adapters.test_compile_cache import KEY, ccache
from tests.doubles.registry import Handler, Served, digest
from tests.support.fakes.ports import FakeReporter

TAG = "ab-cdefghijklmnopqrstuvwxyz01234"

VALUE = bytes(range(256)) * 100

READS = ("manifest", "blob")
"""Routes of the requests of ``get``."""


@pytest.fixture(autouse=True)
def docker_config(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return the path of Docker's configuration, in which no login is stored."""
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    return tmp_path / "config.json"


def cache_on(served: Served) -> CompileCache:
    return compile_cache(f"oci://{served.host}/owner/name", "--into", {})


def asked(served: Served) -> Counter[str]:
    return Counter(route for route, _ in served.requests)


def test_an_object_is_an_artifact_of_one_layer_under_its_keys_tag(served: Served) -> None:
    cache = cache_on(served)
    cache.require()
    assert (cache.get(KEY), cache.has(KEY)) == (None, False)
    cache.put(KEY, VALUE)
    (tag,) = (name for name in served.manifests if ":" not in name)
    assert tag == TAG
    kind, manifest = served.manifests[tag]
    # OCI Image Specification 1.1, "Guidelines for Artifact Usage"
    assert kind == "application/vnd.oci.image.manifest.v1+json"
    assert json.loads(manifest) == {
        "schemaVersion": 2,
        "mediaType": kind,
        "artifactType": "application/vnd.ortpacks.compiled.v1",
        "config": {"mediaType": "application/vnd.oci.empty.v1+json", "digest": digest(b"{}"), "size": 2},
        "layers": [
            {"mediaType": "application/octet-stream", "digest": digest(VALUE), "size": len(VALUE)},
        ],
        "annotations": {},
    }
    assert served.blobs[digest(VALUE)] == VALUE
    assert cache_on(served).get(KEY) == VALUE
    assert cache_on(served).has(KEY)


def test_the_longest_key_is_a_tag() -> None:
    assert TAG_FORM.fullmatch("ab-" + "z" * 100)


def test_the_empty_configuration_is_written_once(served: Served) -> None:
    cache = cache_on(served)
    for number in range(5):
        cache.put(f"ab/objectnumber{number}", b"%d" % number)
    assert asked(served)["put-manifest"] == 5
    assert asked(served)["finish"] == 5 + 1


def test_threads_put_and_get_side_by_side(served: Served) -> None:
    """Threads use the cache as the desk does. The token expires meanwhile and is renewed only once."""
    served.login = "Bearer"
    served.anonymous = True
    cache, keys = cache_on(served), [f"ab/objectnumber{number}" for number in range(60)]
    cache.require()
    served.fail("put-manifest", "expire", skip=20)
    with ThreadPoolExecutor(12) as pool:
        list(pool.map(lambda key: cache.put(key, key.encode() * 1000), keys))
        assert list(pool.map(cache.get, keys)) == [key.encode() * 1000 for key in keys]
    assert cache.usage() == (60, sum(len(key) * 1000 for key in keys))
    assert asked(served)["token"] == 2


def test_only_objects_are_counted_on_every_page_of_tags(served: Served) -> None:
    cache = cache_on(served)
    assert cache.usage() == (0, 0)
    for number in range(7):
        cache.put(f"ab/objectnumber{number}", bytes(number))
    served.image("1", "sha256:1")
    served.hold("zz-nothing", "application/json", b"<html>")
    served.page = 2
    assert cache.usage() == (7, sum(range(7)))
    assert asked(served)["tags"] == 1 + 5


def test_the_next_page_of_tags_is_the_one_that_the_registry_links_to(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Amazon's registry passes its mark in ``last``, Quay's in ``next_page``; neither sorts its tags."""
    cache, asked_for = cache_on(served), []
    pages = {
        "": (
            ["ab-z", TAG],
            "https://elsewhere.invalid/v2/owner/name/tags/list?last=ukD72mdD%2FmC8b%2B%3D%3D",
        ),
        "ukD72mdD/mC8b+==": (["ab-a"], "/v2/owner/name/tags/list?next_page=0123&n=1"),
        "0123": (["zz-nothing"], ""),
    }

    def tags(self: Handler, query: dict[str, list[str]]) -> None:
        mark = query.get("last", query.get("next_page", [""]))[0]
        asked_for.append(mark)
        names, following = pages[mark]
        link = {"Link": f'<{following}>; rel="next"'} if following else {}
        self.answer(200, "application/json", json.dumps({"tags": names}).encode(), link)

    monkeypatch.setattr(Handler, "tags", tags)
    for key in (KEY, "ab/a", "ab/z", "zz/nothing"):
        cache.put(key, VALUE)
    assert cache.usage() == (4, 4 * len(VALUE))
    assert asked_for == [*pages]


@pytest.mark.parametrize("route", ["manifest", "blob"])
def test_an_answer_without_end_is_not_taken_in(
    served: Served, monkeypatch: pytest.MonkeyPatch, route: str
) -> None:
    """An answer is read no further than an object may be long."""
    cache_on(served).put(KEY, VALUE)
    sent = 0

    def endless(self: Handler, *_: object) -> None:
        nonlocal sent
        self.send_response(200)
        self.end_headers()
        while sent < 1 << 30:
            sent += self.wfile.write(bytes(1 << 20))

    if route == "blob":
        monkeypatch.setattr(Handler, "blob", endless)
    else:
        monkeypatch.setattr(
            Handler, "do_GET", lambda self: endless(self) if TAG in self.path else self.answer(200)
        )
    with pytest.raises(TransferError, match=r"is larger than the [0-9,]+ bytes that are read at most"):
        cache_on(served).get(KEY)
    assert sent < 64 << 20


def test_what_is_no_registry_is_told_in_one_line(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    served.login = "Bearer"
    monkeypatch.setattr(
        Handler, "give_token", lambda self, _: self.answer(200, "application/json", b'{"token": ["secret"]}')
    )
    with pytest.raises(TransferError, match="/token is not what a registry answers: ") as caught:
        cache_on(served).require()
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("page", [b"<html>welcome</html>", b"", b"{}", b"[]"])
def test_a_web_server_that_answers_everything_is_no_registry(
    served: Served, monkeypatch: pytest.MonkeyPatch, page: bytes
) -> None:
    """Defect: the error came after the whole compile."""
    monkeypatch.setattr(Handler, "do_GET", lambda self: self.answer(200, "text/html", page))
    with pytest.raises(TransferError, match=r"/owner/name does not answer as a registry: .*\. Check the reg"):
        cache_on(served).require()


def test_a_repository_may_have_any_image_under_any_tag(served: Served) -> None:
    manifest = b'{"schemaVersion": 2, "config": {}, "layers": []}'
    served.hold("latest", "application/vnd.oci.image.manifest.v1+json", manifest)
    cache_on(served).require()


@pytest.mark.parametrize("status", [429, 503])
def test_a_refusal_without_a_reason_is_a_sentence_with_advice(
    served: Served, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    """Defect: the cause ended in ": .", and no advice followed."""
    monkeypatch.setattr(Handler, "do_GET", lambda self: self.answer(status))
    with pytest.raises(
        TransferError, match=rf"was refused: {status} [\w ]+\. Run the same command again later"
    ):
        cache_on(served).require()


def test_a_registry_that_lists_the_same_tags_for_ever_is_asked_twice(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = cache_on(served)
    cache.put(KEY, VALUE)
    listed = json.dumps({"tags": [TAG]}).encode()
    link = {"Link": '</v2/owner/name/tags/list?last=x>; rel="next"'}
    monkeypatch.setattr(
        "tests.doubles.registry.Handler.tags",
        lambda self, query: self.answer(200, "application/json", listed, link),
    )
    assert cache.usage() == (1, len(VALUE))
    assert asked(served)["tags"] == 2


def test_other_bytes_than_the_digests_reach_no_compiler(served: Served) -> None:
    cache = cache_on(served)
    cache.put(KEY, VALUE)
    served.blobs[digest(VALUE)] = VALUE[:-1] + b"!"
    with pytest.raises(
        TransferError,
        match=rf"does not return what was stored there: for {TAG} it sends other bytes than "
        rf"{digest(VALUE)}\. Remove",
    ):
        cache.get(KEY)


@pytest.mark.parametrize(
    "manifest",
    [
        b"<html>",
        b"{}",
        b"[]",
        b'{"artifactType": "application/vnd.ortpacks.release.v1", "layers": [LAYER]}',
        b'{"artifactType": "application/vnd.ortpacks.compiled.v1", "layers": []}',
        b'{"artifactType": "application/vnd.ortpacks.compiled.v1", "layers": [LAYER, LAYER]}',
        b'{"artifactType": "application/vnd.ortpacks.compiled.v1", "layers": [{"digest": "..", "size": 1}]}',
        b'{"artifactType": "application/vnd.ortpacks.compiled.v1", "layers": [{"digest": 1, "size": "x"}]}',
    ],
)
def test_what_is_no_object_is_not_given_to_a_compiler(served: Served, manifest: bytes) -> None:
    layer = json.dumps({"digest": digest(VALUE), "size": len(VALUE)}).encode()
    served.blobs[digest(VALUE)] = VALUE
    served.hold(TAG, "application/json", manifest.replace(b"LAYER", layer))
    with pytest.raises(TransferError, match=f"{TAG} is no object of a compile cache"):
        cache_on(served).get(KEY)


def test_an_object_whose_bytes_the_registry_has_lost_is_made_and_put_again(served: Served) -> None:
    cache = cache_on(served)
    cache.put(KEY, VALUE)
    del served.blobs[digest(VALUE)]
    assert cache.get(KEY) is None
    cache.put(KEY, VALUE)
    assert cache.get(KEY) == VALUE


@pytest.mark.parametrize(
    ("route", "kind"),
    [
        *product([*READS, "begin", "finish", "put-manifest"], ["500", "429", "hangup"]),
        ("blob", "cut"),
    ],
)
def test_a_registry_that_fails_is_told_and_holds_no_half_of_an_object(
    served: Served, route: str, kind: str
) -> None:
    cache = cache_on(served)
    cache.put(KEY, VALUE)
    served.fail(route, kind, times=9, after=5)
    told = rf": \w+ was refused: {kind} " if kind.isdigit() else " does not answer: "
    ask = partial(cache.get, KEY) if route in READS else partial(cache.put, "cd/efghijklmnop", b"made")
    with pytest.raises(TransferError, match=rf"^{served.host}/owner/name{told}"):
        ask()
    assert "cd-efghijklmnop" not in served.manifests


@pytest.mark.parametrize(("login", "password"), [("Basic", None), ("Bearer", "guess")])
def test_a_registry_that_refuses_is_told_with_docker_login(
    served: Served, docker_config: Path, login: str, password: str | None
) -> None:
    served.login = login
    if password:
        kept = {"username": "ada", "password": password}
        docker_config.write_text(json.dumps({"auths": {served.host: kept}}))
    with pytest.raises(ValidationError, match=r"name refuses: 401 .*`docker login 127\.0\.0\.1:") as refused:
        cache_on(served).require()
    assert "guess" not in str(refused.value)
    assert refused.value.exit_code == 2


def test_the_docker_clis_login_opens_it(served: Served, docker_config: Path) -> None:
    served.login = "Bearer"
    config = {"auths": {served.host: {"auth": "YWRhOnNlY3JldA=="}}}  # base64 of ada:secret
    docker_config.write_text(json.dumps(config))
    cache = cache_on(served)
    cache.require()
    cache.put(KEY, VALUE)
    assert cache.get(KEY) == VALUE


def test_who_may_only_read_is_told_once(served: Served) -> None:
    cache_on(served).put(KEY, VALUE)
    served.may_write = False
    reporter = FakeReporter()
    with ccache(CompileCaches(shared=cache_on(served)), reporter) as one:
        assert one.ask("GET", KEY) == (200, VALUE)
        assert one.ask("PUT", "cd/efghijklmnop", b"made") == (201, b"")
    (warned,) = [line for line in reporter.lines if line[0] == "!"]
    assert "name refuses: 403 Forbidden: DENIED" in warned


def test_a_helper_that_keeps_passwords_and_fails_is_told(
    served: Served, docker_config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.login = "Basic"
    helper = docker_config.with_name("docker-credential-locked")
    helper.write_text("#!/bin/sh\necho the keychain is locked; exit 1\n")
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", str(helper.parent), prepend=":")
    docker_config.write_text(json.dumps({"credsStore": "locked"}))
    with pytest.raises(
        TransferError, match=r"name: the login cannot be read: .*keychain is locked.*`docker login"
    ):
        cache_on(served).require()


@pytest.mark.parametrize("realm", ["", "nonsense", "ftp://host"])
def test_a_registry_that_names_no_service_for_tokens_is_told(served: Served, realm: str) -> None:
    served.login, served.realm = "Bearer", realm
    with pytest.raises(TransferError, match=f"the registry names '{realm}' as the place to log in"):
        cache_on(served).require()


def test_a_registry_that_is_silent_is_waited_for_as_long_as_a_compiler_may(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("builder.adapters.shared_cache.compile_cache._SECONDS", 0.2)
    came = threading.Event()
    monkeypatch.setattr(Handler, "do_GET", lambda self: came.wait(9))
    with pytest.raises(TransferError, match=r"does not answer: .*timed out"):
        cache_on(served).require()
    came.set()


def test_a_registry_that_is_not_there_does_not_answer() -> None:
    with pytest.raises(TransferError, match=r"127\.0\.0\.1:1/name does not answer: Connection refused"):
        compile_cache("oci://127.0.0.1:1/name", "--into", {}).require()
