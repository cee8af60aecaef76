"""Open a model under the fake GPU, and run it: ``watch LIBRARY MODEL LEVEL [FEED]``, in a process of its own.

What ORT says on stderr of its nodes is read by ``placement``; stdout is the kind of error, or nothing.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.answers.capi import Api, OrtError
from tests.answers.feeds import load
from tests.answers.session import Session, Wish


def main(library: str, model: str, level: str, feed: str | None = None) -> None:
    """See the module."""
    with Api(Path(library)) as api:
        try:
            _watch(api, Path(model), int(level), feed)
        except OrtError as error:
            print(error)  # noqa: T201


def _watch(api: Api, model: Path, level: int, feed: str | None) -> None:
    session = Session(api, model, Wish(verbose=True, level=level))
    assert session.refusal is None, session.refusal
    if feed is not None:
        values = load(Path(feed))
        session.run([values[name] for name in session.inputs])
    session.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
