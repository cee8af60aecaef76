"""The command ``doctor`` reports findings about the machine and the package, and each probe's answer."""

from __future__ import annotations

from dataclasses import asdict
from typing import Dict, Iterator, Sequence

from builder.client.commands.observe import examine, examine_failure
from builder.client.commands.show_gpus import device_line, device_value
from builder.client.context import ClientOptions, CommandAnswer, CommandContext, head
from builder.errors import CheckFailedError
from builder.findings.diagnose import diagnose
from builder.findings.finding import Finding, Severity
from builder.findings.observations import Observations, SessionTrial


def answer_doctor(context: CommandContext, options: ClientOptions) -> CommandAnswer:
    """Examine the machine and the package in use. Exit code 6 when a finding is an error, else 0."""
    said = options.said
    observed = examine(context, options) if said is None else examine_failure(context, options, said)
    findings = diagnose(observed)
    bad = any(finding.severity is Severity.ERROR for finding in findings)
    lines = (*_findings(findings), *_machine(observed))
    return CommandAnswer(_value(findings, observed), lines, CheckFailedError.exit_code if bad else 0)


def _findings(findings: Sequence[Finding]) -> Iterator[str]:
    if all(finding.severity is Severity.NOTE for finding in findings):
        yield "Nothing is wrong."
    for finding in findings:
        yield f"{finding.code.name} {finding.severity.value}: {finding.message}"
        yield f"  means: {finding.means}"
        yield f"  do: {finding.do}"


def _machine(observed: Observations) -> Iterator[str]:
    yield "seen:"
    yield from (f"  {device_line(device)}" for device in observed.devices)
    yield f"  driver {observed.driver or 'unknown'}, CUDA {observed.cuda or 'unknown'}"
    if observed.installed is not None:
        yield f"  package {observed.installed.package.name} in {observed.installed.folder}"
    if observed.trial is not None:
        yield f"  {_trial_line(observed.trial)}"
    for model in observed.models:
        how = "opens" if model.failure is None else "does not open"
        yield f"  {model.model} {how} with {model.provider}"
    yield from (
        f"  {probe.name}: {probe.outcome.value}: {probe.detail}" for probe in observed.replies.values()
    )


def _trial_line(trial: SessionTrial) -> str:
    if trial.failure is None:
        return f"a session of one node ran on {trial.provider}"
    on_cpu = {True: ", on cpu it ran", False: ", on cpu it does not run either", None: ""}[trial.on_cpu]
    return f"a session of one node does not run on {trial.provider}{on_cpu}: {trial.failure}"


def _value(findings: Sequence[Finding], observed: Observations) -> Dict[str, object]:
    return {
        **head("doctor"),
        "findings": [_finding(finding) for finding in findings],
        "platform": observed.platform,
        "driver": observed.driver,
        "cuda": observed.cuda,
        "devices": [device_value(device) for device in observed.devices],
        "package": observed.installed.package.name if observed.installed else None,
        "trial": asdict(observed.trial) if observed.trial else None,
        "models": [asdict(model) for model in observed.models],
        "probes": [
            {"name": probe.name, "outcome": probe.outcome.value, "detail": probe.detail}
            for probe in observed.replies.values()
        ],
    }


def _finding(finding: Finding) -> Dict[str, object]:
    return {
        "code": finding.code.name,
        "severity": finding.severity.value,
        "seen": finding.message,
        "means": finding.means,
        "do": finding.do,
    }
