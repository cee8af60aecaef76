"""This module computes texts of requests that wait at the same time in one batch."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from ortpacks_service.embedding import Embeddings, joined
from ortpacks_service.errors import RequestError

_SHORT = 500
"""The most characters of a text that may be computed in the event loop, which answers nobody meanwhile."""

_FAST_SECONDS = 0.02
"""The longest that the run before may have taken, so that the next one may take place in the event loop."""


@dataclass(frozen=True)
class _Part:
    """Texts of one request, at most a batch of them, which are computed together."""

    texts: Sequence[str]
    answer: asyncio.Future[Embeddings]


_Request = deque[_Part]
"""What is left of a request."""


class Batcher:
    """A queue for a model. Requests that wait already share a batch, and take turns part by part.

    So a large request delays no other by more than its turn, and is not kept out by small ones: against the
    limit of the queue, a request counts as what it takes of a turn.

    Batches are computed in a thread. On a CPU, a short text that comes alone is computed in the event loop
    instead: two changes of thread take about 0.15 ms, a twentieth of MiniLM's time for a text there. A GPU
    may fail, and opening the model again takes seconds.

    ``batch`` is called before each run, since the batch size falls when a GPU's memory is too small.
    """

    def __init__(
        self,
        compute: Callable[[Sequence[str]], Embeddings],
        batch: Callable[[], int],
        capacity: int,
        observe: Callable[[int], None],
        on_cpu: Callable[[], bool],
    ) -> None:
        """``capacity`` is the number of texts that may wait, those of a request's later turns apart.

        ``observe`` gets the size of each batch; ``on_cpu`` returns whether the CPU computes the next run.
        """
        self._compute = compute
        self._batch = batch
        self._capacity = capacity
        self._observe = observe
        self._on_cpu = on_cpu
        self._waiting: deque[_Request] = deque()
        self._changing = threading.Lock()
        """Lock for the queue and for whether the thread works on it."""
        self._working = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="embed")
        self._last = float("inf")
        """Seconds of the last run."""
        self.length = 0
        """Number of texts that wait or are computed."""
        self._turns = 0
        """Number of texts that all requests together bring into a turn."""

    async def embed(self, texts: Sequence[str]) -> Embeddings:
        """Return the texts' vectors, in their order.

        Raises ``RequestError`` if too many texts wait, and what the model raises.
        """
        turn = min(len(texts), self._batch())
        if self._turns and self._turns + turn > self._capacity:
            raise RequestError(f"{self.length} texts are waiting already. Try again in a second.", 503, 1)
        self.length += len(texts)
        self._turns += turn
        try:
            await asyncio.sleep(0)  # requests that came together with this one are counted after this
            quick = len(texts[0]) <= _SHORT and self._last <= _FAST_SECONDS and self._on_cpu()
            if self.length == 1 and not self._working and quick:
                return self._run(texts)
            return await self._in_thread(texts)
        finally:
            self.length -= len(texts)
            self._turns -= turn

    async def _in_thread(self, texts: Sequence[str]) -> Embeddings:
        loop, size = asyncio.get_running_loop(), self._batch()
        # Padding costs as much as tokens, so texts of similar length go into one batch.
        order = sorted(range(len(texts)), key=lambda at: len(texts[at]), reverse=True)
        chosen = [order[start : start + size] for start in range(0, len(order), size)]
        parts = [_Part([texts[at] for at in part], loop.create_future()) for part in chosen]
        self._enqueue(deque(parts), loop)
        return joined(await asyncio.gather(*(part.answer for part in parts)), order)

    def close(self) -> None:
        """Drop the texts that wait; the running batch ends."""
        with self._changing:
            self._waiting.clear()
        self._thread.shutdown(wait=False)

    def _enqueue(self, request: _Request, loop: asyncio.AbstractEventLoop) -> None:
        """Add the request to the queue, and start the thread if it is idle."""
        with self._changing:
            self._waiting.append(request)
            if not self._working:
                self._thread.submit(self._work, loop)
                self._working = True

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        """Compute the parts in the queue, in the thread, until there are none."""
        while parts := self._next():
            result = self._result(parts)
            each = isinstance(result, RequestError) and len(parts) > 1  # a text of one of them fits nowhere
            answers = [([part], self._result([part])) for part in parts] if each else [(parts, result)]
            for some, answer in answers:
                with suppress(RuntimeError):  # the loop was closed meanwhile
                    loop.call_soon_threadsafe(_share_out, some, answer)

    def _result(self, parts: Sequence[_Part]) -> Embeddings | Exception:
        try:
            return self._run([text for part in parts for text in part.texts])
        except Exception as error:  # noqa: BLE001 - each request gets it as its answer
            return error

    def _run(self, texts: Sequence[str]) -> Embeddings:
        self._observe(len(texts))
        start = time.perf_counter()
        vectors = self._compute(texts)
        self._last = time.perf_counter() - start
        return vectors

    def _next(self) -> list[_Part]:
        """Return the parts of the next batch, without those of cancelled requests.

        If there are none, the result is empty and the thread ends its work.
        """
        taken: list[_Part] = []
        with self._changing:
            free = self._batch()
            while self._waiting:
                request = self._waiting[0]
                part = request[0]
                if not part.answer.cancelled():
                    if taken and len(part.texts) > free:
                        break
                    taken.append(part)
                    free -= len(part.texts)
                request.popleft()
                self._waiting.rotate(-1)
                if not request:
                    self._waiting.pop()
            self._working = bool(taken)
        return taken


def _share_out(parts: Sequence[_Part], result: Embeddings | Exception) -> None:
    """Give each part its share of the batch's result, or the failure."""
    at = 0
    for part in parts:
        end = at + len(part.texts)
        if part.answer.done():
            pass  # its request is gone
        elif isinstance(result, Exception):
            part.answer.set_exception(result)
        else:
            part.answer.set_result(result.of(slice(at, end)))
        at = end
