"""The running service: models, the queue of the embedding model, the store, the metrics."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

from ortpacks_runtime import Report, Session
from ortpacks_runtime.providers import CPU
from ortpacks_runtime.settings import settings

from ortpacks_service.batching import Batcher
from ortpacks_service.bodies import Bodies
from ortpacks_service.embedding import Embedder, Embeddings
from ortpacks_service.errors import RequestError
from ortpacks_service.memory import Runs
from ortpacks_service.metrics import Metrics
from ortpacks_service.models import FAILED, READY, Model, Models
from ortpacks_service.options import DETECTOR, EMBEDDER, STORE, Options
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
            # Its exception refers to this frame, and would keep the request's body until a collection.
            del future

    def stop(self) -> None:
        """Stop without waiting for running work."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _done(self, future: asyncio.Future[T]) -> None:
        self._running -= 1
        if not future.cancelled():
            future.exception()  # asyncio logs exceptions that are never read


class Service:
    """All state behind the routes. It must be created in the event loop that it runs in."""

    def __init__(self, options: Options, room: int | None) -> None:
        """``room`` are the bytes for requests and answers. Raises ``ProviderError`` for a wrong setting."""
        wanted = settings({})
        self.options = options
        self.embedder_name = wanted.model_name or EMBEDDER
        self._dimensions = wanted.embedding_dim
        self._auto_download = wanted.auto_download
        self.runs = Runs()
        self.models = Models(options.models, (self.embedder_name, DETECTOR), self.runs)
        self.metrics = Metrics(self.reports, lambda: self.batcher.length)
        observe = self.metrics.batch.observe
        self.batcher = Batcher(self._compute, self._batch, options.queue, observe, self._on_cpu)
        self._embedder: Embedder | None = None
        self._store: Store | None = None
        self.threads = _Pool(None, "run", _WAITING)
        """Threads for runs of models."""
        self.streams = _Pool(_STREAMS, "stream", None)
        """Threads for parts of streams, which wait for their turn."""
        self._stores = _Pool(1, "store", _WAITING)
        most = options.body_mib << 20
        self.bodies = Bodies(most, room or 4 * most)
        self._store_fails: str | None = None
        """Why the store fails; empty if it works, ``None`` if that is not known yet."""
        self.model_names = (self.embedder_name, *options.aliases)
        if self.embedder_name == EMBEDDER:
            self.model_names += (f"sentence-transformers/{EMBEDDER}",)
        """Names of the embedding model: its folder's, and others."""

    def start(self) -> None:
        """Open the models in a thread; ``/readyz`` shows their states."""
        if without := self._no_embedder():
            log.error(without)
        self.models.load({self.embedder_name: self._make_embedder}, {DETECTOR: silent_frame()})

    def stop(self) -> None:
        """Stop without waiting for running work; the store loses nothing if it is not closed."""
        self.batcher.close()
        for pool in (self.threads, self.streams, self._stores):
            pool.stop()

    def reports(self) -> Iterator[tuple[str, Report]]:
        """Yield each open model's report with the model's name."""
        for model in self.models.named.values():
            if model.session is not None:
                yield model.name, model.session.report

    async def readiness(self) -> tuple[bool, str]:
        """Return whether all that is required works, and what of it has failed, and why."""
        required = self.options.required or (self.embedder_name, STORE)
        names = [name for name in required if name != STORE]
        reasons = list(filter(None, map(self._failure, names)))
        opened = all(self.models.named[name].state == READY for name in names if name in self.models.named)
        if STORE in required and self._embedder is not None:
            if self._store_fails != "":  # it may work again, or has not been asked yet
                with suppress(RequestError):
                    await self.in_store(Store.require_room)
            reasons += [self._store_fails] if self._store_fails else []
        return opened and not reasons, "; ".join(reasons)

    def _failure(self, name: str) -> str:
        model = self.models.named.get(name)
        if model is None and name == self.embedder_name:
            return self._no_embedder()
        if model is None:
            return f"no model {name!r} in {self.models.where}, which --required names"
        return f"{name}: {model.reason}" if model.state == FAILED else ""

    async def embed(self, texts: Sequence[str]) -> Embeddings:
        """Return the vectors of the texts. Raises ``RequestError``."""
        report = self.models.session(self.embedder_name).report
        start = time.perf_counter()
        embeddings = await self.batcher.embed(texts)
        embeddings.require_vectors()
        self.metrics.seconds.observe(time.perf_counter() - start)
        self.metrics.total.labels(report.provider).inc(len(texts))
        return embeddings

    async def in_store(self, run: Callable[[Store], T]) -> T:
        """Run ``run`` with the store of ``/add`` and ``/search`` and return its result.

        Raises ``RequestError``.
        """
        dimensions = self.ready_embedder().dimensions

        def with_store() -> T:
            if self._store is None:
                self._store = Store(self.options.data, self.embedder_name, dimensions)
            return run(self._store)

        try:
            done = await self._stores.run(with_store)
        except StoreError as error:
            if self._store_fails != str(error):
                log.error("the store fails: %s", error)  # noqa: TRY400 - no trace
            self._store_fails = str(error)
            raise RequestError(str(error), 503) from error
        if self._store_fails:
            log.info("the store works again")
        self._store_fails = ""
        return done

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
        embedder = Embedder(session, model.folder / "tokenizer.json", self.runs)
        if self._dimensions not in (None, embedder.dimensions):
            raise ValueError(f"embedding_dim is {self._dimensions}, {model.name} has {embedder.dimensions}")
        self._embedder = embedder

    def _compute(self, texts: Sequence[str]) -> Embeddings:
        return self.ready_embedder().embed(texts)

    def ready_embedder(self) -> Embedder:
        """Return the embedding model. Raises ``RequestError`` if it is not open."""
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
        return session is not None and session.report.provider == CPU and not self.runs.busy
