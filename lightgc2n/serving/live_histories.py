"""Histories of accounts from the event store, by the item numbers of the bundle that is served.

If the store has an account, its history is the stored one, else the one in the bundle. The first event of such an
account copies the bundle's history into the store, if it has times. Histories without times stay in the bundle, and
the events of the store are appended to them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lightgc2n.recommending.queries import History
from lightgc2n.recommending.recommender import Recommender
from lightgc2n.serving.served_bundle import ServedBundle
from lightgc2n.store.events import AccountHistory, NewEvent


@dataclass(frozen=True)
class Live:
    """The current history of an account.

    Args:
        history: None: the one in the bundle is current.
        stored: whether the store has the account.
    """

    history: History | None = None
    stored: bool = False
    erased: bool = False
    version: int = 0
    notes: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Approximate number of events in memory."""
        return 16 + (0 if self.history is None else len(self.history.items))


def live_history(served: ServedBundle, account: str, stored: AccountHistory) -> Live:
    """The history of an account by item numbers; items that the model does not know are left out."""
    recommender = served.recommender
    index = recommender.dataset.item_index
    known = [index.get(item, -1) for item in stored.items]
    items, times = np.array(known, dtype=np.int32), np.array(stored.times, dtype=np.int64)
    unknown = int((items < 0).sum())
    notes = (f"events of items that the model does not know yet: {unknown:,}",) if unknown else ()
    if unknown:
        items, times = items[items >= 0], times[items >= 0]
    own = recommender.stored_history(account)
    if own is None:
        history = History(items, times, notes)
    elif own.times is None:
        history = History(np.concatenate([own.items, items]), None, notes)
    elif np.array_equal(own.items, items) and np.array_equal(own.times, times):
        return Live(None, True, version=stored.version, notes=notes)
    else:
        history = History(items, times, notes)
    return Live(history, True, version=stored.version)


def events_in_bundle(recommender: Recommender, account: str) -> Sequence[NewEvent]:
    """The events of an account in the bundle, oldest first; none if they have no times."""
    own, dataset = recommender.stored_history(account), recommender.dataset
    if own is None or own.times is None:
        return []
    names: list[str | None] = [*recommender.domains_of(own.items)] or [None] * len(own.items)
    rows = zip(own.items.tolist(), own.times.tolist(), names, strict=True)
    return [NewEvent(account, dataset.items[item], time, domain=domain) for item, time, domain in rows]
