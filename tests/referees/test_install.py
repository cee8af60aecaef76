"""Test of the referees' lock."""

from tests.referees.install import HERE


def test_the_lock_pins_every_package_by_its_bytes_and_names_no_registry() -> None:
    text = (HERE / "package-lock.json").read_text()
    assert '"resolved"' not in text
    assert text.count('"integrity": "sha512-') == text.count('"node_modules/') > 200
