"""Models of the tests of placement: Silero VAD, magika and MiniLM, each with inputs."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from builder.config.inputs import SELFTEST_MODEL
from builder.prove.sample_models import selftest_trials
from tests.answers import pairs
from tests.answers.values import Array


@dataclass(frozen=True, kw_only=True)
class Model:
    """A model, with its inputs by name in ``feed``."""

    name: str
    path: Path
    feed: Mapping[str, Array]
    tolerance: float = 1e-3
    """Largest allowed absolute difference of outputs between a GPU and the CPU; outputs lie in -1 … 1."""
    runs_blind: bool = True
    """True if the model runs to its end when no kernel computes anything."""


@cache
def models() -> tuple[Model, ...]:
    """Return the self-test's models, and Silero for 16 kHz alone.

    Silero for both rates has branches that depend on a kernel's result, so it does not run on a virtual card.
    """
    trials = {trial.name: trial for trial in selftest_trials(pairs.store(), pairs.shop().cache / "made")}
    feeds = {name: {item.name: item.array() for item in trial.inputs} for name, trial in trials.items()}
    at_16k = pairs.store().unpack(SELFTEST_MODEL) / "silero_vad/data/silero_vad_16k_op15.onnx"
    both = trials["silero_vad"].model
    return (
        Model(name="silero", path=both, feed=feeds["silero_vad"], runs_blind=False),
        Model(name="silero-16k", path=at_16k, feed=feeds["silero_vad"]),
        *(Model(name=name, path=trials[name].model, feed=feeds[name]) for name in ("magika", "minilm")),
    )
