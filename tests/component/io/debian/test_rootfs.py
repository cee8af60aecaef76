"""Tests of Debian root file systems: the tools' arguments, and that no incomplete system is ever used."""

from __future__ import annotations

import hashlib
import io
import subprocess
import tarfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import pytest

from builder.config.inputs import DebianPackage
from builder.errors import (
    BuilderError,
    CommandError,
    DiskError,
    IntegrityError,
    ToolMissingError,
    TransferError,
)
from builder.io.debian.apt_mirror import AptMirrors
from builder.io.debian.rootfs import DebianRootfs
from builder.io.process import Completed, ProcessRunner
from tests.support.fakes.ports import FakeReporter
from tests.support.messages import Refused

MIRROR = "http://one.example/debian"

HOSTS_OWN = ("etc/apt/sources.list", "etc/hostname", "etc/resolv.conf")

SYSTEMS_OWN = ("etc/apt/apt.conf.d/01autoremove", "etc/os-release")

FIRST_NAME = "bookworm-e3b0c44298fc1c14.tar"
"""File name of a bare system whose tar had this machine's own files: it has the sha256 of an empty list."""


@dataclass
class Tools(ProcessRunner):
    """A stand-in for mmdebstrap, which leaves ``installed`` packages."""

    installed: Sequence[str] = ("base-files", "dpkg", "patch", "ccache")
    absent: set[str] = field(default_factory=set)
    error: BuilderError | None = None
    empty: bool = False
    listed: Sequence[str] | None = None
    """Packages whose files the index names; ``None`` stands for all that are installed."""
    links: Mapping[str, str] = field(default_factory=dict)
    """Targets of the system's links, by path."""
    calls: list[list[str]] = field(default_factory=list)
    epochs: list[str] = field(default_factory=list)

    def run(
        self,
        argv: Sequence[str],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        on_line: Callable[[str], None] | None = None,
        check: bool = True,
    ) -> Completed:
        if argv[0] in self.absent:
            raise ToolMissingError(f"{argv[0]} is not on PATH.")
        if argv[-1] == "--version":
            return Completed(code=0, stdout="mmdebstrap 1.3.5", stderr="")
        self.calls.append(list(argv))
        self.epochs.append((env or {}).get("SOURCE_DATE_EPOCH", ""))
        write_tar(Path(argv[-2]), () if self.empty else self.installed, self.listed, self.links)
        if self.error:
            raise self.error
        return Completed(code=0, stdout="", stderr="")


def status_of(packages: Sequence[str]) -> str:
    """Return dpkg's status file; two fields come in another order than in the index (``man 5
    deb-control``)."""
    return "".join(
        f"Package: {name}\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1:2-3\n"
        "Description: short\n and long\n\n"
        for name in packages
    )


def index_of(packages: Sequence[str]) -> str:
    """Return the text of a mirror's ``Packages`` file or of ``apt-cache show``, with two versions
    of each package."""
    return "".join(
        f"Package: {name}\nVersion: {version}\nArchitecture: amd64\n"
        f"Filename: pool/main/x/{name}_{version}_amd64.deb\nSHA256: {sha256_of(name, version)}\n\n"
        for name in packages
        for version in ("1:2-2", "1:2-3")
    )


def sha256_of(name: str, version: str = "1:2-3") -> str:
    return hashlib.sha256(f"{name} {version}".encode()).hexdigest()


def write_tree(tree: Path) -> None:
    """Write a tree with this machine's own files and with the system's."""
    for path in (*HOSTS_OWN, *SYSTEMS_OWN):
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_text("http://user:secret@mirror.example/debian")


def write_tar(
    path: Path,
    packages: Sequence[str],
    listed: Sequence[str] | None = None,
    links: Mapping[str, str] = MappingProxyType({}),
) -> None:
    files = {"dpkg/status": status_of(packages), "ortpacks/packages": index_of(listed or packages)}
    for name in packages:
        newest = index_of([name]).split("\n\n")[1]
        files[f"dpkg/status.d/{name}"] = f"{newest}\nMaintainer: Somebody\nDescription: short\n and long\n"
    with tarfile.open(path, "w") as archive:
        for name, text in files.items() if packages else ():
            info = tarfile.TarInfo(f"./var/lib/{name}")
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
        for name, target in links.items():
            link = tarfile.TarInfo(f"./{name}")
            link.type, link.linkname = tarfile.SYMTYPE, target
            archive.addfile(link)


