"""The types of a split: its settings, the training data, and the queries for validation and test.

Training events are copied out of the dataset, so that a model is built without access to other events. A query shows
the events before a cut; its target is the item to predict. In data of several domains a cut may have one target for
each domain: the first event of the domain after the cut.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from lightgc2n.config import LARGEST_SEED, setting
from lightgc2n.data.dataset import Dataset, Domain, Ints, Longs

UNSEEN = -1


@dataclass(frozen=True)
class Queries:
    """Query q shows the events start[q] to stop[q] of an account; its target is the item to predict."""

    account: Ints  # UNSEEN for an account without training events
    owner: Ints  # the true account, for counting and resampling; never shown to a model
    start: Longs
    stop: Longs
    target: Ints
    target_event: Longs
    events: Ints
    times: Longs | None

    def __len__(self) -> int:
        return len(self.target)

    def select(self, rows: npt.NDArray[Any]) -> "Queries":
        """Return the queries at the given positions."""
        chosen = ("account", "owner", "start", "stop", "target", "target_event")
        return replace(self, **{name: getattr(self, name)[rows] for name in chosen})


def queries_at(dataset: Dataset, account: Ints, start: Longs, stop: Longs, rows: npt.NDArray[np.bool_]) -> Queries:
    """Return one query for each selected row: it shows the events from `start` to `stop`; the next is its target."""
    return _queries(dataset, account[rows], start[rows], stop[rows], stop[rows].astype(np.int64))


def queries_by_domain(
    dataset: Dataset, account: Ints, start: Longs, cut: Longs, stop: Longs, selected: npt.NDArray[np.bool_]
) -> Queries:
    """Return for each selected row and each domain the first event from `cut` on and before `stop`, if there is one."""
    firsts = first_places(dataset, cut)
    rows = [np.flatnonzero(selected & (place < stop)) for place in firsts]
    row = np.concatenate(rows)
    places = np.concatenate([place[row] for place, row in zip(firsts, rows, strict=True)])
    order = np.lexsort((places, row))
    row, places = row[order], places[order]
    return _queries(dataset, account[row], start[row], cut[row], places)


def first_places(dataset: Dataset, cut: Longs) -> list[Longs]:
    """Return for each domain its first position from each cut on; the number of events if there is none."""
    events, firsts = len(dataset.events), []
    for number in range(len(dataset.domains)):
        place = np.where(dataset.event_domains == number, np.arange(events), events)
        following = np.minimum.accumulate(np.append(place, events)[::-1])[::-1]
        firsts.append(following[cut].astype(np.int64))
    return firsts


def separate_targets(dataset: Dataset, rows: npt.NDArray[np.bool_]) -> Queries:
    """Return for each sequence of `rows` and each domain the target that the source stores separately."""
    assert dataset.targets is not None
    chosen, number = np.nonzero((dataset.targets >= 0) & rows[:, None])
    targets = dataset.targets[chosen, number]
    # The targets are appended after all events, so that each has its own position outside of every sequence.
    extended = replace(dataset, events=np.concatenate([dataset.events, targets]).astype(np.int32), times=None)
    account, bounds = np.asarray(dataset.sequence_accounts), np.asarray(dataset.offsets)
    places = len(dataset.events) + np.arange(len(targets))
    return _queries(extended, account[chosen], bounds[:-1][chosen], bounds[1:][chosen], places)


def _queries(dataset: Dataset, account: Ints, start: Longs, stop: Longs, places: Longs) -> Queries:
    return Queries(
        account=account.astype(np.int32),
        owner=account.astype(np.int32),
        start=start.astype(np.int64),
        stop=stop.astype(np.int64),
        target=np.asarray(dataset.events[places]),
        target_event=places,
        events=dataset.events,
        times=dataset.times,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitConfig:
    """How to split a dataset."""

    protocol: str = setting(
        "last", choices=("last", "time", "cold-accounts", "windows"), help="How test targets are chosen."
    )
    targets: str = setting("auto", choices=("auto", "all", "last"), help="Training targets: every prefix, or the last.")
    test_share: float = setting(
        0.1, at_least=0.001, at_most=0.4, help="Share of events (time) or accounts (cold-accounts)."
    )
    window_test_share: float = setting(0.2, at_least=0.001, at_most=0.9, help="Share of windows held out for testing.")
    validation: bool = setting(True, help="Hold out validation targets; if false, they stay in training.")
    ask: str = setting(
        "auto",
        choices=("auto", "next", "each-domain"),
        help="Predict the next event, or the next of each domain; auto: each domain if the source has such targets.",
    )
    copies: bool = setting(True, help="Keep test windows that a training window contains.")
    training_share: float = setting(1.0, at_least=0.01, at_most=1.0, help="Share of the training sequences to use.")
    target_in_input: bool = setting(False, help="Leave the target in the input, as the released code does.")
    seed: int = setting(0, at_least=0, at_most=LARGEST_SEED, help="Seed that draws the held-out accounts or windows.")


@dataclass(frozen=True)
class Training:
    """All data that a model may learn from: training sequences, and the numbers of accounts and items."""

    accounts: int
    items: int
    domains: tuple[Domain, ...]
    sequence_accounts: Ints
    offsets: Longs
    events: Ints
    times: Longs | None
    targets: str  # `all`: every event but the first of a sequence is a training target; `last`: only its last event
    domain_targets: Ints | None = None  # [S, D] next item of each domain (-1: none), if stored separately

    @cached_property
    def popularity(self) -> Longs:
        """How often each item occurs in training."""
        return np.bincount(self.events, minlength=self.items)

    @property
    def sequences(self) -> int:
        return len(self.sequence_accounts)

    @property
    def examples(self) -> int:
        """The number of training targets."""
        steps = np.maximum(np.diff(self.offsets) - 1, 0)
        return int(steps.sum() if self.targets == "all" else (steps > 0).sum())

    @cached_property
    def steps(self) -> tuple[Ints, Ints]:
        """The items before and after each transition, from neighbouring events of a sequence."""
        follows = np.ones(len(self.events), dtype=bool)
        follows[self.offsets[:-1][np.diff(self.offsets) > 0]] = False
        after = np.flatnonzero(follows)
        return self.events[after - 1], self.events[after]


@dataclass(frozen=True)
class Split:
    """A dataset split by one protocol."""

    config: SplitConfig
    train: Training
    train_events: Longs  # the position of each training event in the dataset, for the audit
    validation: Queries
    test: Queries
    notes: tuple[str, ...] = ()
    stamps: tuple[str, ...] = ()  # warnings to print with every table made from this split
    known: Training | None = None  # all events before the test cut, for models that count without learning
    by_domain: bool = False  # whether each domain has its own target, ranked among the items of that domain

    @property
    def catalogues(self) -> tuple[Domain, ...]:
        """The item ranges that targets are ranked among: one for each domain, or all items."""
        return self.train.domains if self.by_domain else (Domain("all", 0, self.train.items),)


def assemble(
    dataset: Dataset,
    config: SplitConfig,
    train: tuple[Ints, Longs, Longs],
    validation: Queries,
    test: Queries,
    notes: tuple[str, ...] = (),
) -> Split:
    """Build a split whose training sequence i holds the events start[i] to stop[i] of owner[i]."""
    owner, start, stop = train
    training, places = training_part(dataset, config, owner, start, stop)
    learned = np.zeros(len(dataset.accounts), dtype=bool)
    learned[owner[stop > start]] = True
    return Split(
        config, training, places, mask_unseen_accounts(validation, learned), mask_unseen_accounts(test, learned), notes
    )


def training_part(
    dataset: Dataset, config: SplitConfig, owner: Ints, start: Longs, stop: Longs
) -> tuple[Training, Longs]:
    """Return the events start[i] to stop[i] as training sequences, and their positions in the dataset."""
    places, offsets = ranges(start, stop)
    targets = config.targets if config.targets != "auto" else {"logs": "all", "windows": "last"}[dataset.kind]
    part = Training(
        accounts=len(dataset.accounts),
        items=len(dataset.items),
        domains=dataset.domains,
        sequence_accounts=owner.astype(np.int32),
        offsets=offsets,
        events=np.asarray(dataset.events[places]),
        times=np.asarray(dataset.times[places]) if dataset.times is not None else None,
        targets=targets,
    )
    return part, places


def mask_unseen_accounts(queries: Queries, learned: npt.NDArray[np.bool_]) -> Queries:
    """Replace the account of every query whose account has no training events by `UNSEEN`."""
    return replace(queries, account=np.where(learned[queries.owner], queries.owner, UNSEEN).astype(np.int32))


def ranges(start: Longs, stop: Longs) -> tuple[Longs, Longs]:
    """Return the positions start[i] to stop[i] of all rows in one array, and where each row begins in it."""
    lengths = stop - start
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    places = np.arange(offsets[-1]) + np.repeat(start - offsets[:-1], lengths)
    return places.astype(np.int64), offsets


def transition_pairs(train: Training, reach: int) -> tuple[Longs, Longs, npt.NDArray[np.float64]]:
    """Return pairs of items at most `reach` events apart in a sequence: the earlier, the later, and 1 / distance."""
    owner = np.repeat(np.arange(train.sequences), np.diff(train.offsets))
    befores, afters, weights = [], [], []
    for gap in range(1, reach + 1):
        same = owner[gap:] == owner[:-gap]
        befores.append(train.events[:-gap][same].astype(np.int64))
        afters.append(train.events[gap:][same].astype(np.int64))
        weights.append(np.full(int(same.sum()), 1 / gap))
    return np.concatenate(befores), np.concatenate(afters), np.concatenate(weights)
