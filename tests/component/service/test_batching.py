"""Tests of batching: waiting requests are computed together, in order, and within the limits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence

import numpy as np
import pytest
from ortpacks_service.batching import Batcher
from ortpacks_service.embedding import Embeddings
from ortpacks_service.errors import RequestError


class Model:
    """A model that answers each text with its number; ``gate`` holds its runs up while it is clear."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.threads: list[threading.Thread] = []
        self.gate = threading.Event()
        self.gate.set()

    def compute(self, texts: Sequence[str]) -> Embeddings:
        self.batches.append(list(texts))
        self.threads.append(threading.current_thread())
        self.gate.wait(10)
        numbers = [int(text) for text in texts]
        vectors = np.array(numbers, np.float32)[:, None]
        return Embeddings(vectors, np.ones(len(texts), np.int64), vectors[:, 0])


Test = Callable[[Batcher, Model], Awaitable[None]]


def ran(test: Test, capacity: int = 100, *, cpu: bool = True) -> Model:
    async def main() -> None:
        batcher = Batcher(model.compute, lambda: 4, capacity, lambda _: None, lambda: cpu)
        await test(batcher, model)
        batcher.close()

    model = Model()
    asyncio.run(main())
    return model


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0.01)


def test_requests_that_came_meanwhile_share_a_batch() -> None:
    async def test(batcher: Batcher, model: Model) -> None:
        model.gate.clear()
        requests = [asyncio.create_task(batcher.embed(["0"]))]
        await settled()
        requests += [asyncio.create_task(batcher.embed([str(number)])) for number in range(1, 7)]
        await settled()
        model.gate.set()
        found = await asyncio.gather(*requests)
        assert [int(one.vectors[0, 0]) for one in found] == list(range(7))

    assert [len(batch) for batch in ran(test).batches] == [1, 4, 2]


def test_a_large_request_is_cut_by_length_and_answered_in_order() -> None:
    texts = ["1", "22222", "3", "44", "555", "6", "7777777", "88", "9"]

    async def test(batcher: Batcher, model: Model) -> None:
        found = await batcher.embed(texts)
        assert [str(int(value)) for value in found.vectors[:, 0]] == texts

    batches = ran(test).batches
    assert [[len(text) for text in batch] for batch in batches] == [[7, 5, 3, 2], [2, 1, 1, 1], [1]]


def test_a_full_queue_refuses_and_takes_again() -> None:
    async def test(batcher: Batcher, model: Model) -> None:
        model.gate.clear()
        first = asyncio.create_task(batcher.embed(["1"] * 8))
        await settled()
        with pytest.raises(RequestError) as full:
            await batcher.embed(["2"] * 3)
        assert (full.value.code, full.value.retry_after) == (503, 1)
        model.gate.set()
        await first
        assert batcher.length == 0
        await batcher.embed(["2"] * 3)
        assert len((await batcher.embed(["1"] * 25)).vectors) == 25, "it is idle"

    ran(test, capacity=10)


def test_what_nobody_waits_for_is_not_computed() -> None:
    async def test(batcher: Batcher, model: Model) -> None:
        model.gate.clear()
        first = asyncio.create_task(batcher.embed(["1"]))
        await settled()
        gone = asyncio.create_task(batcher.embed(["2"]))
        await settled()
        gone.cancel()
        await settled()
        assert batcher.length == 1
        model.gate.set()
        await first
        await batcher.embed(["3"])

    assert ran(test).batches == [["1"], ["3"]]


def test_an_error_is_the_answer_of_its_batch_alone() -> None:
    async def test(batcher: Batcher, model: Model) -> None:
        with pytest.raises(ValueError, match="invalid literal"):
            await batcher.embed(["no number"])
        assert len((await batcher.embed(["1"])).vectors) == 1

    ran(test)


def in_loop(model: Model) -> list[bool]:
    return [thread is threading.main_thread() for thread in model.threads]


def test_a_short_text_alone_is_computed_in_the_event_loop_once_a_run_was_fast() -> None:
    async def test(batcher: Batcher, model: Model) -> None:
        for text in ("1", "2", "0" * 501, "4"):
            found = await batcher.embed([text])
            assert found.vectors[0, 0] == np.float32(text)
            await settled()

    assert in_loop(ran(test)) == [False, True, False, True]


def test_after_a_slow_run_the_event_loop_computes_nothing() -> None:
    async def test(batcher: Batcher, model: Model) -> None:
        model.gate.clear()
        first = asyncio.create_task(batcher.embed(["1"]))
        await settled()  # the run waits for its gate: 0.05 s
        model.gate.set()
        await first
        await settled()
        await batcher.embed(["2"])
        await settled()
        await batcher.embed(["3"])

    assert in_loop(ran(test)) == [False, False, True]


def test_a_gpu_that_was_fast_and_then_hangs_holds_up_no_event_loop() -> None:
    async def test(batcher: Batcher, model: Model) -> None:
        await batcher.embed(["1"])
        await settled()
        model.gate.clear()
        asking = asyncio.create_task(batcher.embed(["2"]))
        await asyncio.wait_for(settled(), 1)
        assert not asking.done()
        model.gate.set()
        await asking

    assert in_loop(ran(test, cpu=False)) == [False, False]


def test_requests_that_come_together_are_computed_together_in_the_thread() -> None:
    async def test(batcher: Batcher, model: Model) -> None:
        await batcher.embed(["1"])
        await settled()
        await asyncio.gather(batcher.embed(["2"]), batcher.embed(["3"]))

    model = ran(test)
    assert model.batches[1:] in ([["2", "3"]], [["2"], ["3"]])
    assert not any(in_loop(model))


def test_beside_a_run_whose_request_is_gone_the_event_loop_computes_nothing() -> None:
    async def test(batcher: Batcher, model: Model) -> None:
        await batcher.embed(["1"])
        model.gate.clear()
        gone = asyncio.create_task(batcher.embed(["2", "3"]))
        await settled()
        gone.cancel()
        await settled()
        late = asyncio.create_task(batcher.embed(["4"]))
        await settled()
        model.gate.set()
        await late

    assert in_loop(ran(test)) == [False, False, False]
