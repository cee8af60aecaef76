"""Tests of apt's source files in both forms, with examples from Debian's images and installers."""

from __future__ import annotations

from builder.io.debian.apt_mirror import debian_mirrors

DEB822 = """\
Types: deb
# http://snapshot.debian.org/archive/debian/20250520T000000Z
URIs: http://one.example/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://one.example/debian-security
Suites: bookworm-security
Components: main
"""


def test_deb822_without_the_security_archive() -> None:
    assert debian_mirrors({"debian.sources": DEB822}) == ("http://one.example/debian",)


def test_deb822_with_several_uris_and_continued_lines() -> None:
    uris = "URIs: http://a.example/debian/\n https://b.example/debian\n"
    text = f"Types: deb\nuris: file:/x\n \t\nTypes: deb\n{uris}Suites:\n trixie\nComponents: main\n# end"
    assert debian_mirrors({"x.sources": text}) == ("http://a.example/debian", "https://b.example/debian")


def test_a_disabled_stanza_counts_for_nothing() -> None:
    assert debian_mirrors({"x.sources": "Enabled: no\n" + DEB822}) == ()


def test_one_line_form_with_options_comments_and_duplicates() -> None:
    text = (
        "# deb http://old.example/debian bookworm main\n"
        "deb [arch=amd64 signed-by=/k.gpg] http://one.example/debian/ bookworm main contrib # the main one\n"
        "deb-src http://one.example/debian trixie main\n"
        "deb http://sec.example/debian-security bookworm-security main\n"
    )
    assert debian_mirrors({"sources.list": text}) == ("http://one.example/debian",)


def test_other_vendors_with_debian_suites_are_last_or_out() -> None:
    text = (
        "deb https://php.example/php bookworm main\n"
        "deb https://download.example/linux/debian bookworm stable\n"
        "deb http://pg.example/apt bookworm-pgdg main\n"
        "deb http://one.example/debian bookworm main\n"
    )
    assert debian_mirrors({"a.list": text}) == ("http://one.example/debian", "https://php.example/php")


def test_ubuntu_has_no_debian_mirror() -> None:
    text = "deb http://archive.example/ubuntu jammy main restricted\n"
    assert debian_mirrors({"sources.list": text}) == ()


def test_a_cdrom_is_no_mirror() -> None:
    assert debian_mirrors({"sources.list": "deb cdrom:[Debian]/ bookworm main\n"}) == ()
