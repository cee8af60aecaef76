"""The application: routes, limits, errors as JSON, and the start and end of the service."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ortpacks_service import model_routes, speech_routes, text_routes
from ortpacks_service.access import Access
from ortpacks_service.errors import RequestError
from ortpacks_service.options import Options
from ortpacks_service.service import Service

log = logging.getLogger("ortpacks_service")

_FILES = {"/": ("page.html", "text/html"), "/openapi.json": ("openapi.json", "application/json")}
"""The page, and the description of the routes, which a test makes of their types (``forms.py``)."""

_ALONE = {"Content-Security-Policy": "frame-ancestors 'none'"}
"""No other site's page may show this one within itself, where a click would store a text."""

_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"

_CLIENT_LEFT = 499
"""nginx's status for a request whose client disconnected before the answer."""


def make_app(options: Options, room: int | None = None) -> Starlette:
    """Return the application. When it starts, it raises ``ProviderError`` for a wrong setting.

    ``room`` are the bytes of memory for requests and answers; ``None``: four of the largest bodies.
    """

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        service = app.state.service = Service(options, room)
        service.start()
        yield
        await asyncio.to_thread(service.stop)

    app = Starlette(
        routes=[  # compared in this order
            *text_routes.ROUTES,
            Route("/", _file),
            *(Route(path, _alive) for path in ("/ping", "/healthz", "/health")),
            Route("/readyz", _readyz),
            Route("/providers", _providers),
            Route("/metrics", _metrics),
            Route("/openapi.json", _file),
            *speech_routes.ROUTES,
            *model_routes.ROUTES,
        ],
        lifespan=lifespan,
    )
    app.state.access = Access(options)
    app.router.redirect_slashes = False  # to the name in Host
    # The only middleware; it answers errors in place of Starlette's own.
    app.middleware_stack = _RequestMiddleware(app.router, options.seconds, app.state.access)
    return app


class _Rest:
    """What a request has not read of its body, where the connection ends with the answer.

    If something is left then, Linux resets the connection, and the client may not see the answer.
    """

    def __init__(self, scope: Scope, receive: Receive, seconds: int) -> None:
        closes = (name == b"connection" and b"close" in value.lower() for name, value in scope["headers"])
        self.unread = scope["http_version"] == "1.0" or any(closes)
        self._receive = receive
        self._seconds = seconds

    async def receive(self) -> Message:
        """Return the next message, and see whether it is the last."""
        message = await self._receive()
        self.unread = self.unread and bool(message.get("more_body"))
        return message

    async def read(self) -> None:
        """Read what is left, as long as a request may take and the service does not end."""
        with suppress(TimeoutError, asyncio.CancelledError):
            async with asyncio.timeout(self._seconds):
                while self.unread:
                    await self.receive()


class _RequestMiddleware:
    """Middleware that counts requests, limits their time, answers their errors, and logs unexpected ones."""

    def __init__(self, app: ASGIApp, seconds: int, access: Access) -> None:
        self._app = app
        self._seconds = seconds
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status, rest, began = 0, _Rest(scope, receive, self._seconds), time.perf_counter()

        async def send_counted(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            if status >= 300:  # noqa: PLR2004 - HTTP's redirections and errors
                await rest.read()
            await send(message)

        seconds = None if scope["path"] == speech_routes.PATH else self._seconds
        try:
            async with asyncio.timeout(seconds):
                self._access.require(scope)
                await self._app(scope, rest.receive, send_counted)
        except ClientDisconnect:
            status = _CLIENT_LEFT
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - the log has it
            rest.unread = rest.unread and not isinstance(error, (TimeoutError, asyncio.CancelledError))
            if not status:  # else an answer has begun, and the connection is closed without its rest
                answer = _response(scope["path"], _refusal(error, scope, seconds))
                await answer(scope, receive, send_counted)
        route = scope.get("route")
        path = route.path if isinstance(route, Route) else "other"
        metrics = scope["app"].state.service.metrics
        metrics.requests.labels(path, str(status)).inc()
        metrics.request_seconds.labels(path).observe(time.perf_counter() - began)


def _refusal(error: BaseException, scope: Scope, seconds: int | None) -> RequestError:
    """Return what the client is told of an error; the log has those that nobody expects."""
    if isinstance(error, RequestError):
        return error.with_traceback(None)  # it holds what was read of the body
    if isinstance(error, HTTPException):  # the router's
        what = f"{scope['method']} {scope['path']}: {error.detail}"
        return RequestError(what, error.status_code, headers=error.headers)
    if isinstance(error, asyncio.CancelledError):  # from uvicorn, when the time after a signal is over
        return RequestError("the service ends before the request was served", 503, 1)
    if isinstance(error, TimeoutError):
        return RequestError(f"the request took longer than {seconds} s (--seconds)", 504, 1)
    log.error("a request failed", extra={"path": scope["path"]}, exc_info=error)
    return RequestError("the service failed; its log says why", 500)


def _response(path: str, error: RequestError) -> Response:
    """Return the error in the form of the route's protocol: OpenAI's, or KServe's."""
    kind = "invalid_request_error" if error.code < 500 else "server_error"  # noqa: PLR2004 - HTTP's classes
    value: object = error.what if path.startswith("/v2") else {"message": error.what, "type": kind}
    return Response(orjson.dumps({"error": value}), error.code, error.headers, "application/json")


async def _file(request: Request) -> Response:
    name, kind = _FILES[request.url.path]
    return Response(Path(__file__).with_name(name).read_bytes(), headers=_ALONE, media_type=kind)


async def _alive(request: Request) -> Response:
    return JSONResponse({"status": "pong" if request.url.path == "/ping" else "ok"})


async def _readyz(request: Request) -> Response:
    """Answer whether the service is ready; who has no key is not told of which models."""
    service: Service = request.app.state.service
    ready, reason = await service.readiness()
    state: dict[str, Any] = {"ready": ready}
    if request.app.state.access.has_key(request.scope):
        state["models"] = {name: model.value() for name, model in service.models.named.items()}
        if reason:
            state["reason"] = reason
    return JSONResponse(state, 200 if ready else 503)


async def _providers(request: Request) -> Response:
    return JSONResponse({name: report.value() for name, report in request.app.state.service.reports()})


async def _metrics(request: Request) -> Response:
    return PlainTextResponse(request.app.state.service.metrics.text(), media_type=_PROMETHEUS)
