"""The running service: models, the queue of the embedding model, the store, the metrics."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from ortpacks_runtime import Report, Session
from ortpacks_runtime.providers import CPU
from ortpacks_runtime.settings import settings

from ortpacks_service.batching import Batcher
from ortpacks_service.bodies import Bodies
from ortpacks_service.embedding import Embedder, Embeddings
from ortpacks_service.errors import RequestError
from ortpacks_service.metrics import Metrics
from ortpacks_service.models import FAILED, Model, Models
from ortpacks_service.options import DETECTOR, EMBEDDER, Options
from ortpacks_service.speech import silent_frame
from ortpacks_service.store import Store, StoreError

_WAITING, _STREAMS = 64, 4
"""The most requests that wait for a pool's threads or run there, and the threads for parts of streams."""

_NO_DOWNLOAD = ", and nothing is downloaded, though auto_download is set: no sha256 is known to verify it"

log = logging.getLogger("ortpacks_service")

T = TypeVar("T")


class _Pool:
    """Threads, and a limit on the requests that wait for one or run in one."""

    def __init__(self, threads: int | None, name: str, most_waiting: int | None) -> None:
        """``None`` stands for a thread for each core, and for no limit."""
        self._threads = ThreadPoolExecutor(threads or os.cpu_count(), thread_name_prefix=name)
        self._most_waiting = most_waiting
        self._running = 0

    async def run(self, run: Callable[[], T]) -> T:
        """Run ``run`` in a thread and return its result.

        Raises ``RequestError`` if too many requests wait.
        """
        if self._most_waiting is not None and self._running >= self._most_waiting:
            waiting = f"{self._running} requests are waiting already. Try again in a second."
            raise RequestError(waiting, 503, 1)
        self._running += 1
        future = asyncio.get_running_loop().run_in_executor(self._threads, run)
        future.add_done_callback(self._done)  # counts also for cancelled requests
        try:
            return await asyncio.shield(future)
        finally:
            del (
                future
            )  # its exception refers to this frame, and would keep the request's body until a collection

    def stop(self) -> None:
        """Stop without waiting for running work."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _done(self, future: asyncio.Future[T]) -> None:
        self._running -= 1
        if not future.cancelled():
            future.exception()  # asyncio logs exceptions that are never read


class Service:
    """All state behind the routes. It must be created in the event loop that it runs in."""

    def __init__(self, options: Options) -> None:
        """Raises ``ProviderError`` for a wrong setting."""
        wanted = settings({})
        self.options = options
        self.embedder_name = wanted.model_name or EMBEDDER
        self._dimensions = wanted.embedding_dim
        self._auto_download = wanted.auto_download
        self.models = Models(options.models, (self.embedder_name, DETECTOR))
        self.metrics = Metrics(self.reports, lambda: self.batcher.length)
        observe = self.metrics.batch.observe
        self.batcher = Batcher(self._compute, self._batch, options.queue, observe, self._on_cpu)
        self._embedder: Embedder | None = None
        self._store: Store | None = None
        self._runs = _Pool(None, "run", _WAITING)
        self._streams = _Pool(_STREAMS, "stream", None)
        self._stores = _Pool(1, "store", _WAITING)
        self.bodies = Bodies(options.body_mib << 20)

    def start(self) -> None:
        """Open the models in a thread; ``/readyz`` shows their states."""
        if without := self._no_embedder():
            log.error(without)
        self.models.load({self.embedder_name: self._make_embedder}, {DETECTOR: silent_frame()})

    def stop(self) -> None:
        """Stop without waiting for running work; the store loses nothing if it is not closed."""
        self.batcher.close()
        for pool in (self._runs, self._streams, self._stores):
            pool.stop()

    def reports(self) -> Iterator[tuple[str, Report]]:
        """Yield each open model's report with the model's name."""
        for model in self.models.named.values():
            if model.session is not None:
                yield model.name, model.session.report

    @property
    def ready(self) -> bool:
        """Whether every model is open, and the embedding model is one of them."""
        return self._embedder is not None and self.models.ready

    @property
    def missing(self) -> str:
        """Reason why the service cannot become ready, a missing or failed model; empty if there is none."""
        return self._no_embedder() or "; ".join(
            f"{model.name}: {model.reason}" for model in self.models.named.values() if model.state == FAILED
        )

    async def embed(self, texts: Sequence[str]) -> Embeddings:
        """Return the vectors of the texts. Raises ``RequestError``."""
        report = self.models.session(self.embedder_name).report
        start = time.perf_counter()
        embeddings = await self.batcher.embed(texts)
        embeddings.require_vectors()
        self.metrics.seconds.observe(time.perf_counter() - start)
        self.metrics.total.labels(report.provider).inc(len(texts))
        return embeddings

    async def in_thread(self, run: Callable[[], T]) -> T:
        """Run ``run`` in a thread and return its result.

        Raises ``RequestError`` if too many requests wait.
        """
        return await self._runs.run(run)

    async def in_stream(self, run: Callable[[], T]) -> T:
        """Run a part of a stream in a thread and return its result, after waiting for its turn."""
        return await self._streams.run(run)

    async def in_store(self, run: Callable[[Store], T]) -> T:
        """Run ``run`` with the store of ``/add`` and ``/search`` and return its result.

        Raises ``RequestError``.
        """
        dimensions = self._ready_embedder().dimensions

        def with_store() -> T:
            if self._store is None:
                self._store = Store(self.options.data, self.embedder_name, dimensions)
            return run(self._store)

        try:
            return await self._stores.run(with_store)
        except StoreError as error:
            raise RequestError(str(error), 503) from error

    def _no_embedder(self) -> str:
        """Return why there is no embedding model, and what to do; empty if there is one."""
        if self.embedder_name in self.models.named:
            return ""
        return (
            f"no {self.embedder_name}/model.onnx in {self.models.where}"
            f"{_NO_DOWNLOAD if self._auto_download else ''}. Put the model there (./run service makes "
            f"dist/models with {EMBEDDER}), or set ai.model_name of config.toml, or ORTPACKS_MODEL_NAME, "
            "to a model that is there."
        )

    def _make_embedder(self, model: Model, session: Session) -> None:
        embedder = Embedder(session, model.folder / "tokenizer.json")
        if self._dimensions not in (None, embedder.dimensions):
            raise ValueError(
                f"embedding_dim is {self._dimensions}, {model.name} has {embedder.dimensions} dimensions"
            )
        self._embedder = embedder

    def _compute(self, texts: Sequence[str]) -> Embeddings:
        return self._ready_embedder().embed(texts)

    def _ready_embedder(self) -> Embedder:
        self.models.session(self.embedder_name)
        if self._embedder is None:
            raise RequestError(f"{self.embedder_name} is not open yet", 503, 1)
        return self._embedder

    def _batch(self) -> int:
        session = self.models.named[self.embedder_name].session
        limit = session.report.batch if session else None
        return min(self.options.batch, limit or self.options.batch)

    def _on_cpu(self) -> bool:
        session = self.models.named[self.embedder_name].session
        return session is not None and session.report.provider == CPU
