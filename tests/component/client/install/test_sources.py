"""Tests of the sources of packages: a folder or archive without a network, a mirror, wheels known
by their bytes."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from builder.client.arguments import mirrored
from builder.client.install import installer, unpack
from builder.errors import DiskError
from builder.files import decompression
from builder.files.digest import Digest
from builder.formats.index import INDEX_LIMIT
from builder.formats.package_names import Form
from tests.doubles import release as release_double
from tests.doubles.machine import Machine
from tests.doubles.release import FILES, Server, name_of, serving, write_release
from tests.doubles.wheels import CUBLAS, CUDNN, WHEELS, indexing
from tests.support.factories.archives import member
from tests.support.forked import forked_pip

ARCHIVE = f"{name_of('modern')}.tar.zst"

GITHUB = "https://github.com/o/r/releases/download/v1.23.2/index.json"


def test_an_archive_for_another_gpu_is_the_cpu_with_the_reason(machine: Machine, release: Path) -> None:
    assert machine.run("install", "--offline", str(release / f"{name_of('legacy')}.tar.zst")) == 0
    assert machine.out.startswith("CPU:")
    assert "it holds no code for compute capability 8.6" in machine.out
    assert not (machine.prefix / "current").exists()


@pytest.mark.parametrize(
    ("spoil", "code"),
    [(lambda path: path.unlink(), 2), (lambda path: path.write_bytes(path.read_bytes()[:300]), 7)],
)
def test_an_archive_that_is_gone_or_cut_is_a_message(
    machine: Machine, release: Path, spoil: object, code: int
) -> None:
    spoil(release / ARCHIVE)  # type: ignore[operator]  # a lambda
    assert machine.run("install", "--offline", str(release / ARCHIVE)) == code
    assert ARCHIVE in machine.err or name_of("modern") in machine.err


@pytest.mark.parametrize(
    ("key", "value"), [("driver", {"floor": "new", "ceiling": None}), ("capabilities", {"x.y": "native"})]
)
def test_what_an_archive_says_of_itself_is_held_to_an_index_s_rules(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, value: object
) -> None:
    real = release_double.manifest_of

    def hostile(*args: object, **kwargs: object) -> dict[str, object]:
        return {**real(*args, **kwargs), key: value}  # type: ignore[arg-type]

    monkeypatch.setattr(release_double, "manifest_of", hostile)
    release = write_release(tmp_path / "release").parent
    assert machine.run("install", "--offline", str(release / ARCHIVE)) == 2
    assert f"{ARCHIVE}: packages[0].{key}" in machine.err


@pytest.fixture
def thin(tmp_path: Path) -> Path:
    """Return the index of a release of thin packages, beside an empty folder for wheels."""
    (tmp_path / "wheels").mkdir()
    return write_release(tmp_path / "release", layouts=("thin",), wheels=WHEELS)


def test_wheels_in_a_folder_are_known_by_their_bytes(machine: Machine, thin: Path, tmp_path: Path) -> None:
    folder = tmp_path / "wheels"
    (folder / CUBLAS.file).write_bytes(CUBLAS.content)
    (folder / "renamed.whl").write_bytes(CUDNN.content)
    argv = ["install", "--offline", str(thin.parent), "--wheels", str(folder)]
    assert machine.run(*argv) == 0, machine.err
    assert machine.run("verify") == 0
    assert (folder / CUBLAS.file).read_bytes() == CUBLAS.content, "what is the user's stays"


def test_offline_fetches_no_wheel_and_else_one_of_other_bytes_is_fetched(
    machine: Machine, thin: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "wheels"
    (folder / CUBLAS.file).write_bytes(CUBLAS.content[:-1] + b"!")
    (folder / CUDNN.file).write_bytes(CUDNN.content)
    with indexing() as pypi:
        machine.pip, machine.work = {"PIP_INDEX_URL": pypi.url}, forked_pip
        assert machine.run("install", "--offline", str(thin.parent), "--wheels", str(folder)) == 10
        assert f"{CUBLAS.file}: not here, and --offline fetches nothing" in machine.err
        assert pypi.requests == []
        assert machine.run("install", "--index", str(thin), "--wheels", str(folder)) == 0, machine.err
        assert pypi.fetched == [CUBLAS.file]


@pytest.mark.parametrize(
    ("base", "default", "index"),
    [
        ("https://mirror.example/ort", None, "https://mirror.example/ort/latest/index.json"),
        ("https://mirror.example/ort/", GITHUB, "https://mirror.example/ort/v1.23.2/index.json"),
        ("http://mirror.example", "https://elsewhere/index.json", "http://mirror.example/latest/index.json"),
    ],
)
def test_a_mirror_has_the_release_this_program_comes_from(base: str, default: str | None, index: str) -> None:
    assert mirrored(base, default) == index


def test_a_mirror_serves_the_newest_release(machine: Machine, release: Path, tmp_path: Path) -> None:
    (tmp_path / "mirror").mkdir()
    (tmp_path / "mirror" / "latest").symlink_to(release)
    with serving(tmp_path / "mirror") as server:
        assert machine.run("install", "--mirror", server.url) == 0, machine.err
        assert [path for path, _ in server.requests] == ["/latest/index.json", f"/latest/{ARCHIVE}"]


def test_device_chooses_for_that_gpu_only_and_explain_shows_all(machine: Machine, release: Path) -> None:
    machine.env = {**machine.env, "ORTPACKS_FORCE_CC": "8.6,5.2"}
    answer = machine.answer("select", "--index", str(release), "--device", "1")
    assert (answer["package"]["variant"], answer["device"]["capability"]) == ("legacy", "5.2")
    assert machine.run("select", "--index", str(release), "--device", "7") == 2
    assert machine.run("select", "--index", str(release), "--explain") == 0, machine.err
    (head,) = [line for line in machine.out.splitlines() if line.startswith("package")]
    assert ("GPU 0" in head, "GPU 1" in head, "verdict" in head) == (True, True, True)


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("pkg(1).tar.zst", ".tar.zst"),
        ("pkg.tar (1).zst", ".tar.zst"),
        ("a.tar.gz", ".tar.zst"),
        ("download", ".tar.gz"),
    ],
)
def test_an_archive_is_a_release_of_its_own_whatever_its_name(
    machine: Machine, tmp_path: Path, name: str, form: str
) -> None:
    release = write_release(tmp_path / "release", forms=(form,)).parent
    archive = (release / f"{name_of('modern')}{form}").rename(tmp_path / name)
    assert machine.run("install", "--offline", str(archive)) == 0, machine.err
    assert "has native code for" in machine.err
    assert (machine.lib / "libonnxruntime.so.1").read_bytes() == FILES["lib/libonnxruntime.so.1"]
    assert machine.answer("install", "--offline", str(archive))["installed"]["fresh"] is False


def test_a_manifest_in_another_packages_folder_is_refused(machine: Machine, tmp_path: Path) -> None:
    top, told = name_of("modern"), release_double.manifest_of("legacy", FILES)
    spoilt = release_double.archive([member(f"{top}/manifest.json", json.dumps(told).encode())])
    (tmp_path / "x.tar.zst").write_bytes(spoilt)
    assert machine.run("select", "--offline", str(tmp_path / "x.tar.zst")) == 7
    assert f"its manifest is of {name_of('legacy')}, and lies in the folder {top}" in machine.err


def test_a_url_of_a_folder_without_its_slash_is_told(machine: Machine, release: Path) -> None:
    (release / "page").write_text("<html>")
    with serving(release) as server:
        assert machine.run("select", "--index", f"{server.url}/page") == 2
        assert f"The URL of a folder ends with a slash: {server.url}/page/" in machine.err


@pytest.fixture
def served(release: Path) -> Iterator[Server]:
    with serving(release) as server:
        yield server


def test_an_index_named_with_its_sha256_is_that_one_or_none(
    machine: Machine, release: Path, served: Server
) -> None:
    digest = hashlib.sha256((release / "index.json").read_bytes()).hexdigest()
    pin = f"#sha256={digest.upper()}"  # Windows' Get-FileHash writes upper case
    assert machine.run("install", "--index", f"{served.url}/{pin}") == 0, machine.err
    (release / "index.json").write_text((release / "index.json").read_text() + " ")
    assert machine.run("select", "--index", f"{served.url}/index.json{pin}") == 7
    assert f"{served.url}/index.json: not the index that was named." in machine.err


@pytest.mark.parametrize("pin", ["sha256=12", "sha512=ab", "index", f"sha256={'0' * 63}G"])
def test_a_promise_that_nothing_can_be_held_to_is_refused(machine: Machine, served: Server, pin: str) -> None:
    assert machine.run("select", "--index", f"{served.url}/index.json#{pin}") == 2
    assert "sha256= and 64 hexadecimal digits" in machine.err
    assert served.requests == []


@pytest.mark.parametrize(
    ("url", "warned"),
    [
        ("http://mirror.example/index.json", True),
        ("http://10.0.0.7/index.json", True),
        ("http://127.evil.example/index.json", True),
        ("http://user:s3cret@mirror.example:8080/", True),
        (f"http://mirror.example/index.json#sha256={'0' * 64}", False),
        ("https://mirror.example/index.json", False),
        ("http://localhost:1/index.json", False),
        ("http://127.0.0.1:1/", False),
        ("http://[::1]:1/", False),
    ],
)
def test_without_https_and_beyond_this_machine_a_user_is_warned(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, url: str, warned: bool
) -> None:
    """Nothing is fetched: the proxy's port is closed."""
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "")
    assert machine.run("select", "--index", url) == 10
    assert ("can change the files and their checksums" in machine.err) is warned
    assert "s3cret" not in machine.err


