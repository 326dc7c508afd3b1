"""Statistics of a dataset: the table of the paper's appendix A2, and measures of difficulty.

A column of the table is a `Dataset` with part of the events: one domain, all of them, or the input without targets.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from lightgc2n import __version__
from lightgc2n.data.dataset import MICROSECONDS, TEST_PART, TRAIN_PART, Dataset, Longs
from lightgc2n.data.members import Members

SESSION_GAP_SECONDS = 3600

Bools = npt.NDArray[np.bool_]
Numbers = dict[str, Any]


def statistics(dataset: Dataset, members: Members | None = None) -> Numbers:
    """Return all statistics as a dictionary for JSON; undefined numbers are None."""
    apart, several = dataset.targets is not None, len(dataset.domains) > 1
    domains = {name: column(data) for name, data in domain_views(dataset)}
    everything = column(_with_targets(dataset), order_known=not apart) if several else next(iter(domains.values()))
    return {
        "made_by": f"lightgc2n {__version__}",
        "name": dataset.name,
        "kind": dataset.kind,
        "checksum": dataset.checksum,
        "accounts_in_vocabulary": len(dataset.accounts),
        "domains": domains,
        "all": everything,
        "input": column(dataset) if apart else None,
        "switches": domain_switches(dataset) if several else None,
        "members": member_statistics(dataset, members) if members is not None else None,
        "counting": _how_counted(dataset),
        "notes": list(dataset.manifest.get("notes", [])),
    }


def domain_views(dataset: Dataset) -> list[tuple[str, Dataset]]:
    """Return each domain's name and its events, targets included."""
    if len(dataset.domains) == 1 and dataset.targets is None:
        return [(dataset.domains[0].name, dataset)]
    return [(domain.name, dataset.only(domain.name)) for domain in dataset.domains]


def column(data: Dataset, order_known: bool = True) -> Numbers:
    """Return the statistics of the events in `data`.

    Args:
        order_known: false if the order of the targets at the end of a sequence is unknown.
    """
    lengths = data.lengths
    per_account = np.bincount(data.sequence_accounts, weights=lengths, minlength=len(data.accounts))
    popularity = item_popularity(data)
    repeated = repeated_events(data)
    last = data.offsets[1:][lengths > 1] - 1
    alike = (data.events[1:] == data.events[:-1]) & same_sequence(data)
    return {
        "accounts_with_events": int((per_account > 0).sum()),
        "accounts_with_one_event": int((per_account == 1).sum()),
        "sequences": int((lengths > 0).sum()),
        "train_sequences": _sequences_in_part(data, TRAIN_PART),
        "test_sequences": _sequences_in_part(data, TEST_PART),
        "events": len(data.events),
        "items_in_catalogue": len(data.items),
        "items_that_occur": len(popularity),
        "length": _summary(lengths[lengths > 0]),
        "density": _ratio(_distinct_account_items(data), int((per_account > 0).sum()) * len(popularity)),
        "repeat_rate": _ratio(repeated.sum(), len(data.events)),
        "immediate_repeat_rate": _ratio(alike.sum(), len(data.events)) if order_known else None,
        "repeat_rate_at_last": _ratio(repeated[last].sum(), len(last)) if order_known else None,
        "popularity_gini": _gini(popularity),
        "top_1_percent_share": _top_share(popularity, 0.01),
        "top_10_percent_share": _top_share(popularity, 0.10),
        "time": _time(data),
    }


def sequence_of_event(data: Dataset) -> Longs:
    """Return the sequence index of each event."""
    return np.repeat(np.arange(len(data.sequence_accounts)), data.lengths)


def same_sequence(data: Dataset) -> Bools:
    """Return for each event but the last whether the next one belongs to the same sequence."""
    together = np.ones(max(len(data.events) - 1, 0), dtype=bool)
    inner = (data.offsets > 0) & (data.offsets < len(data.events))
    together[data.offsets[inner] - 1] = False
    return together


def repeated_events(data: Dataset) -> Bools:
    """Return for each event whether its item occurs earlier in the same sequence."""
    key = sequence_of_event(data) * len(data.items) + data.events
    # A stable sort groups equal pairs of sequence and item, the earliest first.
    order = np.argsort(key, kind="stable")
    key = key[order]
    repeated = np.zeros(len(key), dtype=bool)
    repeated[order[1:]] = key[1:] == key[:-1]
    return repeated


def repeat_rate_from_end(data: Dataset, positions: int, at_least: int = 1) -> npt.NDArray[np.float64]:
    """Return the repeat rate at the last event of all sequences, the last but one, and so on.

    Args:
        at_least: positions that fewer sequences reach get NaN.
    """
    back = np.repeat(data.offsets[1:], data.lengths) - 1 - np.arange(len(data.events))
    near = back < positions
    events = np.bincount(back[near], minlength=positions)
    repeats = np.bincount(back[near], weights=repeated_events(data)[near], minlength=positions)
    return np.divide(repeats, events, out=np.full(positions, np.nan), where=events >= at_least)


def item_popularity(data: Dataset) -> Longs:
    """Return the count of each item that occurs, in decreasing order."""
    counts = np.bincount(data.events, minlength=len(data.items))
    return np.sort(counts[counts > 0])[::-1]


