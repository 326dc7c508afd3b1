"""Shared accounts with known members: users of a dataset, random or matched, merged by time into households."""

import dataclasses
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lightgc2n.config import LARGEST_SEED, setting
from lightgc2n.data.dataset import DATASET, LABELS, Dataset, Ints, Longs, write_dataset
from lightgc2n.data.tombstones import keep_tombstones
from lightgc2n.errors import DataError, SettingError
from lightgc2n.files.atomic_writes import new_folder
from lightgc2n.synthetic.matched_users import AHEAD, Activity, balanced_households, overlapping_households

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulateOptions:
    """How to merge users; yearly fragments with 5 events in each domain follow the recipe of HAMAZON."""

    members: str = setting("2-4", help="People in one household: 3, or 2-4 for a size drawn uniformly from 2 to 4.")
    seed: int = setting(0, at_least=0, at_most=LARGEST_SEED, help="Seed of all random draws.")
    min_events: int = setting(10, at_least=1, help="Skip users with fewer events.")
    accounts: int = setting(0, at_least=0, help="Households to make (0: as many as the users allow).")
    fragments: str = setting("none", choices=("none", "year"), help="Cut each household's log by calendar year (UTC).")
    min_events_per_domain: int = setting(
        0, at_least=0, help="Drop fragments (or whole households) with fewer events in any domain."
    )

    overlap: float = setting(
        0.0,
        at_least=0.0,
        at_most=1.0,
        help="Merge only users of the same period: least intersection over union of every two spans. Bursts match.",
    )
    balanced: bool = setting(
        False, help="Make households of every size equally long: one of each size for a total number of events."
    )

    @property
    def sizes(self) -> tuple[int, int]:
        """The smallest and the largest household."""
        match = re.fullmatch(r"([0-9]+)(?:-([0-9]+))?", self.members)
        smallest, largest = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        if not 1 <= smallest <= largest:
            raise SettingError(f"members {self.members!r}: expected a number such as 3, or a range such as 2-4.")
        return smallest, largest


@dataclass(frozen=True)
class MergedLog:
    """One row per event, household by household, oldest first within each."""

    household: Ints
    sequence: Longs
    user: Ints
    item: Ints
    time: Longs
    place: Longs  # in the source

    def where(self, keep: Bools) -> "MergedLog":
        return MergedLog(*(getattr(self, field.name)[keep] for field in dataclasses.fields(self)))


def simulate(source: Dataset, options: SimulateOptions, out: Path, force: bool = False) -> dict[str, Any]:
    """Write a new dataset to `out`, each account of which merges several accounts of `source`; return its manifest."""
    _refuse_unmergeable(source)
    with new_folder(out, force, kind=DATASET) as folder:
        randomness = np.random.default_rng(options.seed)
        enough = np.flatnonzero(_events_per_account(source) >= options.min_events)
        household_of_user = _households(source, enough, options, randomness)
        drawn = merge_by_time(source, household_of_user, options.fragments, randomness)
        log = drawn.where(_wanted_sequences(source, drawn, options)[drawn.sequence])
        counts = {
            "users": len(source.accounts),
            "users_with_too_few_events": len(source.accounts) - len(enough),
            "users_left_over": int(len(enough) - (household_of_user >= 0).sum()),
            "users_used": len(np.unique(log.user)),
            "sequences_dropped": int(drawn.sequence[-1] + 1 - len(_starts(log.sequence))),
        }
        manifest = _write(folder, source, options, log, counts)
        keep_tombstones(out, folder)
    return manifest


def _households(
    source: Dataset, enough: npt.NDArray[Any], options: SimulateOptions, randomness: np.random.Generator
) -> Ints:
    if not options.overlap and not options.balanced:
        return draw_households(enough, len(source.accounts), options, randomness)
    draw = balanced_households if options.balanced else overlapping_households
    usable = np.isin(np.arange(len(source.accounts)), enough)
    household_of_user = draw(_activity(source), usable, options.sizes, options.overlap, randomness)
    if household_of_user.max(initial=-1) < 0:
        raise DataError(
            f"{source.name}: no household can be made of the {len(enough):,} users with at least {options.min_events} "
            f"events. Lower --overlap, --min-events or --members, or leave out --balanced."
        )
    return household_of_user


def _activity(source: Dataset) -> Activity:
    """Return when each account was active, and how much."""
    assert source.times is not None
    account = np.repeat(source.sequence_accounts, source.lengths)
    return Activity.of(account, np.asarray(source.times), len(source.accounts))


