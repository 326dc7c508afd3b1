"""Which events a model may learn from, and which it is asked about: each protocol named by what it promises.

    last           the last event of each account is the test target, the one before it validation
    time           one cut in time: the target is an account's first event after it, nothing later is seen
    cold-accounts  test accounts are never seen in training
    windows        as published: random windows, so that windows of one log overlap between training and test

Training events are copied out of the dataset: what a model is built from holds no other event.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from lightgc2n.config import setting
from lightgc2n.data.dataset import TEST_PART, Dataset, Domain, Ints, Longs
from lightgc2n.errors import DataError

LEAK_STAMP = "random windows: test windows overlap training windows of the same account"
TARGET_STAMP = "TARGET IN INPUT: the answer stands in the question; for reproduction only"
UNSEEN = -1


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
    target_in_input: bool = setting(False, help="Leave the target in the input, as the released code does.")
    seed: int = setting(0, at_least=0, help="Draws the accounts or windows that are held out.")


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
class Queries:
    """Questions to a model: query q shows the events start[q] to stop[q] of an account and asks for the target."""

    account: Ints  # UNSEEN for an account that training does not have
    owner: Ints  # the account, known or not: for counting and resampling, never shown to a model
    start: Longs
    stop: Longs
    target: Ints
    target_event: Longs
    events: Ints
    times: Longs | None

    def __len__(self) -> int:
        return len(self.target)

    def select(self, rows: npt.NDArray[Any]) -> "Queries":
        """The queries at the given places."""
        chosen = ("account", "owner", "start", "stop", "target", "target_event")
        return replace(self, **{name: getattr(self, name)[rows] for name in chosen})


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


def split_dataset(dataset: Dataset, config: SplitConfig) -> Split:
    """The dataset divided by the protocol that `config` names."""
    if dataset.targets is not None:
        names = " or ".join(f"--domain {domain.name}" for domain in dataset.domains)
        raise DataError(f"{dataset.name}: holds one target for each domain. Choose one with {names}.")
    split = PROTOCOLS[config.protocol](dataset, config)
    if len(split.test) == 0:
        raise DataError(f"{dataset.name}: protocol {config.protocol} finds no account to test. Is the log too short?")
    return _with_target_in_input(split) if config.target_in_input else split


@dataclass(frozen=True)
class _Logs:
    """One log for each account: where it starts and stops."""

    account: Ints
    start: Longs
    stop: Longs
    notes: tuple[str, ...]


def _last(dataset: Dataset, config: SplitConfig) -> Split:
    logs = _one_log_an_account(dataset)
    length = logs.stop - logs.start
    # A target needs an input: two events make a test target, three a validation target as well.
    tested, validated = length >= 2, (length >= 3) & config.validation
    return _assemble(
        dataset,
        config,
        train=(logs.account, logs.start, logs.stop - tested - validated),
        validation=_queries(dataset, logs.account, logs.start, logs.stop - 2, validated),
        test=_queries(dataset, logs.account, logs.start, logs.stop - 1, tested),
        notes=logs.notes,
    )


def _time(dataset: Dataset, config: SplitConfig) -> Split:
    if dataset.times is None:
        raise DataError(f"{dataset.name}: protocol time needs times, and the dataset has none. Use --protocol last.")
    logs = _one_log_an_account(dataset)
    order = np.sort(dataset.times)
    # Cuts at whole time stamps: an event at the cut itself lies after it.
    late = order[int(len(order) * (1 - config.test_share))]
    early = order[int(len(order) * (1 - 2 * config.test_share))] if config.validation else late
    before_early = logs.start + _count_before(dataset.times, logs, early)
    before_late = logs.start + _count_before(dataset.times, logs, late)
    validated = (before_early > logs.start) & (before_early < before_late)
    tested = (before_late > logs.start) & (before_late < logs.stop)
    days = [str(np.datetime64(int(cut), "us"))[:16] for cut in (early, late)]
    return _assemble(
        dataset,
        config,
        train=(logs.account, logs.start, before_early),
        validation=_queries(dataset, logs.account, logs.start, before_early, validated),
        test=_queries(dataset, logs.account, logs.start, before_late, tested),
        notes=(*logs.notes, f"validation from {days[0]} UTC, test from {days[1]} UTC"),
    )


def _cold_accounts(dataset: Dataset, config: SplitConfig) -> Split:
    logs = _one_log_an_account(dataset)
    order = np.random.default_rng(config.seed).permutation(len(logs.account))
    size = max(1, round(len(order) * config.test_share))
    group = np.zeros(len(dataset.accounts), dtype=np.int8)
    group[logs.account[order[:size]]] = 2
    group[logs.account[order[size : 2 * size]]] = 1
    kept = group[dataset.sequence_accounts] < (1 if config.validation else 2)
    asked = logs.stop - logs.start >= 2
    held_out = group[logs.account]
    tested, validated = asked & (held_out == 2), (held_out == 1) & config.validation
    note = f"{size:,} accounts held out for the test, {int(tested.sum()):,} of them with a target"
    note += "; as many for validation" if config.validation else ""
    return _assemble(
        dataset,
        config,
        train=(dataset.sequence_accounts[kept], dataset.offsets[:-1][kept], dataset.offsets[1:][kept]),
        validation=_queries(dataset, logs.account, logs.start, logs.stop - 1, asked & validated),
        test=_queries(dataset, logs.account, logs.start, logs.stop - 1, tested),
        notes=(note,),
    )


def _windows(dataset: Dataset, config: SplitConfig) -> Split:
    if dataset.kind != "windows":
        raise DataError(
            f"{dataset.name}: protocol windows needs windows, and this dataset holds logs. Use last or time."
        )
    generator = np.random.default_rng(config.seed)
    count = len(dataset.sequence_accounts)
    if dataset.parts is not None:
        in_test = np.asarray(dataset.parts) == TEST_PART
        note = "training and test windows as the source divides them"
    else:
        in_test = np.zeros(count, dtype=bool)
        in_test[generator.permutation(count)[: round(count * config.window_test_share)]] = True
        note = f"{config.window_test_share:.0%} of the windows drawn at random for the test"
    training = np.flatnonzero(~in_test)
    in_validation = np.zeros(count, dtype=bool)
    in_validation[generator.permutation(training)[: max(1, len(training) // 10)]] = config.validation
    start, stop, owner = dataset.offsets[:-1], dataset.offsets[1:], dataset.sequence_accounts
    kept = ~in_test & ~in_validation
    asked = stop - start >= 2
    split = _assemble(
        dataset,
        config,
        train=(owner[kept], start[kept], stop[kept]),
        validation=_queries(dataset, owner, start, stop - 1, asked & in_validation),
        test=_queries(dataset, owner, start, stop - 1, asked & in_test),
        notes=(note,),
    )
    return replace(split, stamps=(LEAK_STAMP,))


PROTOCOLS: dict[str, Callable[[Dataset, SplitConfig], Split]] = {
    "last": _last,
    "time": _time,
    "cold-accounts": _cold_accounts,
    "windows": _windows,
}


def _one_log_an_account(dataset: Dataset) -> _Logs:
    """Each account's whole log; where lines of an account have no known order, its longest line."""
    if dataset.kind == "windows":
        raise DataError(
            f"{dataset.name}: holds windows that overlap, so an account's last event cannot be told. "
            f"Use --protocol windows, or import the whole logs."
        )
    owner, start, stop = np.asarray(dataset.sequence_accounts), dataset.offsets[:-1], dataset.offsets[1:]
    if len(np.unique(owner)) == len(owner):
        return _Logs(owner, start, stop, ())
    if dataset.times is not None:
        return _join_fragments(owner, start, stop)
    order = np.lexsort((np.arange(len(owner)), -(stop - start), owner))
    longest = order[np.diff(owner[order], prepend=-1) > 0]
    left_out = len(owner) - len(longest)
    note = f"{left_out:,} lines left out: of accounts with several, only the longest line is used"
    return _Logs(owner[longest], start[longest], stop[longest], (note,))


