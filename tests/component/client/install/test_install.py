"""Tests of install and verify with small packages: sources, layouts, builds, and loading before use."""

import errno
import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from builder.client.arguments import mirrored
from builder.client.cli import main
from builder.client.install import installer, unpack
from builder.errors import DiskError, IntegrityError, ToolMissingError
from builder.files import decompression
from builder.files.digest import Digest
from builder.formats.index import INDEX_LIMIT
from builder.formats.package_names import Form
from tests.doubles.gpus import program
from tests.doubles.library import APPEND_CUDA, library
from tests.doubles.machine import Machine
from tests.doubles.release import (
    FILES,
    HOST,
    Build,
    Server,
    change_index,
    libraries,
    name_of,
    serving,
    write_release,
)
from tests.doubles.wheels import CUBLAS, CUDNN, WHEELS, indexing, unpacked
from tests.support.messages import Told
from tests.support.tables import table

MODERN = name_of("modern")


def test_install_from_a_server_puts_every_byte_where_current_points(machine: Machine, release: Path) -> None:
    with serving(release) as server:
        assert machine.run("install", "--index", f"{server.url}/index.json") == 0, machine.err
        before = len(server.requests)
        assert machine.run("install", "--index", f"{server.url}/index.json") == 0, machine.err
        assert [path for path, _ in server.requests[before:]] == ["/index.json"]
    assert "Already installed" in machine.out
    assert {path.relative_to(machine.prefix / "current").as_posix(): path.read_bytes()
            for path in (machine.prefix / "current").rglob("*")
            if path.is_file() and path.suffix != ".json"} == FILES  # fmt: skip
    assert machine.litter() == []


def test_the_info_file_says_what(machine: Machine, release: Path, told: Told) -> None:
    machine.run("install", "--index", str(release))
    info = json.loads((machine.prefix / "current" / "gpu-package-info.json").read_text())
    assert Path(info["libsPath"], "libonnxruntime.so.1").read_bytes() == FILES["lib/libonnxruntime.so.1"]
    del info["libsPath"], info["sha256"]
    told(json.dumps(info, indent=2))


def test_a_damaged_file_is_seen_by_verify_and_cured_by_install(machine: Machine, release: Path) -> None:
    machine.run("install", "--index", str(release))
    library = machine.lib / "libonnxruntime.so.1"
    library.write_bytes(library.read_bytes()[:-1] + b"!")  # the size is the same: only the hash differs
    (machine.lib / "libcudart.so.12").write_bytes(b"stranger")
    assert machine.run("verify") == 7
    assert "lib/libonnxruntime.so.1: sha256 differs" in machine.out
    assert "lib/libcudart.so.12: does not belong" in machine.out
    assert machine.run("install", "--index", str(release)) == 0, machine.err
    assert machine.run("verify") == 0
    assert "4 files are as the manifest says" in machine.out
    assert machine.litter() == []


def test_a_machine_without_gpu_installs_nothing_and_that_is_fine(machine: Machine, release: Path) -> None:
    machine.env = {}
    assert machine.answer("detect")["devices"] == []
    assert machine.run("install", "--index", str(release)) == 0
    assert machine.out.startswith("CPU: no NVIDIA GPU was found")
    assert "nvidia-smi is not on PATH" in machine.out
    assert {path.name for path in machine.prefix.iterdir()} == {".ortpacks", "gpu-info.json", "versions"}
    assert not list((machine.prefix / "versions").iterdir())
    assert machine.run("env") == 3
    assert machine.run("verify") == 3


def test_variant_overrides_the_card_but_not_the_platform(machine: Machine, release: Path) -> None:
    machine.env = {}
    assert machine.run("install", "--index", str(release), "--variant", "legacy") == 0
    assert "as asked" in machine.err
    assert "no NVIDIA GPU was found" in machine.err
    assert machine.run("verify") == 0
    assert machine.run("select", "--index", str(release), "--variant", "lagacy") == 2
    assert "legacy, modern" in machine.err
    machine.platform = "win-x64"
    assert machine.run("select", "--index", str(release), "--variant", "legacy") == 9


