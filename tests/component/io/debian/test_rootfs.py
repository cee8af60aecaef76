"""Tests of Debian root file systems: the tools' arguments, and that no incomplete system is ever used."""

import hashlib
import re
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from builder import errors
from builder.config.inputs import DebianPackage
from builder.io.debian.apt_mirror import AptMirrors
from builder.io.debian.rootfs import DebianRootfs
from builder.io.process import Completed, ProcessRunner
from tests.support.factories.archives import member, tar
from tests.support.fakes.ports import FakeReporter
from tests.support.messages import Refused, Told
from tests.support.tables import table

MIRROR = "http://one.example/debian"

HOSTS_OWN = ("etc/apt/sources.list", "etc/hostname", "etc/resolv.conf")

SYSTEMS_OWN = ("etc/apt/apt.conf.d/01autoremove", "etc/os-release")


@dataclass
class Tools(ProcessRunner):
    """A stand-in for mmdebstrap, which leaves ``installed`` packages."""

    installed: Sequence[str] = ("base-files", "dpkg", "patch", "ccache")
    absent: set[str] = field(default_factory=set)
    error: errors.BuilderError | None = None
    listed: Sequence[str] | None = None
    """Packages whose files the index names; ``None`` stands for all that are installed."""
    links: Mapping[str, str] = field(default_factory=dict)
    """Targets of the system's links, by path."""
    calls: list[list[str]] = field(default_factory=list)
    epochs: list[str] = field(default_factory=list)

    def run(self, argv: Sequence[str], **more: Any) -> Completed:  # noqa: ANN401 - see ``ProcessRunner``
        if argv[0] in self.absent:
            raise errors.ToolMissingError(f"{argv[0]} is not on PATH.")
        if argv[-1] == "--version":
            return Completed(code=0, stdout="mmdebstrap 1.3.5", stderr="")
        self.calls.append(list(argv))
        self.epochs.append((more.get("env") or {}).get("SOURCE_DATE_EPOCH", ""))
        write_tar(Path(argv[-2]), self)
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


def write_tar(path: Path, tools: Tools) -> None:
    packages = tools.installed
    files = {"dpkg/status": status_of(packages), "ortpacks/packages": index_of(tools.listed or packages)}
    for name in packages:
        newest = index_of([name]).split("\n\n")[1]
        files[f"dpkg/status.d/{name}"] = f"{newest}\nMaintainer: Somebody\nDescription: short\n and long\n"
    members = [member(f"./var/lib/{name}", text.encode()) for name, text in files.items() if packages]
    links = [member(f"./{name}", type=tarfile.SYMTYPE, linkname=to) for name, to in tools.links.items()]
    path.write_bytes(tar(*members, *links))


