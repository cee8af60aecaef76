"""Tests of verbs with names that somebody else chose: none is a command to GitHub's runner."""

import io
import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from backports.zstd import compress

from builder.client.output import Output
from tests.doubles.machine import Machine
from tests.doubles.release import entry, manifest_of, name_of, write_index
from tests.support.factories.archives import files
from tests.support.factories.binaries import elf, sass
from tests.support.factories.project_copy import Place
from tests.support.runner_commands import NAMES, commands

TOP = name_of("modern")

HOSTILE = [NAMES[0], *(pytest.param(name, marks=pytest.mark.thorough) for name in NAMES[1:])]

FILES = {"LICENSE": b"MIT\n", "lib/a.so": b"a" * 100}

INSPECTED = ((), ("--sizes",), ("--deep",), ("--json",), ("--require", "5.2"))


def packed(manifest: Mapping[str, object], more: Mapping[str, bytes]) -> bytes:
    """Return a package with this manifest and ``more`` members than it lists."""
    members = {"manifest.json": json.dumps(manifest).encode(), **FILES, **more}
    return compress(files({f"{TOP}/{name}": data for name, data in members.items()}))


def packages(name: str) -> dict[str, bytes]:
    """Return archives that name things by ``name``: a member, a library, a key and values of the manifest."""
    honest = manifest_of("modern", FILES)
    library = elf({".nv_fatbin": sass(75)}, soname=name, needed=[name])
    listed = {**honest, "files": [{**honest["files"][0], "path": name}]}  # type: ignore[index]
    return {
        "member": packed(honest, {name: b""}),
        "library": packed(honest, {f"lib/lib{name}.so": library, f"{name}.so": library}),
        "key": packed({**honest, name: 1}, {}),
        "path": packed(listed, {}),
        "variant": packed({**honest, "variant": name}, {}),
        "base": packed({**honest, "base": {**honest["base"], "reason": name}}, {}),  # type: ignore[dict-item]
    }


@pytest.mark.parametrize("name", HOSTILE)
def test_an_archive_cannot_speak_through_inspect(place: Place, tmp_path: Path, name: str) -> None:
    safe = name.replace("/", "_")
    library = elf({".nv_fatbin": sass(75)}, soname=name, needed=[name])
    odd = tmp_path / "odd"
    odd.mkdir()
    (odd / "odd.tar").write_bytes(files({f"{safe}.so": library, f"d/{safe}.so": library, "b.so": b"\x7fELF"}))
    (odd / f"{safe[-200:]}.so").write_bytes(library)
    for path in odd.iterdir():
        for flags in INSPECTED:
            done = place.run("inspect", str(path), *flags)
            assert commands(done.stdout + done.stderr) == [], (path.name, flags)
            assert done.returncode in (0, 6), done.stderr
            if "--json" in flags:
                assert json.loads(done.stdout), "it stays JSON"


@pytest.mark.parametrize("name", HOSTILE)
def test_a_package_cannot_speak_through_the_verbs(place: Place, tmp_path: Path, name: str) -> None:
    place.env["PATH"] = "/nonexistent"  # of `verify`, only what needs no program
    for what, data in packages(name).items():
        package = tmp_path / f"{what}/{TOP}.tar.zst"
        package.parent.mkdir()
        package.write_bytes(data)
        for words in (
            ("inspect", str(package)),
            ("verify", "--read-only", str(package)),
            ("mirror", "--dist", str(package.parent), "--to", str(tmp_path / "mirror")),
        ):
            done = place.run(*words)
            assert commands(done.stdout + done.stderr) == [], (what, words)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_release_cannot_speak_through_the_client(tmp_path: Path, name: str) -> None:
    for what, data in packages(name).items():
        machine, folder = Machine(tmp_path / f"home-{what}"), tmp_path / what
        folder.mkdir()
        (folder / f"{TOP}.tar.zst").write_bytes(data)
        one = entry("modern", data, sum(map(len, FILES.values())))
        for number, changed in enumerate(
            (one, {**one, "variant": name}, {**one, name: 1}, {**one, "file": name})
        ):
            index = write_index(folder, [changed])
            for words in (("install",), ("select",), ("install", "--json"), ("doctor",), ("recommend",)):
                machine.run(*words, *(() if words == ("doctor",) else ("--index", str(index))))
                err = io.StringIO()
                Output(None, err).say(machine.err)
                assert commands(machine.out + err.getvalue()) == [], (what, number, words)
