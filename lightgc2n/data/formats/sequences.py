"""Read sequences, one per line, into the arrays of a dataset: logs, windows, sessions, and logs of two domains."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from lightgc2n.data.dataset import TEST_PART, TRAIN_PART, Domain
from lightgc2n.data.formats.columns import Coder, Codes
from lightgc2n.data.formats.file_formats import Source
from lightgc2n.data.formats.lines import LOGS, SESSIONS, WINDOWS, read_dictionary, read_lines
from lightgc2n.data.formats.rows import Tally, shown
from lightgc2n.errors import DataError

LINE_FORMATS = {"logs": LOGS, "windows": WINDOWS, "sessions": SESSIONS}


def read_sequences(source: Source, tally: Tally) -> dict[str, Any]:
    """Read one log or window per line; the last two items of a session are targets, one for each of two domains."""
    accounts = Coder(read_dictionary(source.account_dictionary) if source.account_dictionary else ())
    items = Coder(read_dictionary(source.item_dictionary) if source.item_dictionary else ())
    read = {part: _read_file(path, source.format, accounts, items, tally) for part, path in source.files.items()}
    owners = np.concatenate([part.accounts for part in read.values()])
    lengths = np.concatenate([part.lengths for part in read.values()])
    events = np.concatenate([part.items for part in read.values()])
    content: dict[str, Any] = {
        "kind": "logs" if source.format == "logs" else "windows",
        "accounts": accounts.ids(),
        "sequence_accounts": owners,
        "notes": [],
    }
    if "test" in read:
        codes = {"train": TRAIN_PART, "test": TEST_PART}
        content["parts"] = np.concatenate([np.full(len(part.lengths), codes[name]) for name, part in read.items()])
    if source.format == "logs" and len(np.unique(owners)) < len(owners):
        content["notes"].append("some accounts have several lines, and their order is unknown")
    if source.format == "sessions":
        return content | _two_domain_sessions(source, items.ids(), lengths, events)
    ids = items.ids()
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return content | {"items": ids, "domains": [Domain("all", 0, len(ids))], "offsets": offsets, "events": events}


@dataclass(frozen=True)
class Lines:
    accounts: Codes
    lengths: npt.NDArray[np.int64]
    items: Codes


def _read_file(path: Path, form: str, accounts: Coder, items: Coder, tally: Tally) -> Lines:
    owners, lengths, events = [], [], []
    for frame in read_lines(path, LINE_FORMATS[form], tally):
        owners.append(accounts.codes(frame["account"]))
        lengths.append(frame["items"].list.len().cast(pl.Int64).to_numpy())
        events.append(items.codes(frame["items"].explode(empty_as_null=False)))
    read = sum(map(len, owners))
    tally.read += read
    if not read:
        content = "bad lines only" if tally.rejected else "an empty file"
        raise DataError(f"{path}: expected {form}, found {content}.")
    return Lines(np.concatenate(owners), np.concatenate(lengths), np.concatenate(events))


def _two_domain_sessions(source: Source, ids: list[str], lengths: npt.NDArray[Any], events: Codes) -> dict[str, Any]:
    """Split off the last two items of each line as its targets; the first letter of an item is its domain."""
    letters = np.array([one[0] for one in ids])
    names = sorted(set(letters.tolist()))
    ends = np.cumsum(lengths)
    targets = np.stack([events[ends - 2], events[ends - 1]], axis=1)
    if len(names) != 2:
        files = ", ".join(str(path) for path in source.files.values())
        raise DataError(
            f"{files}: expected items of two domains, marked by their first letter, "
            f"found the letters {shown(', '.join(names))}."
        )
    number, items, domains = _number_by_domain(ids, names, letters)
    is_input = np.ones(len(events), dtype=bool)
    is_input[ends - 1] = is_input[ends - 2] = False
    offsets = np.concatenate([[0], np.cumsum(lengths - 2)])
    return {
        "items": items,
        "domains": domains,
        "offsets": offsets,
        "events": number[events[is_input]],
        "targets": number[targets],
    }


def _number_by_domain(
    ids: list[str], names: Sequence[str], domain_of_id: npt.NDArray[Any]
) -> tuple[Codes, list[str], list[Domain]]:
    """Renumber the items so that every domain is one range; return the numbers, the ids and the domains."""
    order = np.concatenate([np.flatnonzero(domain_of_id == name) for name in names])
    number = np.empty(len(ids), dtype=np.int32)
    number[order] = np.arange(len(ids))
    stops = np.cumsum([int((domain_of_id == name).sum()) for name in names]).tolist()
    starts = [0, *stops[:-1]]
    domains = [Domain(str(name), start, stop) for name, start, stop in zip(names, starts, stops, strict=True)]
    return number, [ids[old] for old in order], domains


def read_two_domains(source: Source, tally: Tally) -> dict[str, Any]:
    """Read logs of each domain and their mixture; the mixture lacks the last event of each domain, the targets."""
    names = sorted(name for name in source.files if name != "mixed")
    accounts, items = Coder(), Coder()
    read = {name: _read_file(source.files[name], "logs", accounts, items, tally) for name in ("mixed", *names)}
    ids = items.ids()
    domain_of_id = np.full(len(ids), "", dtype=object)
    for name in names:
        mine = np.unique(read[name].items)
        if (domain_of_id[mine] != "").any():
            raise DataError(
                f"{source.files[name]}: expected items of this domain only, found one that another domain has."
            )
        domain_of_id[mine] = name
    if (domain_of_id == "").any():
        stray = ids[int(np.flatnonzero(domain_of_id == "")[0])]
        raise DataError(f"{source.files['mixed']}: the item {stray!r} is in neither domain's file.")
    mixed = read["mixed"]
    targets = np.full((len(mixed.accounts), len(names)), -1, dtype=np.int32)
    for column, name in enumerate(names):
        targets[:, column] = _last_events(source, name, read, domain_of_id == name, accounts)
    number, ordered, domains = _number_by_domain(ids, names, domain_of_id)
    return {
        "kind": "logs",
        "accounts": accounts.ids(),
        "items": ordered,
        "domains": domains,
        "offsets": np.concatenate([[0], np.cumsum(mixed.lengths)]),
        "sequence_accounts": mixed.accounts,
        "events": number[mixed.items],
        "targets": np.where(targets >= 0, number[targets], -1),
        "notes": ["the last event of each domain is a target; the order of the two is unknown"],
    }


def _last_events(
    source: Source, name: str, read: dict[str, Lines], in_domain: npt.NDArray[np.bool_], accounts: Coder
) -> Codes:
    """Return a domain's last event for each mixed log (-1: none); check that the mixture has all others, in order."""
    mixed, own = read["mixed"], read[name]
    for lines, file in ((mixed, "mixed"), (own, name)):
        if len(np.unique(lines.accounts)) < len(lines.accounts):
            raise DataError(f"{source.files[file]}: expected one line per account, found several for some accounts.")
    row_of_account = np.full(len(accounts.ids()), -1)
    row_of_account[mixed.accounts] = np.arange(len(mixed.accounts))
    rows = row_of_account[own.accounts]
    last = np.cumsum(own.lengths) - 1
    is_last = np.zeros(len(own.items), dtype=bool)
    is_last[last] = True
    mine = in_domain[mixed.items]
    mixed_rows = np.repeat(np.arange(len(mixed.lengths)), mixed.lengths)[mine]
    own_rows = np.repeat(rows, own.lengths)[~is_last]
    order = np.argsort(own_rows, kind="stable")
    same = np.array_equal(mixed_rows, own_rows[order]) and np.array_equal(mixed.items[mine], own.items[~is_last][order])
    if (rows < 0).any() or not same:
        raise DataError(
            f"{source.files['mixed']}: expected the events of {source.files[name].name} in the same order, without the "
            f"last one of each account; found a different sequence."
        )
    target = np.full(len(mixed.accounts), -1, dtype=np.int32)
    target[rows] = own.items[last]
    return target
