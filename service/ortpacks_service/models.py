"""The models of a folder, each opened on its own provider while the service already answers."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from ortpacks_runtime import Report, Session, open_session
from ortpacks_runtime.settings import model_settings
from ortpacks_runtime.warm_up import Feed

from ortpacks_service.errors import RequestError
from ortpacks_service.memory import Runs

log = logging.getLogger("ortpacks_service")

_FILE, _CONFIG, _KEYS = "model.onnx", "config.toml", ("provider", "device", "level", "strict", "threads")

_OTHER_TYPES = re.compile(r"model_.+\.onnx")
"""Files of the same model in other number types."""

WAITING, LOADING, READY, FAILED = "waiting", "loading", "ready", "failed"


@dataclass
class Model:
    """A model of the folder."""

    name: str
    folder: Path
    state: str = WAITING
    reason: str = ""
    """Reason why the model could not be opened."""
    started: float = 0.0
    """Time when loading began, by ``time.monotonic``."""
    report: Report = field(default_factory=Report, repr=False)
    """The report of the session, which is filled while the model is opened."""
    session: Session | None = field(default=None, repr=False)

    @property
    def size(self) -> int:
        """Bytes of the model's files, of which another number type's is not counted."""
        files = (file for file in self.folder.glob("*") if not _OTHER_TYPES.fullmatch(file.name))
        return sum(file.stat().st_size for file in files if file.is_file())

    def value(self) -> dict[str, Any]:
        """Return the model's state as values for ``/readyz``."""
        state: dict[str, Any] = {"state": self.state}
        if self.state == LOADING:
            state["seconds"] = round(time.monotonic() - self.started, 1)
        notes = "; ".join(self.report.notes)
        if self.state == READY and not self.report.proved:
            state["note"] = notes or "opened, not run yet"
        elif self.state != READY and notes:
            state["note"] = notes
        return state | ({"reason": self.reason} if self.reason else {})


class Models:
    """The folders' models by name. A thread opens them one after the other, those in ``first`` first.

    Of models with one name, that of the last folder counts.
    """

    def __init__(self, folders: Sequence[Path], first: tuple[str, ...], runs: Runs) -> None:
        self._runs = runs
        given = (one for folder in folders for one in sorted(folder.iterdir()) if _has_model(one))
        found = {_printable(one.name): one for one in given}
        names = [*(name for name in first if name in found), *(name for name in found if name not in first)]
        self.where = ", ".join(map(str, folders))
        self.named: Mapping[str, Model] = {name: Model(name, found[name]) for name in names}

    def load(self, opened: Mapping[str, Callable[[Model, Session], None]], feeds: Mapping[str, Feed]) -> None:
        """Start a thread that opens the models.

        ``opened`` has functions to call after a model is opened, by its name; ``feeds`` the inputs of a
        model's first run.
        """

        def open_all() -> None:
            for model in self.named.values():
                self._open(model, opened.get(model.name), feeds.get(model.name))

        threading.Thread(target=open_all, name="load", daemon=True).start()

    def session(self, name: str) -> Session:
        """Return the open model. Raises ``RequestError`` if there is none of that name, or it is not open."""
        model = self.named.get(name)
        if model is None:
            known = ", ".join(self.named) or "none"
            raise RequestError(f"no model {name!r} in the folder of models. There: {known}.", 404)
        if model.state == FAILED:
            raise RequestError(f"{name} could not be opened: {model.reason}", 503)
        if model.session is None or model.state != READY:
            raise RequestError(f"{name} is not open yet: /readyz shows its progress.", 503, 1)
        return model.session

    def _open(self, model: Model, after: Callable[[Model, Session], None] | None, feed: Feed | None) -> None:
        model.started, model.state = time.monotonic(), LOADING
        try:
            config = model.folder / _CONFIG
            own = model_settings(config, _KEYS) if config.is_file() else {}
            opening = partial(open_session, model.folder / _FILE, **own, feed=feed, report=model.report)
            session = self._runs.opened(opening, feed)
            if after:
                after(model, session)
        except Exception as error:  # noqa: BLE001 - other models are served, and the reason is logged
            model.reason = _printable(" ".join(str(error).split())[:500])
            model.state = FAILED
            log.error("model %s could not be opened: %s", model.name, model.reason)  # noqa: TRY400 - no trace
            return
        model.session, model.state = session, READY
        fallback, took = session.report.fallback, round(time.monotonic() - model.started, 2)
        told = {"fallback": fallback.reason if fallback else None, "seconds": took}
        log.info("model is ready", extra={"model": model.name, "provider": session.report.provider, **told})


def _has_model(folder: Path) -> bool:
    """Return whether the folder has a model. The log names a folder that this user may not read."""
    try:
        (folder / _FILE).stat()
    except OSError as error:
        if isinstance(error, PermissionError):
            log.warning("%s may not be read by this user: its model is not served", _printable(str(folder)))
        return False
    return True


def _printable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
