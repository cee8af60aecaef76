"""The values of the verbs' flags, and the help lines of those that several verbs share.

``--cache`` names a cache for BuildKit's layers outside the builder, ``type=gha,scope=legacy``. Cache types
whose source and target are named differently (``type=local``) are refused. Source of the types, and of the
keys that are secrets: the page "Cache storage backends" of Docker's manual.
"""

from __future__ import annotations

import re
import sys
from enum import Enum
from pathlib import Path
from typing import TypeVar

from builder.builds.wiring import Wiring
from builder.console import Console
from builder.errors import ValidationError
from builder.files.disk import absolute, is_file
from builder.formats.package_names import Host, Profile
from builder.pipeline.plan import PlanOptions
from builder.project.variants import Origin

E = TypeVar("E", bound=Enum)

ROOT = Path(__file__).resolve().parent.parent.parent

_MOST_JOBS = 1024

_MEMORY = re.compile(r"(?P<size>[0-9]{1,6}(?:\.[0-9]{1,3})?)(?P<unit>[GgMm])(?:i?[Bb])?")

TYPES = ("gha", "registry", "s3", "azblob")

_SECRETS = ("token", "ghtoken", "access_key_id", "secret_access_key", "session_token")

_WORDS = re.compile(r"[a-z]+=[^,\s]+(?:,[a-z0-9_-]+=[^,\s]+)*")

JSON = "as JSON; messages go to standard error"
"""The help line of ``--json``."""

FLAGS = {
    "variant": "a variant or provider of variants.yaml; may be given more than once",
    "all": "every variant and provider without `all: false` in variants.yaml; ./run matrix lists them",
    "base": "auto (the first of variants.yaml that is available), nvidia, assembled or redist",
    "origin": "auto (wheel where it serves the whole set), wheel or source",
    "profile": "full, lean or minimal; less than full is always compiled",
    "host": "wheel or source: where libonnxruntime.so.1 comes from",
    "widen": "add architectures so that the package runs wherever plain code for the set does",
    "mixed": "repack the wheel of onnxruntime.version where it serves the set, whatever the base's version",
    "release": "both layouts, and refuse now what publish would refuse: less than full, unpinned bases",
    "builder": "buildx builders to compile on: NAME[,NAME...]; a variant takes the least busy one",
    "context": "Docker contexts to compile on: NAME[,NAME...]",
    "offline": "fetch nothing: everything must be in the cache",
    "dist": "folder for results (dist)",
}


def make_wiring(dist: str | None = None, *, offline: bool = False) -> Wiring:
    """Return the adapters and folders of this run. Raises ``ValidationError`` if ``dist`` is a file."""
    if dist and is_file(absolute(Path(dist))):
        raise ValidationError(f"--dist {dist!r} is no folder.", advice="Name another one.")
    return Wiring(ROOT, dist=Path(dist) if dist else None, offline=offline)


def document_console(wiring: Wiring) -> Console:
    """Return the console of standard output, for a JSON document; messages go to standard error from now."""
    console = wiring.console
    wiring.speak_on(sys.stderr)
    return console


def enum_value(kind: type[E], name: str, value: str | None) -> E | None:
    """Return a flag's value as a member of an enum; ``None`` if the flag was not given.

    Raises ``ValidationError`` for a value that the enum does not have.
    """
    words = [str(member.value) for member in kind]
    if value is not None and value not in words:
        raise ValidationError(f"--{name} {value!r} is none of {', '.join(words)}.")
    return None if value is None else kind(value)


def plan_options(
    base: str = "auto",
    origin: str | None = None,
    profile: str | None = None,
    host: str | None = None,
    *,
    widen: bool = False,
    mixed: bool = False,
    release: bool = False,
    offline: bool = False,
) -> PlanOptions:
    """Return the flags on what to build, as values.

    Raises ``ValidationError`` for a wrong value or ``--mixed --release``.
    """
    if mixed and release:
        raise ValidationError(
            "--mixed makes packages of different ONNX Runtime versions, and publish refuses those (R010), so "
            "it does not go with --release",
            advice="Leave one of them out.",
        )
    return PlanOptions(
        base=base,
        offline=offline,
        origin=enum_value(Origin, "origin", origin),
        profile=enum_value(Profile, "profile", profile),
        host=enum_value(Host, "host", host),
        widen=widen,
        mixed=mixed,
        release=release,
    )


def parse_jobs(value: str) -> int:
    """Return the number of ``--jobs``. Raises ``ValidationError`` for anything else."""
    if not (re.fullmatch("[0-9]{1,4}", value) and 1 <= int(value) <= _MOST_JOBS):
        raise ValidationError(f"--jobs {value!r} is no number from 1 to {_MOST_JOBS}.")
    return int(value)


def parse_memory(value: str) -> int:
    """Return the bytes of ``20G`` or ``6000M``, in units of 1024. Raises ``ValidationError``."""
    found = _MEMORY.fullmatch(value.strip())
    if found is None or not float(found["size"]):
        raise ValidationError(f"--memory {value!r} is no size.", advice="Like 20G or 6000M.")
    return int(float(found["size"]) * (1 << (30 if found["unit"] in "Gg" else 20)))


def architectures(value: str) -> tuple[str, ...]:
    """Return the architectures of ``--arch 90,100``, each once. Raises ``ValidationError`` otherwise."""
    words = tuple(dict.fromkeys(value.split(",")))
    if not all(re.fullmatch(r"[0-9]{2,3}[af]?", word) for word in words):
        raise ValidationError(f"--arch {value!r} is no list of architectures.", advice="Like 90 or 90,100.")
    return words


def require_cache(text: str) -> str:
    """Return ``text`` if it names a cache without secrets.

    Raises ``ValidationError``, whose message repeats no secret.
    """
    words = [part.split("=", 1) for part in text.split(",")] if _WORDS.fullmatch(text) else []
    found = [key for key in sorted(_SECRETS) if re.search(rf"\b{key}\W*=", text, re.IGNORECASE)]
    if found:
        raise ValidationError(
            f"--cache holds {', '.join(found)}",
            cause="a command line is no place for secrets",
            advice="Leave them out; buildx reads them from its environment (ACTIONS_RUNTIME_TOKEN, "
            "AWS_SECRET_ACCESS_KEY …).",
        )
    if not words or words[0] not in [["type", name] for name in TYPES]:
        raise ValidationError(
            f"--cache {text!r} is no cache of BuildKit's",
            advice=f"Say type= first, one of {', '.join(TYPES)}, then what it needs: type=gha,scope=legacy.",
        )
    return text