def test_the_disk_is_asked_before_anything_is_fetched(machine: Machine, release: Path) -> None:
    machine.free = 1000
    with serving(release) as server:
        assert machine.run("install", "--index", server.url + "/index.json") == 11
        assert [path for path, _ in server.requests] == ["/index.json"]
    assert "1000 are free" in machine.err
    assert machine.litter() == []


def test_what_dead_installs_left_is_removed_but_a_download_goes_on(machine: Machine, release: Path) -> None:
    archive = (release / f"{MODERN}.tar.zst").read_bytes()
    entry = json.loads((release / "index.json").read_text())["packages"][1]
    downloads, parts = machine.prefix / ".ortpacks" / "downloads", machine.prefix / ".ortpacks" / "parts"
    (parts / "dead-123" / "lib").mkdir(parents=True)
    downloads.mkdir()
    (downloads / "another.tar.zst.part").write_bytes(b"old")
    (downloads / f"{entry['sha256'][:12]}-{entry['file']}.part").write_bytes(archive[:500])
    with serving(release) as server:
        assert machine.run("install", "--index", server.url + "/index.json") == 0, machine.err
        assert server.requests[1][1]["Range"] == "bytes=500-"
    assert machine.litter() == []
    assert machine.run("verify") == 0


@pytest.mark.parametrize(
    "make",
    [
        lambda current: current.write_text("mine"),
        Path.mkdir,
        lambda current: current.symlink_to("/usr"),
        lambda current: current.symlink_to("current"),
    ],
    ids=["file", "folder", "link", "loop"],
)
def test_another_current_is_kept(machine: Machine, release: Path, make: Callable[[Path], object]) -> None:
    current = machine.prefix / "current"
    machine.prefix.mkdir(parents=True)
    make(current)
    before = os.lstat(current)
    assert machine.run("install", "--index", str(release)) == 11
    assert "current is in the way" in machine.err
    assert os.path.samestat(os.lstat(current), before)
    assert os.lstat(current).st_mtime_ns == before.st_mtime_ns


@pytest.mark.parametrize(
    ("key", "value"), [("name", "ortpacks-other"), ("glibc", "2.31"), ("capabilities", {"8.6": "native"})]
)
def test_index_and_manifest_must_agree(machine: Machine, release: Path, key: str, value: object) -> None:
    """The client selects by the index: the user would get another package than the selected one."""
    change_index(release, "legacy", "modern", **{key: value})
    assert machine.run("install", "--index", str(release)) == 7, machine.out
    assert f"its manifest and the index disagree on {key}." in machine.err
    assert not list((machine.prefix / "versions").iterdir())


@pytest.mark.parametrize(
    ("platform", "name", "code"),
    [("linux-x64", "a:b", 2), ("linux-x64", "a;b", 2), ("macos-arm64", "a;b", 0), ("win-x64", "a;b", 2)],
)
def test_a_prefix_that_a_loader_takes_for_two_folders_is_refused(
    machine: Machine, release: Path, tmp_path: Path, platform: str, name: str, code: int
) -> None:
    here = replace(machine, platform=platform)
    prefix = str(tmp_path / name)
    assert here.run("install", "--index", str(release), "--prefix", prefix) == code, here.err
    assert ("as two folders" in here.err) == (code == 2)
    assert machine.run("uninstall", "--prefix", prefix) != 2, "what lies there can be removed"


def test_an_empty_variable_states_nothing(machine: Machine, release: Path) -> None:
    names = ("ORTPACKS_FORCE_CC", "ORTPACKS_FORCE_DRIVER", "ORTPACKS_FORCE_MEMORY")
    machine.env = dict.fromkeys(names, "")
    assert machine.run("select", "--index", str(release)) == 0, machine.err
    assert machine.run("doctor") == 0, machine.err
    assert not [name for name in names if f"{name}=" in machine.out]


