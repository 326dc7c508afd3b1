"""Datasets small enough to think through, and planted worlds that a model either sees or does not."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from lightgc2n.data.dataset import Dataset, Domain


def dataset_of(
    logs: Sequence[tuple[str, str]],
    *,
    kind: str = "logs",
    times: Sequence[Sequence[int]] | None = None,
    items: str = "",
    parts: Sequence[int] | None = None,
) -> Dataset:
    """A dataset in memory from pairs (account, "item item ..."), items numbered as they come, or as `items` says.

    Args:
        times: for each log the time of each event, in seconds.
    """
    sequences = [text.split() for _, text in logs]
    catalogue = list(dict.fromkeys([*items.split(), *(item for sequence in sequences for item in sequence)]))
    accounts = list(dict.fromkeys(account for account, _ in logs))
    number = {item: index for index, item in enumerate(catalogue)}
    lengths = [len(sequence) for sequence in sequences]
    return Dataset(
        manifest={"name": "tiny", "kind": kind, "checksum": "0", "counts": {}, "notes": []},
        accounts=accounts,
        items=catalogue,
        domains=(Domain("all", 0, len(catalogue)),),
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        sequence_accounts=np.array([accounts.index(account) for account, _ in logs], dtype=np.int32),
        events=np.array([number[item] for sequence in sequences for item in sequence], dtype=np.int32),
        times=None if times is None else np.array([t * 1_000_000 for row in times for t in row], dtype=np.int64),
        parts=None if parts is None else np.array(parts, dtype=np.uint8),
    )


def steps_world(accounts: int = 60, ring: int = 10, length: int = 12, seed: int = 0) -> Dataset:
    """Every account walks round one of five rings of items: what comes next is certain."""
    random = np.random.default_rng(seed)
    logs = []
    for account in range(accounts):
        first, which = random.integers(ring), account % 5
        logs.append((f"a{account}", " ".join(f"r{which}-{(first + step) % ring}" for step in range(length))))
    return dataset_of(logs)


def tastes_world(accounts: int = 80, clusters: int = 8, size: int = 5, length: int = 25, seed: int = 0) -> Dataset:
    """Every account draws all its items from one cluster of five, in no order."""
    random = np.random.default_rng(seed)
    logs = []
    for account in range(accounts):
        drawn = random.integers(size, size=length)
        logs.append((f"a{account}", " ".join(f"c{account % clusters}-{item}" for item in drawn)))
    return dataset_of(logs)


def favourites_world(accounts: int = 60, items: int = 50, length: int = 12, seed: int = 0) -> Dataset:
    """Nine events in ten are one of three items that everybody likes."""
    random = np.random.default_rng(seed)
    weights = np.concatenate([np.full(3, 0.95 / 3), np.full(items - 3, 0.05 / (items - 3))])
    logs = [
        (f"a{account}", " ".join(f"i{item}" for item in random.choice(items, size=length, p=weights)))
        for account in range(accounts)
    ]
    return dataset_of(logs)


def two_domains_world(accounts: int = 80, ring: int = 5, length: int = 24, seed: int = 0) -> Dataset:
    """Every account has one of four tastes, which holds a ring of items in E and one in V; it walks round both in turn.

    Which domain comes next is a toss, and what comes next within a domain is certain.
    """
    random = np.random.default_rng(seed)
    logs = []
    for account in range(accounts):
        place, text = {name: int(random.integers(ring)) for name in "EV"}, []
        for name in random.choice(["E", "V"], size=length):
            place[name] += 1
            text.append(f"{name}{account % 4}-{place[name] % ring}")
        logs.append((f"a{account}", " ".join(text)))
    names = {name: [f"{name}{taste}-{item}" for taste in range(4) for item in range(ring)] for name in "EV"}
    size = 4 * ring
    domains = (Domain("E", 0, size), Domain("V", size, 2 * size))
    return replace(dataset_of(logs, items=" ".join(names["E"] + names["V"])), domains=domains)


WORLDS: Mapping[str, Dataset] = {
    "steps": steps_world(),
    "tastes": tastes_world(),
    "favourites": favourites_world(),
}