def draw_households(
    enough: npt.NDArray[Any], users: int, options: SimulateOptions, randomness: np.random.Generator
) -> Ints:
    """Return the household of each of the `users` users, -1 for none.

    Args:
        enough: the users with enough events; the last few are left out if they do not fill the next household.
    """
    smallest, largest = options.sizes
    shuffled = randomness.permutation(enough)
    sizes = randomness.integers(smallest, largest + 1, size=len(shuffled) // smallest)
    stops = np.cumsum(sizes)
    households = int(np.searchsorted(stops, len(shuffled), side="right"))
    if households == 0:
        raise DataError(
            f"{len(enough):,} users have at least {options.min_events} events, but the first household drawn needs "
            f"{sizes[0] if len(sizes) else smallest}. Lower --min-events or --members."
        )
    household_of_user = np.full(users, -1, dtype=np.int32)
    household_of_user[shuffled[: stops[households - 1]]] = np.repeat(np.arange(households), sizes[:households])
    return household_of_user


def merge_by_time(
    source: Dataset, household_of_user: Ints, fragments: str, randomness: np.random.Generator
) -> MergedLog:
    """Return the events of all households; events with equal times are in random order."""
    assert source.times is not None
    user = np.repeat(source.sequence_accounts, source.lengths)
    used = np.flatnonzero(household_of_user[user] >= 0)
    household, time = household_of_user[user[used]], source.times[used]
    # Neither the member nor the file order may break a tie: files are often sorted by item within a day.
    order = np.lexsort((randomness.random(len(used)), time, household))
    household, time, rows = household[order], time[order], used[order]
    return MergedLog(household, _sequences(household, time, fragments), user[rows], source.events[rows], time, rows)


def _sequences(household: Ints, time: Longs, fragments: str) -> Longs:
    """Return the sequence of each event: one per household, or one per household and year."""
    starts = np.ones(len(household), dtype=bool)
    starts[1:] = np.diff(household) != 0
    if fragments == "year":
        year = time.astype("datetime64[us]").astype("datetime64[Y]").astype(np.int64)
        starts[1:] |= np.diff(year) != 0
    return np.cumsum(starts, dtype=np.int64) - 1


def _wanted_sequences(source: Dataset, log: MergedLog, options: SimulateOptions) -> Bools:
    """Return which sequences have enough events in every domain and belong to the requested households."""
    domains = len(source.domains)
    domain = np.searchsorted([domain.stop for domain in source.domains], log.item, side="right")
    cells = (log.sequence[-1] + 1) * domains
    per_domain = np.bincount(log.sequence * domains + domain, minlength=cells).reshape(-1, domains)
    wanted: Bools = per_domain.min(axis=1) >= options.min_events_per_domain
    household = log.household[_starts(log.sequence)]
    households = np.unique(household[wanted])
    if len(households) < max(options.accounts, 1):
        raise DataError(
            f"{source.name}: {len(households):,} accounts can be made, {max(options.accounts, 1):,} are needed. "
            f"Lower --accounts, --members, --min-events or --min-events-per-domain."
        )
    # Households are in the order they were drawn, so the first ones are a random choice.
    return wanted & (household <= households[: options.accounts or None][-1])


def _write(
    folder: Path, source: Dataset, options: SimulateOptions, log: MergedLog, counts: dict[str, int]
) -> dict[str, Any]:
    starts = _starts(log.sequence)
    households, accounts = np.unique(log.household[starts], return_inverse=True)
    users, members = np.unique(log.user, return_inverse=True)
    return write_dataset(
        folder,
        name=f"{source.name} merged {options.members}",
        kind="logs",
        accounts=[f"household-{number:05d}" for number in range(len(households))],
        items=source.items,
        domains=source.domains,
        offsets=np.append(starts, len(log.sequence)),
        sequence_accounts=accounts,
        events=log.item,
        times=log.time,
        members=members,
        member_names=[source.accounts[user] for user in users],
        source={"dataset": source.name, "checksum": source.checksum},
        options=dataclasses.asdict(options),
        notes=_notes(source, options, counts),
        counts=counts,
        catalogue=source.catalogue,
        contexts=source.contexts.select(log.place) if source.contexts is not None else None,
    )


def _notes(source: Dataset, options: SimulateOptions, counts: dict[str, int]) -> list[str]:
    """Return notes on how the accounts were made and what was left out."""
    notes = [
        f"Simulated: each account merges {options.members} users of {source.name} by time; "
        f"events with equal times are in random order (seed {options.seed})."
    ]
    if options.overlap:
        notes.append(
            f"The spans of every two users of an account overlap by at least {options.overlap:g} of their union."
        )
        notes.append(
            f"At no time is the share of events behind one of them larger than another's by more than {AHEAD:g}."
        )
    if options.balanced:
        notes.append("Accounts of every size have equally long logs: one of each size for a total number of events.")
    if few := counts["users_with_too_few_events"]:
        notes.append(f"Users with fewer than {options.min_events} events, not used: {few:,}.")
    if left_over := counts["users_left_over"]:
        notes.append(f"Users left over, in no household, not used: {left_over:,}.")
    if dropped := counts["sequences_dropped"]:
        notes.append(f"Sequences dropped ({_why_dropped(options)}): {dropped:,}.")
    if source.parts is not None:
        notes.append(f"The train and test parts of {source.name} are not kept.")
    return notes


def _why_dropped(options: SimulateOptions) -> str:
    reasons = []
    if options.min_events_per_domain:
        reasons.append(f"fewer than {options.min_events_per_domain} events in some domain")
    if options.accounts:
        reasons.append(f"not among the first {options.accounts:,} accounts")
    return ", or ".join(reasons)


def _refuse_unmergeable(source: Dataset) -> None:
    if source.kind != "logs":
        raise DataError(f"{source.name} holds {source.kind}, not logs. Simulate from whole logs with a time per event.")
    if source.times is None or source.targets is not None:
        raise DataError(
            f"{source.name} has no time for every event, so logs cannot be merged. "
            f"Import a source with times and name its time column."
        )
    if f"{LABELS}/members.npy" in source.manifest.get("files", {}):
        raise DataError(f"{source.name}: its accounts have members already. Simulate from accounts of one user each.")


def _events_per_account(source: Dataset) -> npt.NDArray[Any]:
    return np.bincount(source.sequence_accounts, weights=source.lengths, minlength=len(source.accounts))


def _starts(sequence: Longs) -> Longs:
    """Return the start of each run of equal values."""
    return np.flatnonzero(np.diff(sequence, prepend=-1))