def test_a_disk_may_lack_modes(machine: Machine, release: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On FAT, chmod(2) fails with EPERM."""
    monkeypatch.setattr(Path, "chmod", Mock(side_effect=PermissionError(errno.EPERM, "not permitted")))
    assert machine.run("install", "--index", str(release)) == 0, machine.err
    assert machine.run("verify") == 0


def test_a_full_package_asks_for_no_room_for_nvidias_libraries(machine: Machine, release: Path) -> None:
    """The space for the package was checked earlier; meanwhile, another program has filled the disk."""
    room = iter([2**40, 0, 0])
    context = replace(machine.context(), free=lambda path: next(room))
    argv = ["install", "--index", str(release)]
    assert main(argv, context, machine.env, machine.home, print, print) == 0


ARCHIVE = f"{MODERN}.tar.zst"

GITHUB = "https://github.com/o/r/releases/download/v1.23.2/index.json"


@pytest.mark.parametrize(
    ("key", "value"), [("driver", {"floor": "new", "ceiling": None}), ("capabilities", {"x.y": "native"})]
)
def test_an_archive_keeps_an_index_s_rules(machine: Machine, tmp_path: Path, key: str, value: object) -> None:
    release = write_release(tmp_path / "release", spoil=lambda manifest: manifest.update({key: value})).parent
    assert machine.run("install", "--offline", str(release / ARCHIVE)) == 2
    assert f"{ARCHIVE}: packages[0].{key}" in machine.err


def test_wheels_in_a_folder_are_known_by_their_bytes(machine: Machine, tmp_path: Path) -> None:
    """``--offline`` fetches none; without it, one of other bytes is fetched."""
    thin, folder = write_release(tmp_path / "release", layouts=("thin",), wheels=WHEELS), tmp_path / "wheels"
    folder.mkdir()
    (folder / CUBLAS.file).write_bytes(CUBLAS.content[:-1] + b"!")
    (folder / "renamed.whl").write_bytes(CUDNN.content)
    with indexing() as pypi:
        machine.pip = {"PIP_INDEX_URL": pypi.url}
        assert machine.run("install", "--offline", str(thin.parent), "--wheels", str(folder)) == 10
        assert f"{CUBLAS.file}: not here, and --offline fetches nothing" in machine.err
        assert pypi.requests == []
        assert machine.run("install", "--index", str(thin), "--wheels", str(folder)) == 0, machine.err
        assert pypi.fetched == [CUBLAS.file]
    assert (folder / "renamed.whl").read_bytes() == CUDNN.content, "what is the user's stays"


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


def test_device_chooses_for_that_gpu_only_and_explain_shows_all(machine: Machine, release: Path) -> None:
    machine.env = {**machine.env, "ORTPACKS_FORCE_CC": "8.6,5.2"}
    answer = machine.answer("select", "--index", str(release), "--device", "1")
    assert (answer["package"]["variant"], answer["device"]["capability"]) == ("legacy", "5.2")
    assert machine.run("select", "--index", str(release), "--device", "7") == 2
    assert machine.run("select", "--index", str(release), "--explain") == 0, machine.err
    (head,) = [line for line in machine.out.splitlines() if line.startswith("package")]
    assert all(word in head for word in ("GPU 0", "GPU 1", "verdict"))


@pytest.mark.parametrize(
    ("name", "form"), [("pkg(1).tar.zst", ".tar.zst"), ("a.tar.gz", ".tar.zst"), ("download", ".tar.gz")]
)
def test_an_archive_is_a_release_of_its_own(machine: Machine, tmp_path: Path, name: str, form: str) -> None:
    release = write_release(tmp_path / "release", forms=(form,)).parent
    archive = (release / f"{name_of('modern')}{form}").rename(tmp_path / name)
    assert machine.run("install", "--offline", str(archive)) == 0, machine.err
    assert "has native code for" in machine.err
    assert (machine.lib / "libonnxruntime.so.1").read_bytes() == FILES["lib/libonnxruntime.so.1"]
    assert machine.answer("install", "--offline", str(archive))["installed"]["fresh"] is False


def test_a_manifest_in_another_packages_folder_is_refused(machine: Machine, tmp_path: Path) -> None:
    other = name_of("legacy")
    release = write_release(tmp_path / "release", spoil=lambda manifest: manifest.update(name=other)).parent
    assert machine.run("select", "--offline", str(release / ARCHIVE)) == 7
    assert f"its manifest is of {other}, and lies in the folder {MODERN}" in machine.err


def test_a_url_of_a_folder_without_its_slash_is_told(machine: Machine, release: Path) -> None:
    (release / "page").write_text("<html>")
    with serving(release) as server:
        assert machine.run("select", "--index", f"{server.url}/page") == 2
        assert f"The URL of a folder ends with a slash: {server.url}/page/" in machine.err


def test_an_index_named_with_its_sha256_is_that_one(machine: Machine, release: Path) -> None:
    digest = hashlib.sha256((release / "index.json").read_bytes()).hexdigest()
    pin = f"#sha256={digest.upper()}"  # Windows' Get-FileHash writes upper case
    with serving(release) as server:
        assert machine.run("install", "--index", f"{server.url}/{pin}") == 0, machine.err
        (release / "index.json").write_text((release / "index.json").read_text() + " ")
        assert machine.run("select", "--index", f"{server.url}/index.json{pin}") == 7
    assert f"{server.url}/index.json: not the index that was named." in machine.err


@pytest.mark.parametrize(("url", "warned"), table("client/http.txt"))
def test_http_is_warned_of(machine: Machine, monkeypatch: pytest.MonkeyPatch, url: str, warned: str) -> None:
    """Nothing is fetched: the proxy's port is closed."""
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "")
    assert machine.run("select", "--index", url) == 10
    assert ("can change the files and their checksums" in machine.err) is (warned == "yes")
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


