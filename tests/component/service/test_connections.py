"""Tests of the reader of requests, on a transport in memory."""

from __future__ import annotations

import asyncio
from unittest.mock import Mock

import uvicorn
from ortpacks_service.connections import Connection
from uvicorn.server import ServerState

UPGRADE = (
    b"POST /embed HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\n{}"
)


def test_a_request_that_asks_for_http_2_keeps_its_address_and_headers() -> None:
    async def asked() -> tuple[str, list[tuple[bytes, bytes]]]:
        config = uvicorn.Config(Mock(), http=Connection, ws="none", log_config=None)
        config.load()
        connection = Connection(config=config, server_state=ServerState(), app_state={})
        connection.connection_made(Mock(spec=asyncio.Transport))
        connection.data_received(UPGRADE)
        (task,) = connection.tasks
        task.cancel()
        return connection.cycle.scope["path"], list(connection.cycle.scope["headers"])

    path, headers = asyncio.run(asked())
    assert path == "/embed"
    names = [name for name, _ in headers]
    assert names == [b"host", b"connection", b"upgrade", b"content-length"], "each once"
