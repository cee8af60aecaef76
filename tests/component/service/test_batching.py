"""Tests of batching: waiting requests are computed together, in order, and within the limits."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest
from ortpacks_service import batching
from ortpacks_service.batching import Batcher
from ortpacks_service.embedding import Embeddings
from ortpacks_service.errors import RequestError

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Model:
    """A model that answers each text with its number; ``gate`` holds its runs up while it is clear.

    A run takes ``seconds`` by its clock.
    """

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.in_loop: list[bool] = []
        self.on_cpu, self.is_held = True, False
        self.seconds = self.clock = 0.0
        self.gate = threading.Event()
        self.gate.set()

    def compute(self, texts: Sequence[str]) -> Embeddings:
        self.batches.append(list(texts))
        self.in_loop.append(threading.current_thread() is threading.main_thread())
        self.is_held = not self.gate.is_set()
        self.gate.wait(60)
        self.is_held = False
        self.clock += self.seconds
        if "413" in texts:
            raise RequestError("too large", 413)
        vectors = np.array([int(text) for text in texts], np.float32)[:, None]
        return Embeddings(vectors, np.ones(len(texts), np.int64), vectors[:, 0], vectors[:, 0] < 0)


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def batcher(model: Model, monkeypatch: pytest.MonkeyPatch) -> Iterator[Batcher]:
    monkeypatch.setattr(batching, "time", SimpleNamespace(perf_counter=lambda: model.clock))
    made = Batcher(model.compute, lambda: 4, 10, lambda _: None, lambda: model.on_cpu)
    yield made
    made.close()


Ask = Callable[..., Awaitable[asyncio.Task[Embeddings]]]


@pytest.fixture
def ask(batcher: Batcher, model: Model) -> Ask:
    """Return a function that makes a request, and returns it when it waits or is answered."""

    async def asked(*texts: str) -> asyncio.Task[Embeddings]:
        task = asyncio.create_task(batcher.embed(texts))
        for turn in count():
            await asyncio.sleep(0)
            if turn > 5 and (model.is_held or not batcher._working):
                break
        return task

    return asked


async def test_requests_that_came_meanwhile_share_a_batch(model: Model, ask: Ask) -> None:
    model.gate.clear()
    requests = [await ask(str(number)) for number in range(7)]
    model.gate.set()
    found = await asyncio.gather(*requests)
    assert [int(one.vectors[0, 0]) for one in found] == list(range(7))
    assert [len(batch) for batch in model.batches] == [1, 4, 2]


async def test_a_large_request_is_cut_by_length_and_answered_in_order(batcher: Batcher, model: Model) -> None:
    texts = ["1", "22222", "3", "44", "555", "6", "7777777", "88", "9"]
    found = await batcher.embed(texts)
    assert [str(int(value)) for value in found.vectors[:, 0]] == texts
    assert [[len(text) for text in batch] for batch in model.batches] == [[7, 5, 3, 2], [2, 1, 1, 1], [1]]


async def test_a_full_queue_refuses_and_takes_again(batcher: Batcher, model: Model, ask: Ask) -> None:
    model.gate.clear()
    first = [await ask(*["1"] * 4) for _ in range(2)]
    with pytest.raises(RequestError) as full:
        await batcher.embed(["2"] * 3)
    assert (full.value.code, full.value.headers) == (503, {"Retry-After": "1"})
    model.gate.set()
    await asyncio.gather(*first)
    assert batcher.length == 0
    assert len((await batcher.embed(["1"] * 25)).vectors) == 25, "it is idle"


async def test_a_large_request_and_small_ones_take_turns(model: Model, ask: Ask) -> None:
    """It was refused as long as any text waited, and then computed to its end before those after it."""
    model.gate.clear()
    requests = [await ask("1"), await ask(*["2"] * 20), await ask(*["3"] * 4), await ask("4")]
    model.gate.set()
    await asyncio.gather(*requests)
    texts = ["".join(batch) for batch in model.batches]
    assert texts == ["1", "2222", "3333", "4", "2222", "2222", "2222", "2222"]


async def test_what_nobody_waits_for_is_not_computed(batcher: Batcher, model: Model, ask: Ask) -> None:
    model.gate.clear()
    first, gone = await ask("1"), await ask("2")
    gone.cancel()
    await asyncio.wait([gone])
    assert batcher.length == 1
    model.gate.set()
    await first
    await batcher.embed(["3"])
    assert model.batches == [["1"], ["3"]]


async def test_an_error_is_the_answer_of_its_batch_alone(batcher: Batcher) -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        await batcher.embed(["no number"])
    assert len((await batcher.embed(["1"])).vectors) == 1


async def test_a_text_that_fits_nowhere_costs_its_own_request_alone(model: Model, ask: Ask) -> None:
    model.gate.clear()
    requests = [await ask(text) for text in ("1", "2", "413", "3")]
    model.gate.set()
    answers = await asyncio.gather(*requests, return_exceptions=True)
    assert [type(answer) for answer in answers] == [Embeddings, Embeddings, RequestError, Embeddings]
    assert model.batches == [["1"], ["2", "413", "3"], ["2"], ["413"], ["3"]]


async def test_a_short_text_alone_is_computed_in_the_event_loop(model: Model, ask: Ask) -> None:
    for text in ("1", "2", "0" * 501, "4"):
        assert (await (await ask(text))).vectors[0, 0] == np.float32(text)
    assert model.in_loop == [False, True, False, True]


async def test_after_a_slow_run_the_event_loop_computes_nothing(model: Model, ask: Ask) -> None:
    for text, model.seconds in (("1", 0.05), ("2", 0.0), ("3", 0.0)):
        await (await ask(text))
    assert model.in_loop == [False, False, True]


async def test_a_gpu_that_was_fast_and_then_hangs_holds_up_no_event_loop(model: Model, ask: Ask) -> None:
    model.on_cpu = False
    await (await ask("1"))
    model.gate.clear()
    hanging = await ask("2")
    assert not hanging.done()
    model.gate.set()
    await hanging
    assert model.in_loop == [False, False]


async def test_requests_that_come_together_share_a_run(batcher: Batcher, model: Model, ask: Ask) -> None:
    await (await ask("1"))
    await asyncio.gather(batcher.embed(["2"]), batcher.embed(["3"]))
    assert model.batches[1:] in ([["2", "3"]], [["2"], ["3"]])
    assert not any(model.in_loop)


async def test_beside_a_run_the_event_loop_computes_nothing(batcher: Batcher, model: Model, ask: Ask) -> None:
    await batcher.embed(["1"])
    model.gate.clear()
    gone = await ask("2", "3")
    gone.cancel()
    await asyncio.wait([gone])
    late = await ask("4")
    model.gate.set()
    await late
    assert model.in_loop == [False, False, False]
