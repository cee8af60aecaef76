"""The kinds of values in ``variants.yaml`` and ``inputs.lock``, as types that pydantic reads.

Each type defines how a value is written, what the value becomes, and its JSON schema. A pattern admits only
characters that are safe in a Dockerfile, a shell line and a file name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Annotated, ClassVar, TypeVar

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    GetPydanticSchema,
    WithJsonSchema,
)
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from builder.config.inputs import TARS, Input, InputKind
from builder.facts.gpu.architectures import Arch, architectures
from builder.facts.gpu.table import GENERATION_NUMBERS, KNOWN_SM, SUFFIXES
from builder.formats.package_names import LINUX, PLATFORMS

S = TypeVar("S")

TAG = "\0"
"""The first character of pydantic's names for the kinds of ``by_key``, which stand among the keys in a
location. No key that somebody types begins with it."""


class ProjectSection:
    """Base of the mappings of a file. Unknown keys are refused; schemas show the docstrings."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", use_attribute_docstrings=True)


@dataclass(frozen=True)
class Unread:
    """A scalar of YAML that is not text, a whole number, ``true``, ``false`` or null: ``12.9``, ``yes``."""

    spelled: str


@dataclass(frozen=True)
class TextForm:
    """A form of text, given by a pattern. The error for other text has ``what`` and ``allowed``."""

    what: str
    pattern: str
    allowed: str

    def __get_pydantic_core_schema__(self, _source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._matched, handler.generate_schema(str))

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, object]:
        pattern = f"(?:{self.pattern})" if "|" in self.pattern else self.pattern
        return {**handler(core), "pattern": f"^{pattern}$"}

    def _matched(self, text: str) -> str:
        if re.fullmatch(self.pattern, text) is None:
            raise wrong("wrong_value", f"not {self.what}", self.allowed)
        return text


def wrong(kind: str, message: str, allowed: str, hint: str = "") -> PydanticCustomError:
    """Return the error of a value; ``kind`` is ``wrong_type`` or ``wrong_value``, ``hint`` a sentence."""
    return PydanticCustomError(kind, "{message}", {"message": message, "allowed": allowed, "hint": hint})


