"""What the two parts of a bundle hold, read with numpy and safetensors."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import safe_open

from lightgc2n.data.dataset import Dataset, Domain, Ints, Longs, read_ids
from lightgc2n.errors import DataError
from lightgc2n.recommending.bundle_files import (
    ACCOUNTS,
    HISTORIES,
    ITEMS,
    SERVER,
    TITLES,
    VECTORS,
    WEIGHTS,
    BundleFiles,
    identity,
)

POPULARITY = "popularity"
MIDDLE = 128  # the byte that stands for 0, in tables that are bytes


@dataclass(frozen=True)
class Device:
    """All that a phone needs besides the graph: what items are called and how popular they are."""

    config: dict[str, Any]
    items: list[str]
    titles: dict[str, str]
    popularity: npt.NDArray[np.unsignedinteger[Any]]

    @property
    def model(self) -> str:
        return str(self.config["model"])


@dataclass(frozen=True)
class Server:
    """Accounts and what they did, as a dataset with one line for each; of nobody where the part was left out."""

    dataset: Dataset
    without_histories: bool  # accounts are known by their vectors alone
    vectors: npt.NDArray[np.float32]  # [accounts, W]; W is 0 where the model has none
    held_offsets: Longs
    held_items: Ints  # what training knows of an account beyond its history

    def vectors_of(self, accounts: list[int]) -> npt.NDArray[np.float32]:
        """Where these accounts start; zeros for nobody."""
        found = np.zeros((len(accounts), self.vectors.shape[1]), dtype=np.float32)
        for row, account in enumerate(accounts):
            if 0 <= account < len(self.vectors):
                found[row] = self.vectors[account]
        return found

    def held_by(self, account: int) -> Ints | None:
        if not 0 <= account < len(self.held_offsets) - 1:
            return None
        return self.held_items[self.held_offsets[account] : self.held_offsets[account + 1]]


def read_device(files: BundleFiles) -> Device:
    """The device part; ValueError and its like where the files do not fit each other."""
    items = read_ids(files.folder / ITEMS)
    popularity = read_arrays(files, WEIGHTS, POPULARITY)[POPULARITY]
    need(len(items) == files.config["items"] == len(popularity) > 0, "the number of items")
    titles: dict[str, str] = {}
    if TITLES in files.device:
        lines = (line.partition("\t") for line in read_ids(files.folder / TITLES))
        titles = {item: title for item, _, title in lines}
    return Device(files.config, items, titles, popularity)


def read_server(files: BundleFiles, device: Device) -> Server:
    """The server part, or one without accounts."""
    width, size = int(files.config["account_width"]), len(device.items)
    accounts = read_ids(files.folder / SERVER / ACCOUNTS) if files.server else []
    number = len(accounts)
    nothing: dict[str, Any] = {"offsets": np.zeros(number + 1, dtype=np.int64), "events": np.empty(0, dtype=np.int32)}
    histories, vectors = nothing, np.zeros((number, width), dtype=np.float32)
    if HISTORIES in files.server:
        histories = read_arrays(files, f"{SERVER}/{HISTORIES}")
    if VECTORS in files.server:
        vectors = read_arrays(files, f"{SERVER}/{VECTORS}", "account")["account"]
    held: dict[str, Any] = {"held_offsets": nothing["offsets"], "held_items": nothing["events"]} | histories
    for offsets, events in ((histories["offsets"], histories["events"]), (held["held_offsets"], held["held_items"])):
        _need_lines(offsets, events, number, size)
    need(vectors.shape == (number, width), "the vectors of accounts")
    need("times" not in histories or histories["times"].shape == histories["events"].shape, "the times of histories")
    dataset = _dataset(files, device, accounts, histories)
    bare = number > 0 and HISTORIES not in files.server
    return Server(dataset, bare, vectors, held["held_offsets"], held["held_items"])


def _dataset(files: BundleFiles, device: Device, accounts: list[str], histories: dict[str, Any]) -> Dataset:
    data = files.config["data"]
    manifest = {"name": str(data["name"]), "kind": "logs", "checksum": identity(files.folder)}
    return Dataset(
        manifest=manifest,
        accounts=accounts,
        items=device.items,
        domains=tuple(Domain(str(one["name"]), int(one["start"]), int(one["stop"])) for one in data["domains"]),
        offsets=histories["offsets"],
        sequence_accounts=np.arange(len(accounts), dtype=np.int32),
        events=histories["events"],
        times=histories.get("times"),
    )


def _need_lines(offsets: Any, events: Any, accounts: int, items: int) -> None:
    """Every number points at something."""
    sound = offsets.shape == (accounts + 1,) and offsets[0] == 0 and offsets[-1] == len(events)
    need(bool(sound and (np.diff(offsets) >= 0).all()), "the histories")
    need(not len(events) or bool(events.min() >= 0 and events.max() < items), "the items of histories")


def need(holds: bool, what: str) -> None:
    """Stops at numbers that do not fit each other."""
    if not holds:
        raise ValueError(f"{what} cannot be right")


def read_arrays(files: BundleFiles, name: str, *wanted: str) -> dict[str, Any]:
    """Arrays of a safetensors file: those wanted, or all."""
    try:
        with safe_open(files.folder / name, framework="numpy") as file:
            return {key: file.get_tensor(key) for key in wanted or file.keys()}
    except Exception as problem:  # safetensors raises an error of its own for whatever is wrong with a file
        raise DataError(f"{files.folder / name}: {problem}. Export it again.") from None
