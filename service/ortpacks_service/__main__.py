"""``python -m ortpacks_service`` runs the service on one port until SIGTERM."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys

import onnxruntime
import uvicorn
from ortpacks_runtime import ProviderError
from ortpacks_runtime.settings import settings

from ortpacks_service.app import make_app
from ortpacks_service.connections import Connection
from ortpacks_service.log import log_as_json
from ortpacks_service.memory import Runs, limit_runs, plan_memory
from ortpacks_service.models import Models
from ortpacks_service.options import API_KEY, read_options

_FATAL = 4

_OWN = ("127.0.0.1", "localhost", "::1")
"""Addresses that only programs of this machine reach."""

_UNREAD_SECONDS = 30
"""Seconds that a client may leave an answer unread; until then the answer is in memory."""

_GRACE_SECONDS = 6
"""Seconds for running requests after SIGTERM; container engines kill the process after 10."""


def main(arguments: list[str] | None = None) -> int:
    """Serve until a signal ends the process, and return the exit code.

    2: a setting is wrong; 1: the port cannot be opened.
    """
    options = read_options(arguments, os.environ)
    try:
        settings({})
        sizes = [model.size for model in Models(options.models, (), Runs()).named.values()]
        memory = plan_memory(options.memory_mib, options.body_mib, sizes)
    except (OSError, ProviderError, ValueError) as error:
        sys.stderr.write(f"ortpacks_service: {error}\n")
        return 2
    try:
        # This comes before models are opened: while a thread opens one, Python cannot exit cleanly.
        family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
        listening = socket.create_server((options.host, options.port), family=family)
        # asyncio sets this for its own sockets; else an answer waits 40 ms for the client's next packet.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if sys.platform == "linux":
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNREAD_SECONDS * 1000)
    except OSError as error:
        why = str(error.strerror or error).partition(" (while")[0]
        where = f"--host {options.host} --port {options.port}"
        sys.stderr.write(f"ortpacks_service: {where}: {why}. Name another.\n")
        return 1
    log_as_json()
    log = logging.getLogger("ortpacks_service")
    log.info("serving", extra={"host": options.host, "port": options.port, "memory": memory})
    if not options.api_key and options.host not in _OWN:
        log.warning("%s is not set: who reaches port %d may change the store", API_KEY, options.port)
    if memory:
        limit_runs(memory[1])
    onnxruntime.set_default_logger_severity(_FATAL)  # ONNX Runtime raises what it logs
    config = uvicorn.Config(
        make_app(options, memory[0] if memory else None),
        workers=1,  # else uvicorn reads WEB_CONCURRENCY, and fails if it is no number
        http=Connection,
        ws="none",
        log_config=None,
        access_log=False,
        proxy_headers=False,  # nothing here asks where a request came from
        timeout_keep_alive=options.keep_alive,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # uvicorn raises SIGINT again at its end
    server = uvicorn.Server(config)
    server.run([listening])
    # Process 1 of a container gets no signal that it raises itself, and Python would wait for its threads.
    os._exit(int(not server.started))


if __name__ == "__main__":
    sys.exit(main())
