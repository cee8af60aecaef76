"""Writer of findings as SARIF 2.1.0, OASIS's format for static analysis, for GitHub's code scanning."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from urllib.parse import quote

from builder.adapters.untrusted.opener import is_url
from builder.findings.finding import Code, Finding

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def sarif(found: Mapping[str, Sequence[Finding]]) -> str:
    """Return a SARIF text with one run. ``found``: the findings by the label of their source."""
    codes = sorted({one.code for findings in found.values() for one in findings}, key=lambda code: code.name)
    results = [_result(source, one, codes) for source, findings in found.items() for one in findings]
    driver = {"name": "ortpacks inspect", "rules": [_rule(code) for code in codes]}
    artifacts = [{"location": {"uri": _uri(source)}} for source in found]
    run = {"tool": {"driver": driver}, "artifacts": artifacts, "results": results}
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2)


def _rule(code: Code) -> dict[str, object]:
    return {"id": code.name, "shortDescription": {"text": f"{code.value}."}}


def _result(source: str, one: Finding, codes: Sequence[Code]) -> dict[str, object]:
    wanted = f" Wanted: {one.wanted}; got: {one.got}." if one.wanted or one.got else ""
    inside = [{"fullyQualifiedName": one.path}] if one.path else []
    return {
        "ruleId": one.code.name,
        "ruleIndex": codes.index(one.code),
        "level": one.severity.value,
        "message": {"text": f"{source}: {one.message}.{wanted}"},
        "locations": [
            {
                "physicalLocation": {"artifactLocation": {"uri": _uri(source)}},
                **({"logicalLocations": inside} if inside else {}),
            }
        ],
    }


def _uri(source: str) -> str:
    return source if is_url(source) else quote(source)
