"""The application: routes, limits, errors as JSON, and the start and end of the service."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ortpacks_service import model_routes, speech_routes, text_routes
from ortpacks_service.errors import RequestError
from ortpacks_service.options import Options
from ortpacks_service.service import Service

log = logging.getLogger("ortpacks_service")

_PAGE = Path(__file__).with_name("page.html")

_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"

_CLIENT_LEFT = 499
"""nginx's status for a request whose client disconnected before the answer."""


def make_app(options: Options) -> Starlette:
    """Return the application. When it starts, it raises ``ProviderError`` for a wrong setting."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        service = app.state.service = Service(options)
        service.start()
        yield
        await asyncio.to_thread(service.stop)

    return _Application(
        options.seconds,
        routes=[  # compared in this order
            *text_routes.ROUTES,
            Route("/", _page),
            Route("/ping", _ping),
            Route("/healthz", _healthz),
            Route("/readyz", _readyz),
            Route("/providers", _providers),
            Route("/metrics", _metrics),
            *speech_routes.ROUTES,
            *model_routes.ROUTES,
        ],
        lifespan=lifespan,
    )


class _Application(Starlette):
    """An application whose only middleware is the one below, which answers errors in place of Starlette's."""

    def __init__(self, seconds: int, **given: Any) -> None:
        super().__init__(**given)
        self._seconds = seconds

    def build_middleware_stack(self) -> ASGIApp:
        """See ``Starlette``."""
        return _RequestMiddleware(self.router, self._seconds)


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

    def __init__(self, app: ASGIApp, seconds: int) -> None:
        self._app = app
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status, rest = 0, _Rest(scope, receive, self._seconds)

        async def send_counted(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            if status >= 300:  # noqa: PLR2004 - HTTP's redirections and errors
                await rest.read()
            await send(message)

        seconds = None if scope["path"] == speech_routes.PATH else self._seconds
        try:
            async with asyncio.timeout(seconds):
                await self._app(scope, rest.receive, send_counted)
        except RequestError as error:
            error.with_traceback(None)  # it holds what was read of the body
            await self._answer(status, error, scope, receive, send_counted)
        except HTTPException as error:  # the router's
            named = RequestError(f"{scope['method']} {scope['path']}: {error.detail}", error.status_code)
            await self._answer(status, named, scope, receive, send_counted, error.headers)
        except ClientDisconnect:
            status = _CLIENT_LEFT
        except asyncio.CancelledError:  # from uvicorn, when the time after a signal is over
            rest.unread = False
            ending = RequestError("the service ends before the request was served", 503, 1)
            await self._answer(status, ending, scope, receive, send_counted)
        except TimeoutError:
            rest.unread = False
            late = RequestError(f"the request took longer than {seconds} s (--seconds)", 504, 1)
            await self._answer(status, late, scope, receive, send_counted)
        except Exception:
            log.exception("a request failed", extra={"path": scope["path"]})
            bug = RequestError("the service failed; its log says why", 500)
            await self._answer(status, bug, scope, receive, send_counted)
        route = scope.get("route")
        path = route.path if isinstance(route, Route) else "other"
        scope["app"].state.service.metrics.requests.labels(path, str(status)).inc()

    async def _answer(
        self,
        status: int,
        error: RequestError,
        scope: Scope,
        receive: Receive,
        send: Send,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Send the error, unless an answer has begun; then the connection is closed without one."""
        if not status:
            await _response(scope["path"], error, headers or {})(scope, receive, send)


def _response(path: str, error: RequestError, headers: Mapping[str, str]) -> Response:
    """Return the error in the form of the route's protocol: OpenAI's, or KServe's."""
    if error.retry_after:
        headers = {**headers, "Retry-After": str(error.retry_after)}
    kind = "invalid_request_error" if error.code < 500 else "server_error"  # noqa: PLR2004 - HTTP's classes
    value: object = error.what if path.startswith("/v2") else {"message": error.what, "type": kind}
    return Response(
        orjson.dumps({"error": value}), error.code, headers=headers, media_type="application/json"
    )


async def _page(_request: Request) -> Response:
    return HTMLResponse(_PAGE.read_text(encoding="utf-8"))


async def _ping(_request: Request) -> Response:
    return JSONResponse({"status": "pong"})


async def _healthz(_request: Request) -> Response:
    return JSONResponse({"status": "ok"})


async def _readyz(request: Request) -> Response:
    service: Service = request.app.state.service
    models = {name: model.value() for name, model in service.models.named.items()}
    state = {"ready": service.ready, "models": models}
    if service.missing:
        state["reason"] = service.missing
    return JSONResponse(state, 200 if service.ready else 503)


async def _providers(request: Request) -> Response:
    service: Service = request.app.state.service
    return JSONResponse({name: report.value() for name, report in service.reports()})


async def _metrics(request: Request) -> Response:
    service: Service = request.app.state.service
    return PlainTextResponse(service.metrics.text(), media_type=_PROMETHEUS)