@pytest.mark.parametrize("reader", ["gzip", "module", "program"])
@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("changed", ["content", "longer", "gone"])
def test_an_archive_that_changes_after_it_was_verified_is_refused(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: str, alone: bool, changed: str
) -> None:
    """The folder is somebody else's: its owner serves good bytes to be verified and others to be unpacked."""
    form = ".tar.gz" if reader == "gzip" else ".tar.zst"
    release = write_release(tmp_path / "release", forms=(form,)).parent
    other = write_release(tmp_path / "other", files={**FILES, "LICENSE": b"BSD\n"}, forms=(form,)).parent
    archive = release / f"{MODERN}{form}"
    late = {
        "content": (other / archive.name).read_bytes(),
        "longer": archive.read_bytes() + bytes(100_000),
        "gone": b"",
    }
    real = unpack.open_tar

    def changing(file: Path, *arguments: object) -> object:
        assert file == archive
        file.write_bytes(late[changed])
        return real(file, *arguments)  # type: ignore[arg-type]

    if reader == "program":
        program = decompression._Reader(argv=decompression.PROGRAMS[0])
        monkeypatch.setattr(decompression, "_reader", lambda: program)
    monkeypatch.setattr(installer, "open_tar", changing)
    assert machine.run("install", "--offline", str(archive if alone else release)) == 7, machine.out
    if changed == "content":
        assert f"{archive}: changed while it was unpacked" in machine.err
    assert not (machine.prefix / "current").exists()
    assert machine.litter() == []


NO_CUFFT = (
    "Failed to load library libonnxruntime_providers_cuda.so with error: libcufft.so.11: cannot open shared "
    "object file: No such file or directory"
)


PROVIDER = "onnxruntime_providers_cuda.dll"


def with_host(folder: Path, host: bytes, version: str = "1.23.2") -> str:
    return str(write_release(folder, version=version, files={**FILES, HOST: host}))