def written_as(shape: object, make: Callable[[S], object] | None = None) -> GetPydanticSchema:
    """Return the annotation of a value that is written in the file as a ``shape``; ``make`` converts it."""

    def schema(_source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        written = handler.generate_schema(shape)
        return core_schema.no_info_after_validator_function(make, written) if make else written

    return GetPydanticSchema(schema)


def by_role(kind: object, *roles: str) -> GetPydanticSchema:
    """Return the annotation of a mapping that has exactly the keys ``roles``, with a ``kind`` for each."""

    def schema(_source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        fields = {role: core_schema.typed_dict_field(handler.generate_schema(kind)) for role in roles}
        return core_schema.typed_dict_schema(fields, extra_behavior="forbid")

    return GetPydanticSchema(schema)


def by_key(**kinds: object) -> GetPydanticSchema:
    """Return the annotation of a mapping of one of several ``kinds``, each with the key that marks it.

    A mapping without any of these keys is of the first kind.
    """

    def schema(_source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        choices = {f"{TAG}{key}": handler.generate_schema(kind) for key, kind in kinds.items()}
        return core_schema.tagged_union_schema(choices, discriminator=chosen)

    def chosen(value: object) -> str:
        there = [key for key in kinds if isinstance(value, dict) and key in value]
        return f"{TAG}{[*there, *kinds][0]}"

    return GetPydanticSchema(schema)


def one_of(words: Iterable[str]) -> GetPydanticSchema:
    """Return the annotation of text that is one of ``words``."""
    return GetPydanticSchema(lambda _source, _handler: core_schema.literal_schema(list(words)))


_NUMBER = r"(?:0|[1-9][0-9]{0,8})"

_SEGMENT = r"[A-Za-z0-9][A-Za-z0-9.+~_-]*"

_POOL = rf"pool/(?:{_SEGMENT}/)+{_SEGMENT}"

_DEB = rf"pool/(?:{_SEGMENT}/)+[A-Za-z0-9][A-Za-z0-9.+-]*_[0-9][A-Za-z0-9.+~-]*_[a-z0-9-]+\.deb"

_WHEEL = r"[a-z0-9](?:[a-z0-9._-]*[a-z0-9])?==[0-9]{1,9}(?:\.[0-9]{1,9})*(?:rc[0-9]+)?(?:\.post[0-9]+)?"

_CONTROL = r"\x00-\x1f\x7f"

_HOST = r"[A-Za-z0-9][A-Za-z0-9.-]*"

_USER = r"[A-Za-z0-9_][A-Za-z0-9._-]*@"

_REPOSITORY = (
    rf"(?:(?:https?|ssh|git)://(?:{_USER})?{_HOST}(?::[0-9]+)?(?:/[A-Za-z0-9._~-]+)+"
    rf"|{_USER}{_HOST}:[A-Za-z0-9._~/-]+"
    rf"|(?:file://)?/[^{_CONTROL}]*[^@\s])"
)

_REF = rf"[^{_CONTROL}\s~^:?*\[\\@./-][^{_CONTROL}\s~^:?*\[\\@]*"

_URL = r"https://[A-Za-z0-9.-]+(?::[0-9]+)?(?:/[A-Za-z0-9._+~-]+)+"

_PATH = rf"/(?:[^{_CONTROL}]*\S)?"

_IMAGE_NAME = r"[a-z0-9][a-z0-9.-]*(?::[0-9]+)?(?:/[a-z0-9][a-z0-9._-]*)*"

_IMAGE = rf"{_IMAGE_NAME}(?::(?!latest$)[A-Za-z0-9_][A-Za-z0-9._-]*|@sha256:[0-9a-f]{{64}})"

_OTHER_PLATFORMS = "|".join(platform for platform in PLATFORMS if platform != LINUX)

_PYTHON = r"cp[0-9]{2,4}-cp[0-9]{2,4}t?"

SPECS = {
    InputKind.WHEEL: rf"{_WHEEL}(?:@(?:{_OTHER_PLATFORMS}|{_PYTHON}))?",
    InputKind.DEBIAN: _POOL,
    InputKind.GIT: f"{_REPOSITORY}@{_REF}",
    InputKind.IMAGE: _IMAGE,
    InputKind.REDIST: rf"{_NUMBER}(?:\.{_NUMBER}){{2}}/[a-z][a-z0-9_]*",
    InputKind.URL: _URL,
    InputKind.FILE: _PATH,
}
"""The pattern of an input's name in ``inputs.lock``, by its kind."""


def _version(form: str) -> TextForm:
    return TextForm("a version", r"\.".join([_NUMBER] * (form.count(".") + 1)), form)


def _input(kind: InputKind, what: str, pattern: str, allowed: str) -> GetPydanticSchema:
    return written_as(Annotated[str, TextForm(what, pattern, allowed)], partial(Input, kind))


TwoNumbers = Annotated[str, _version("X.Y")]

ThreeNumbers = Annotated[str, _version("X.Y.Z")]

FourNumbers = Annotated[str, _version("W.X.Y.Z")]

WHEEL = _input(InputKind.WHEEL, "a pinned wheel", _WHEEL, "name==version, name in lower case")

Wheel = Annotated[Input, WHEEL]

Deb = Annotated[
    Input,
    _input(InputKind.DEBIAN, "a Debian package's path", _DEB, "pool/…/name_version_arch.deb"),
]

_TAR = rf"(?:{'|'.join(re.escape(end) for end in TARS)})"

_TARBALL = rf"(?:{_POOL}|{_URL}|{_PATH}){_TAR}"


def origin(text: str) -> Input:
    """Return the input that a checked text names: of PyPI, Debian, the web or this machine."""
    kinds = (InputKind.WHEEL, InputKind.DEBIAN, InputKind.URL, InputKind.FILE)
    kind = next(kind for kind in kinds if re.fullmatch(SPECS[kind], text))
    is_folder = kind is InputKind.FILE and not text.endswith(TARS)
    return Input(InputKind.TREE if is_folder else kind, text)


TARBALL_FORM = TextForm(
    "a source archive",
    _TARBALL,
    f"pool/… of Debian's archive, https://… or /a/path, each with {', '.join(TARS)} at its end",
)

Tarball = Annotated[Input, written_as(Annotated[str, TARBALL_FORM], origin)]

Folder = Annotated[Input, _input(InputKind.TREE, "a folder", _PATH, "its whole path, /home/me/onnxruntime")]


def repository(text: str) -> Input:
    """Return the git input that a text of ``GIT_FORM`` names."""
    return Input(InputKind.GIT, text if re.fullmatch(SPECS[InputKind.GIT], text) else f"{text}@HEAD")


GIT_FORM = TextForm(
    "a git repository",
    rf"{_REPOSITORY}(?:@{_REF})?",
    "https://host/owner/name, ssh://…, git@host:…, file:///… or /a/path; then @ and a tag, a branch or a "
    "whole commit, or nothing for its HEAD",
)

Git = Annotated[Input, written_as(Annotated[str, GIT_FORM], repository)]


@dataclass(frozen=True)
class Override:
    """What a build gets in place of an archive of ``cmake/deps.txt``."""

    item: Input | None
    """``None``: nothing, an empty folder."""
    folder: str = ""
    """Folder in a wheel or a Debian package that is a source tree; without one the package has headers."""

    @property
    def wheel(self) -> Input | None:
        """The wheel that it comes from."""
        return self.item if self.item and self.item.kind is InputKind.WHEEL else None

    @property
    def deb(self) -> Input | None:
        """The Debian package that it comes from."""
        return self.item if self.item and self.item.spec.endswith(".deb") else None

    @property
    def tree(self) -> Input | None:
        """The source archive or folder that it is."""
        return None if self.wheel or self.deb else self.item

    @property
    def public(self) -> str:
        """Its text, without the folders of this machine."""
        return f"{self.item.public if self.item else NOTHING}{self.folder and '#'}{self.folder}"

    @property
    def has_headers_alone(self) -> bool:
        """Whether it is a package's headers, without a source tree."""
        return bool(self.wheel or self.deb) and not self.folder


NOTHING = "none"


def override(text: str) -> Override:
    """Return what a text of ``DEPENDENCY_FORM`` names."""
    named, _, folder = text.partition("#") if re.match(rf"{_WHEEL}#|pool/", text) else (text, "", "")
    return Override(None if text == NOTHING else origin(named), folder)


DEPENDENCY_FORM = TextForm(
    "a dependency's source",
    rf"{NOTHING}|(?:{_WHEEL}|{_DEB})(?:#{_SEGMENT}(?:/{_SEGMENT})*)?|{_TARBALL}|{_PATH}",
    "name==version or pool/….deb, with #folder or without; pool/…, https://… or /a/path with "
    f"{', '.join(TARS)} at its end; /a/folder; or {NOTHING}",
)

Dependency = Annotated[Override, written_as(Annotated[str, DEPENDENCY_FORM], override)]

_IN_RELEASE = rf"{_URL}/dists/{_SEGMENT}/InRelease"

AptList = Annotated[
    Input, _input(InputKind.URL, "a signed list of an archive", _IN_RELEASE, "https://…/InRelease")
]

ComponentName = Annotated[
    str, TextForm("a component of NVIDIA's archives", "[a-z][a-z0-9_]*", "lower case letters, digits and _")
]

Image = Annotated[
    Input,
    _input(InputKind.IMAGE, "a pinned image", _IMAGE, "name:tag or name@sha256:…; latest is no pin"),
]

API = re.compile(
    r"(?:https://[A-Za-z0-9.-]+|http://(?:localhost|127\.0\.0\.1))(?::\d+)?(?:/[A-Za-z0-9._-]+)*"
)
"""Base URL of a GitHub API. A token is sent there, so plain http is allowed for this machine only."""

API_FORM = "https://host/path without a closing slash; http:// for localhost only"

REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*/(?!\.{1,2}\Z)[A-Za-z0-9._-]+")
"""``owner/name``. Neither may be ``..``, because both become segments of a URL's path."""

ApiUrl = Annotated[str, TextForm("an API's base URL", API.pattern, API_FORM)]

RepositoryName = Annotated[
    str, TextForm("a repository", REPOSITORY.pattern.replace(r"\Z", "$"), "owner/name")
]

CacheAddress = Annotated[
    str,
    TextForm("a compile cache", r"\S.*", "redis://HOST:6379, s3://BUCKET/PREFIX or a folder"),
]

ReleaseTag = Annotated[
    str,
    TextForm(
        "a tag", r"[A-Za-z0-9](?:[A-Za-z0-9._+-]|\{version\})*", "letters, digits, . _ + - and {version}"
    ),
]

ProjectPath = Annotated[
    str,
    TextForm(
        "a path inside the project",
        rf"(?:{_SEGMENT}/)*{_SEGMENT}",
        "letters, digits, . _ + ~ - and / between names",
    ),
]

FileName = Annotated[str, TextForm("a file's bare name", _SEGMENT, "letters, digits, . + ~ _ -")]

Sha256 = Annotated[str, TextForm("a sha256", "[0-9a-f]{64}", "64 hex digits in lower case")]

DebianName = Annotated[
    str, TextForm("a Debian package's name", "[a-z0-9][a-z0-9+.-]+", "lower case letters, digits, + . -")
]

BaseName = Annotated[
    str,
    TextForm("a base's name", "(?!auto$|none$)[a-z][a-z0-9-]*", "lower case letters, digits and -; not auto"),
]

Suite = Annotated[str, TextForm("a Debian suite", "[a-z][a-z0-9-]*", "lower case letters, digits and -")]

ModelName = Annotated[str, TextForm("a model's name", "[A-Za-z0-9][A-Za-z0-9._-]*", "letters, digits, . _ -")]

_FOLDERS_IN_DIST = "atlas", "inspect", "models", "rebuild", "wheels"
"""The folders in ``dist`` that verbs write to. No variant may have such a name: its folder would be the
same."""

VariantName = Annotated[
    str,
    TextForm(
        "a variant's name",
        f"(?!(?:{'|'.join(_FOLDERS_IN_DIST)}|.*-plugin)$)[a-z]([a-z0-9-]{{0,38}}[a-z0-9])?",
        "a lower case letter, then letters, digits or -, no - at the end, 40 in all; "
        f"not {', '.join(_FOLDERS_IN_DIST)}, nor with -plugin at the end",
    ),
]

ToolkitName = Annotated[str, TextForm("a toolkit's name", "[1-9][0-9]", "CUDA's major version: 13")]

DependencyName = Annotated[
    str, TextForm("a name of cmake/deps.txt", "[a-z][a-z0-9_-]*", "lower case letters, digits, _ and -")
]

Flag = Annotated[bool, Field(strict=True)]

FormatNumber = Annotated[int, Field(strict=True, ge=1, le=1), WithJsonSchema({"const": 1, "type": "integer"})]
"""The format of a file. ``Literal[1]`` would accept ``true``, which is equal to 1 in Python."""

Floor = Annotated[int, Field(strict=True, ge=0, le=10_000_000)]

GenerationName = Annotated[str, one_of(GENERATION_NUMBERS)]

SomeDistinct = Field(min_length=1, json_schema_extra={"uniqueItems": True})
"""Schema of a list with at least one item and no item twice, which ``config.document`` checks."""

NamedEntries = Field(json_schema_extra={"additionalProperties": False})
"""Schema of a mapping whose keys all have one form."""

_ARCH = re.compile(r"([1-9][0-9]{0,3})([af]?)")


def _architecture(value: object) -> Arch:
    spelled = value.spelled if isinstance(value, Unread) else str(value)
    match = _ARCH.fullmatch(spelled)
    if match is None or isinstance(value, str) != bool(match[2]) or isinstance(value, Unread):
        hint = ""
        with suppress(ValueError):
            (meant,) = architectures(spelled.lstrip("0"))
            hint = f"Write {meant}, without quotes." if meant.number in KNOWN_SM else ""
        raise wrong("wrong_type", "not an architecture", "a number like 86, or 90a with its suffix", hint)
    number, suffix = int(match[1]), match[2]
    if number not in KNOWN_SM:
        near = min(KNOWN_SM, key=lambda known: min(abs(known - number), abs(known - number / 10)))
        allowed = ", ".join(map(str, KNOWN_SM))
        raise wrong("wrong_value", "not a CUDA architecture", allowed, f"Did you mean {near}?")
    if number < SUFFIXES[suffix].number:
        hint = "Suffix a came with sm_90, suffix f with sm_100."
        raise wrong("wrong_value", "no such suffix here", str(number), hint)
    return Arch.parse(match[0])


_SUFFIXED = (
    f"{number}{suffix}" for number in KNOWN_SM for suffix in "af" if number >= SUFFIXES[suffix].number
)

Architecture = Annotated[
    Arch,
    GetPydanticSchema(lambda _source, _handler: core_schema.no_info_plain_validator_function(_architecture)),
    WithJsonSchema({"enum": [*KNOWN_SM, *_SUFFIXED]}),
]

Architectures = Annotated[
    tuple[Architecture, ...], SomeDistinct, AfterValidator(lambda sm: tuple(sorted(sm)))
]
"""A set of architectures, sorted: their order in the file has no meaning."""
