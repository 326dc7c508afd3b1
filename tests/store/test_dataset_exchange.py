"""Datasets into a store and back: every event of every account, none of erased ones."""

from pathlib import Path

import numpy as np
import pytest

from lightgc2n.data.dataset import Dataset, Domain, load_dataset, write_dataset
from lightgc2n.data.forget_dataset import forget_in_dataset
from lightgc2n.data.tombstones import add_tombstones, read_tombstones
from lightgc2n.errors import DataError
from lightgc2n.store.dataset_exchange import export_store, fill_store
from lightgc2n.store.event_store import EventStore, NewEvent

LOGS = {"h1": [("v1", 10), ("b1", 20), ("v2", 30)], "h2": [("b1", 5)], "h3": [("v2", 7), ("v2", 8)]}


def write(folder: Path, times: bool = True) -> Path:
    items, events = ["b1", "v1", "v2"], [event for log in LOGS.values() for event in log]
    folder.mkdir()
    write_dataset(
        folder,
        name="shop",
        kind="logs",
        accounts=list(LOGS),
        items=items,
        domains=[Domain("books", 0, 1), Domain("video", 1, 3)],
        offsets=np.cumsum([0, *(len(log) for log in LOGS.values())]),
        sequence_accounts=np.arange(len(LOGS)),
        events=np.array([items.index(item) for item, _ in events]),
        times=np.array([time for _, time in events]) if times else None,
    )
    return folder


def logs(data: Dataset) -> dict[str, list[tuple[str, int]]]:
    assert data.times is not None
    rows = zip(data.sequence_accounts, data.offsets[:-1], data.offsets[1:], strict=True)
    return {
        data.accounts[account]: [(data.items[data.events[at]], int(data.times[at])) for at in range(start, stop)]
        for account, start, stop in rows
    }


def test_a_dataset_comes_back_as_it_was(store: EventStore, tmp_path: Path) -> None:
    assert fill_store(store, write(tmp_path / "shop")) == 6
    export_store(store, tmp_path / "again")
    again = load_dataset(tmp_path / "again")
    assert logs(again) == LOGS
    assert [(one.name, len(one)) for one in again.domains] == [("books", 1), ("video", 2)]
    assert store.filled_from == load_dataset(tmp_path / "shop").checksum


def test_new_events_and_items_join_the_export(store: EventStore, tmp_path: Path) -> None:
    fill_store(store, write(tmp_path / "shop"))
    store.append([NewEvent("h2", "v9", 40, domain="video"), NewEvent("h4", "b1", 50), NewEvent("h1", "v1", 15)])
    export_store(store, tmp_path / "again")
    expected = LOGS | {"h1": sorted([*LOGS["h1"], ("v1", 15)], key=lambda event: event[1])}
    expected |= {"h2": [("b1", 5), ("v9", 40)], "h4": [("b1", 50)]}
    assert logs(load_dataset(tmp_path / "again")) == expected


def test_an_erased_account_is_in_no_later_dataset(store: EventStore, tmp_path: Path) -> None:
    store.erase_account("h3")
    assert fill_store(store, write(tmp_path / "shop")) == 4
    export_store(store, tmp_path / "again")
    assert logs(load_dataset(tmp_path / "again")) == {name: LOGS[name] for name in ("h1", "h2")}


def test_a_store_with_events_is_not_filled_again(store: EventStore, tmp_path: Path) -> None:
    store.append([NewEvent("h1", "v1", 1)])
    with pytest.raises(DataError, match="holds events already"):
        fill_store(store, write(tmp_path / "shop"))
    assert store.facts().events == 1


def test_a_store_whose_events_were_all_erased_is_filled(store: EventStore, tmp_path: Path) -> None:
    store.append([NewEvent("h1", "v1", 1, id="one")])
    store.erase_event("h1", id="one")
    before = store.version("h1")
    assert fill_store(store, write(tmp_path / "shop")) == 6
    assert store.version("h1") != before, "or a service would answer with the history that it has in memory"


def test_a_log_without_times_is_refused(store: EventStore, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="a store needs logs with times, found a log without times"):
        fill_store(store, write(tmp_path / "shop", times=False))


def test_an_empty_store_gives_no_dataset(store: EventStore, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nothing to train on"):
        export_store(store, tmp_path / "again")
    assert list(tmp_path.glob("again*")) == []


def test_an_export_over_a_dataset_leaves_out_the_accounts_that_were_forgotten_there(
    store: EventStore, tmp_path: Path
) -> None:
    shop = write(tmp_path / "shop")
    fill_store(store, shop)
    forget_in_dataset(shop, ["h1"])
    for _ in range(2):  # the list of forgotten accounts stays
        export_store(store, shop, force=True)
        again = load_dataset(shop)
        assert logs(again) == {account: log for account, log in LOGS.items() if account != "h1"}
        assert "v1" not in again.items  # nobody else had it
        assert "h1" in read_tombstones(shop / "forgotten.json")
    forget_in_dataset(shop, ["h2"])
    add_tombstones(shop / "forgotten.json", ["h3"])
    with pytest.raises(DataError, match="all accounts of the store were forgotten there"):
        export_store(store, shop, force=True)
