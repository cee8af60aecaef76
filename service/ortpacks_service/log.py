"""This module writes the log to stderr, a line of JSON for each event."""

from __future__ import annotations

import json
import logging
import sys

_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **{key: value for key, value in vars(record).items() if key not in _OWN},
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


class _OncePerText(logging.Filter):
    """A filter that passes each warning once, so that models with the same fallback give one line."""

    def __init__(self) -> None:
        super().__init__()
        self._logged: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        known = message in self._logged
        if record.levelno == logging.WARNING:
            self._logged.add(message)
        return not known


def log_as_json() -> None:
    """Write what the process logs and warns of as JSON, and each warning of the runtime layer only once."""
    logging.getLogger("ortpacks_runtime").addFilter(_OncePerText())
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.captureWarnings(capture=True)
