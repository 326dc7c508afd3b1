"""Split a dataset into training events and queries; each protocol is named after its rule.

    last           the last event of each account is the test target, the one before it validation
    time           one cut in time: the target is an account's first event after it, and later events are not used
    cold-accounts  test accounts have no training events
    windows        as published: random windows, so that training and test windows of one log overlap

In data of several domains a query may have one target for each domain after the same cut.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from lightgc2n.data.dataset import TEST_PART, Dataset, Ints, Longs
from lightgc2n.data.split_subsets import with_share_of_training, without_copies
from lightgc2n.data.split_types import UNSEEN as UNSEEN
from lightgc2n.data.split_types import Queries as Queries
from lightgc2n.data.split_types import Split as Split
from lightgc2n.data.split_types import SplitConfig as SplitConfig
from lightgc2n.data.split_types import Training as Training
from lightgc2n.data.split_types import (
    assemble,
    mask_unseen_accounts,
    queries_at,
    queries_by_domain,
    separate_targets,
    training_part,
)
from lightgc2n.data.split_types import ranges as ranges
from lightgc2n.errors import DataError, option

DOMAIN, TARGET_IN_INPUT = option("--domain", "domain="), option("--target-in-input", "target_in_input")
USE_LAST, USE_WINDOWS = (option(f"--protocol {name}", f"protocol={name!r}") for name in ("last", "windows"))
LEAK_STAMP = "random windows: test windows overlap training windows of the same account"
TARGET_STAMP = "TARGET IN INPUT: the answer stands in the question; for reproduction only"


def split_dataset(dataset: Dataset, config: SplitConfig) -> Split:
    """Split the dataset by the protocol of `config`."""
    by_domain = _asks_each_domain(dataset, config)
    split = (BY_DOMAIN if by_domain else PROTOCOLS)[config.protocol](dataset, config)
    split = replace(split, by_domain=by_domain)
    if not config.copies:
        split = without_copies(dataset, split)
    if config.training_share < 1:
        split = with_share_of_training(split)
    if len(split.test) == 0:
        raise DataError(f"{dataset.name}: protocol {config.protocol} leaves no account to test. Is the log too short?")
    return _with_target_in_input(split) if config.target_in_input else split


def all_events(dataset: Dataset, config: SplitConfig) -> Training:
    """Return every event of the dataset, for counts that are used after any split."""
    owner, start, stop = np.asarray(dataset.sequence_accounts), dataset.offsets[:-1], dataset.offsets[1:]
    if dataset.kind == "logs" and dataset.times is not None:
        logs = _join_fragments(owner, start, stop)
        owner, start, stop = logs.account, logs.start, logs.stop
    return training_part(dataset, config, owner, start, stop)[0]


def _asks_each_domain(dataset: Dataset, config: SplitConfig) -> bool:
    apart = dataset.targets is not None
    if apart and config.ask == "next":
        names = " or ".join(option(f"--domain {one.name}", f"domain={one.name!r}") for one in dataset.domains)
        raise DataError(
            f"{dataset.name}: has one target for each domain. Use split.ask=each-domain, or choose {names}."
        )
    if config.ask == "each-domain" and len(dataset.domains) == 1:
        raise DataError(f"{dataset.name}: split.ask=each-domain needs two domains, but the data has one. Use next.")
    each = apart or config.ask == "each-domain"
    if each and config.target_in_input:
        raise DataError(f"{TARGET_IN_INPUT}: not possible with one target for each domain. Use split.ask=next.")
    return each


@dataclass(frozen=True)
class _Logs:
    """The one log of each account: its start and stop."""

    account: Ints
    start: Longs
    stop: Longs
    notes: tuple[str, ...]


def _last(dataset: Dataset, config: SplitConfig) -> Split:
    logs = _one_log_an_account(dataset)
    length = logs.stop - logs.start
    # A target needs an input: two events give a test target, three a validation target as well.
    tested, validated = length >= 2, (length >= 3) & config.validation
    return assemble(
        dataset,
        config,
        train=(logs.account, logs.start, logs.stop - tested - validated),
        validation=queries_at(dataset, logs.account, logs.start, logs.stop - 2, validated),
        test=queries_at(dataset, logs.account, logs.start, logs.stop - 1, tested),
        notes=logs.notes,
    )


def _time(dataset: Dataset, config: SplitConfig) -> Split:
    if dataset.times is None:
        raise DataError(f"{dataset.name}: protocol time needs times, but the dataset has none. Use {USE_LAST}.")
    logs = _one_log_an_account(dataset)
    early, late = _cuts(dataset.times, config)
    before_early = logs.start + _count_before(dataset.times, logs, early)
    before_late = logs.start + _count_before(dataset.times, logs, late)
    validated = (before_early > logs.start) & (before_early < before_late)
    tested = (before_late > logs.start) & (before_late < logs.stop)
    days = [str(np.datetime64(int(cut), "us"))[:16] for cut in (early, late)]
    known, _ = training_part(dataset, config, logs.account, logs.start, before_late)
    split = assemble(
        dataset,
        config,
        train=(logs.account, logs.start, before_early),
        validation=queries_at(dataset, logs.account, logs.start, before_early, validated),
        test=queries_at(dataset, logs.account, logs.start, before_late, tested),
        notes=(*logs.notes, f"validation from {days[0]} UTC, test from {days[1]} UTC"),
    )
    return replace(split, known=known)


def _cuts(times: Longs, config: SplitConfig) -> tuple[int, int]:
    """Return the timestamps at which validation and test begin; an event at the cut belongs to the later part."""
    order = np.sort(times)
    late = order[int(len(order) * (1 - config.test_share))]
    early = order[int(len(order) * (1 - 2 * config.test_share))] if config.validation else late
    return int(early), int(late)


def _cold_accounts(dataset: Dataset, config: SplitConfig) -> Split:
    logs = _one_log_an_account(dataset)
    order = np.random.default_rng(config.seed).permutation(len(logs.account))
    size = max(1, round(len(order) * config.test_share))
    group = np.zeros(len(dataset.accounts), dtype=np.int8)
    group[logs.account[order[:size]]] = 2
    group[logs.account[order[size : 2 * size]]] = 1
    in_training = group[dataset.sequence_accounts] < (1 if config.validation else 2)
    has_target = logs.stop - logs.start >= 2
    held_out = group[logs.account]
    tested, validated = has_target & (held_out == 2), (held_out == 1) & config.validation
    note = f"{size:,} accounts held out for the test, {int(tested.sum()):,} of them with a target"
    note += "; as many for validation" if config.validation else ""
    return assemble(
        dataset,
        config,
        train=(
            dataset.sequence_accounts[in_training],
            dataset.offsets[:-1][in_training],
            dataset.offsets[1:][in_training],
        ),
        validation=queries_at(dataset, logs.account, logs.start, logs.stop - 1, has_target & validated),
        test=queries_at(dataset, logs.account, logs.start, logs.stop - 1, tested),
        notes=(note,),
    )


def _windows(dataset: Dataset, config: SplitConfig) -> Split:
    if dataset.kind != "windows":
        raise DataError(
            f"{dataset.name}: protocol windows needs windows, but the dataset holds logs. Use last or time."
        )
    in_test, in_validation, note = _drawn_windows(dataset, config)
    start, stop, owner = dataset.offsets[:-1], dataset.offsets[1:], dataset.sequence_accounts
    in_training = ~in_test & ~in_validation
    has_target = stop - start >= 2
    split = assemble(
        dataset,
        config,
        train=(owner[in_training], start[in_training], stop[in_training]),
        validation=queries_at(dataset, owner, start, stop - 1, has_target & in_validation),
        test=queries_at(dataset, owner, start, stop - 1, has_target & in_test),
        notes=(note,),
    )
    return replace(split, stamps=(LEAK_STAMP,))


def _last_by_domain(dataset: Dataset, config: SplitConfig) -> Split:
    logs = _one_log_an_account(dataset)
    cut = _cut_for_every_domain(dataset, logs)
    validated = (cut - logs.start >= 2) & config.validation
    everybody = np.ones(len(cut), dtype=bool)
    return assemble(
        dataset,
        config,
        train=(logs.account, logs.start, cut - validated),
        validation=queries_at(dataset, logs.account, logs.start, cut - 1, validated),
        test=_after(dataset, logs, cut, everybody),
        notes=logs.notes,
    )


def _time_by_domain(dataset: Dataset, config: SplitConfig) -> Split:
    plain, logs = _time(dataset, config), _one_log_an_account(dataset)
    assert dataset.times is not None
    early, late = _cuts(dataset.times, config)
    cuts = [logs.start + _count_before(dataset.times, logs, cut) for cut in (early, late)]
    parts = [queries_by_domain(dataset, logs.account, logs.start, cut, stop, cut > logs.start)
             for cut, stop in zip(cuts, (cuts[1], logs.stop), strict=True)]  # fmt: skip
    learned = np.isin(np.arange(len(dataset.accounts)), plain.train.sequence_accounts[np.diff(plain.train.offsets) > 0])
    validation, test = (mask_unseen_accounts(part, learned) for part in parts)
    return replace(plain, validation=validation, test=test)


def _drawn_windows(dataset: Dataset, config: SplitConfig) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_], str]:
    """Return which windows are for test and for validation, and a note on how they were chosen."""
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
    return in_test, in_validation, note


def _cold_accounts_by_domain(dataset: Dataset, config: SplitConfig) -> Split:
    plain, logs = _cold_accounts(dataset, config), _one_log_an_account(dataset)
    cut = _cut_for_every_domain(dataset, logs)
    parts = [_after(dataset, logs, cut, np.isin(logs.account, part.owner)) for part in (plain.validation, plain.test)]
    nobody = np.zeros(len(dataset.accounts), dtype=bool)
    return replace(
        plain, validation=mask_unseen_accounts(parts[0], nobody), test=mask_unseen_accounts(parts[1], nobody)
    )


def _windows_by_domain(dataset: Dataset, config: SplitConfig) -> Split:
    if dataset.targets is None:
        raise DataError(f"{dataset.name}: the windows have no target for each domain. Choose one with {DOMAIN}.")
    in_test, in_validation, note = _drawn_windows(dataset, config)
    in_training = ~in_test & ~in_validation
    owner, start, stop = dataset.sequence_accounts, dataset.offsets[:-1], dataset.offsets[1:]
    validation, test = separate_targets(dataset, in_validation), separate_targets(dataset, in_test)
    split = assemble(
        dataset, config, (owner[in_training], start[in_training], stop[in_training]), validation, test, (note,)
    )
    return replace(split, train=replace(split.train, domain_targets=dataset.targets[in_training]), stamps=(LEAK_STAMP,))


def _cut_for_every_domain(dataset: Dataset, logs: _Logs) -> Longs:
    """Return the cut of each log: the latest one after which every domain still has an event.

    If the targets are stored separately, the cut is the end of the log. Events after the first one of each domain are
    not used.
    """
    if dataset.targets is not None:
        return logs.stop
    last = np.full((len(logs.start), len(dataset.domains)), np.iinfo(np.int64).max)
    row = np.repeat(np.arange(len(logs.start)), logs.stop - logs.start)
    places, _ = ranges(logs.start, logs.stop)
    last[row, dataset.event_domains[places]] = places  # the last assignment wins
    return np.minimum(last.min(axis=1), logs.stop)


def _after(dataset: Dataset, logs: _Logs, cut: Longs, rows: npt.NDArray[np.bool_]) -> Queries:
    """Return the target of each domain after the cut, for logs that have an event before it."""
    rows = rows & (cut > logs.start)
    if dataset.targets is None:
        return queries_by_domain(dataset, logs.account, logs.start, cut, logs.stop, rows)
    return separate_targets(dataset, np.isin(dataset.sequence_accounts, logs.account[rows]))


BY_DOMAIN: dict[str, Callable[[Dataset, SplitConfig], Split]] = {
    "last": _last_by_domain,
    "time": _time_by_domain,
    "cold-accounts": _cold_accounts_by_domain,
    "windows": _windows_by_domain,
}
PROTOCOLS: dict[str, Callable[[Dataset, SplitConfig], Split]] = {
    "last": _last,
    "time": _time,
    "cold-accounts": _cold_accounts,
    "windows": _windows,
}


def _one_log_an_account(dataset: Dataset) -> _Logs:
    """Return each account's whole log; if the order of an account's lines is unknown, its longest line."""
    if dataset.kind == "windows":
        raise DataError(
            f"{dataset.name}: holds overlapping windows, so the last event of an account is unknown. "
            f"Use {USE_WINDOWS}, or import the whole logs."
        )
    owner, start, stop = np.asarray(dataset.sequence_accounts), dataset.offsets[:-1], dataset.offsets[1:]
    if len(np.unique(owner)) == len(owner):
        return _Logs(owner, start, stop, ())
    if dataset.times is not None:
        return _join_fragments(owner, start, stop)
    order = np.lexsort((np.arange(len(owner)), -(stop - start), owner))
    longest = order[np.diff(owner[order], prepend=-1) > 0]
    left_out = len(owner) - len(longest)
    note = f"{left_out:,} lines left out: of accounts with several lines, only the longest is used"
    return _Logs(owner[longest], start[longest], stop[longest], (note,))


def _join_fragments(owner: Ints, start: Longs, stop: Longs) -> _Logs:
    """Join the fragments of each account, which follow each other in time."""
    first = np.flatnonzero(np.diff(owner, prepend=-1) != 0)
    if len(np.unique(owner)) < len(first):
        raise DataError("expected the sequences of an account next to each other, found them apart. Import it again.")
    last = np.append(first[1:], len(owner)) - 1
    return _Logs(owner[first], start[first], stop[last], ())


def _count_before(times: Longs, logs: _Logs, cut: int) -> Longs:
    """Return how many events of each log are before the cut; times do not decrease within a log."""
    before = np.concatenate([[0], np.cumsum(times < cut)])
    return before[logs.stop] - before[logs.start]


def _with_target_in_input(split: Split) -> Split:
    """Append the target to each input, as the released code does."""
    return replace(
        split,
        stamps=(*split.stamps, TARGET_STAMP),
        validation=replace(split.validation, stop=split.validation.stop + 1),
        test=replace(split.test, stop=split.test.stop + 1),
    )
