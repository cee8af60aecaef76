"""Run of a model on a library in a process of its own: ``outputs LIBRARY PROVIDER MODEL FEED RESULT``."""

import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from tests.answers.models import Model
from tests.answers.pairs import Pair
from tests.answers.values import Array, Value, ValueApi
from tests.answers.worker import open_with, unheard
from tests.support import ROOT, ran


def outputs(
    pair: Pair, model: Model, provider: str, env: Mapping[str, str], scratch: Path
) -> dict[str, Array]:
    """Run ``model`` and return its outputs by name; ``provider`` has the values of ``worker``'s PROVIDER."""
    feed, result = scratch / "feed.npz", scratch / "result.npz"
    np.savez(feed, allow_pickle=False, **model.feed)
    words = (pair.library, provider, model.path, feed, result)
    argv = [sys.executable, "-m", "tests.answers.outputs", *map(str, words)]
    done = ran(argv, cwd=ROOT, env=env)
    assert done.returncode == 0, f"{done.returncode}\n{done.stderr[-3000:]}"
    return dict(np.load(result))


def main(library: str, provider: str, model: str, feed: str, result: str) -> None:
    """Run the model on inputs of the file ``feed`` and write its tensors to the file ``result``."""
    values = np.load(feed)
    with ValueApi(Path(library), log=unheard) as api:
        session = open_with(api, provider)(Path(model))
        got = session.run([values[name] for name in session.inputs])
        np.savez(result, allow_pickle=False, **_tensors(dict(zip(session.outputs, got, strict=True))))
        session.close()


def _tensors(values: Mapping[str, Value]) -> dict[str, Array]:
    return {
        name: value for name, value in values.items() if not isinstance(value, list) and value is not None
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
