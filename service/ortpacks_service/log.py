"""This module writes the log to stderr, a line of JSON for each event."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable

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


def _once_per_text() -> Callable[[logging.LogRecord], bool]:
    """Return a filter that passes each warning once, so that models with the same fallback give one line."""
    logged: set[str] = set()

    def passes(record: logging.LogRecord) -> bool:
        is_known = (message := record.getMessage()) in logged
        if record.levelno == logging.WARNING:
            logged.add(message)
        return not is_known

    return passes


def log_as_json() -> None:
    """Write what the process logs and warns of as JSON, and each warning of the runtime layer only once."""
    logging.getLogger("ortpacks_runtime").addFilter(_once_per_text())
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.captureWarnings(capture=True)
