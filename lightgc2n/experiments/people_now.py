"""Histories of the people of an account, weighted by the probability that each of them is watching now.

Within a session the probabilities use its earlier events. The control assigns each session to the people of another
session: it mixes equally many histories, which belong to no real person.
"""

import numpy as np

from lightgc2n.data.dataset import Dataset, Longs
from lightgc2n.experiments.rolling_queries import (
    ChooseHistories,
    RollingQueries,
    WeightedHistory,
    histories_of,
    people_of,
)
from lightgc2n.people.finder import PeopleFinder
from lightgc2n.people.sessions import Floats
from lightgc2n.people.who_is_watching import Past, item_vectors_of, who_is_watching


def people_now(
    dataset: Dataset, rolling: RollingQueries, finder: PeopleFinder, shuffled: bool = False
) -> ChooseHistories:
    """Use the events of each estimated person, weighted by the probability that they watch at the time of the query."""
    followed, queries = people_of(dataset, rolling, finder, None), rolling.queries
    assert dataset.times is not None
    times, events = np.asarray(dataset.times), np.asarray(dataset.events)

    def histories(query: int) -> list[WeightedHistory]:
        start, place = int(queries.start[query]), int(queries.target_event[query])
        account, session = int(queries.owner[query]), rolling.session[start:place]
        share = followed(query).shares(place - start)
        if shuffled:
            share = _shuffled(share, session, np.random.default_rng(account))
        begins = start + int(np.searchsorted(session, rolling.session[place]))  # of the open session
        past = Past(events[start:place], times[start:place], share, session).before(begins - start)
        begun = events[begins:place]
        chances = who_is_watching(past, int(times[place]), begun, item_vectors_of(finder, account))[-1]
        return histories_of(share, chances, start)

    return histories


def _shuffled(share: Floats, session: Longs, random: np.random.Generator) -> Floats:
    """Return the shares of whole sessions in another order."""
    begins = np.flatnonzero(np.diff(session, prepend=-1))
    unit = np.cumsum(np.diff(session, prepend=session[:1]) != 0)
    return share[begins][random.permutation(len(begins))][unit]
