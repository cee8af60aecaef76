"""The values that have a form of their own: versions, pins, architectures, references, addresses.

Each pattern admits only characters that are safe in a Dockerfile, a shell line and a file name.
"""

from __future__ import annotations

import re

import yaml

from builder.config.cursor import Cursor
from builder.config.problems import nearest
from builder.config.shapes import INT, matching, one_of
from builder.errors import SchemaError, ValidationError
from builder.formats.addresses import API, API_FORM, REPOSITORY
from builder.formats.providers import CUDA, LINUX, PLATFORMS, PROVIDERS
from builder.gpu.architectures import Arch
from builder.gpu.table import GENERATION_NUMBERS, KNOWN_SM, SUFFIXES
from builder.project.inputs import Input, InputKind

_WHEEL = re.compile(r"[a-z0-9](?:[a-z0-9._-]*[a-z0-9])?==\d+(?:\.\d+)*(?:rc\d+)?(?:\.post\d+)?")
_SEGMENT = r"[A-Za-z0-9][A-Za-z0-9.+~_-]*"
_DEB = re.compile(rf"pool/(?:{_SEGMENT}/)+{_SEGMENT}\.deb")
_TARBALL = re.compile(rf"pool/(?:{_SEGMENT}/)+{_SEGMENT}\.tar\.(?:gz|bz2|xz)")
_GIT = re.compile(r"https://[A-Za-z0-9.-]+(?::\d+)?(?:/[A-Za-z0-9._-]+)+@[A-Za-z0-9][A-Za-z0-9._/+-]*")
_IMAGE_NAME = r"[a-z0-9][a-z0-9.-]*(?::\d+)?(?:/[a-z0-9][a-z0-9._-]*)*"
_IMAGE = re.compile(rf"{_IMAGE_NAME}(?::(?!latest$)[A-Za-z0-9_][A-Za-z0-9._-]*|@sha256:[0-9a-f]{{64}})")
_OTHER_PLATFORMS = "|".join(platform for platform in PLATFORMS if platform != LINUX)
_SPECS = {
    InputKind.WHEEL: re.compile(rf"{_WHEEL.pattern}(?:@(?:{_OTHER_PLATFORMS}))?"),
    InputKind.DEBIAN: re.compile(rf"pool/(?:{_SEGMENT}/)+{_SEGMENT}"),
    InputKind.GIT: _GIT,
    InputKind.IMAGE: _IMAGE,
}
_TAG = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._+-]|\{version\})*")
_FILE = re.compile(rf"(?:{_SEGMENT}/)*{_SEGMENT}")
_MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_VARIANT = re.compile(r"[a-z][a-z0-9-]{0,39}")
_DEPENDENCY = re.compile(r"[a-z][a-z0-9_]*")
_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]+")
_SUITE = re.compile(r"[a-z][a-z0-9-]*")
_ARCH = re.compile(r"(?P<number>[1-9]\d{0,3})(?P<suffix>[af]?)")
_ARCH_SPELLED = re.compile(r"(?:sm_|compute_)?(\d{1,2})\.?(\d)([af]?)")


def version(cursor: Cursor, form: str) -> str:
    """A version of a given form: ``X.Y`` is two numbers, ``X.Y.Z`` three."""
    numbers = r"\.".join([r"(?:0|[1-9]\d*)"] * (form.count(".") + 1))
    return matching(cursor, re.compile(numbers), "not a version", form)


def is_spec(item: Input) -> bool:
    """Whether an input's spec has the form of its kind."""
    return _SPECS[item.kind].fullmatch(item.spec) is not None


def wheel(cursor: Cursor) -> Input:
    """A wheel pinned to one version."""
    return Input.wheel(matching(cursor, _WHEEL, "not a pinned wheel", "name==version, name in lower case"))


def wheel_for(cursor: Cursor, platform: str) -> Input:
    """A wheel for a platform, pinned to one version."""
    return Input.wheel(wheel(cursor).spec, platform or LINUX)


def provider_name(name: str, cursor: Cursor) -> None:
    """Report a key that is no execution provider that packages are repacked for."""
    known = [provider for provider in PROVIDERS if provider != CUDA]
    if name not in known:
        allowed, hint = ", ".join(known), nearest(name, known)
        cursor.report(SchemaError, "not a provider", found="", allowed=allowed, hint=hint)


def deb(cursor: Cursor) -> Input:
    """A binary package in Debian's archive."""
    return Input.debian(matching(cursor, _DEB, "not a Debian package's path", "pool/…/name_version_arch.deb"))