def _join_fragments(owner: Ints, start: Longs, stop: Longs) -> _Logs:
    """Fragments of an account stand one behind the other in time, so together they are its log."""
    first = np.flatnonzero(np.diff(owner, prepend=-1) != 0)
    if len(np.unique(owner)) < len(first):
        raise DataError("expected the sequences of an account side by side, found them apart. Import it again.")
    last = np.append(first[1:], len(owner)) - 1
    return _Logs(owner[first], start[first], stop[last], ())


def _count_before(times: Longs, logs: _Logs, cut: int) -> Longs:
    """How many events of each log lie before the cut; times do not decrease within a log."""
    before = np.concatenate([[0], np.cumsum(times < cut)])
    return before[logs.stop] - before[logs.start]


def _queries(
    dataset: Dataset, account: Ints, start: Longs, target_event: Longs, asked: npt.NDArray[np.bool_]
) -> Queries:
    """One query for each place that is asked: everything from `start` up to the target event is the input."""
    places = target_event[asked].astype(np.int64)
    return Queries(
        account=account[asked].astype(np.int32),
        owner=account[asked].astype(np.int32),
        start=start[asked].astype(np.int64),
        stop=places,
        target=np.asarray(dataset.events[places]),
        target_event=places,
        events=dataset.events,
        times=dataset.times,
    )


def _assemble(
    dataset: Dataset,
    config: SplitConfig,
    train: tuple[Ints, Longs, Longs],
    validation: Queries,
    test: Queries,
    notes: tuple[str, ...] = (),
) -> Split:
    owner, start, stop = train
    places, offsets = ranges(start, stop)
    targets = config.targets if config.targets != "auto" else {"logs": "all", "windows": "last"}[dataset.kind]
    training = Training(
        accounts=len(dataset.accounts),
        items=len(dataset.items),
        domains=dataset.domains,
        sequence_accounts=owner.astype(np.int32),
        offsets=offsets,
        events=np.asarray(dataset.events[places]),
        times=np.asarray(dataset.times[places]) if dataset.times is not None else None,
        targets=targets,
    )
    learned = np.zeros(len(dataset.accounts), dtype=bool)
    learned[owner[stop > start]] = True
    return Split(config, training, places, _hide(validation, learned), _hide(test, learned), notes)


def _hide(queries: Queries, learned: npt.NDArray[np.bool_]) -> Queries:
    """The queries with every account that training does not have made nameless."""
    return replace(queries, account=np.where(learned[queries.owner], queries.owner, UNSEEN).astype(np.int32))


def ranges(start: Longs, stop: Longs) -> tuple[Longs, Longs]:
    """The places start[i] to stop[i] of all rows in one array, and where each row begins in it."""
    lengths = stop - start
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    places = np.arange(offsets[-1]) + np.repeat(start - offsets[:-1], lengths)
    return places.astype(np.int64), offsets


def _with_target_in_input(split: Split) -> Split:
    """The released code's habit: each question ends with its own answer."""
    return replace(
        split,
        stamps=(*split.stamps, TARGET_STAMP),
        validation=replace(split.validation, stop=split.validation.stop + 1),
        test=replace(split.test, stop=split.test.stop + 1),
    )
