"""The self-test of a package: fixed input for a real model, and how its answer is judged. Pure."""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass
from typing import Mapping, Sequence, Tuple

from builder.core.checks import Code, Finding

TOLERANCE = 1e-4
"""Largest absolute difference to the stock CPU build. Outputs lie in -1 … 1; releases differ in kernels."""


@dataclass(frozen=True)
class Tensor:
    """An input tensor as the smoke program takes it: raw little-endian bytes."""

    name: str
    type: str
    """``f32`` or ``i64``."""
    dims: Tuple[int, ...]
    data: bytes

    @property
    def argument(self) -> str:
        """``NAME:TYPE:DIMS:`` for the smoke program, the file's path to follow."""
        dims = "x".join(map(str, self.dims)) or "scalar"
        return f"{self.name}:{self.type}:{dims}:"


def silero_inputs() -> Tuple[Tensor, ...]:
    """One 32 ms frame at 16 kHz for Silero VAD: a rising tone, like the start of a vowel."""
    frame = [0.4 * math.sin(2 * math.pi * (120 + i / 4) * i / 16000) for i in range(512)]
    return (
        Tensor("input", "f32", (1, 512), struct.pack("<512f", *frame)),
        Tensor("state", "f32", (2, 1, 128), bytes(4 * 2 * 128)),
        Tensor("sr", "i64", (), struct.pack("<q", 16000)),
    )


def judge(
    answer: str, reference: Mapping[str, Sequence[float]], ort_version: str, package: str
) -> Tuple[Finding, ...]:
    """What is wrong with the smoke program's JSON, measured against the stock build's outputs."""
    try:
        said = json.loads(answer)
    except ValueError:
        return (Finding(Code.B010, package, "the smoke program printed no JSON", got=answer[:200]),)
    return (
        *_judge_version(said, ort_version, package),
        *_judge_cuda(said, package),
        *_judge_numbers(said.get("outputs", {}), reference, package),
    )


def _judge_version(said: Mapping[str, object], wanted: str, package: str) -> Tuple[Finding, ...]:
    if said.get("version") == wanted:
        return ()
    return (Finding(Code.B011, package, "wrong ORT version", wanted=wanted, got=str(said.get("version"))),)


def _judge_cuda(said: Mapping[str, object], package: str) -> Tuple[Finding, ...]:
    """The provider must be there, and either run or refuse in CUDA's own words: never fail to load."""
    providers = said.get("providers")
    if not isinstance(providers, list) or "CUDAExecutionProvider" not in providers:
        what = "the host library knows no CUDAExecutionProvider"
        return (Finding(Code.B012, package, what, got=str(providers)),)
    cuda = said.get("cuda")
    message = str(cuda.get("message")) if isinstance(cuda, dict) else ""
    taken = isinstance(cuda, dict) and cuda.get("ok") is True
    if taken or "CUDA failure" in message:
        return ()
    return (Finding(Code.B012, package, "the CUDA provider does not load", got=message),)


def _judge_numbers(
    outputs: object, reference: Mapping[str, Sequence[float]], package: str
) -> Tuple[Finding, ...]:
    if not isinstance(outputs, dict) or outputs.keys() != reference.keys():
        got = sorted(outputs) if isinstance(outputs, dict) else outputs
        return (Finding(Code.B013, package, "wrong outputs", wanted=str(sorted(reference)), got=str(got)),)
    findings = []
    for name, wanted in reference.items():
        got = outputs[name]
        worst = max((abs(a - b) for a, b in zip(got, wanted)), default=math.inf)
        if len(got) != len(wanted) or not worst <= TOLERANCE:
            findings.append(
                Finding(
                    Code.B013,
                    package,
                    f"output {name} differs from the stock CPU build",
                    wanted=f"{len(wanted)} numbers within {TOLERANCE}",
                    got=f"{len(got)} numbers, worst difference {worst:.3g}",
                )
            )
    return tuple(findings)
