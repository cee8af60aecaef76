"""Fixtures of the referees, which are installed once a session; without them their tests are skipped."""

import json

import pytest

from builder.io.wiring import Wiring
from tests.referees.cut import cut
from tests.referees.install import Referees, UnavailableError, install
from tests.referees.openapi import Json
from tests.support import ROOT


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
