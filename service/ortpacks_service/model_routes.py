"""``/v2``: any model of the folder by the Open Inference Protocol (KServe v2), as Triton serves it."""

from __future__ import annotations

from typing import Any

from ortpacks_runtime import Session
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ortpacks_service.bodies import body_of
from ortpacks_service.errors import RequestError
from ortpacks_service.models import READY
from ortpacks_service.service import Service
from ortpacks_service.tensors import DATATYPES, HEADER_LENGTH, Array, answer, read_request, wanted_outputs

_VERSION = "1"

_WRONG_INPUT = ("InvalidArgument", "ValueError", "RuntimeError", "Fail")
"""What ONNX Runtime raises for inputs that a model does not take."""


async def server(_request: Request) -> Response:
    """The server's name and extensions."""
    return JSONResponse(
        {"name": "ortpacks-service", "version": "1.0.0", "extensions": ["binary_tensor_data"]}
    )


async def live(_request: Request) -> Response:
    """The process answers."""
    return JSONResponse({"live": True})


async def ready(request: Request) -> Response:
    """Every model is open and has run."""
    service: Service = request.app.state.service
    return JSONResponse({"ready": service.ready}, 200 if service.ready else 503)


def _named(request: Request) -> str:
    if request.path_params.get("version", _VERSION) != _VERSION:
        raise RequestError(f"version: each model has one, {_VERSION}", 404)
    return str(request.path_params["name"])


async def model_ready(request: Request) -> Response:
    """The model is open and has run."""
    name, service = _named(request), request.app.state.service
    model = service.models.named.get(name)
    if model is None:
        service.models.session(name)  # raises
    done = model.state == READY
    return JSONResponse({"name": name, "ready": done, **model.value()}, 200 if done else 503)


async def metadata(request: Request) -> Response:
    """The model's inputs and outputs; -1 stands for a size that may vary."""
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
    """Run the model."""
    name, service = _named(request), request.app.state.service
    session: Session = service.models.session(name)
    asked, feed = read_request(await body_of(request), request.headers.get(HEADER_LENGTH))
    outputs = wanted_outputs(asked)
    names = [value.name for value in session.inner.get_outputs()]
    unknown = [output for output in outputs or () if output not in names]
    if unknown:
        raise RequestError(f"{name} has no output {unknown[0]!r}. It has {', '.join(names)}.")
    values = await service.in_thread(lambda: _run(session, outputs, feed))
    described = {"model_name": name, "model_version": _VERSION, **_id(asked)}
    body, headers = answer(described, asked, dict(zip(outputs or names, values, strict=True)))
    return Response(body, headers=headers)


def _id(asked: dict[str, Any]) -> dict[str, str]:
    return {"id": asked["id"]} if isinstance(asked.get("id"), str) else {}


def _run(session: Session, outputs: list[str] | None, feed: dict[str, Array]) -> list[Array]:
    try:
        return session.run(outputs, feed)
    except Exception as error:
        if type(error).__name__ in _WRONG_INPUT:
            raise RequestError(" ".join(str(error).split())) from error
        raise


_MODEL = "/v2/models/{name}"

ROUTES = [
    Route("/v2", server),
    Route("/v2/health/live", live),
    Route("/v2/health/ready", ready),
    *(
        route
        for path in (_MODEL, _MODEL + "/versions/{version}")
        for route in (
            Route(path, metadata),
            Route(f"{path}/ready", model_ready),
            Route(f"{path}/infer", infer, methods=["POST"]),
        )
    ),
]
