"""The answer of ``doctor``: what was seen, what it means, what to do; and what every probe said."""

from __future__ import annotations

from dataclasses import asdict
from typing import Dict, Iterator, List, Optional, Sequence

from builder.client.commands.detect import device_value, spelled
from builder.client.commands.observe import Rights, examine
from builder.client.probe.detect import Detection
from builder.client.world import Answer, Options, World, head
from builder.errors import CheckFailedError
from builder.findings.diagnose import diagnose
from builder.findings.observed import Seen, Trial
from builder.findings.symptom import Severity, Symptom


def answer_doctor(world: World, options: Options, rights: Optional[Rights] = None) -> Answer:
    """Examine the machine and the package in use. Exit code 6 when a finding is an error, else 0."""
    found, seen = examine(world, options, rights or Rights())
    symptoms = diagnose(seen)
    bad = any(symptom.severity is Severity.ERROR for symptom in symptoms)
    lines = (*_findings(symptoms), *_machine(found, seen))
    return Answer(_value(symptoms, found, seen), tuple(lines), CheckFailedError.exit_code if bad else 0)


def _findings(symptoms: Sequence[Symptom]) -> Iterator[str]:
    if all(symptom.severity is Severity.NOTE for symptom in symptoms):
        yield "Nothing is wrong."
    for symptom in symptoms:
        yield f"{symptom.code} {symptom.severity.value}: {symptom.seen}"
        yield f"  means: {symptom.means}"
        yield f"  do: {symptom.do}"


def _machine(found: Detection, seen: Seen) -> Iterator[str]:
    yield "seen:"
    yield from (f"  {spelled(device)}" for device in found.devices)
    yield f"  driver {seen.driver or 'unknown'}, CUDA {seen.cuda or 'unknown'}"
    if seen.installed is not None:
        yield f"  package {seen.installed.package.name} in {seen.installed.folder}"
    if seen.trial is not None:
        yield f"  {_told(seen.trial)}"
    for model in seen.models:
        how = "opens" if model.failure is None else "does not open"
        yield f"  {model.model} {how} with {model.provider}"
    yield from (f"  {probe.name}: {probe.outcome.value}: {probe.detail}" for probe in found.probes)


def _told(trial: Trial) -> str:
    if trial.failure is None:
        return f"a session of one node ran on {trial.provider}"
    on_cpu = {True: ", on cpu it ran", False: ", on cpu it does not run either", None: ""}[trial.on_cpu]
    return f"a session of one node does not run on {trial.provider}{on_cpu}: {trial.failure}"


def _value(symptoms: Sequence[Symptom], found: Detection, seen: Seen) -> Dict[str, object]:
    return {
        **head("doctor"),
        "findings": [{**asdict(symptom), "severity": symptom.severity.value} for symptom in symptoms],
        "platform": seen.around.platform,
        "driver": seen.driver,
        "cuda": seen.cuda,
        "devices": [device_value(device) for device in found.devices],
        "package": seen.installed.package.name if seen.installed else None,
        "trial": asdict(seen.trial) if seen.trial else None,
        "models": [asdict(model) for model in seen.models],
        "probes": _probes(found),
    }


def _probes(found: Detection) -> List[Dict[str, object]]:
    return [
        {"name": probe.name, "outcome": probe.outcome.value, "detail": probe.detail} for probe in found.probes
    ]
