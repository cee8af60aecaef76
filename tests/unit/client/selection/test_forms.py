"""Tests of the form of a package: which hosts register a plug-in, and what is taken without a word."""

import pytest

from builder.client.selection.forms import (
    OF_A_PACKAGE,
    OWN_PROVIDER,
    ApplicationHost,
    by_default,
    cards,
    host_refusal,
)
from builder.formats.manifest import PluginEntry
from builder.formats.package_names import PackageForm
from tests.unit.client.selection.select_cases import plugin

ENTRY = PluginEntry("lib/p.so", ("CUDAExecutionProvider",), "1.24.4", 30, None)


@pytest.mark.parametrize(
    ("host", "said"),
    [
        (ApplicationHost("h", "1.24.4"), None),
        (ApplicationHost("h", "1.32.0"), None),
        (ApplicationHost("h", "2.0"), None),
        (ApplicationHost("h", "1.30.0.dev20260801"), None),
        (None, "there is no host"),
        (ApplicationHost("h", "1.24.3"), "h is too old"),
        (ApplicationHost("h", "1.9.0"), "h is too old"),
        (ApplicationHost("h"), "the version of h is unknown"),
        (ApplicationHost("h", "1.32.0", obstacle=OWN_PROVIDER), "h has a CUDA provider of its own"),
        (ApplicationHost("h", "1.32.0", obstacle=OF_A_PACKAGE), "h is the host of a package"),
    ],
)
def test_a_host_registers_a_plugin_from_its_oldest_version_on(
    host: ApplicationHost | None, said: str | None
) -> None:
    why = host_refusal(host, ENTRY)
    assert (why or "").startswith(said or "")
    assert (why is None) == (said is None)
    assert why is None or "1.24.4 or newer" in why


@pytest.mark.parametrize(("version", "hint"), [("1.31.1", True), ("1.23.2", False)])
def test_provider_is_the_default_whatever_is_here(version: str, hint: bool) -> None:
    choice = by_default(ApplicationHost("h", version), [plugin("modern", "8.0 8.6")])
    assert choice.form is PackageForm.PROVIDER
    assert ("--form plugin" in choice.reason) == hint


def test_cards_names_those_that_it_runs_on() -> None:
    assert cards([plugin("modern", "8.0 8.6")]) == "modern runs on 8.0, 8.6"
