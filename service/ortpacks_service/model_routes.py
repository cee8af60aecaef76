"""``/v2`` serves any model of the folder by the Open Inference Protocol (KServe v2), as Triton does."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import onnxruntime
from ortpacks_runtime import Session
from ortpacks_runtime.session import device_failed
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ortpacks_service import VERSION, tensors
from ortpacks_service.bodies import Answer, body_of
from ortpacks_service.errors import RequestError
from ortpacks_service.memory import TOO_LARGE, Runs, RunTooLargeError
from ortpacks_service.models import READY
from ortpacks_service.options import DETECTOR
from ortpacks_service.tensors import DATATYPES, HEADER_LENGTH, Array

_VERSION = "1"

_WRONG_INPUT = ("InvalidArgument", "ValueError", "RuntimeError", "RuntimeException", "Fail")
"""Names of ONNX Runtime's exceptions for inputs that a model does not accept.

A kernel's refusal is a ``RuntimeException`` in 1.21.0 and a ``Fail`` in 1.31.1.
"""


async def server(_request: Request) -> Response:
    """Return the server's name and extensions."""
    extensions = ["binary_tensor_data"]
    return JSONResponse({"name": "ortpacks-service", "version": VERSION, "extensions": extensions})


async def live(_request: Request) -> Response:
    """Return that the process answers."""
    return JSONResponse({"live": True})


async def ready(request: Request) -> Response:
    """Return whether the service is ready, with status 503 if not."""
    done, _ = await request.app.state.service.readiness()
    return JSONResponse({"ready": done}, 200 if done else 503)


def _named(request: Request) -> str:
    if request.path_params.get("version", _VERSION) != _VERSION:
        raise RequestError(f"version: each model has one, {_VERSION}", 404)
    return str(request.path_params["name"])


async def model_ready(request: Request) -> Response:
    """Return whether the model is open, with status 503 if not."""
    name, service = _named(request), request.app.state.service
    model = service.models.named.get(name)
    if model is None:
        service.models.session(name)  # raises
    done = model.state == READY
    return JSONResponse({"name": name, "ready": done, **model.value()}, 200 if done else 503)


async def metadata(request: Request) -> Response:
    """Return the model's inputs and outputs; a size of -1 may vary."""
    name = _named(request)
    session: Session = request.app.state.service.models.session(name)
    inner = session.inner
    sides = {"inputs": inner.get_inputs(), "outputs": inner.get_outputs()}
    described = {side: [_described(value) for value in values] for side, values in sides.items()}
    return JSONResponse({"name": name, "versions": [_VERSION], "platform": "onnxruntime_onnx", **described})


def _described(value: Any) -> dict[str, Any]:
    kind, _ = DATATYPES.get(value.type, (value.type, None))
    shape = [size if isinstance(size, int) and size >= 0 else -1 for size in value.shape]
    return {"name": value.name, "datatype": kind, "shape": shape}


async def infer(request: Request) -> Response:
    """Run the model. A body's tensors are read in a thread, so that the event loop stays free."""
    name, service = _named(request), request.app.state.service
    session: Session = service.models.session(name)
    body = await body_of(request)
    size = tensors.json_size(body.content, request.headers.get(HEADER_LENGTH))
    body.require_room_for_json(size)
    body.grow(len(body.content) - size)  # tensors that lie at an odd address are copied
    stop = onnxruntime.RunOptions()

    def run() -> Response:
        asked, feed = tensors.read_request(body.content, size, body.grow)
        outputs = _outputs(session, name, tensors.wanted_outputs(asked))
        _require_inputs(session, name, feed)
        values = _run(service.runs, session, outputs, feed, stop)
        body.grow(sum(value.nbytes for value in values))
        about = {"model_name": name, "model_version": _VERSION}
        if isinstance(asked.get("id"), str):
            about["id"] = asked["id"][:200]
        content, headers = tensors.answer(about, asked, dict(zip(outputs, values, strict=True)), body.grow)
        return Answer(content, body, headers)

    try:
        response: Response = await service.threads.run(run)
    except asyncio.CancelledError:  # the client has disconnected
        stop.terminate = True
        raise
    return response


def _outputs(session: Session, name: str, wanted: list[str] | None) -> list[str]:
    """Return the requested outputs, else all tensors. Raises ``RequestError``."""
    kinds = {value.name: value.type for value in session.inner.get_outputs()}
    chosen = wanted or [output for output, kind in kinds.items() if kind in DATATYPES]
    for output in chosen:
        if output not in kinds:
            raise RequestError(f"{name} has no output {output[:100]!r}. It has {', '.join(kinds)}.")
        if kinds[output] not in DATATYPES:
            raise RequestError(f"{output} is a {kinds[output]}, which the protocol lacks. Ask for others.")
    if not chosen:
        raise RequestError(f"{name} has no output that the protocol can carry")
    return chosen


def _require_inputs(session: Session, name: str, feed: Mapping[str, Array]) -> None:
    """Raise ``RequestError`` unless the request has the model's inputs and no others.

    Also raises it for an input of the speech detector without an item, whether or not the runtime layer could
    read the model.
    """
    names = [value.name for value in session.inner.get_inputs()]
    wrong = [given for given in feed if given not in names]
    if wrong or len(feed) < len(names):
        found = ", ".join(feed)[:200] or "none"
        raise RequestError(f"{name} takes the inputs {', '.join(names)}; found {found}")
    empty = [given for given, value in feed.items() if not value.size]
    if name == DETECTOR and empty:  # ONNX Runtime's LSTM would end the process
        raise RequestError(f"{name} takes no input without an item; {', '.join(empty)} has none")


def _run(
    runs: Runs, session: Session, outputs: list[str], feed: Mapping[str, Array], stop: onnxruntime.RunOptions
) -> list[Array]:
    try:
        return runs.run(session, outputs, feed, stop)
    except RunTooLargeError as error:
        raise RequestError(f"{TOO_LARGE}: {error}. Send fewer or smaller tensors at once.", 413) from None
    except Exception as error:
        if type(error).__name__ in _WRONG_INPUT and not device_failed(error):
            raise RequestError(" ".join(str(error).split())[:500]) from error
        raise


_MODEL = "/v2/models/{name}"

ROUTES = [Route("/v2", server), Route("/v2/health/live", live), Route("/v2/health/ready", ready)]
for _path in (_MODEL, _MODEL + "/versions/{version}"):
    ROUTES += [Route(_path, metadata), Route(f"{_path}/ready", model_ready)]
    ROUTES += [Route(f"{_path}/infer", infer, methods=["POST"])]
