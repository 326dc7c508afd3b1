"""Group commit: events of concurrent requests are stored in one transaction, so that they share one flush to disk."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from lightgc2n.serving.errors import busy
from lightgc2n.store.databases import StoreUnavailableError
from lightgc2n.store.events import NewEvent, Outcome

MOST_TOGETHER = 2000  # events of one transaction; more are no faster, and others wait longer for the lock
Append = Callable[[Sequence[NewEvent]], list[Outcome]]


@dataclass(frozen=True, eq=False)
class PendingWrite:
    """The events of one request."""

    client: str
    events: Sequence[NewEvent]
    outcomes: "asyncio.Future[list[Outcome]]"


class EventWriter:
    """Stores events, one transaction at a time; clients take turns.

    Args:
        run: runs a function in the writing thread.
        append: stores events in one transaction.
        most_waiting: the most events that may wait; one client may have half of them waiting.
        committed: called with the number of events of each transaction.
    """

    def __init__(
        self,
        run: Callable[[Callable[[], list[Outcome]]], Awaitable[list[Outcome]]],
        append: Append,
        most_waiting: int,
        committed: Callable[[int], None] = lambda _events: None,
    ) -> None:
        self._run, self._append, self._most_waiting, self._committed = run, append, most_waiting, committed
        self._waiting: OrderedDict[str, deque[PendingWrite]] = OrderedDict()  # by client, in turns
        self._working: asyncio.Task[None] | None = None

    async def append(self, client: str, events: Sequence[NewEvent]) -> list[Outcome]:
        """Store events and return the outcome of each once it is durable."""
        own = sum(len(one.events) for one in self._waiting.get(client, ()))
        every = sum(len(one.events) for queue in self._waiting.values() for one in queue)
        if every and (own + len(events) > self._most_waiting // 2 or every + len(events) > self._most_waiting):
            raise busy(f"{every:,} events wait to be stored; retry in a moment.")
        pending = PendingWrite(client, events, asyncio.get_running_loop().create_future())
        self._waiting.setdefault(client, deque()).append(pending)
        if self._working is None:
            self._working = asyncio.create_task(self._work())
        return await pending.outcomes

    async def _work(self) -> None:
        while group := self._next_group():
            try:
                await self._store(group)
            except Exception as problem:
                if len(group) == 1 or isinstance(problem, StoreUnavailableError):
                    _fail(group, problem)
                else:  # one of the requests caused the error
                    await self._store_each(group)
        self._working = None

    async def _store_each(self, group: Sequence[PendingWrite]) -> None:
        for one in group:
            try:
                await self._store([one])
            except Exception as problem:
                _fail([one], problem)

    async def _store(self, group: Sequence[PendingWrite]) -> None:
        events = [event for one in group for event in one.events]
        outcomes = iter(await self._run(lambda: self._append(events)))
        self._committed(len(events))
        for one in group:
            own = [next(outcomes) for _ in one.events]
            if not one.outcomes.done():  # the client may have disconnected
                one.outcomes.set_result(own)

    def _next_group(self) -> list[PendingWrite]:
        """Writes of clients in turn, as many as fit into one transaction; skips those of disconnected clients."""
        group, size = list[PendingWrite](), 0
        while self._waiting:
            client, queue = next(iter(self._waiting.items()))
            one = queue[0]
            if group and size + len(one.events) > MOST_TOGETHER:
                break
            queue.popleft()
            del self._waiting[client]
            if queue:
                self._waiting[client] = queue  # to the end of the turns
            if not one.outcomes.done():
                group.append(one)
                size += len(one.events)
        return group


def _fail(group: Sequence[PendingWrite], problem: Exception) -> None:
    for one in group:
        if not one.outcomes.done():
            one.outcomes.set_exception(problem)
