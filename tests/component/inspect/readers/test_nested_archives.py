"""Tests of wheels inside wheels, zips and tars: their libraries have the paths that lead to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from builder.errors import IntegrityError, ValidationError
from builder.inspect.opener import Opener
from tests.support.factories.archives import files, zip_claiming, zipped
from tests.support.factories.archives_of_objects import ar, as_object
from tests.support.factories.binaries import sass
from tests.support.factories.pe import pe
from tests.support.messages import Told
from tests.support.opened import LIBRARY, found

PTX = b".version 8.4\n.target sm_90\n"

INSIDE = {
    "pkg/libone.so": LIBRARY,
    "pkg/two.dll": pe({".nv_fatbin": sass(80)}),
    "pkg/libthree.a": ar({"a.o": as_object(LIBRARY)}),
    "pkg/four.o": as_object(LIBRARY),
    "pkg/five": PTX,
    "README": b"text",
}

WANTED = {name: data for name, data in INSIDE.items() if name != "README"}


WHEEL = zipped(INSIDE)


@pytest.mark.parametrize("pack", [zipped, files])
@pytest.mark.parametrize("name", ["in.whl", "named.like.nothing"])
def test_a_wheel_in_an_archive(
    opener: Opener, work: Path, pack: Callable[[Mapping[str, bytes]], bytes], name: str
) -> None:
    (work / "outer").write_bytes(pack({"top.so": LIBRARY, f"wheels/{name}": WHEEL}))
    inner = {f"wheels/{name}/{path}": data for path, data in WANTED.items()}
    assert found(opener, work / "outer") == {"top.so": LIBRARY, **inner}


def test_a_wheel_in_a_wheel_in_a_wheel(opener: Opener, work: Path, told: Told) -> None:
    (work / "a.whl").write_bytes(zipped({"b.whl": zipped({"c.whl": zipped({"libx.so": LIBRARY})})}))
    assert found(opener, work / "a.whl") == {"b.whl/c.whl/libx.so": LIBRARY}
    (work / "deep.whl").write_bytes(zipped({"a.whl": (work / "a.whl").read_bytes()}))
    with pytest.raises(ValidationError) as caught:
        found(opener, work / "deep.whl")
    told(caught.value)


def test_one_that_is_not_whole_is_told_by_its_path(opener: Opener, work: Path) -> None:
    (work / "a.zip").write_bytes(zipped({"x/b.whl": WHEEL[:-30]}))
    with pytest.raises(IntegrityError, match=r"a\.zip: x/b\.whl is damaged: File is not a zip file\."):
        found(opener, work / "a.zip")


def test_a_bomb_in_a_bomb_counts_as_one(opener: Opener, work: Path) -> None:
    """The limit of 256 MiB is that of the outer file; each of the inner two claims less."""
    inner = zip_claiming(150 << 20, {"x.so": LIBRARY})
    (work / "a.zip").write_bytes(zip_claiming(150 << 20, {"b.whl": inner, "y.so": LIBRARY}))
    with pytest.raises(IntegrityError, match="has more bytes than belong into an archive of its size"):
        found(opener, work / "a.zip")