@pytest.mark.parametrize(
    ("host", "words"),
    [
        (library("1.23.2", needs_glibc="9.99"), "needs GLIBC_9.99 or newer. Update the system."),
        (b"<html>", "do not load on this machine"),
        (library("1.22.0"), "it is version 1.22.0, the manifest says 1.23.2"),
        (library("1.23.2", refuses=[APPEND_CUDA], why=NO_CUFFT), "package that has libcufft.so.11."),
        (library("1.23.2", crashes=[APPEND_CUDA]), "the process died of SIGILL"),
    ],
    ids=["newer glibc", "no library", "another version", "a library is missing", "it crashes"],
)
def test_what_fails_changes_nothing(machine: Machine, tmp_path: Path, host: bytes, words: str) -> None:
    old = with_host(tmp_path / "old", library("1.22.0"), "1.22.0")
    assert machine.run("install", "--index", old) == 0, machine.err
    before = (machine.prefix / "current").resolve()
    assert machine.run("install", "--index", with_host(tmp_path / "new", host)) == 12, machine.err
    assert words in machine.err
    assert "What was installed before is unchanged." in machine.err
    assert (machine.prefix / "current").resolve() == before
    assert list((machine.prefix / "versions").iterdir()) == [before]
    assert [path for path in machine.litter() if not path.endswith(".part")] == []
    assert machine.run("verify") == 0


def test_a_machine_without_a_driver_takes_a_package_that_is_linked_with_it(
    machine: Machine, tmp_path: Path
) -> None:
    """An image is built so: on its user's machine the driver is there."""
    host = library("1.23.2", refuses=[APPEND_CUDA], why=NO_CUFFT.replace("libcufft.so.11", "libcuda.so.1"))
    assert machine.run("install", "--index", with_host(tmp_path / "new", host)) == 0, machine.err
    assert "Not tried out: its provider needs libcuda.so.1" in machine.out


def test_a_file_system_that_runs_nothing_is_told_of(machine: Machine, tmp_path: Path) -> None:
    """glibc's message on a file system that is mounted with ``noexec``."""
    said = '{"failed": "lib/libonnxruntime.so.1: failed to map segment from shared object"}'
    machine.python = program(tmp_path, f"echo '{said}'", "python")
    assert machine.run("install", "--index", with_host(tmp_path / "release", FILES[HOST])) == 12
    assert "noexec: choose another place with --prefix." in machine.err


@pytest.mark.parametrize(
    "said",
    [
        # platform/windows/env.cc of 1.21.0; output of 1.23.2
        'LoadLibrary failed with error 126 "The specified module could not be found.',
        f'Error loading "C:\\lib\\{PROVIDER}" which depends on "cufft64_11.dll" which is missing. (Error 126',
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le"])
def test_windows_loader_is_heard(machine: Machine, tmp_path: Path, said: str, encoding: str) -> None:
    log = f"\x1b[1;31m2026-11-24 [E:onnxruntime:ortpacks, provider_bridge_ort.cc:2002 x] {said}\n\x1b[m\n"
    (tmp_path / "log").write_bytes(log.encode(encoding))
    answer = '{"failed": "OrtSessionOptionsAppendExecutionProvider_Cuda: Failed to load shared library"}'
    machine.python = program(tmp_path, f"cat {tmp_path}/log >&2\necho '{answer}'", "python")
    assert machine.run("install", "--index", with_host(tmp_path / "release", FILES[HOST])) == 12
    assert said.rstrip(".") in machine.err
    assert "Visual C++ Redistributable (x64)" in machine.err


def test_what_no_longer_loads_is_not_taken_for_installed(machine: Machine, tmp_path: Path) -> None:
    """The package is the same and the system has changed: a child process dies."""
    index = with_host(tmp_path / "release", FILES[HOST])
    assert machine.run("install", "--index", index) == 0
    assert "Its libraries load here: ONNX Runtime 1.23.2." in machine.out
    machine.python = program(tmp_path, "kill -SEGV $$", "python")
    assert machine.run("install", "--index", index) == 12
    assert "the process died of SIGSEGV" in machine.err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "cannot be started"),
        ("echo \"ModuleNotFoundError: No module named '_ctypes'\" >&2; exit 1", "has no ctypes"),
    ],
)
def test_an_untried_install_stands(machine: Machine, tmp_path: Path, text: str | None, words: str) -> None:
    machine.python = program(tmp_path, text, "python") if text else str(tmp_path / "python")
    assert machine.run("install", "--index", with_host(tmp_path / "release", FILES[HOST])) == 0, machine.err
    assert f"Not tried out: {'this Python' if text else machine.python} {words}" in machine.out
    assert machine.run("verify") == 0