def rootfs(
    cache: Path,
    tools: Tools,
    *,
    root: bool = True,
    offline: bool = False,
    keyring: Path = Path("/none"),
    mirror: str = MIRROR,
) -> DebianRootfs:
    return DebianRootfs(
        cache=cache,
        runner=tools,
        mirrors=AptMirrors(folder=cache, override=mirror),
        reporter=FakeReporter(),
        root=root,
        offline=offline,
        keyring=keyring,
    )


def left(cache: Path) -> list[str]:
    return sorted(path.name for path in (cache / "rootfs").glob("*"))


def test_made_once_with_sorted_packages(tmp_path: Path) -> None:
    tools = Tools()
    first = rootfs(tmp_path, tools).tar("bookworm", ["patch", "ccache"])
    assert rootfs(tmp_path, tools, offline=True).tar("bookworm", ["ccache", "patch"]) == first
    (call,) = tools.calls
    call = call[call.index("mmdebstrap") :]
    assert call[:3] == ["mmdebstrap", "--mode=root", "--variant=minbase"]
    assert {"--include=ccache,patch", "--format=tar"} < set(call)
    assert (call[-3], call[-1]) == ("bookworm", MIRROR)
    assert tools.epochs == ["1704067200"]
    assert left(tmp_path) == [first.name]


def test_no_system_has_device_files_which_an_engine_without_root_cannot_unpack(tmp_path: Path) -> None:
    """Defect moby#48064: mmdebstrap adds devices to the tar unless told not to."""
    tools = Tools()
    rootfs(tmp_path, tools).tar("bookworm", ["patch"])
    assert "--skip=output/dev" in tools.calls[0]


def test_the_bare_one_is_another_file(tmp_path: Path) -> None:
    tools = Tools()
    bare = rootfs(tmp_path, tools).tar("bookworm", ())
    assert rootfs(tmp_path, tools).has("bookworm", ())
    assert not rootfs(tmp_path, tools).has("bookworm", ["patch"])
    assert bare != rootfs(tmp_path, tools).tar("bookworm", ["patch"])
    assert not any(word.startswith("--include") for word in tools.calls[0])


def test_a_slim_system_has_the_packages_that_are_named_and_no_clean_up_of_apts(tmp_path: Path) -> None:
    tools = Tools()
    made = rootfs(tmp_path, tools).slim("bookworm", ["zlib1g", "libc6"], "amd64")
    assert rootfs(tmp_path, tools, offline=True).slim("bookworm", ["libc6", "zlib1g"], "amd64") == made
    assert rootfs(tmp_path, tools).slim("bookworm", ["libc6"], "amd64") != made
    call = tools.calls[0]
    assert {"--variant=custom", "--architectures=amd64", "--skip=output/dev,cleanup,check/qemu"} < set(call)
    assert not any(word.startswith("--include") for word in call)
    hook, forget = (word.partition("=")[2] for word in call if word.startswith("--customize-hook="))
    assert hook.startswith("LINKS=''\nset -- \"$1\" libc6 zlib1g\n")
    assert subprocess.run(["sh", "-n", "-c", hook], check=False).returncode == 0
    assert forget.startswith("rm -f")


def test_the_packages_of_a_slim_system_are_told_with_the_sums_of_the_signed_index(tmp_path: Path) -> None:
    made = rootfs(tmp_path, Tools(installed=("zlib1g", "libc6")))
    assert made.slim_packages("bookworm", ["zlib1g", "libc6"], "amd64") == tuple(
        DebianPackage(f"pool/main/x/{name}_1:2-3_amd64.deb", name, "1:2-3", "amd64", sha256_of(name))
        for name in ("libc6", "zlib1g")
    )


