"""The event store behind the service: current histories of accounts, durable writes, and answers while it is down.

All database work runs in two threads, one for reads and one for writes. A read never joins a batch that has begun, so
it sees everything that was acknowledged before it. Histories are kept in memory with their version, which each read
compares with the database: a write by any worker or host changes it.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from lightgc2n.serving.errors import RefusedError, store_down, unknown
from lightgc2n.serving.event_writer import EventWriter
from lightgc2n.serving.live_histories import Live, events_in_bundle, live_history
from lightgc2n.serving.logs import log
from lightgc2n.serving.served_bundle import ServedBundle
from lightgc2n.serving.settings import Limits
from lightgc2n.store.databases import StoreReplacedError, StoreUnavailableError, database_name, is_postgres
from lightgc2n.store.event_store import EventStore, open_store
from lightgc2n.store.events import NewEvent, Outcome

Result = TypeVar("Result")
READ_SECONDS, WRITE_SECONDS = 4.0, 8.0  # time limits of the database for one batch
PROBE_SECONDS = 0.5  # seconds between two checks of the database
ACCOUNTS_AT_ONCE = 16  # accounts of one read
OLD_HISTORY = "the store of events does not answer: this is the history of the bundle"


@dataclass(frozen=True, eq=False)
class PendingRead:
    """Accounts whose histories a request needs."""

    served: ServedBundle
    accounts: Sequence[str]
    result: "asyncio.Future[dict[str, Live]]"


class LiveStore:
    """The store of one worker.

    Args:
        url: a path for SQLite, or the address of a PostgreSQL database.
        served: returns the bundle that is served.
        changed: called with True when the store answers again, with False when it does not.
        committed: called with the number of events of each transaction.
    """

    def __init__(
        self,
        url: str,
        limits: Limits,
        served: Callable[[], ServedBundle],
        changed: Callable[[bool], None] = lambda _up: None,
        committed: Callable[[int], None] = lambda _events: None,
    ) -> None:
        self.name, self._url, self._limits, self._served, self._changed = (
            database_name(url),
            url,
            limits,
            served,
            changed,
        )
        self.available, self._reason = False, ""  # why it is not
        self._store: EventStore | None = None
        self._tombstones: frozenset[str] = frozenset()
        self._erasures = -1
        self._reads, self._writes = ThreadPoolExecutor(1, "store-reads"), ThreadPoolExecutor(1, "store-writes")
        for executor in (self._reads, self._writes):
            executor.submit(int).result()  # start the thread now: later the system may refuse
        self._probe: asyncio.Future[None] | None = None
        self._waiting: deque[PendingRead] = deque()
        self._reading = False
        self._cache: tuple[ServedBundle | None, OrderedDict[str, Live]] = (None, OrderedDict())  # of the reading thread
        self._cached_events = 0
        self._open()
        self._writer = EventWriter(self._in_writing_thread, self._append, limits.max_waiting_events, committed)

    @property
    def store(self) -> EventStore:
        """The open store; raises an error while the database does not answer."""
        if not self.available or self._store is None:
            raise StoreUnavailableError(f"{self.name}: does not answer.")
        return self._store

    async def watch(self) -> None:
        """Check periodically whether the database answers."""
        while True:
            await self.probe()
            await asyncio.sleep(PROBE_SECONDS)

    async def probe(self) -> None:
        """Open the store if it is not open, fetch what was erased, and note whether the database answers."""
        if self._probe is None or self._probe.done():
            self._probe = asyncio.get_running_loop().run_in_executor(self._reads, self._check)
        try:
            await _within(READ_SECONDS, self._probe)
        except Exception as problem:  # an unknown error of a driver counts as no answer
            self._down(problem)
        else:
            self._up()

    def _open(self) -> None:
        """Check the store once before the first request: ignore a store that is down, raise any other error."""
        try:
            self._reads.submit(self._check).result(2 * READ_SECONDS)
        except (StoreUnavailableError, FutureTimeout) as problem:
            self._down(problem)
        else:
            self._up()

    async def histories(self, served: ServedBundle, accounts: Collection[str]) -> dict[str, Live | RefusedError]:
        """Return the current history of each account, or the error for it.

        While the store is down, these are the bundle's histories, except for accounts of which something was erased.
        """
        names, histories = list(accounts), dict[str, Live | RefusedError]()
        try:
            for start in range(0, len(names), ACCOUNTS_AT_ONCE):
                part = await self._read(served, names[start : start + ACCOUNTS_AT_ONCE])
                histories |= {account: _known(served, account, live) for account, live in part.items()}
        except StoreUnavailableError as problem:
            self._down(problem)
            return {account: self._of_bundle(served, account) for account in names}
        return histories

    async def look_up(self, accounts: Sequence[str]) -> tuple[set[str], dict[str, int]]:
        """Return which of the accounts were erased, and how many events the store has of the others."""
        with suppress(StoreUnavailableError):
            return await self.query(lambda store: (store.erased(accounts), store.counts(accounts)))
        store, known = self._store, self._tombstones
        if store is None:
            raise store_down()
        return {account for account in accounts if store.hash_of(account) in known}, {}

    async def query(self, work: Callable[[EventStore], Result]) -> Result:
        """Run a read of the store in its thread."""
        store = self.store
        job = asyncio.get_running_loop().run_in_executor(self._reads, lambda: work(store))
        return await _within(READ_SECONDS, job)

    async def append(self, client: str, events: Sequence[NewEvent]) -> list[Outcome]:
        """Store events, and return the outcome of each once it is durable."""
        self.store  # noqa: B018  # an error now if it does not answer
        return await self._writer.append(client, events)

    async def erase_account(self, account: str, known: bool, done: Callable[[], None]) -> int:
        """Erase an account for good and return how many events it had; raise an error for an unknown account.

        Args:
            known: whether the bundle knows it.
            done: called in the thread once it is erased, also after the request has run out of time.
        """

        def erase(store: EventStore) -> int:
            if store.is_erased(account):
                done()
                return 0
            if not known and store.version(account) is None:
                raise unknown("account", account)
            count = store.erase_account(account)
            self._tombstones |= {store.hash_of(account)}
            done()
            return count

        return await self._erase(erase)

    async def erase_event(self, account: str, id: str | None, number: int | None, done: Callable[[], None]) -> bool:
        """Erase one event; return whether it was there. `done` is called as for an account."""

        def erase(store: EventStore) -> bool:
            erased = store.erase_event(account, id=id, number=number)
            if erased:
                self._tombstones |= {store.hash_of_any_event(account)}
                done()
            return erased

        return await self._erase(erase)

    def hashes_of(self, accounts: Sequence[str]) -> list[str]:
        """Return the keyed hashes that stand for accounts in logs."""
        store = self._store
        return [] if store is None else [store.hash_of(account) for account in accounts]

    def what_stays(self, in_bundle: bool) -> list[str]:
        """Sentences about the data that an erasure does not reach."""
        stays = ["a keyed hash, so that a late copy is refused"]
        if in_bundle:
            stays.append("the account in the files of the bundle, which no answer uses: lightgc2n forget --bundle")
        stays.append("what the model learned from all accounts together, until it is trained anew")
        if is_postgres(self._url):
            stays.append("logs and backups of the database")
        return stays

    def close(self) -> None:
        for executor in (self._reads, self._writes):
            executor.shutdown(wait=False, cancel_futures=True)
        if self._store is not None:
            with suppress(Exception):
                self._store.close()

    async def _erase(self, work: Callable[[EventStore], Result]) -> Result:
        store = self.store
        return await self._in_writing_thread(lambda: work(store))

    async def _in_writing_thread(self, work: Callable[[], Result]) -> Result:
        job = asyncio.get_running_loop().run_in_executor(self._writes, work)
        return await _within(WRITE_SECONDS, job)

    def _append(self, events: Sequence[NewEvent]) -> list[Outcome]:
        served = self._served()
        return self.store.append(events, lambda account: events_in_bundle(served.recommender, account))

    def _check(self) -> None:
        """In the reading thread: open the store or check it, and fetch the tombstones if there are more."""
        if self._store is None:
            self._store = open_store(self._url, READ_SECONDS)
        try:
            self._store.ping()
        except StoreReplacedError:
            self._writes.submit(self._store.close)  # after the write that uses it
            self._store, self._cache, self._erasures = None, (None, OrderedDict()), -1
            raise
        erasures = self._store.erasures()
        if erasures != self._erasures:
            self._tombstones, self._erasures = self._store.tombstones(), erasures

    def _up(self) -> None:
        if not self.available:
            self.available = True
            log("store_up", store=self.name)
            self._changed(True)

    def _down(self, problem: Exception) -> None:
        reason = str(problem) or type(problem).__name__
        if self.available or reason != self._reason:
            log("store_down", "warning", store=self.name, reason=reason)
        if self.available:
            self._changed(False)
        self.available, self._reason = False, reason

    def _of_bundle(self, served: ServedBundle, account: str) -> Live | RefusedError:
        """The bundle's history of an account, unless something of it was erased, or that is not known."""
        store = self._store
        if store is None or served.recommender.stored_history(account) is None:
            return store_down()
        if store.hash_of(account) in self._tombstones:
            return unknown("account", account)
        return store_down() if store.hash_of_any_event(account) in self._tombstones else Live(notes=(OLD_HISTORY,))

    async def _read(self, served: ServedBundle, accounts: Sequence[str]) -> dict[str, Live]:
        self.store  # noqa: B018  # an error now if it does not answer
        loop = asyncio.get_running_loop()
        pending = PendingRead(served, accounts, loop.create_future())
        self._waiting.append(pending)
        if not self._reading:
            self._reading = True
            loop.call_soon(self._start_next_batch)  # reads of the same loop iteration join the batch
        return await pending.result

    def _start_next_batch(self) -> None:
        batch, size = list[PendingRead](), 0
        while self._waiting and size < ACCOUNTS_AT_ONCE:
            one = self._waiting[0]
            if batch and one.served is not batch[0].served:
                break
            self._waiting.popleft()
            if not one.result.done():
                batch.append(one)
                size += len(one.accounts)
        if not batch:
            self._reading = False
            return
        accounts = list(dict.fromkeys(account for one in batch for account in one.accounts))
        job = asyncio.get_running_loop().run_in_executor(self._reads, self._read_accounts, batch[0].served, accounts)
        guarded = asyncio.ensure_future(_within(READ_SECONDS, job))
        guarded.add_done_callback(lambda done: self._deliver(batch, done))

    def _deliver(self, batch: Sequence[PendingRead], done: "asyncio.Future[dict[str, Live]]") -> None:
        problem = done.exception()
        if isinstance(problem, StoreUnavailableError):
            self._down(problem)
        for one in batch:
            if one.result.done():
                continue
            if problem is not None:
                one.result.set_exception(problem)
            else:
                one.result.set_result({account: done.result()[account] for account in one.accounts})
        self._start_next_batch()

    def _read_accounts(self, served: ServedBundle, accounts: Sequence[str]) -> dict[str, Live]:
        """In the reading thread: the current history of each account."""
        if self._cache[0] is not served:
            self._cache, self._cached_events = (served, OrderedDict()), 0
        cache, store = self._cache[1], self.store
        versions = {account: cache[account].version for account in accounts if account in cache}
        read = store.read(accounts, self._limits.max_history, versions)
        absent = [account for account, history in read.items() if history is None]
        erased = store.erased(absent)
        result = {}
        for account in accounts:
            history = read.get(account)
            if account not in read:
                cache.move_to_end(account)
                result[account] = cache[account]
            elif history is None:
                result[account] = Live(erased=account in erased)
                self._forget(cache.pop(account, None))
            else:
                result[account] = live = live_history(served, account, history)
                self._forget(cache.pop(account, None))
                cache[account] = live
                self._cached_events += live.size
        while self._cached_events > self._limits.max_cached_events:
            self._forget(cache.popitem(last=False)[1])
        return result

    def _forget(self, live: Live | None) -> None:
        self._cached_events -= 0 if live is None else live.size


def _known(served: ServedBundle, account: str, live: Live) -> Live | RefusedError:
    """The history; an error for an account that was erased, or that neither the store nor the bundle has."""
    nowhere = not live.stored and not served.recommender.knows(account)
    return unknown("account", account) if live.erased or nowhere else live


async def _within(seconds: float, job: "asyncio.Future[Result]") -> Result:
    """The result of work in a thread; an error after `seconds`, while the thread continues."""
    try:
        return await asyncio.wait_for(asyncio.shield(job), seconds)
    except TimeoutError:
        job.add_done_callback(_retrieve)
        raise StoreUnavailableError(f"no answer within {seconds:g} s.") from None


def _retrieve(job: "asyncio.Future[Any]") -> None:
    """Mark the exception of an abandoned job as retrieved, or asyncio logs it."""
    if not job.cancelled():
        job.exception()