def tarball(cursor: Cursor) -> Input:
    """A source tarball in Debian's archive."""
    allowed = "pool/…/name_version.orig.tar.gz, .bz2 or .xz"
    return Input.debian(matching(cursor, _TARBALL, "not a Debian source tarball's path", allowed))


def git(cursor: Cursor) -> Input:
    """A tag of a git repository."""
    allowed = "https://host/owner/name@tag"
    return Input(InputKind.GIT, matching(cursor, _GIT, "not a tag of a git repository", allowed))


def image(cursor: Cursor) -> Input:
    """A container image by tag or digest."""
    allowed = "name:tag or name@sha256:…; latest is no pin"
    return Input(InputKind.IMAGE, matching(cursor, _IMAGE, "not a pinned image", allowed))


def api(cursor: Cursor) -> str:
    """Base URL of a GitHub API. A token goes there, so plain http is for this machine only."""
    return matching(cursor, API, "not an API's base URL", API_FORM)


def repository(cursor: Cursor) -> str:
    """``owner/name``."""
    return matching(cursor, REPOSITORY, "not a repository", "owner/name")


def tag(cursor: Cursor) -> str:
    """A git tag in which ``{version}`` may stand."""
    return matching(cursor, _TAG, "not a tag", "letters, digits, . _ + - and {version}")


def file_path(cursor: Cursor) -> str:
    """A file of the project, relative to its root and inside it."""
    allowed = "letters, digits, . _ + ~ - and / between names"
    return matching(cursor, _FILE, "not a path inside the project", allowed)


def package(cursor: Cursor) -> str:
    """A binary package by name, for apt."""
    return matching(cursor, _PACKAGE, "not a Debian package's name", "lower case letters, digits, + . -")


def suite(cursor: Cursor) -> str:
    """A release of Debian by code name."""
    return matching(cursor, _SUITE, "not a Debian suite", "lower case letters, digits and -")


def generation(cursor: Cursor) -> str:
    """A GPU generation."""
    return one_of(cursor, GENERATION_NUMBERS)


def device(cursor: Cursor) -> str:
    """What a model runs on."""
    return one_of(cursor, ("gpu", "cpu"))


def variant_name(name: str, cursor: Cursor) -> None:
    """Report a key that is no variant's name: it becomes part of file names."""
    if _VARIANT.fullmatch(name) is None:
        allowed = "a lower case letter, then letters, digits or -, 40 in all"
        cursor.report(ValidationError, "not a variant's name", found="", allowed=allowed)


def dependency_name(name: str, cursor: Cursor) -> None:
    """Report a key that is no FetchContent name: it becomes part of a CMake variable."""
    if _DEPENDENCY.fullmatch(name) is None:
        allowed = "lower case letters, digits and _"
        cursor.report(ValidationError, "not a FetchContent name", found="", allowed=allowed)


def model(cursor: Cursor) -> str:
    """A model's name."""
    return matching(cursor, _MODEL, "not a model's name", "letters, digits, . _ -")


def arch(cursor: Cursor) -> Arch | None:
    """An architecture: a plain number, or one with its suffix. ``None`` when reported."""
    node = cursor.node
    found = _ARCH.fullmatch(node.value) if isinstance(node, yaml.ScalarNode) else None
    if node is None or found is None or not (node.tag == INT or found["suffix"]):
        allowed = "a number like 86, or 90a with its suffix"
        cursor.report(SchemaError, "not an architecture", allowed=allowed, hint=_as_number(node))
        return None
    number = int(found["number"])
    if number not in KNOWN_SM:
        _report_unknown_arch(cursor, number)
        return None
    if number < SUFFIXES[found["suffix"]].number:
        hint = "Suffix a came with sm_90, suffix f with sm_100."
        cursor.report(ValidationError, "no such suffix here", allowed=str(number), hint=hint)
    return Arch.parse(found[0])


def _report_unknown_arch(cursor: Cursor, number: int) -> None:
    allowed = ", ".join(str(known) for known in KNOWN_SM)
    close = min(KNOWN_SM, key=lambda known: abs(known - number))
    cursor.report(ValidationError, "not a CUDA architecture", allowed=allowed, hint=f"Did you mean {close}?")


def _as_number(node: yaml.Node | None) -> str:
    spelled = _ARCH_SPELLED.fullmatch(node.value) if isinstance(node, yaml.ScalarNode) else None
    return f"Write {''.join(spelled.groups())}, without quotes." if spelled else ""
