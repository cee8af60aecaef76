"""Factory of provenance as a recipe."""

import json
from typing import Any

from tests.support.json_texts import changed

COMMIT = "7fd1a60b01f91b314f59955a4e4d4e80d8edf11d"

CONFIG = "c" * 64


def document(**changes: Any) -> bytes:  # noqa: ANN401 - JSON
    """Return a provenance document in the form of docs/provenance.md, with other values at paths like
    ``externalParameters__command``."""
    patch = {"uri": "pkg:deb/debian/patch@2.7", "digest": {"sha256": "3" * 64}, "annotations": {"base": True}}
    definition = {
        "buildType": "https://github.com/o/r/blob/main/docs/provenance.md#build-type-v1",
        "externalParameters": {
            "command": "./run build --variant legacy --profile minimal --base assembled",
            "variant": "legacy",
            "config": {"path": "variants.yaml", "sha256": CONFIG},
        },
        "internalParameters": {"base": "assembled", "baseRevision": "sha256:ba5e"},
        "resolvedDependencies": [
            {"name": "ortpacks", "uri": "git+https://github.com/o/r", "digest": {"gitCommit": COMMIT}},
            {"uri": "pkg:pypi/nvidia-cublas-cu12@12.9.1.4", "digest": {"sha256": "1" * 64}},
            patch,
        ],
    }
    for path, value in changes.items():
        definition = json.loads(changed(json.dumps(definition), path.replace("__", "/"), value))
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": "p.tar.zst", "digest": {"sha256": "9" * 64}}],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": definition,
            "runDetails": {
                "builder": {"id": "https://github.com/o/r"},
                "metadata": {"startedOn": "2026-11-23T20:21:36Z", "finishedOn": "2026-11-23T20:21:43Z"},
            },
        },
    }
    return json.dumps(statement).encode()
