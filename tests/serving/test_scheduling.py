"""Slow work: clients take turns, none takes all, and what nobody waits for is not done.

Questions that wait together are answered together, each as if it had come alone.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from lightgc2n.recommending.load_bundle import load_bundle
from lightgc2n.recommending.recommender import Recommender
from lightgc2n.recommending.results import Recommendations
from lightgc2n.serving import scheduling
from lightgc2n.serving.errors import RefusedError
from lightgc2n.serving.scheduling import UNCOUNTED_BYTES, AbandonedError, Batcher, Check, FairPool, RequestMemory
from tests.export.town import bundle_of
from tests.recommending.test_bundle import assert_same


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


def test_jobs_of_disconnected_callers_are_dropped() -> None:
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


def test_a_caller_that_disconnects_while_its_job_is_rejected() -> None:
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


@pytest.fixture(scope="module")
def bundle() -> Recommender:
    return load_bundle(bundle_of("lightgc2n"))


def kinds(bundle: Recommender) -> list[dict[str, Any]]:
    """Questions of all kinds: short and long, with wishes and without, of known accounts and of strangers."""
    accounts, items = bundle.dataset.accounts, list(bundle.dataset.items)
    actual: list[dict[str, Any]] = [{"account": account, "k": 1 + place % 30} for place, account in enumerate(accounts)]
    actual += [{"history": items[place : 2 * place], "exclude_seen": place % 2 == 0} for place in range(0, 60, 3)]
    return [
        *actual,
        {"history": []},
        {"account": accounts[0], "allow": items[:9]},
        {"history": items[:4], "deny": items[:50]},
    ]


def ask_at_once(bundle: Recommender, requests: list[list[dict[str, Any]]]) -> tuple[list[Any], list[int]]:
    """What each request gets when all come in one moment, and the sizes of the batches."""
    sizes: list[int] = []

    async def everybody() -> list[Any]:
        with ThreadPoolExecutor(1) as lane:
            batcher = Batcher(lane, 10_000, sizes.append)
            asked = [batcher.answer(bundle, [bundle.prepare(**one) for one in request]) for request in requests]
            actual = await asyncio.gather(*asked, return_exceptions=True)
            assert batcher.waiting == 0
            return actual

    return asyncio.run(everybody()), sizes


def test_batched_equals_single(bundle: Recommender) -> None:
    asks = kinds(bundle)
    actual, sizes = ask_at_once(bundle, [[ask] for ask in asks])
    for (answer,), ask in zip(actual, asks, strict=True):
        assert_same(answer, bundle.recommend(**ask))
    assert sizes == [64, len(asks) - 64]


def test_a_long_request_lets_others_in_between(bundle: Recommender) -> None:
    long, short = kinds(bundle) * 3, [{"account": bundle.dataset.accounts[3]}]
    order: list[str] = []

    async def everybody() -> list[list[Recommendations]]:
        with ThreadPoolExecutor(1) as lane:
            batcher = Batcher(lane, 10_000)

            async def ask(name: str, asks: list[dict[str, Any]]) -> list[Recommendations]:
                actual = await batcher.answer(bundle, [bundle.prepare(**one) for one in asks])
                order.append(name)
                return actual

            return list(await asyncio.gather(ask("long", long), ask("short", short)))

    (many, (one,)) = asyncio.run(everybody())
    assert order == ["short", "long"]
    assert_same(one, bundle.recommend(**short[0]))
    for answer, ask in zip(many, long, strict=True):
        assert_same(answer, bundle.recommend(**ask))


def test_batches_stay_small_in_memory(bundle: Recommender, monkeypatch: pytest.MonkeyPatch) -> None:
    items = list(bundle.dataset.items)
    asks = [{"history": (items * 3)[: 10 + 90 * (place % 3)]} for place in range(30)]
    monkeypatch.setattr(scheduling, "MOST_CELLS", 400)  # two histories of 190 side by side, or forty of 10
    actual, sizes = ask_at_once(bundle, [asks[:20], *([ask] for ask in asks[20:])])
    assert max(sizes) <= 40
    assert sum(sizes) == 30
    for answer, ask in zip([*actual[0], *(one for (one,) in actual[1:])], asks, strict=True):
        assert_same(answer, bundle.recommend(**ask))
    monkeypatch.setattr(scheduling, "MOST_SCORES", 3 * len(items))
    assert max(ask_at_once(bundle, [[{"account": one}] for one in bundle.dataset.accounts])[1]) == 3
    monkeypatch.setattr(scheduling, "MOST_SCORES", 1)
    assert set(ask_at_once(bundle, [[{"account": one}] for one in bundle.dataset.accounts[:5]])[1]) == {1}


def test_one_that_fails_does_not_take_others_along(bundle: Recommender, monkeypatch: pytest.MonkeyPatch) -> None:
    answer, poison = bundle.answer, bundle.dataset.accounts[7]

    def failing(questions: Any) -> Any:
        if any(question.account_id == poison for question in questions):
            raise ZeroDivisionError
        return answer(questions)

    monkeypatch.setattr(bundle, "answer", failing)
    accounts = bundle.dataset.accounts[:20]
    actual, _ = ask_at_once(bundle, [[{"account": account}] for account in accounts])
    for result, account in zip(actual, accounts, strict=True):
        if account == poison:
            assert isinstance(result, ZeroDivisionError)
        else:
            assert result[0].account_id == account


def test_who_has_gone_is_not_answered(bundle: Recommender) -> None:
    async def everybody() -> list[int]:
        sizes: list[int] = []
        begin = threading.Event()
        with ThreadPoolExecutor(1) as lane:
            lane.submit(begin.wait)
            batcher = Batcher(lane, 100, sizes.append)
            question = bundle.prepare(bundle.dataset.accounts[0])
            tasks = [asyncio.create_task(batcher.answer(bundle, [question] * 3)) for _ in range(4)]
            await asyncio.sleep(0)
            tasks[1].cancel()
            begin.set()
            actual = await asyncio.gather(*tasks, return_exceptions=True)
        assert [isinstance(one, asyncio.CancelledError) for one in actual] == [False, True, False, False]
        assert batcher.waiting == 0
        return sizes

    assert asyncio.run(everybody()) == [9]


def test_each_is_answered_by_the_bundle_that_it_was_prepared_with(bundle: Recommender) -> None:
    other = load_bundle(bundle_of("sasrec"))

    async def everybody() -> list[list[Recommendations]]:
        with ThreadPoolExecutor(1) as lane:
            batcher = Batcher(lane, 100)
            turns = [bundle, other, bundle, bundle, other]
            asked = [batcher.answer(one, [one.prepare(one.dataset.accounts[2])]) for one in turns]
            return list(await asyncio.gather(*asked))

    account = bundle.dataset.accounts[2]
    wanted = [one.recommend(account) for one in (bundle, other, bundle, bundle, other)]
    for (actual,), one in zip(asyncio.run(everybody()), wanted, strict=True):
        assert_same(actual, one)


def test_more_than_may_wait_is_refused(bundle: Recommender) -> None:
    async def everybody() -> list[Any]:
        with ThreadPoolExecutor(1) as lane:
            batcher = Batcher(lane, 10)
            question = bundle.prepare(bundle.dataset.accounts[0])
            asked = [batcher.answer(bundle, [question] * 4) for _ in range(5)]
            actual = await asyncio.gather(*asked, return_exceptions=True)
            # Alone, a request may be longer than what may wait: it waits for nobody.
            assert len(await batcher.answer(bundle, [question] * 11)) == 11
            return actual

    actual = asyncio.run(everybody())
    assert [isinstance(one, list) for one in actual] == [True, True, False, False, False]
    assert all(isinstance(one, RefusedError) and one.status == 429 for one in actual[2:])
