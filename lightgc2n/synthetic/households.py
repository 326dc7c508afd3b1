"""Generate a log of households from settings and a seed: an event table, or a prepared dataset.

Households are generated in chunks, each with its own random stream. Memory stays bounded, and the first accounts of a
world do not depend on the number of accounts.
"""

import gzip
import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, TextIO

import numpy as np

from lightgc2n.data.catalogue import Catalogue
from lightgc2n.data.contexts import Contexts
from lightgc2n.data.dataset import DATASET, MICROSECONDS, Ints, Longs, write_dataset
from lightgc2n.data.members import GUEST
from lightgc2n.data.tombstones import keep_tombstones
from lightgc2n.errors import SettingError
from lightgc2n.files.atomic_writes import new_file, new_folder, scratch_folder
from lightgc2n.progress import step
from lightgc2n.synthetic.household_devices import DEVICES, draw_devices
from lightgc2n.synthetic.household_titles import household_catalogue
from lightgc2n.synthetic.household_viewing import Viewing, watch
from lightgc2n.synthetic.household_world import DOMAINS, HouseholdConfig, People, World, build_world, draw_people

__all__ = ["HouseholdConfig", "Households", "generate", "generate_chunks"]

EVENTS_AT_ONCE = 100_000
DEVICE = "device"  # the name of the column
HEADER = "account_id,item_id,timestamp,domain,member\n"
NOTE = "Generated households: no real person is in this log."


@dataclass(frozen=True)
class Households:
    """A chunk of households: who lives there and what they watch."""

    first: int  # number of the first household
    count: int
    people: People
    viewing: Viewing
    device: Ints | None = None  # of each event, an index into DEVICES

    def account_ids(self) -> list[str]:
        return [f"h{self.first + home:06d}" for home in range(self.count)]

    def member_ids(self) -> list[str]:
        """Return the id of each person, such as h000123-2, or h000123-guest."""
        homes, numbers = self.people.home.tolist(), self.people.number.tolist()
        pairs = zip(homes, numbers, strict=True)
        return [f"h{self.first + home:06d}-{number or GUEST}" for home, number in pairs]


def generate(
    config: HouseholdConfig, seed: int, out: Path, force: bool = False, titles: bool = False
) -> dict[str, Any]:
    """Write the world of `seed` to `out` and return its name, options and counts.

    Args:
        out: a file ending in .csv or .csv.gz becomes an event table, any other name a prepared dataset.
        titles: keep titles and genres of the items in the dataset.
    """
    if out.suffix.lower() in (".parquet", ".jsonl", ".json", ".tsv", ".zst"):
        raise SettingError(f"--out {out}: a table is written as .csv or .csv.gz, a dataset to a name without a suffix.")
    world = build_world(config, seed)
    is_table = out.name.endswith((".csv", ".csv.gz"))
    if is_table:
        return _write_table(config, seed, world, out, force)
    return _write_folder(config, seed, world, out, force, household_catalogue(world) if titles else None)


def generate_chunks(config: HouseholdConfig, seed: int, world: World) -> Iterator[Households]:
    """Yield all households of the world, some thousands of events at a time."""
    # The chunk size must not depend on the number of accounts: it decides which stream generates which household.
    homes = int(np.ceil(EVENTS_AT_ONCE / config.events_per_account))
    with step("Generating households", total=config.accounts) as progress:
        for chunk, first in enumerate(range(0, config.accounts, homes)):
            random = np.random.default_rng([seed, 1 + chunk])  # 0 is the stream of the world itself
            people = draw_people(config, world, homes, random)
            viewing = watch(config, world, people, random)
            count = min(homes, config.accounts - first)
            device = draw_devices(config, people, viewing, seed, chunk) if config.devices else None
            shown = _first_homes(viewing, count)
            yield Households(first, count, people, shown, None if device is None else device[: len(shown.time)])
            progress.advance(count)


def _first_homes(viewing: Viewing, count: int) -> Viewing:
    stop = int(np.searchsorted(viewing.home, count))
    return Viewing(
        home=viewing.home[:stop],
        person=viewing.person[:stop],
        domain=viewing.domain[:stop],
        time=viewing.time[:stop],
        item=viewing.item[:stop],
    )