def domain_switches(data: Dataset) -> Numbers:
    """Return how often neighbouring events differ in domain, and the run lengths of each domain."""
    together, domains = same_sequence(data), data.event_domains
    switches = together & (domains[1:] != domains[:-1])
    starts = np.flatnonzero(np.concatenate([np.ones(min(len(domains), 1), bool), ~together | switches]))
    runs = np.diff(starts, append=len(domains))
    run_domains = domains[starts]
    return {
        "switch_rate": _ratio(switches.sum(), together.sum()),
        "run_length": {
            domain.name: {"runs": int((run_domains == number).sum())} | _summary(runs[run_domains == number])
            for number, domain in enumerate(data.domains)
        },
    }


def member_statistics(data: Dataset, members: Members) -> Numbers:
    """Return how many people share an account, and how often neighbouring events are by different people."""
    known = np.flatnonzero(np.asarray(members.of_event) >= 0)
    who, sequence = members.of_event[known].astype(np.int64), sequence_of_event(data)[known]
    pairs = np.unique(data.sequence_accounts[sequence].astype(np.int64) * len(members.names) + who)
    per_account = np.bincount(pairs // max(len(members.names), 1))
    sizes, accounts = np.unique(per_account[per_account > 0], return_counts=True)
    neighbours = sequence[1:] == sequence[:-1]
    rate = _ratio((neighbours & (who[1:] != who[:-1])).sum(), neighbours.sum())
    mixed = _switch_rate_of_random_order(sequence * len(members.names) + who, len(members.names))
    return {
        "members": len(np.unique(who)),
        "events_with_known_member": len(known),
        "members_per_account": _summary(per_account[per_account > 0]),
        "accounts_by_members": {str(size): int(count) for size, count in zip(sizes, accounts, strict=True)},
        "switch_rate": rate,
        "switch_rate_in_random_order": mixed,
        "switches_relative_to_random": rate / mixed if rate is not None and mixed else None,
    }


def _switch_rate_of_random_order(sequence_and_member: Longs, members: int) -> float | None:
    """Return the share of neighbours that would differ if the events of each sequence were shuffled."""
    pairs, events = np.unique(sequence_and_member, return_counts=True)
    total = np.bincount(pairs // max(members, 1), weights=events)
    same = np.bincount(pairs // max(members, 1), weights=events * (events - 1))
    total, same = total[total > 0], same[total > 0]
    # n events have n - 1 neighbouring pairs; a pair is by one person with probability Σ nᵢ(nᵢ - 1) / n(n - 1).
    return _ratio((total - 1 - same / total).sum(), (total - 1).sum())


def _with_targets(dataset: Dataset) -> Dataset:
    """Return the dataset with each sequence's targets as its last events."""
    if dataset.targets is None:
        return dataset
    sequence, number = np.nonzero(dataset.targets >= 0)
    sequences = np.concatenate([sequence_of_event(dataset), sequence])
    events = np.concatenate([dataset.events, dataset.targets[sequence, number]])
    offsets = np.append(0, np.cumsum(np.bincount(sequences, minlength=len(dataset.sequence_accounts))))
    order = np.argsort(sequences, kind="stable")
    return replace(dataset, offsets=offsets, events=events[order], times=None, targets=None)


def _time(data: Dataset) -> Numbers | None:
    if data.times is None or len(data.times) == 0:
        return None
    gaps = np.diff(data.times)[same_sequence(data)] / MICROSECONDS
    first, last = int(data.times.min()), int(data.times.max())
    sessions = int((data.lengths > 0).sum() + (gaps > SESSION_GAP_SECONDS).sum())
    return {
        "first": f"{np.datetime64(first // MICROSECONDS, 's')}Z",
        "last": f"{np.datetime64(last // MICROSECONDS, 's')}Z",
        "days": (last - first) / MICROSECONDS / 86400,
        "median_gap_seconds": float(np.median(gaps)) if len(gaps) else None,
        "equal_stamp_rate": _ratio((gaps == 0).sum(), len(gaps)),
        "sessions": sessions,
        "events_per_session": len(data.events) / sessions,
    }


def _how_counted(dataset: Dataset) -> list[str]:
    sentences = []
    if dataset.kind == "windows":
        sentences.append("Events are counted once per window; an event in several windows counts several times.")
    if dataset.targets is not None:
        sentences.append("Separately stored targets count in their domain and in all, not in input.")
    return sentences


def _sequences_in_part(data: Dataset, part: int) -> int | None:
    return None if data.parts is None else int(((data.parts == part) & (data.lengths > 0)).sum())


def _distinct_account_items(data: Dataset) -> int:
    key = np.repeat(data.sequence_accounts.astype(np.int64), data.lengths) * len(data.items) + data.events
    key.sort()
    return int((np.diff(key) != 0).sum()) + min(len(key), 1)


def _summary(values: npt.NDArray[Any]) -> Numbers:
    if len(values) == 0:
        return {"mean": None, "median": None, "p90": None, "max": None}
    median, p90 = np.quantile(values, [0.5, 0.9])
    return {"mean": float(values.mean()), "median": float(median), "p90": float(p90), "max": int(values.max())}


def _ratio(part: Any, whole: Any) -> float | None:
    return float(part) / float(whole) if whole else None


def _gini(popularity: Longs) -> float | None:
    """Return the Gini coefficient: 0 if all items are equally popular, near 1 if one item has nearly all events."""
    if len(popularity) == 0:
        return None
    items = len(popularity)
    ranks = np.arange(items, 0, -1)
    return float(2 * (ranks * popularity).sum() / (items * popularity.sum()) - (items + 1) / items)


def _top_share(popularity: Longs, share: float) -> float | None:
    """Return the share of events of the most popular items; at least one item counts."""
    top = int(np.ceil(share * len(popularity)))
    return _ratio(popularity[:top].sum(), popularity.sum())
