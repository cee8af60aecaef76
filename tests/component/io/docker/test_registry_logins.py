"""Tests of where a registry's login may go, with realms that real registries name."""

from __future__ import annotations

import pytest

from builder.io.docker.registry import may_get_login


@pytest.mark.parametrize(
    ("allowed", "registry", "realm"),
    [
        (True, "docker.io", "https://auth.docker.io/token"),
        (True, "ghcr.io", "https://ghcr.io/token"),
        (True, "quay.io", "https://quay.io/v2/auth"),
        (True, "nvcr.io", "https://nvcr.io/proxy_auth"),
        (True, "registry.gitlab.com", "https://gitlab.com/jwt/auth"),
        (True, "gitlab.example.co.uk:5050", "https://gitlab.example.co.uk/jwt/auth"),
        (True, "127.0.0.1:5000", "http://127.0.0.1:5001/token"),
        (True, "Registry.Example.COM", "https://AUTH.example.com"),
        (False, "ghcr.io", "https://evil.io/token"),
        (False, "docker.io", "https://auth.docker.io.evil.example/token"),
        (False, "docker.io", "https://evildocker.io/token"),
        (False, "docker.io", "https://evil.example\\@auth.docker.io/token"),
        (False, "docker.io", "https://auth.docker.io@evil.example/token"),
        (False, "docker.io", "https://evil.example#auth.docker.io"),
        (False, "docker.io", "https://"),
        (False, "10.0.0.5:5000", "https://10.1.0.0.5/token"),
        (False, "10.0.0.5:5000", "https://1.0.0.5/token"),
        (False, "localhost:5000", "http://127.0.0.1:5000/token"),
    ],
)
def test_a_login_goes_to_the_token_service_of_the_registrys_domain_alone(
    allowed: bool, registry: str, realm: str
) -> None:
    assert may_get_login(realm, registry) == allowed