def _write_table(config: HouseholdConfig, seed: int, world: World, out: Path, force: bool) -> dict[str, Any]:
    item_ids, events = world.item_ids(), 0
    with new_file(out, force) as temporary, _text_file(temporary) as file:
        file.write(HEADER.replace("\n", f",{DEVICE}\n") if config.devices else HEADER)
        for homes in generate_chunks(config, seed, world):
            file.writelines(_rows(homes, item_ids))
            events += len(homes.viewing.item)
    counts = {"accounts": config.accounts, "events": events, "items": len(item_ids)}
    return {"name": out.name, "options": _options(config, seed), "notes": [NOTE], "counts": counts}


def _rows(homes: Households, item_ids: list[str]) -> Iterator[str]:
    accounts, members = homes.account_ids(), homes.member_ids()
    seen = homes.viewing
    columns = (seen.home.tolist(), seen.item.tolist(), seen.time.tolist(), seen.domain.tolist(), seen.person.tolist())
    devices = [""] * len(seen.item) if homes.device is None else [f",{DEVICES[one]}" for one in homes.device.tolist()]
    for home, item, time, domain, person, device in zip(*columns, devices, strict=True):
        yield f"{accounts[home]},{item_ids[item]},{time},{DOMAINS[domain]},{members[person]}{device}\n"


@contextmanager
def _text_file(path: Path) -> Iterator[TextIO]:
    """Open `path` for text, compressed if its name ends in .gz."""
    with path.open("wb") as file, _packed(file, path.name.endswith(".gz")) as packed:
        text = io.TextIOWrapper(packed, encoding="utf-8", newline="\n")
        yield text
        text.flush()
        text.detach()


def _packed(file: BinaryIO, compress: bool) -> Any:
    # Leave name and time out of the gzip header, so that a seed always gives the same bytes.
    return gzip.GzipFile(filename="", mode="wb", compresslevel=4, fileobj=file, mtime=0) if compress else file


def _write_folder(
    config: HouseholdConfig, seed: int, world: World, out: Path, force: bool, catalogue: Catalogue | None
) -> dict[str, Any]:
    with new_folder(out, force, kind=DATASET) as folder, scratch_folder(folder) as scratch:
        lengths, member_names = _spool(generate_chunks(config, seed, world), scratch)
        manifest = write_dataset(
            folder,
            name=out.name,
            kind="logs",
            accounts=[f"h{number:06d}" for number in range(config.accounts)],
            items=world.item_ids(),
            domains=world.domains,
            offsets=np.concatenate([[0], np.cumsum(lengths)]),
            sequence_accounts=np.arange(config.accounts),
            events=np.memmap(scratch / "events", dtype=np.int32, mode="r"),
            times=np.memmap(scratch / "times", dtype=np.int64, mode="r"),
            members=np.memmap(scratch / "members", dtype=np.int32, mode="r"),
            member_names=member_names,
            contexts=_contexts(config, scratch),
            source="generated households",
            options=_options(config, seed),
            notes=[NOTE],
            catalogue=catalogue,
        )
        keep_tombstones(out, folder)
    return manifest


def _spool(chunks: Iterator[Households], scratch: Path) -> tuple[Longs, list[str]]:
    """Write the events to raw files; return the number of events of each account and the names of the members."""
    lengths: list[Longs] = []
    names: list[str] = []
    with (
        (scratch / "events").open("wb") as events,
        (scratch / "times").open("wb") as times,
        (scratch / "members").open("wb") as members,
        (scratch / DEVICE).open("wb") as devices,
    ):
        for homes in chunks:
            acting, member = np.unique(homes.viewing.person, return_inverse=True)
            homes.viewing.item.astype(np.int32).tofile(events)
            (homes.viewing.time * MICROSECONDS).tofile(times)
            (len(names) + member).astype(np.int32).tofile(members)
            if homes.device is not None:
                homes.device.tofile(devices)
            chunk_names = homes.member_ids()
            names += [chunk_names[person] for person in acting]
            lengths.append(np.bincount(homes.viewing.home, minlength=homes.count))
    return np.concatenate(lengths), names


def _contexts(config: HouseholdConfig, scratch: Path) -> Contexts | None:
    if not config.devices:
        return None
    of_event = np.memmap(scratch / DEVICE, dtype=np.int32, mode="r")
    return Contexts(list(DEVICES), of_event, DEVICE).select(np.arange(len(of_event)))


def _options(config: HouseholdConfig, seed: int) -> dict[str, Any]:
    return asdict(config) | {"seed": seed}
