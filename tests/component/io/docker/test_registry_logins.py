"""Tests of where a registry's login may go, with realms that real registries name."""

from __future__ import annotations

import pytest

from builder.io.docker.registry import may_get_login


@pytest.mark.parametrize(
    ("registry", "realm"),
    [
        ("docker.io", "https://auth.docker.io/token"),
        ("ghcr.io", "https://ghcr.io/token"),
        ("quay.io", "https://quay.io/v2/auth"),
        ("nvcr.io", "https://nvcr.io/proxy_auth"),
        ("registry.gitlab.com", "https://gitlab.com/jwt/auth"),
        ("gitlab.example.co.uk:5050", "https://gitlab.example.co.uk/jwt/auth"),
        ("127.0.0.1:5000", "http://127.0.0.1:5001/token"),
        ("Registry.Example.COM", "https://AUTH.example.com"),
    ],
)
def test_a_token_service_of_the_registrys_domain_gets_the_login(registry: str, realm: str) -> None:
    assert may_get_login(realm, registry)


@pytest.mark.parametrize(
    ("registry", "realm"),
    [
        ("ghcr.io", "https://evil.io/token"),
        ("docker.io", "https://auth.docker.io.evil.example/token"),
        ("docker.io", "https://evildocker.io/token"),
        ("docker.io", "https://evil.example\\@auth.docker.io/token"),
        ("docker.io", "https://auth.docker.io@evil.example/token"),
        ("docker.io", "https://evil.example#auth.docker.io"),
        ("docker.io", "https://"),
        ("10.0.0.5:5000", "https://10.1.0.0.5/token"),
        ("10.0.0.5:5000", "https://1.0.0.5/token"),
        ("localhost:5000", "http://127.0.0.1:5000/token"),
    ],
)
def test_no_other_host_gets_the_login(registry: str, realm: str) -> None:
    assert not may_get_login(realm, registry)