BOTH = ("full", "thin")

FORMS = (".tar.zst", ".tar.gz")

THIN = name_of("modern", layout="thin")


@pytest.fixture
def both(tmp_path: Path) -> Path:
    """Return the index of a release with both layouts."""
    return write_release(tmp_path / "release", layouts=BOTH, wheels=WHEELS)


@pytest.fixture
def here(machine: Machine, tmp_path: Path) -> Path:
    """Return the environment of the machine's Python, which has NVIDIA's libraries."""
    machine.environments = (unpacked(tmp_path / "site-packages", *WHEELS),)
    return tmp_path / "site-packages"


def fetched(server: Server) -> list[str]:
    return [path.lstrip("/") for path, _ in server.requests if not path.endswith("index.json")]


@pytest.mark.usefixtures("here")
def test_thin_where_they_are_all_here_and_full_is_not_fetched(machine: Machine, both: Path) -> None:
    with serving(both.parent) as server:
        assert machine.run("install", "--index", f"{server.url}/", "--json") == 0, machine.err
        assert fetched(server) == [f"{THIN}.tar.zst"], "once: what was fetched to decide is what is installed"
    answer = json.loads(machine.out)
    assert (answer["package"]["name"], answer["package"]["layout"]) == (THIN, "thin")
    assert answer["installed"]["why"].startswith("Layout thin: NVIDIA's libraries are on this machine")
    assert {path.name for path in machine.lib.iterdir()} >= {"libcublas.so.12", "libcudnn.so.9"}


def test_full_where_one_byte_of_one_library_differs(machine: Machine, both: Path, here: Path) -> None:
    (library,) = here.rglob("libcudnn.so.9")
    library.write_bytes(b"!" + library.read_bytes()[1:])
    assert machine.run("install", "--index", str(both)) == 0, machine.err
    assert "Layout full: not all of NVIDIA's libraries are on this machine." in machine.out
    assert (machine.prefix / "current").resolve().name.startswith(MODERN)
    assert (machine.lib / "libcudnn.so.9").read_bytes() == libraries(WHEELS)["lib/libcudnn.so.9"]
    assert machine.litter() == []


def test_the_other_layout_of_a_package_is_linked_from_the_one_before(machine: Machine, both: Path) -> None:
    assert machine.run("install", "--index", str(both), "--layout", "full") == 0
    assert machine.run("install", "--index", str(both), "--layout", "thin") == 0, machine.err
    assert "Layout thin: as asked with --layout." in machine.out
    assert (machine.lib / "libcudnn.so.9").stat().st_nlink == 2
    assert machine.run("install", "--index", str(both)) == 0
    assert "Already installed" in machine.out, "auto is content with either"
    assert (machine.prefix / "current").resolve().name.startswith(THIN)