def test_of_another_architecture_nothing_is_run_and_busybox_has_the_links_that_ours_has(
    tmp_path: Path,
) -> None:
    tools = Tools(links={"bin/sh": "/bin/busybox", "usr/bin/wget": "/bin/busybox", "bin/x": "y"})
    made = rootfs(tmp_path, tools)
    assert made.slim("bookworm", ["busybox"], "arm64") != made.slim("bookworm", ["busybox"], "amd64")
    ours, theirs = tools.calls
    assert "--architectures=amd64" in ours
    assert "--architectures=arm64" in theirs
    hook = next(word for word in theirs if word.startswith("--customize-hook=LINKS="))
    assert hook.splitlines()[0] == "--customize-hook=LINKS='./bin/sh ./usr/bin/wget'"


def test_without_mmdebstrap_its_lack_is_told_and_nothing_is_made(tmp_path: Path, refused: Refused) -> None:
    tools = Tools(absent={"mmdebstrap"})
    with refused(ToolMissingError):
        rootfs(tmp_path, tools).slim("bookworm", ["libc6"], "amd64")
    with refused(ToolMissingError):
        rootfs(tmp_path, tools).tar("bookworm", ["patch"])
    assert (tools.calls, left(tmp_path)) == ([], [])


def test_what_is_this_machines_own_does_not_get_into_the_tar(tmp_path: Path) -> None:
    tools = Tools()
    rootfs(tmp_path, tools).tar("bookworm", ())
    hook = [word for word in tools.calls[0] if word.startswith("--customize-hook=")][-1]
    tree = tmp_path / "a tree"
    write_tree(tree)
    # man mmdebstrap calls a hook as: sh -c HOOK exec FOLDER
    subprocess.run(["sh", "-c", hook.partition("=")[2], "exec", str(tree)], check=True)
    assert [path for path in HOSTS_OWN if (tree / path).exists()] == []
    assert [path for path in SYSTEMS_OWN if not (tree / path).exists()] == []


def test_every_package_of_the_system_is_listed_by_its_file(tmp_path: Path) -> None:
    """The list outlives the tools that made it."""
    made = rootfs(tmp_path, Tools()).packages("bookworm", ["patch", "ccache"])
    assert [package.name for package in made] == ["base-files", "ccache", "dpkg", "patch"]
    path = "pool/main/x/patch_1:2-3_amd64.deb"
    assert made[-1] == DebianPackage(path, "patch", "1:2-3", "amd64", sha256_of("patch"))
    assert rootfs(tmp_path, Tools(), offline=True).packages("bookworm", ["patch", "ccache"]) == made


@pytest.mark.parametrize("slim", [False, True])
def test_a_damaged_system_in_the_cache_is_told_and_made_anew_by_the_same_command(
    tmp_path: Path, slim: bool
) -> None:
    """A cache of CI, say, that was not restored to its end."""
    made = rootfs(tmp_path, Tools())

    def read() -> tuple[DebianPackage, ...]:
        if slim:
            return made.slim_packages("bookworm", ["patch"], "amd64")
        return made.packages("bookworm", ["patch"])

    listed = read()
    (path,) = (tmp_path / "rootfs").glob("*.tar")
    for damaged in (b"", path.read_bytes()[:700]):
        path.write_bytes(damaged)
        with pytest.raises(IntegrityError, match=r"is incomplete: .*Run the same command again"):
            read()
        assert read() == listed


def test_a_snapshots_system_is_not_todays(tmp_path: Path) -> None:
    """A system from the archive of another day is in the cache, but must not be used."""
    tools = Tools()
    today = rootfs(tmp_path, tools).tar("bookworm", ())
    snapshots = [f"http://snapshot.example/archive/debian/{day}T000000Z/" for day in (20251101, 20251102)]
    made = [rootfs(tmp_path, tools, mirror=mirror).tar("bookworm", ()) for mirror in snapshots]
    assert len({today, *made}) == 3
    assert [call[-1] for call in tools.calls[1:]] == [mirror.rstrip("/") for mirror in snapshots]


