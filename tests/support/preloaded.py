"""What the server of ``tests.support.forked`` has before it is forked: modules, and the project as read."""

import pip._internal.commands.download
import pytest

import builder.client.__main__
import builder.client.commands.install
import builder.client.commands.manage
from tests.support.factories.publishing import project_at

LOADED = (pip, pytest, builder, project_at("https://api.github.com"))
"""pytest is every child's main module, which a child would import anew."""
