"""Tests of lock files: written sorted and read back; a wrong one is refused with its line and key."""

from __future__ import annotations

import pytest

from builder.config.inputs import Lock, Pin
from builder.config.load import parse_lock, render_lock
from builder.errors import ConfigError
from tests.unit.config.config_cases import LOCK_TEXT, ZEROS, Case, changed, read_cases

LOCK = Lock(
    pins={
        "wheel:cmake==3.31.6": Pin(filename="cmake-3.31.6-py3-none-any.whl", size=27, sha256=ZEROS),
        "image:nvidia/cuda:12.9.1-devel-ubuntu22.04": Pin(revision=None),
    }
)


def test_a_lock_is_written_sorted_and_read_back() -> None:
    assert render_lock(LOCK) == LOCK_TEXT
    assert parse_lock(LOCK_TEXT, "inputs.lock") == LOCK


def test_an_empty_lock_is_a_lock() -> None:
    assert parse_lock(render_lock(Lock(pins={})), "inputs.lock") == Lock(pins={})


def test_a_commit_and_a_digest_are_revisions() -> None:
    lock = Lock(
        pins={
            "git:https://github.com/microsoft/onnxruntime@v1.23.2": Pin(revision="a" * 40),
            "image:ubuntu:22.04": Pin(revision="sha256:" + "b" * 64),
        }
    )
    assert parse_lock(render_lock(lock), "inputs.lock") == lock


def test_tabs_and_one_line_are_json_too() -> None:
    assert parse_lock(LOCK_TEXT.replace("  ", "\t"), "inputs.lock") == LOCK
    assert parse_lock(LOCK_TEXT.replace("\n", ""), "inputs.lock") == LOCK


@pytest.mark.parametrize("case", read_cases("lock-messages.txt"), ids=str)
def test_a_wrong_lock_names_line_and_key(case: Case) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_lock(changed((case.old, case.new), text=LOCK_TEXT), "inputs.lock")
    assert type(caught.value).__name__ == case.kind
    assert caught.value.problems == tuple(f"inputs.lock:{line}" for line in case.lines)


@pytest.mark.parametrize("password", ["swordfish", "sword/fish", "sword@fish", "sword#fish"])
def test_the_password_of_a_git_url_is_not_shown(password: str) -> None:
    key = f"git:https://ada:{password}@github.com/microsoft/onnxruntime@v1.23.2"
    with pytest.raises(ConfigError, match=r'inputs\["git:https://') as caught:
        parse_lock(changed(("wheel:cmake==3.31.6", key), text=LOCK_TEXT), "inputs.lock")
    assert "ada" not in str(caught.value)
    assert "fish" not in str(caught.value)
