"""Fixtures with a small sentence transformer."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from ortpacks_runtime.settings import VARIABLES
from ortpacks_service.app import make_app
from ortpacks_service.options import EMBEDDER, read_options
from starlette.testclient import TestClient

from tests.support.factories.onnx_models import MATRIX, write_model
from tests.support.service import write_embedder, write_same


def write_models(folder: Path) -> None:
    """Write the embedding model, ``times`` (floats of shape (batch, 4) to (batch, 2)), ``same`` (texts and
    halves to themselves) and ``both`` (a tensor and a list)."""
    write_embedder(folder / EMBEDDER)
    write_model(folder / "times/model.onnx", MATRIX)
    write_same(folder / "same")
    write_model(
        folder / "both/model.onnx",
        """both (float[n] x) => (float[n] y, seq(float[]) listed) {
            y = Identity (x)
            listed = SequenceConstruct (x)
        }""",
    )


@pytest.fixture
def models(tmp_path: Path) -> Path:
    folder = tmp_path / "models"
    write_embedder(folder / EMBEDDER)
    return folder


@pytest.fixture(scope="module", autouse=True)
def _alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Hide this machine's settings and select the CPU."""
    with pytest.MonkeyPatch.context() as patch:
        for name in (name for names in VARIABLES.values() for name in names):
            patch.delenv(name, raising=False)
        patch.setenv("ORTPACKS_PROVIDER", "cpu")
        patch.chdir(tmp_path_factory.mktemp("here"))
        yield


@contextmanager
def opened(models: Path, data: Path, *flags: str, **env: str) -> Iterator[TestClient]:
    """Run the service with flags inside the block, which begins when no model is being opened."""
    given = ["--models", str(models), "--data", str(data), *flags]
    app = make_app(read_options(given, env))
    with TestClient(app, "http://localhost", raise_server_exceptions=False) as client:
        named = client.app.state.service.models.named  # type: ignore[attr-defined]
        while {"waiting", "loading"} & {model.state for model in named.values()}:
            time.sleep(0.005)
        yield client


Start = Callable[..., TestClient]
Told = Callable[[object], None]


@pytest.fixture
def start(models: Path, tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts the service with flags."""
    with ExitStack() as stack:
        yield lambda *flags: stack.enter_context(opened(models, tmp_path / "data", *flags))


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """Return a service with the models of ``write_models``, which a module's tests share."""
    folder = tmp_path_factory.mktemp("shared")
    write_models(folder / "models")
    with opened(folder / "models", folder / "data") as client:
        yield client