def rootfs(cache: Path, tools: Tools, mirror: str = MIRROR, **changes: object) -> DebianRootfs:
    mirrors = AptMirrors(folder=cache, override=mirror)
    made = DebianRootfs(
        cache=cache, runner=tools, mirrors=mirrors, reporter=FakeReporter(), root=True, keyring=Path("/none")
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def left(cache: Path) -> list[str]:
    return sorted(path.name for path in (cache / "rootfs").glob("*"))


def words(call: Sequence[str]) -> str:
    """Return a command, without what differs from run to run and with two lines of each script."""
    said = "\n".join(line for word in call for line in word.splitlines()[:2])
    return re.sub(r"\.part-\d+-[0-9a-f]+", ".part", said)


def test_made_once_with_sorted_packages(tmp_path: Path, told: Told) -> None:
    """Defect moby#48064: an engine without root cannot unpack devices, so mmdebstrap is told to skip them."""
    tools = Tools()
    first = rootfs(tmp_path, tools).tar("bookworm", ["patch", "ccache"])
    assert rootfs(tmp_path, tools, offline=True).tar("bookworm", ["ccache", "patch"]) == first
    (call,) = tools.calls
    told(words(call))
    assert tools.epochs == ["1704067200"]
    assert left(tmp_path) == [first.name]


def test_the_bare_one_is_another_file_and_needs_a_user_namespace(tmp_path: Path, told: Told) -> None:
    keyring, tools = tmp_path / "debian-archive-keyring.gpg", Tools()
    keyring.touch()
    bare = rootfs(tmp_path, tools, root=False, keyring=keyring).tar("bookworm", ())
    told(words(tools.calls[0]))
    assert rootfs(tmp_path, tools).has("bookworm", ())
    assert not rootfs(tmp_path, tools).has("bookworm", ["patch"])
    assert bare != rootfs(tmp_path, tools).tar("bookworm", ["patch"])


def test_a_slim_system_has_its_packages_and_no_clean_up_of_apts(tmp_path: Path, told: Told) -> None:
    tools = Tools()
    made = rootfs(tmp_path, tools).slim("bookworm", ["zlib1g", "libc6"], "amd64")
    assert rootfs(tmp_path, tools, offline=True).slim("bookworm", ["libc6", "zlib1g"], "amd64") == made
    assert rootfs(tmp_path, tools).slim("bookworm", ["libc6"], "amd64") != made
    told(words(tools.calls[0]))
    hooks = (word.partition("=")[2] for word in tools.calls[0] if word.startswith("--customize-hook="))
    assert [subprocess.run(["sh", "-n", "-c", hook], check=False).returncode for hook in hooks] == [0, 0]


def test_of_another_architecture_nothing_is_run_and_busybox_has_our_links(tmp_path: Path) -> None:
    tools = Tools(links={"bin/sh": "/bin/busybox", "usr/bin/wget": "/bin/busybox", "bin/x": "y"})
    made = rootfs(tmp_path, tools)
    assert made.slim("bookworm", ["busybox"], "arm64") != made.slim("bookworm", ["busybox"], "amd64")
    ours, theirs = tools.calls
    assert "--architectures=amd64" in ours
    assert "--architectures=arm64" in theirs
    hook = next(word for word in theirs if word.startswith("--customize-hook=LINKS="))
    assert hook.splitlines()[0] == "--customize-hook=LINKS='./bin/sh ./usr/bin/wget'"


def test_what_is_this_machines_own_does_not_get_into_the_tar(tmp_path: Path) -> None:
    tools = Tools()
    rootfs(tmp_path, tools).tar("bookworm", ())
    hook = [word for word in tools.calls[0] if word.startswith("--customize-hook=")][-1]
    tree = tmp_path / "a tree"
    for path in (*HOSTS_OWN, *SYSTEMS_OWN):
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_text("http://user:secret@mirror.example/debian")
    # man mmdebstrap calls a hook as: sh -c HOOK exec FOLDER
    subprocess.run(["sh", "-c", hook.partition("=")[2], "exec", str(tree)], check=True)
    assert [path for path in HOSTS_OWN if (tree / path).exists()] == []
    assert [path for path in SYSTEMS_OWN if not (tree / path).exists()] == []


@pytest.mark.parametrize("slim", [False, True])
def test_packages_are_listed_by_their_files_and_a_damaged_system_is_made_anew(
    tmp_path: Path, slim: bool
) -> None:
    """The list outlives the tools that made it. A cache of CI, say, was not restored to its end."""

    def read(*, offline: bool = False) -> tuple[DebianPackage, ...]:
        made = rootfs(tmp_path, Tools(), offline=offline)
        how = partial(made.slim_packages, arch="amd64") if slim else made.packages
        return how("bookworm", ["patch", "ccache"])

    listed = tuple(
        DebianPackage(f"pool/main/x/{name}_1:2-3_amd64.deb", name, "1:2-3", "amd64", sha256_of(name))
        for name in ("base-files", "ccache", "dpkg", "patch")
    )
    assert read() == read(offline=True) == listed
    (path,) = (tmp_path / "rootfs").glob("*.tar")
    for damaged in (b"", path.read_bytes()[:700]):
        path.write_bytes(damaged)
        with pytest.raises(errors.IntegrityError, match=r"is incomplete: .*Run the same command again"):
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


@pytest.mark.parametrize(("who", "message", "tail", "kind"), table("debian/mmdebstrap.txt"))
def test_what_a_tool_said_decides_what_is_wrong(
    tmp_path: Path, refused: Refused, who: str, message: str, tail: str, kind: str
) -> None:
    tools = Tools(error=errors.CommandError(message, tail=(tail, "E: tar failed")))
    with refused(getattr(errors, kind)):
        rootfs(tmp_path, tools, root=who == "root").tar("bookworm", ())
    assert left(tmp_path) == []


@pytest.mark.parametrize("slim", [True, False])
def test_without_mmdebstrap_its_lack_is_told(tmp_path: Path, refused: Refused, slim: bool) -> None:
    tools = Tools(absent={"mmdebstrap"})
    made = rootfs(tmp_path, tools)
    with refused(errors.ToolMissingError):
        made.slim("bookworm", ["libc6"], "amd64") if slim else made.tar("bookworm", ())
    assert (tools.calls, left(tmp_path)) == ([], [])


@pytest.mark.parametrize(
    "tools",
    [
        Tools(installed=()),
        Tools(installed=("base-files", "dpkg")),
        Tools(listed=("base-files", "dpkg", "ccache")),
    ],
    ids=["empty", "half", "unknown origin"],
)
def test_an_incomplete_system_is_never_used(tmp_path: Path, refused: Refused, tools: Tools) -> None:
    with refused(errors.IntegrityError):
        rootfs(tmp_path, tools).tar("bookworm", ["patch"])
    assert left(tmp_path) == []


def test_offline_and_not_cached(tmp_path: Path, refused: Refused) -> None:
    tools = Tools()
    with refused(errors.TransferError):
        rootfs(tmp_path, tools, offline=True).tar("bookworm", ["patch"])
    assert tools.calls == []
