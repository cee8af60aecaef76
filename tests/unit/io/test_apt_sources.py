"""Tests of apt's source files in both forms, with examples from Debian's images and installers."""

from __future__ import annotations

import pytest

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


CONTINUED = """\
Types: deb
uris: file:/x
 \t
Types: deb
URIs: http://one.example/debian/
 https://b.example/debian
Suites:
 trixie
Components: main
# end"""

ONE_LINE = """\
# deb http://old.example/debian bookworm main
deb [arch=amd64 signed-by=/k.gpg] http://one.example/debian/ bookworm main contrib # the main one
deb-src http://one.example/debian trixie main
deb http://sec.example/debian-security bookworm-security main
"""

VENDORS = """\
deb https://php.example/php bookworm main
deb https://download.example/linux/debian bookworm stable
deb http://pg.example/apt bookworm-pgdg main
deb http://one.example/debian bookworm main
"""

OURS = "http://one.example/debian"


@pytest.mark.parametrize(
    ("file", "text", "mirrors"),
    [
        ("debian.sources", DEB822, (OURS,)),
        ("x.sources", CONTINUED, (OURS, "https://b.example/debian")),
        ("x.sources", "Enabled: no\n" + DEB822, ()),
        ("sources.list", ONE_LINE, (OURS,)),
        ("a.list", VENDORS, (OURS, "https://php.example/php")),
        ("sources.list", "deb http://archive.example/ubuntu jammy main restricted\n", ()),
        ("sources.list", "deb cdrom:[Debian]/ bookworm main\n", ()),
    ],
    ids=["deb822", "continued", "disabled", "one line", "other vendors", "Ubuntu", "cdrom"],
)
def test_mirrors_are_those_of_debians_own_archive_first(
    file: str, text: str, mirrors: tuple[str, ...]
) -> None:
    assert debian_mirrors({file: text}) == mirrors
