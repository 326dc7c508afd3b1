"""A dataset divided into what a model may learn from and what it is asked.

Training events are copied out of the dataset: what a model is built from holds no other event.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from lightgc2n.config import LARGEST_SEED, setting
from lightgc2n.data.dataset import Dataset, Domain, Ints, Longs
from lightgc2n.data.queries import UNSEEN, Queries


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitConfig:
    """How a dataset is divided."""

    protocol: str = setting(
        "last", choices=("last", "time", "cold-accounts", "windows"), help="What the split promises."
    )
    targets: str = setting("auto", choices=("auto", "all", "last"), help="Training targets: every prefix, or the last.")
    test_share: float = setting(0.1, at_least=0.001, at_most=0.4, help="Share of events (time) or accounts (cold).")
    window_test_share: float = setting(0.2, at_least=0.001, at_most=0.9, help="Share of windows held out for testing.")
    validation: bool = setting(True, help="Hold validation targets out; if not, training has them and chooses nothing.")
    ask: str = setting(
        "auto",
        choices=("auto", "next", "each-domain"),
        help="For the next event, or the next of each domain; auto: the latter where the source gives such targets.",
    )
    copies: bool = setting(True, help="Of windows: keep test windows that stand inside a training window.")
    training_share: float = setting(1.0, at_least=0.01, at_most=1.0, help="Share of the training sequences to learn.")
    target_in_input: bool = setting(False, help="Leave the target in the input, as the released code does.")
    seed: int = setting(0, at_least=0, at_most=LARGEST_SEED, help="Draws the accounts or windows that are held out.")


@dataclass(frozen=True)
class Training:
    """All that a model may learn from: sequences of training events, and the size of the world."""

    accounts: int
    items: int
    domains: tuple[Domain, ...]
    sequence_accounts: Ints
    offsets: Longs
    events: Ints
    times: Longs | None
    targets: str  # `all`: every event but the first of a sequence is a training target; `last`: only its last event
    given: Ints | None = None  # [S, D] the next item of each domain behind a sequence (-1: none), where it stands apart

    @cached_property
    def popularity(self) -> Longs:
        """How often each item occurs."""
        return np.bincount(self.events, minlength=self.items)

    @property
    def sequences(self) -> int:
        return len(self.sequence_accounts)

    @property
    def examples(self) -> int:
        """How many training targets there are; they are places in the sequences, never copies of prefixes."""
        steps = np.maximum(np.diff(self.offsets) - 1, 0)
        return int(steps.sum() if self.targets == "all" else (steps > 0).sum())

    @cached_property
    def steps(self) -> tuple[Ints, Ints]:
        """Neighbouring events of a sequence: the items before, the items after."""
        follows = np.ones(len(self.events), dtype=bool)
        follows[self.offsets[:-1][np.diff(self.offsets) > 0]] = False
        after = np.flatnonzero(follows)
        return self.events[after - 1], self.events[after]


@dataclass(frozen=True)
class Split:
    """A dataset divided for one protocol."""

    config: SplitConfig
    train: Training
    train_events: Longs  # where each training event stands in the dataset, for the audit
    validation: Queries
    test: Queries
    notes: tuple[str, ...] = ()
    stamps: tuple[str, ...] = ()  # warnings that every table made from this split must carry
    known: Training | None = None  # all events before the test's cut, for models that count without learning
    by_domain: bool = False  # whether the next item of each domain is asked for, among the items of that domain

    @property
    def catalogues(self) -> tuple[Domain, ...]:
        """Among which items targets are ranked: those of their own domain, or all."""
        return self.train.domains if self.by_domain else (Domain("all", 0, self.train.items),)


def assemble(
    dataset: Dataset,
    config: SplitConfig,
    train: tuple[Ints, Longs, Longs],
    validation: Queries,
    test: Queries,
    notes: tuple[str, ...] = (),
) -> Split:
    """The split of a dataset whose training events are the places start[i] to stop[i] of (owner, start, stop)."""
    owner, start, stop = train
    training, places = training_part(dataset, config, owner, start, stop)
    learned = np.zeros(len(dataset.accounts), dtype=bool)
    learned[owner[stop > start]] = True
    return Split(config, training, places, hide_strangers(validation, learned), hide_strangers(test, learned), notes)


def training_part(
    dataset: Dataset, config: SplitConfig, owner: Ints, start: Longs, stop: Longs
) -> tuple[Training, Longs]:
    """The events start[i] to stop[i] as training sequences of their owners, and where they stand in the dataset."""
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


def hide_strangers(queries: Queries, learned: npt.NDArray[np.bool_]) -> Queries:
    """The queries with every account that training does not have made nameless."""
    return replace(queries, account=np.where(learned[queries.owner], queries.owner, UNSEEN).astype(np.int32))


def ranges(start: Longs, stop: Longs) -> tuple[Longs, Longs]:
    """The places start[i] to stop[i] of all rows in one array, and where each row begins in it."""
    lengths = stop - start
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    places = np.arange(offsets[-1]) + np.repeat(start - offsets[:-1], lengths)
    return places.astype(np.int64), offsets
