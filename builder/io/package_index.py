"""Reader of pip's package index (PEP 691): the versions of a project, and its wheels for each Python."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version
from pydantic import BaseModel

from builder.config.inputs import Input, Pin, ort_wheel
from builder.errors import TransferError, ValidationError
from builder.files.http_client import NotThereError, Web, read_small
from builder.files.http_opener import open_url, trusted_certificates
from builder.formats.package_names import PLATFORMS
from builder.formats.text import redacted
from builder.io.process import ProcessRunner
from builder.io.wheel import accepted_tags, download_wheel

_PYPI = "https://pypi.org/simple"

_JSON = "application/vnd.pypi.simple.v1+json"

_LIMIT = 64 << 20
"""The most bytes of a project's page; that of onnxruntime-gpu has 100 kB."""

_PLATFORM = "_x86_64"


class _File(BaseModel):
    filename: str
    hashes: dict[str, str] = {}
    size: int | None = None
    yanked: bool | str = False


class _Page(BaseModel):
    """A project's page (PEP 691), which has sizes since PEP 700."""

    files: list[_File]


@dataclass(frozen=True)
class PackageIndex:
    """The package index that ``PIP_INDEX_URL`` or else pip's configuration names; PyPI by default."""

    runner: ProcessRunner
    env: Mapping[str, str]
    python: str
    """The interpreter that has pip, to read pip's configuration."""
    say: Callable[[str], None]

    def python_wheels(self, requirement: str) -> Mapping[Input, Pin]:
        """Return the wheels of ``name==version`` for Linux on x86-64, one for each interpreter and ABI.

        Raises ``ValidationError`` for a version that the index does not have, and ``TransferError``, also
        when the index has HTML only, or lists no sizes.
        """
        url = self._project_url(requirement.partition("==")[0])
        wheels = dict(_wheels(self._page(url), requirement))
        if not wheels:
            self.require_version(Input.wheel(requirement))
            raise TransferError(
                f"{redacted(url)} lists no wheel of {requirement} for Linux on x86-64 with its size "
                "and sha256.",
                advice="Set PIP_INDEX_URL to an index that does: PyPI, or a mirror of it with PEP 700.",
            )
        return wheels

    def download(self, item: Input, pin: Pin | None, folder: Path) -> Path:
        """Download a wheel with pip (``io.store.Source``).

        Raises ``ValidationError`` for a version that the index does not have.
        """
        try:
            return download_wheel(self.runner, item, pin, folder)
        except TransferError:
            self.require_version(item)
            raise

    def require_version(self, wheel: Input) -> None:
        """Raise ``ValidationError`` with the nearest versions if the index has no such version.

        Nothing is raised for an index that is out of reach or has no JSON of PEP 691.
        """
        if wheel.platform not in PLATFORMS or self.env.get("PIP_NO_INDEX"):
            return
        name, _, version = wheel.requirement.partition("==")
        url = self._project_url(name)
        try:
            there = _versions(self._page(url, patient=False), wheel.platform)
        except NotThereError:
            there = set()
        except TransferError:
            return
        wanted = Version(version)
        if wanted not in there:
            raise _missing(wheel, redacted(url), wanted, there)

    def _project_url(self, name: str) -> str:
        return f"{self._url().rstrip('/')}/{canonicalize_name(name)}/"

    def _page(self, url: str, *, patient: bool = True) -> _Page:
        opened = partial(open_url, certificates=trusted_certificates(self.env))
        web = Web(
            open=lambda where, headers: opened(where, {**headers, "Accept": _JSON}),
            sleep=time.sleep if patient else lambda _: None,
            progress=lambda _done, _total: None,
            say=self.say if patient else lambda _: None,
        )
        try:
            return _Page.model_validate_json(read_small(url, _LIMIT, web))
        except ValueError as error:
            raise TransferError(
                f"{redacted(url)} is no JSON of PEP 691.",
                advice="Set PIP_INDEX_URL to an index that serves such JSON, for example PyPI.",
            ) from error

    def _url(self) -> str:
        if named := self.env.get("PIP_INDEX_URL"):
            return named
        argv = [self.python, "-m", "pip", "config", "get", "global.index-url"]
        done = self.runner.run(argv, check=False)
        return done.stdout.strip() if done.code == 0 and done.stdout.strip() else _PYPI


def _missing(wheel: Input, url: str, wanted: Version, there: Iterable[Version]) -> ValidationError:
    """Return the error for a version that the index at ``url`` lacks, with those around it."""
    released = [version for version in there if not version.is_prerelease]
    below = max((version for version in released if version < wanted), default=None)
    above = min((version for version in released if version > wanted), default=None)
    nearest = " and ".join(str(version) for version in (below, above) if version)
    advice = "Correct the version in variants.yaml"
    if wheel == ort_wheel(str(wanted)):
        advice += (
            ", or set onnxruntime.host: source (--host source): all of ONNX Runtime is compiled, without the "
            "wheel"
        )
    elif wheel == ort_wheel(str(wanted), wheel.platform):
        advice += f", or remove the variants for {wheel.platform}, which repack this wheel"
    return ValidationError(
        f"{wheel.requirement} is not on the package index for {wheel.platform}",
        cause=f"{url} has {f'{nearest}, the nearest' if nearest else 'no version of it'}",
        advice=f"{advice}.",
    )


def _versions(page: _Page, platform: str) -> set[Version]:
    tags, in_index = accepted_tags(platform), set()
    for file in page.files:
        with suppress(InvalidWheelFilename):
            _, version, _, own = parse_wheel_filename(file.filename)
            if own & tags:
                in_index.add(version)
    return in_index


def _wheels(page: _Page, requirement: str) -> Iterator[tuple[Input, Pin]]:
    for file in page.files:
        python, sha256 = _python_of(file.filename, requirement), file.hashes.get("sha256")
        if python and sha256 and file.size is not None and not file.yanked:
            pin = Pin(filename=file.filename, size=file.size, sha256=sha256)
            yield Input.wheel(requirement, python), pin


def _python_of(file: str, requirement: str) -> str | None:
    """Return ``cp313-cp313t`` for a wheel of the requirement for Linux on x86-64, ``None`` for any other."""
    try:
        name, version, _, tags = parse_wheel_filename(file)
    except InvalidWheelFilename:
        return None
    linux = [tag for tag in tags if tag.platform.startswith("manylinux") and tag.platform.endswith(_PLATFORM)]
    if f"{name}=={version}" != requirement or not linux:
        return None
    return f"{linux[0].interpreter}-{linux[0].abi}"
