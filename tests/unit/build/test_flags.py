"""Tests of the values of --cache."""

from __future__ import annotations

import pytest

from builder.build.verbs.flags import require_cache
from builder.errors import ValidationError


@pytest.mark.parametrize(
    "cache",
    [
        "type=gha",
        "type=gha,scope=ortpacks-legacy",
        "type=registry,ref=localhost:5000/cache:legacy",
        "type=s3,region=eu-west-1,bucket=cache,name=legacy,use_path_style=true",
        "type=azblob,name=legacy",
    ],
)
def test_caches_that_are_named_alike_for_reading_and_writing(cache: str) -> None:
    assert require_cache(cache) == cache


@pytest.mark.parametrize(
    "cache",
    [
        "",
        "gha",
        "type=",
        "type=local,dest=/cache",
        "type=inline",
        "type=gha,",
        "type=gha scope=x",
        "type=gha,scope=a b",
        "type=gha,SCOPE=x",
        "scope=x,type=gha",
        "type=gha\n",
        "user/app:cache",
    ],
)
def test_anything_else_is_refused_with_an_example(cache: str) -> None:
    with pytest.raises(ValidationError, match=r"^--cache .* is no cache .*type=gha,scope=legacy\.$"):
        require_cache(cache)


@pytest.mark.parametrize(
    ("cache", "key"),
    [
        ("type=gha,token=hunter2", "token"),
        ("type=gha,scope=x,ghtoken=hunter2", "ghtoken"),
        ("type=s3,access_key_id=hunter2", "access_key_id"),
        ("type=azblob,secret_access_key=hunter2", "secret_access_key"),
        ("type=local,token=hunter2", "token"),
        ("type=gha,TOKEN=hunter2", "token"),
        ("type=gha,token=hunter2,", "token"),
        ("type=s3, secret_access_key = hunter2", "secret_access_key"),
        ("session_token=hunter2", "session_token"),
        ('type=gha,"token"=hunter2', "token"),
    ],
)
def test_a_secret_is_refused_and_not_repeated(cache: str, key: str) -> None:
    with pytest.raises(ValidationError, match=f"^--cache holds {key}:") as caught:
        require_cache(cache)
    assert "hunter2" not in str(caught.value)