def test_zstd_goes_before_gzip(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release = write_release(tmp_path / "release", forms=FORMS).parent
    only = write_release(tmp_path / "gzip", version="1.24.0", forms=FORMS[1:])
    with serving(release) as server:
        assert machine.run("install", "--index", f"{server.url}/") == 0, machine.err
        assert machine.run("uninstall") == 0, machine.err
        missing = ToolMissingError("Nothing here can unpack zstd.")
        monkeypatch.setattr(decompression, "require_zstd", Mock(side_effect=missing))
        assert machine.run("install", "--index", f"{server.url}/") == 0, machine.err
        assert fetched(server) == [f"{MODERN}.tar.zst", f"{MODERN}.tar.gz"]
    assert "As gzip: nothing here can unpack zstd." in machine.out
    assert machine.run("verify") == 0
    assert machine.run("install", "--index", str(only)) == 0, machine.err
    assert "As gzip" not in machine.out
    with serving(write_release(tmp_path / "zstd", version="1.24.0").parent) as server:
        assert machine.run("install", "--index", f"{server.url}/") == 4
        assert fetched(server) == []


LEAN, LEAN_OF_BEFORE, FULL_BUILD = Build("lean"), Build("lean", format=3), Build("full")

LEAN_NAME, FULL_NAME = name_of("modern", build=LEAN), name_of("modern", "1.24.0", build=FULL_BUILD)


@pytest.mark.parametrize("spoil", [lambda data: data[:-30], lambda data: data[:500] + b"x" + data[501:]])
def test_a_damaged_gzip_is_no_full_disk(tmp_path: Path, spoil: object) -> None:
    release = write_release(tmp_path / "release", forms=(".tar.gz",)).parent
    path = tmp_path / "damaged.tar.gz"
    path.write_bytes(spoil((release / f"{MODERN}.tar.gz").read_bytes()))  # type: ignore[operator]  # a lambda
    with pytest.raises(IntegrityError, match="is damaged"), unpack.open_tar(path, Form.GZ) as stream:
        stream.read()


FAILS = "Transformer models fail at ONNX Runtime's default optimisation level"


@pytest.fixture
def before(tmp_path: Path) -> str:
    """Return the index of a release in format 3 with a package of profile lean."""
    return str(write_release(tmp_path / "before", builds=(LEAN_OF_BEFORE,)))


@pytest.fixture
def today(tmp_path: Path) -> str:
    return str(write_release(tmp_path / "today", version="1.24.0", builds=(FULL_BUILD,)))


def in_use(machine: Machine) -> str:
    return (machine.prefix / "current").resolve().name.rpartition("-")[0]


def test_a_lean_package_of_before_installs_and_says_what_fails(machine: Machine, before: str) -> None:
    said = machine.answer("install", "--index", before)
    assert in_use(machine) == LEAN_NAME
    assert [note[: len(LEAN_NAME) + 2 + len(FAILS)] for note in said["notes"]] == [f"{LEAN_NAME}: {FAILS}"]
    assert machine.run("verify") == 0, machine.err
    said = machine.answer("install", "--index", before)
    assert (said["installed"]["fresh"], said["installed"]["upgrade"]) == (False, None)
    assert FAILS in machine.answer("recommend", "--index", before)["notes"][0]


def test_it_gives_way_to_the_full_one_with_a_sentence_why(machine: Machine, before: str, today: str) -> None:
    machine.run("install", "--index", before)
    said = [machine.answer("install", "--index", today)["installed"] for _ in range(2)]
    assert said[0]["upgrade"].startswith(f"{LEAN_NAME} is replaced by {FULL_NAME}. {FAILS}")
    assert (said[1]["fresh"], said[1]["upgrade"]) == (False, None)
    assert machine.run("rollback") == 0, machine.err
    assert in_use(machine) == LEAN_NAME
    back = machine.answer("install", "--index", today)["installed"]
    assert (back["fresh"], in_use(machine)) == (False, FULL_NAME)
    assert "is replaced" in back["upgrade"]


def test_of_both_the_full_one_is_taken_and_the_lean_one_by_its_name(machine: Machine, tmp_path: Path) -> None:
    both = str(write_release(tmp_path / "both", builds=(LEAN, FULL_BUILD)))
    full = name_of("modern", build=FULL_BUILD)
    assert machine.run("install", "--index", both) == 0, machine.err
    assert in_use(machine) == full
    assert f"not {LEAN_NAME}: it has no CUDA kernels for operators that {full} runs" in machine.err
    said = machine.answer("install", "--index", both, "--variant", LEAN_NAME)
    assert in_use(machine) == LEAN_NAME
    assert (said["installed"]["upgrade"], FAILS in said["notes"][0]) == (None, True)
    assert machine.run("select", "--index", both, "--variant", f"{LEAN_NAME}x") == 2
    assert "A package's name is taken too" in machine.err


def test_a_lean_manifest_that_is_damaged_is_no_obstacle(machine: Machine, before: str, today: str) -> None:
    machine.run("install", "--index", before)
    (machine.prefix / "current" / "manifest.json").write_text("{")
    said = machine.answer("install", "--index", today)
    assert (said["installed"]["upgrade"], in_use(machine)) == (None, FULL_NAME)
