"""Reader of pip's package index (PEP 691): the wheels of a project, one for each Python."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from builder.errors import TransferError
from builder.files.http_client import Web, read_small
from builder.files.http_opener import open_url, trusted_certificates
from builder.formats.text import redacted
from builder.ports import Runner
from builder.project.inputs import Input, Pin

_PYPI = "https://pypi.org/simple"

_JSON = "application/vnd.pypi.simple.v1+json"

_LIMIT = 64 << 20
"""The most bytes of a project's page; that of onnxruntime-gpu has 100 kB."""

_PLATFORM = "_x86_64"


@dataclass(frozen=True)
class PackageIndex:
    """The package index that ``PIP_INDEX_URL`` or else pip's configuration names; PyPI by default."""

    runner: Runner
    env: Mapping[str, str]
    python: str
    """The interpreter that has pip, to read pip's configuration."""
    say: Callable[[str], None]

    def python_wheels(self, requirement: str) -> Mapping[Input, Pin]:
        """Return the wheels of ``name==version`` for Linux on x86-64, one for each interpreter and ABI.

        Raises ``TransferError``, also when the index lists none or has HTML only.
        """
        name = requirement.partition("==")[0]
        url = f"{self._url().rstrip('/')}/{canonicalize_name(name)}/"
        found = dict(_wheels(self._page(url), requirement))
        if not found:
            raise TransferError(
                f"{redacted(url)} lists no wheel of {requirement} for Linux on x86-64 with its size "
                "and sha256.",
                advice="Set PIP_INDEX_URL to an index that does: PyPI, or a mirror of it with PEP 700.",
            )
        return found

    def _page(self, url: str) -> object:
        opened = partial(open_url, certificates=trusted_certificates(self.env))
        web = Web(
            open=lambda where, headers: opened(where, {**headers, "Accept": _JSON}),
            sleep=time.sleep,
            progress=lambda _done, _total: None,
            say=self.say,
        )
        try:
            return json.loads(read_small(url, _LIMIT, web))
        except (ValueError, RecursionError) as error:
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


def _wheels(page: object, requirement: str) -> Iterator[tuple[Input, Pin]]:
    files = page.get("files") if isinstance(page, dict) else None
    for file in files if isinstance(files, list) else ():
        if not isinstance(file, dict) or file.get("yanked"):
            continue
        name, size, hashes = file.get("filename"), file.get("size"), file.get("hashes")
        sha256 = hashes.get("sha256") if isinstance(hashes, dict) else None
        if isinstance(name, str) and isinstance(size, int) and isinstance(sha256, str):
            python = _python_of(name, requirement)
            if python:
                yield Input.for_python(requirement, python), Pin(filename=name, size=size, sha256=sha256)


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
