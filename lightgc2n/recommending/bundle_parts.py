"""The device part and the server part of a bundle: safetensors files whose tables are checked, ids and titles."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import safe_open

from lightgc2n.data.catalogue import IMAGE, Catalogue, CatalogueEntry, parse_catalogue
from lightgc2n.data.dataset import Dataset, Domain, Ints, Longs
from lightgc2n.errors import DataError, LightGC2NError, SettingError
from lightgc2n.recommending import bundle_schema as schema
from lightgc2n.recommending.bundle_files import (
    ACCOUNTS,
    CARD,
    CATALOGUE,
    CONFIG,
    HISTORIES,
    ITEMS,
    SERVER,
    SERVER_FACTS,
    TITLES,
    VECTORS,
    WEIGHTS,
    BundleFiles,
)
from lightgc2n.recommending.bundle_schema import (
    EXPORT_AGAIN,
    FLOATS,
    HISTORY_TABLES,
    VECTOR_TABLES,
    WEIGHT_TABLES,
    Table,
    is_utf8,
    need,
)

POPULARITY = "popularity"
PAIRS, TRENDS = ("followers", "newer_followers", "neighbours", "counted"), "trends.items"
NUMBERS_AT_ONCE = 2**18  # that are read to check them
BITS = {"U8": 8, "U16": 16, "U32": 32}
SMALLEST_NORM = 1e-12
MIDDLE = 128  # the byte that represents 0 in int8 tables


@contextmanager
def _open(files: BundleFiles, name: str) -> Iterator[Any]:
    """Open a safetensors file; its errors become a DataError."""
    try:
        with safe_open(files.folder / name, framework="numpy") as file:
            yield file
    except LightGC2NError:
        raise
    except Exception as problem:  # safetensors raises errors of its own
        raise DataError(f"{files.folder / name}: {problem}. {EXPORT_AGAIN}") from None


def read_tables(
    files: BundleFiles, name: str, declared: dict[str, Table], lengths: dict[str, int]
) -> dict[str, npt.NDArray[Any]]:
    """Read and check the declared tables of a safetensors file; an optional one may be missing."""
    path, arrays = files.folder / name, {}
    with _open(files, name) as file:
        names = set(file.keys())
        for key, table in declared.items():
            if table.optional and key not in names:
                continue
            need(key in names, f"{path}: {key}", "a table", "nothing")
            facts = file.get_slice(key)
            table.check_facts(facts.get_dtype(), facts.get_shape(), lengths, f"{path}: {key}")
            arrays[key] = file.get_tensor(key)
            table.check_values(arrays[key], f"{path}: {key}")
    return arrays


def check_weights(files: BundleFiles) -> None:
    """Check all tables of the graph in chunks: floats are within bounds, and indices point at items."""
    path, items, vectors = files.folder / WEIGHTS, files.config["items"], files.config["item_table"]
    need(
        vectors not in schema.WEIGHT_TABLES,
        f"{files.folder / CONFIG}: item_table",
        "the table of item vectors",
        vectors,
    )
    declared = schema.WEIGHT_TABLES | ({vectors: schema.ITEM_TABLE} if vectors else {})
    lengths = {"items": items, "items + 1": items + 1, "items / 8": -(-items // 8)}
    with _open(files, WEIGHTS) as file:
        names = set(file.keys())
        for name in filter(None, (POPULARITY, vectors)):
            need(name in names, f"{path}: {name}", "a table", "nothing")
        for name in sorted(names):
            table = declared.get(name, schema.WEIGHT)
            facts, where = file.get_slice(name), f"{path}: {name}"
            table.check_facts(facts.get_dtype(), facts.get_shape(), lengths, where)
            if name in schema.WEIGHT_TABLES or facts.get_dtype() in FLOATS:
                for part in _chunks(file, name):
                    table.check_values(part, where)
        for pairs in PAIRS:
            _check_pairs(file, names, pairs, items, str(path))
        if TRENDS in names:
            _check_items(file, TRENDS, items, str(path))


def _check_items(file: Any, name: str, items: int, path: str) -> None:
    for part in _chunks(file, name):
        need(bool(part.max(initial=0) < items), f"{path}: {name}", f"items below {items:,}", part.max())


def _check_pairs(file: Any, names: set[str], pairs: str, items: int, path: str) -> None:
    """Check that every follower or neighbour is an item and every code has a count."""
    columns, lower, coded, values = (f"{pairs}.{one}" for one in ("columns", "lower", "bytes", "values"))
    if columns in names:
        _check_items(file, columns, items, path)
    if coded in names:
        for name in (lower, values):
            need(name in names, f"{path}: {name}", "a table", "nothing")
        low = 2 ** BITS[file.get_slice(lower).get_dtype()]
        high, codes = 2 ** ((items - 1) // low).bit_length(), file.get_slice(values).get_shape()[0]
        for lows, byte in zip(_chunks(file, lower), _chunks(file, coded), strict=True):
            largest = int((lows + low * (byte % high).astype(np.int64)).max(initial=0))
            need(largest < items, f"{path}: {lower}, {coded}", f"items below {items:,}", largest)
            code = int(byte.max(initial=0)) // high
            need(code < codes, f"{path}: {coded}", f"codes below {codes}", code)


def _chunks(file: Any, name: str) -> Iterator[npt.NDArray[Any]]:
    """The rows of a table in chunks."""
    shape = file.get_slice(name).get_shape()
    size = int(np.prod(shape))
    if size <= NUMBERS_AT_ONCE:
        yield file.get_tensor(name)
        return
    rows = max(1, NUMBERS_AT_ONCE * shape[0] // size)
    for first in range(0, shape[0], rows):
        yield file.get_slice(name)[first : min(first + rows, shape[0])]  # safetensors rejects a slice beyond the end


@dataclass(frozen=True)
class Device:
    """The device part besides the graph: item ids, what is known of items, and popularity."""

    config: dict[str, Any]
    items: list[str]
    catalogue: Catalogue
    popularity: npt.NDArray[np.unsignedinteger[Any]]
    card: str

    @property
    def model(self) -> str:
        return str(self.config["model"])


@dataclass(frozen=True)
class Server:
    """The server part: accounts and histories as a dataset; without accounts if it was left out."""

    dataset: Dataset
    without_histories: bool  # accounts have vectors only
    vectors: npt.NDArray[np.float32]  # [accounts, W]; W is 0 where the model has none
    held_offsets: Longs
    held_items: Ints  # training items of an account besides its history

    def vectors_of(self, accounts: list[int]) -> npt.NDArray[np.float32]:
        """The vectors of these accounts; zeros for an unknown account."""
        vectors = np.zeros((len(accounts), self.vectors.shape[1]), dtype=np.float32)
        for row, account in enumerate(accounts):
            if 0 <= account < len(self.vectors):
                vectors[row] = self.vectors[account]
        return vectors

    def held_by(self, account: int) -> Ints | None:
        if not 0 <= account < len(self.held_offsets) - 1:
            return None
        return self.held_items[self.held_offsets[account] : self.held_offsets[account + 1]]


class ItemVectors:
    """The item vectors of a bundle; the file is opened at once and read on first use, since few clients need them."""

    def __init__(self, files: BundleFiles) -> None:
        self.name = str(files.config["item_table"])
        self._file: Any = safe_open(files.folder / WEIGHTS, framework="numpy")

    @cached_property
    def unit(self) -> npt.NDArray[np.float32]:
        """A vector of length one for each item; zeros where nothing was learned."""
        if not self.name:
            raise SettingError("this model has no item vectors, so it cannot list similar items.")
        vectors = self._file.get_tensor(self.name)
        if vectors.dtype == np.uint8:  # the scale of a row does not change its direction
            vectors = vectors.astype(np.float32) - np.float32(MIDDLE)
        return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), SMALLEST_NORM)


def read_device(files: BundleFiles) -> Device:
    """Read and check the device part."""
    items, config = files.read_ids(ITEMS), files.config
    need(len(items) == config["items"], f"{files.folder / ITEMS}: lines", f"{config['items']:,}", len(items))
    for domain in config["data"]["domains"]:
        _refuse_duplicates(items[domain["start"] : domain["stop"]], files.folder / ITEMS)
    check_weights(files)
    popularity = read_tables(files, WEIGHTS, {POPULARITY: WEIGHT_TABLES[POPULARITY]}, {"items": len(items)})[POPULARITY]
    return Device(config, items, _catalogue(files), popularity, files.read_text(CARD))


def read_server(files: BundleFiles, device: Device) -> Server:
    """Read and check the server part; without accounts if it was left out."""
    width = files.config["account_width"]
    accounts = files.read_ids(f"{SERVER}/{ACCOUNTS}") if files.server else []
    number, place = len(accounts), files.folder / SERVER
    need(
        number == files.accounts, f"{place / SERVER_FACTS}: accounts", f"{number:,}, as {ACCOUNTS} has", files.accounts
    )
    _refuse_duplicates(accounts, place / ACCOUNTS)
    lengths = {"accounts": number, "accounts + 1": number + 1, "account width": width}
    empty: dict[str, Any] = {"offsets": np.zeros(number + 1, dtype=np.int64), "events": np.empty(0, dtype=np.int32)}
    histories, vectors = empty, np.zeros((number, width), dtype=np.float32)
    if HISTORIES in files.server:
        histories = read_tables(files, f"{SERVER}/{HISTORIES}", HISTORY_TABLES, lengths)
    if VECTORS in files.server:
        vectors = read_tables(files, f"{SERVER}/{VECTORS}", VECTOR_TABLES, lengths)["account"]
    held: dict[str, Any] = {"held_offsets": empty["offsets"], "held_items": empty["events"]} | histories
    for offsets, events in (("offsets", "events"), ("held_offsets", "held_items")):
        where = f"{place / HISTORIES}: "
        need((offsets in histories) == (events in histories), where + offsets, f"{offsets} and {events}", "one of them")
        _check_lines(held[offsets], held[events], len(device.items), where, offsets, events)
    if "times" in histories:
        _check_order(histories["times"], histories["offsets"], f"{place / HISTORIES}: times")
    dataset = _dataset(files, device, accounts, histories)
    without_histories = number > 0 and HISTORIES not in files.server
    return Server(dataset, without_histories, vectors, held["held_offsets"], held["held_items"])


def _catalogue(files: BundleFiles) -> dict[str, CatalogueEntry]:
    """Titles, categories, years and images of items, as far as the bundle has them."""
    entries = _described(files) if CATALOGUE in files.device else {}
    titles = _titles(files) if TITLES in files.device else {}
    for item, title in titles.items():
        entries[item] = replace(entries.get(item, CatalogueEntry()), title=title)
    return entries


def _described(files: BundleFiles) -> dict[str, CatalogueEntry]:
    path = files.folder / CATALOGUE
    try:
        entries = parse_catalogue(files.read(CATALOGUE))
    except DataError:
        raise DataError(f"{path}: damaged. {EXPORT_AGAIN}") from None
    for item, entry in entries.items():
        need(not entry.title, f"{path}: {item!r}: title", f"the title in {TITLES}", entry.title)
        texts = isinstance(item, str) and all(isinstance(one, str) for one in entry.categories)
        need(texts and is_utf8(item, *entry.categories), f"{path}: {item!r}", "text", entry.categories)
        whole = entry.year is None or (type(entry.year) is int and 0 <= entry.year <= 9999)
        need(whole, f"{path}: {item!r}: year", "a year of four digits", entry.year)
        address = entry.image == "" or (isinstance(entry.image, str) and bool(IMAGE.fullmatch(entry.image)))
        need(address, f"{path}: {item!r}: image", "an address", entry.image)
    return entries


def _titles(files: BundleFiles) -> dict[str, str]:
    lines = [line.partition("\t") for line in files.read_ids(TITLES)]
    for number, (item, _, title) in enumerate(lines, start=1):
        need(bool(item and title), f"{files.folder / TITLES}:{number}", "an item id, a tab and its title", item)
    return {item: title for item, _, title in lines}


def _dataset(files: BundleFiles, device: Device, accounts: list[str], histories: dict[str, Any]) -> Dataset:
    data = files.config["data"]
    return Dataset(
        manifest={"name": data["name"], "kind": "logs", "checksum": files.checksum},
        accounts=accounts,
        items=device.items,
        domains=tuple(Domain(one["name"], one["start"], one["stop"]) for one in data["domains"]),
        offsets=histories["offsets"],
        sequence_accounts=np.arange(len(accounts), dtype=np.int32),
        events=histories["events"],
        times=histories.get("times"),
    )


def _check_lines(offsets: Any, items: Any, catalogue: int, where: str, starts: str, held: str) -> None:
    """Check that offsets grow and that every item is in the catalogue."""
    whole = offsets[0] == 0 and offsets[-1] == len(items)
    need(bool(whole and (np.diff(offsets) >= 0).all()), where + starts, f"growing from 0 to {len(items):,}", offsets)
    largest = int(items.max(initial=0))
    need(largest < catalogue, where + held, f"items below {catalogue:,}", largest)


def _check_order(times: Any, offsets: Any, where: str) -> None:
    """Check that the times of each history are sorted."""
    for first in range(1, len(times), NUMBERS_AT_ONCE):
        last = min(first + NUMBERS_AT_ONCE, len(times))
        back = first + np.flatnonzero(times[first:last] < times[first - 1 : last - 1])
        inside = back[offsets[np.searchsorted(offsets, back)] != back]
        need(not len(inside), where, "oldest first", f"an earlier one at {inside[:1].tolist()}")


def _refuse_duplicates(ids: list[str], path: Path) -> None:
    if len(set(ids)) < len(ids):
        twice = next(one for one, count in Counter(ids).items() if count > 1)
        raise DataError(f"{path}: expected every id once, found {twice[:60]!r} twice. {EXPORT_AGAIN}")