def test_mmdebstraps_hook_keeps_what_apt_shows_and_fails_with_it(tmp_path: Path) -> None:
    """apt and dpkg are stand-ins: the hook prints what apt-cache shows, including fields that are
    not read."""
    tools = Tools()
    rootfs(tmp_path, tools).tar("bookworm", ())
    hook = next(word for word in tools.calls[0] if "apt-cache" in word).partition("=")[2]
    tree, programs = tmp_path / "a tree", tmp_path / "programs"
    write_tree(tree)
    programs.mkdir()
    shown = index_of(["patch"]).replace("\n\n", "\nSize: 9\nDescription: short\n and long\n\n")
    (programs / "dpkg-query").write_text("#!/bin/sh\nprintf 'patch=1:2-3 '\n")
    (programs / "apt-cache").write_text(
        f'#!/bin/sh\ntest "$APT_CONFIG $3" = "/apt.conf patch=1:2-3" || exit 1\ncat <<\'EOF\'\n{shown}EOF\n'
    )
    for program in programs.iterdir():
        program.chmod(0o755)
    env = {"PATH": f"{programs}:/usr/bin:/bin", "MMDEBSTRAP_APT_CONFIG": "/apt.conf"}
    run = ["sh", "-c", hook, "exec", str(tree)]
    subprocess.run(run, check=True, env=env)
    assert (tree / "var/lib/ortpacks/packages").read_text().strip() == index_of(["patch"]).strip()
    (programs / "apt-cache").write_text("#!/bin/sh\nexit 100\n")
    assert subprocess.run(run, check=False, env=env).returncode == 100


def test_a_tar_that_was_made_another_way_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = rootfs(tmp_path, Tools()).tar("bookworm", ())
    assert made.name != FIRST_NAME
    monkeypatch.setattr("builder.io.debian.rootfs.REMOVE_HOST_FILES_HOOK", "true")
    assert rootfs(tmp_path, Tools()).tar("bookworm", ()) != made


def test_debians_keys_are_named_where_they_are(tmp_path: Path) -> None:
    keyring = tmp_path / "debian-archive-keyring.gpg"
    keyring.touch()
    there, absent = Tools(), Tools()
    rootfs(tmp_path / "one", there, keyring=keyring).tar("bookworm", ())
    rootfs(tmp_path / "two", absent).tar("bookworm", ())
    assert f"--keyring={keyring}" in there.calls[0]
    assert not any(word.startswith("--keyring") for word in absent.calls[0])


def test_without_root_it_uses_a_user_namespace(tmp_path: Path) -> None:
    tools = Tools()
    rootfs(tmp_path, tools, root=False).tar("bookworm", ())
    assert tools.calls[0][:4] == ["setsid", "--wait", "mmdebstrap", "--mode=unshare"]


@pytest.mark.parametrize(
    ("root", "message", "tail", "kind"),
    [
        (False, "setsid exited with 25", "E: cannot find newuidmap", CommandError),
        (False, "setsid exited with 25", "W: no entry in /etc/subuid for ci", CommandError),
        (True, "failed", "E: Failed to fetch http://one.example/InRelease", TransferError),
        (True, "failed", "tar: write error: No space left on device", DiskError),
        (True, "no such suite", "", CommandError),
    ],
)
def test_what_a_tool_said_decides_what_is_wrong(
    tmp_path: Path, refused: Refused, root: bool, message: str, tail: str, kind: type[BuilderError]
) -> None:
    tools = Tools(error=CommandError(message, tail=(tail, "E: tar failed")))
    with refused(kind):
        rootfs(tmp_path, tools, root=root).tar("bookworm", ())
    assert left(tmp_path) == []


@pytest.mark.parametrize(
    "tools",
    [
        Tools(empty=True),
        Tools(installed=("base-files", "dpkg")),
        Tools(listed=("base-files", "dpkg", "ccache")),
    ],
    ids=["empty", "half", "unknown origin"],
)
def test_an_incomplete_system_is_never_used(tmp_path: Path, refused: Refused, tools: Tools) -> None:
    with refused(IntegrityError):
        rootfs(tmp_path, tools).tar("bookworm", ["patch"])
    assert left(tmp_path) == []


def test_offline_and_not_cached(tmp_path: Path) -> None:
    tools = Tools()
    with pytest.raises(TransferError, match=r"Debian bookworm with patch is not in the cache.*--offline"):
        rootfs(tmp_path, tools, offline=True).tar("bookworm", ["patch"])
    assert tools.calls == []
