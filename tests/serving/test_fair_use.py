"""Slow work: clients take turns, none takes all, and what nobody waits for is not done."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from lightgc2n.serving.errors import RefusedError
from lightgc2n.serving.fair_use import UNCOUNTED_BYTES, AbandonedError, Check, FairPool, RequestMemory


async def run_job(pool: FairPool, client: str, work: Callable[[Check], str]) -> str:
    """The result of the work; cancelling the caller stops the job."""
    job = pool.start(client, work)
    try:
        return await job.result
    finally:
        pool.stop(job)


class Gate:
    """Work that waits until it may go on, and notes who has begun and who was stopped."""

    def __init__(self) -> None:
        self.go, self.begun, self.stopped = threading.Event(), list[str](), list[str]()

    def work(self, name: str) -> Callable[[Check], str]:
        def run(check: Check) -> str:
            self.begun.append(name)
            assert self.go.wait(30)
            try:
                check()
            except AbandonedError:
                self.stopped.append(name)
                raise
            return name

        return run


def in_pool(test: Callable[[FairPool, Gate], Awaitable[Any]], *limits: int) -> Gate:
    async def run() -> Gate:
        pool, gate = FairPool("test", *limits), Gate()
        try:
            await test(pool, gate)
        finally:
            gate.go.set()
            pool.close()
        return gate

    return asyncio.run(run())


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not holds():
            await asyncio.sleep(0.001)


def test_clients_take_turns() -> None:
    async def test(pool: FairPool, gate: Gate) -> None:
        names = ("a1", "a2", "a3", "b1", "c1", "b2")
        jobs = [asyncio.ensure_future(run_job(pool, name[0], gate.work(name))) for name in names]
        await until(lambda: pool.waiting == 5)
        gate.go.set()
        assert await asyncio.gather(*jobs) == list(names)
        assert (pool.waiting, pool.running) == (0, 0)

    assert in_pool(test, 1, 10, 5).begun == ["a1", "a2", "b1", "c1", "a3", "b2"]


def test_one_client_may_wait_with_a_few_only() -> None:
    async def test(pool: FairPool, gate: Gate) -> None:
        jobs = [asyncio.ensure_future(run_job(pool, "a", gate.work(name))) for name in ("a1", "a2", "a3")]
        await until(lambda: pool.waiting == 2)
        with pytest.raises(RefusedError, match="3 such requests of yours") as refused:
            await run_job(pool, "a", gate.work("a4"))
        assert (refused.value.status, refused.value.headers) == (429, {"Retry-After": "1"})
        other = asyncio.ensure_future(run_job(pool, "b", gate.work("b1")))
        await until(lambda: pool.waiting == 3)
        gate.go.set()
        assert await asyncio.gather(*jobs, other) == ["a1", "a2", "a3", "b1"]
        assert await run_job(pool, "a", gate.work("a5")) == "a5"

    in_pool(test, 1, 10, 3)


def test_a_full_queue_takes_from_who_has_most() -> None:
    async def test(pool: FairPool, gate: Gate) -> None:
        jobs = [asyncio.ensure_future(run_job(pool, "a", gate.work(f"a{number}"))) for number in range(5)]
        await until(lambda: pool.waiting == 4)
        first = asyncio.ensure_future(run_job(pool, "b", gate.work("b1")))
        await until(jobs[4].done)
        with pytest.raises(RefusedError, match="the queue is full"):
            jobs[4].result()
        second = asyncio.ensure_future(run_job(pool, "c", gate.work("c1")))
        await until(jobs[3].done)
        assert (pool.waiting, type(jobs[3].exception())) == (4, RefusedError)
        with pytest.raises(RefusedError, match="4 such requests wait"):
            await run_job(pool, "b", gate.work("b2"))
        gate.go.set()
        assert await asyncio.gather(*jobs[:3], first, second) == ["a0", "a1", "a2", "b1", "c1"]

    in_pool(test, 1, 4, 9)


def test_what_nobody_waits_for_is_not_done() -> None:
    async def test(pool: FairPool, gate: Gate) -> None:
        running, waiting = (asyncio.ensure_future(run_job(pool, "a", gate.work(name))) for name in ("a1", "a2"))
        await until(lambda: gate.begun == ["a1"])
        for job in (running, waiting):
            job.cancel()
        await until(lambda: running.done() and waiting.done())
        assert pool.waiting == 0
        gate.go.set()
        assert await run_job(pool, "b", gate.work("b1")) == "b1"
        await until(lambda: pool.running == 0)

    gate = in_pool(test, 1, 10, 5)
    assert (gate.begun, gate.stopped) == (["a1", "b1"], ["a1"])


def test_a_caller_that_goes_just_when_its_job_would_be_refused() -> None:
    async def test(pool: FairPool, gate: Gate) -> None:
        jobs = [asyncio.ensure_future(run_job(pool, "a", gate.work(f"a{number}"))) for number in range(3)]
        await until(lambda: pool.waiting == 2)
        jobs[2].cancel()  # it has not noticed yet when the next one comes
        other = asyncio.ensure_future(run_job(pool, "b", gate.work("b1")))
        await until(lambda: jobs[2].done() and pool.waiting == 2)
        gate.go.set()
        assert await asyncio.gather(jobs[0], jobs[1], other) == ["a0", "a1", "b1"]

    in_pool(test, 1, 2, 9)


def test_a_mistake_is_that_of_its_own_request() -> None:
    async def test(pool: FairPool, gate: Gate) -> None:
        with pytest.raises(ZeroDivisionError):
            await run_job(pool, "a", lambda _check: 1 // 0)
        gate.go.set()
        assert await run_job(pool, "a", gate.work("a2")) == "a2"

    in_pool(test, 1, 10, 5)


def test_memory_is_shared() -> None:
    memory = RequestMemory(1_000_000)
    one, more, other = memory.reserve("a"), memory.reserve("a"), memory.reserve("b")
    assert one.grow_to(400_000)
    assert not more.grow_to(200_000), "half is for others"
    assert more.grow_to(UNCOUNTED_BYTES), "what is small always fits"
    assert other.grow_to(500_000)
    assert not other.grow_to(700_000)
    with pytest.raises(RefusedError, match="used up their memory limit"):
        other.need(700_000)
    assert memory.held == 900_000
    for hold in (one, more, other, other):
        hold.release()
    assert memory.held == 0
    assert one.grow_to(5_000_000), "alone, even the largest fits"
    assert not other.grow_to(UNCOUNTED_BYTES + 1)