def test_an_archive_on_a_failing_disk_is_not_called_damaged(tmp_path: Path) -> None:
    unreadable = tmp_path / "package.tar.gz"
    unreadable.symlink_to("/proc/self/mem")
    with (
        pytest.raises(DiskError, match=r"cannot be read: Input/output error\. Copy it to another disk"),
        unpack.open_tar(unreadable, Form.GZ, Digest(300, "0" * 64)) as stream,
    ):
        stream.read()


def test_a_longer_index_than_is_read_is_told_by_its_size(machine: Machine, release: Path) -> None:
    with (release / "index.json").open("r+b") as file:
        file.truncate(INDEX_LIMIT + 1)
    assert machine.run("select", "--index", str(release)) == 10
    assert f"index.json: larger than {INDEX_LIMIT} bytes" in machine.err


READERS = {
    "gzip": (".tar.gz", None),
    "module": (".tar.zst", None),
    "program": (".tar.zst", decompression.PROGRAMS[0]),
}
"""The form of an archive, and the program that unpacks it; ``None``: this Python."""


@pytest.mark.parametrize(("form", "program"), READERS.values(), ids=READERS)
@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("changed", ["content", "longer", "gone"])
def test_an_archive_that_changes_after_it_was_verified_is_refused(
    machine: Machine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    form: str,
    program: tuple[str, ...] | None,
    alone: bool,
    changed: str,
) -> None:
    """The folder is somebody else's: its owner serves good bytes to be verified and others to be unpacked."""
    release = write_release(tmp_path / "release", forms=(form,)).parent
    other = write_release(tmp_path / "other", files={**FILES, "LICENSE": b"BSD\n"}, forms=(form,)).parent
    archive = release / f"{name_of('modern')}{form}"
    real = unpack.open_tar
    calls = []

    def late(file: Path, *arguments: object) -> object:
        calls.append(file)
        if changed == "content":
            shutil.copyfile(other / file.name, file)
        elif changed == "longer":
            with file.open("ab") as stream:
                stream.write(bytes(100_000))
        else:
            file.write_bytes(b"")
        return real(file, *arguments)  # type: ignore[arg-type]

    if program:
        if shutil.which(program[0]) is None:
            pytest.skip(f"needs {program[0]}")
        reader = decompression._Reader(argv=program)
        monkeypatch.setattr(decompression, "_reader", lambda: reader)
    monkeypatch.setattr(installer, "open_tar", late)
    assert machine.run("install", "--offline", str(archive if alone else release)) == 7, machine.out
    assert calls == [archive]
    if changed == "content":
        assert f"{archive}: changed while it was unpacked" in machine.err
    assert not (machine.prefix / "current").exists()
    assert machine.litter() == []
