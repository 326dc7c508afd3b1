"""The people finder: trained once, then estimates for any account how many people share it and who caused each event.

It is trained on logs without member labels. It accepts accounts from training and new ones. The work for an account is
bounded: of a long history a sample of sessions is compared pair by pair, and the rest are assigned to the people found.

A finder is saved in a folder, which is written atomically:

finder.json           version, session gap, and scalars
finder.safetensors    item tables, contrast, count head and habits

Shapes: E events of one account, N sessions, B accounts, K people.
"""

import json
from collections.abc import Iterator
from dataclasses import astuple, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from lightgc2n import __version__
from lightgc2n.data.dataset import Ints, Longs
from lightgc2n.errors import DataError
from lightgc2n.files.atomic_writes import new_folder
from lightgc2n.files.folder_kinds import FolderKind
from lightgc2n.people.assigning import assign_each, assign_others
from lightgc2n.people.clustering import MOST_PEOPLE
from lightgc2n.people.count_people import (
    FEATURES,
    OF_EVIDENCE,
    WITHOUT_HABITS,
    CountHead,
    at_most,
    chances,
    decide,
    features_and_people,
)
from lightgc2n.people.count_training import learn_count
from lightgc2n.people.habits import Habits, View, Weights
from lightgc2n.people.pair_evidence import Contrast, Learned, evidence, learn, pair_evidence
from lightgc2n.people.session_features import ItemTables, Sessions
from lightgc2n.people.sessions import Floats, Logs, equal_sizes, landmarks, sampled, usual_gap

MOST_SESSIONS = 300  # of an account that are all compared with each other; the number of pairs grows with the square
EVENTS_AT_ONCE = 20_000  # of the accounts that are described together; more shows progress too rarely
NEW = -1  # the row of an account that is not in the training logs
FACTS, ARRAYS = "finder.json", "finder.safetensors"
FINDER = FolderKind("people finder", FACTS, (ARRAYS,))
SCHEMA = 1
WEIGHTS = ("inward", "threshold", "outward", "straight", "constant")
GROUP, TOGETHER, TYPES, KINDS, COUNTING = (
    "habits.group",
    "habits.together",
    "habits.hours",
    "habits.kinds",
    "habits.weights",
)


@dataclass(frozen=True)
class People:
    """The people behind one account."""

    count: int
    confidence: float  # estimated probability that the count is right
    chances: Floats  # [5] probability of one person, of two ...; they sum to one
    share: Floats  # [E, count] probability that each event belongs to each person; rows sum to one
    session: Longs  # [E] session id of each event, from 0


@dataclass(frozen=True)
class PeopleFinder:
    """The trained models that estimate people."""

    learned: Learned
    head: CountHead
    gap: int | None  # microseconds; a longer pause starts a new session; None: logs without times
    habits: Habits | None = None  # None: people are told apart by the evidence of pairs alone

    @classmethod
    def learn(cls, training: Logs, random: np.random.Generator) -> "PeopleFinder":
        """Train a finder on logs; they need no item vectors."""
        gap = None if training.times is None else usual_gap(training.times) if training.gap is None else training.gap
        learned = learn(training, random)
        head, habits = learn_count(training, learned, random)
        return cls(learned, head, gap, habits)

    @property
    def catalogue(self) -> int:
        """The number of items."""
        return self.learned.tables.events.shape[1]

    @cached_property
    def _contrast(self) -> Contrast:
        return self.learned.contrast.in_double()

    def find(
        self, items: Ints | Longs, times: Longs | None, row: int | None = None, count: int | None = None
    ) -> People:
        """Estimate the people of the account with this history.

        Args:
            items: item number of each event, oldest first, as in the training logs.
            times: time of each event in microseconds; None if the training logs had none.
            row: the account's row in the training logs; None for a new account.
            count: the number of people, if known.
        """
        logs = self._history(items, times)
        rows = np.array([NEW if row is None else row])
        return next(self._people_of(logs, rows, None if count is None else np.array([count])))

    def find_all(self, logs: Logs, rows: Longs, counts: Longs | None = None) -> Iterator[People]:
        """Estimate the people of each account, in order, many accounts at a time.

        Args:
            logs: of accounts with at least one event each, items and times as for `find`.
            rows: the row of each account in the training logs; NEW for a new account.
            counts: the number of people of each account, if known.
        """
        for part in self._parts(logs):
            yield from self._people_of(self._part(logs, part), rows[part], None if counts is None else counts[part])

    def features(self, logs: Logs, rows: Longs) -> Floats:
        """Return the features that people are counted by [A, F]; arguments as for `find_all`."""
        features = np.zeros((logs.accounts, WITHOUT_HABITS if self.habits is None else FEATURES))
        for part in self._parts(logs):
            sessions, fold, samples = self._sampled(self._part(logs, part), rows[part])
            for accounts, places in samples:
                pairs, size = evidence(sessions, self._contrast, places), sessions.size[places]
                habits = self._habits_of(sessions, fold, places)
                features[part.start + accounts] = features_and_people(pairs, size, sessions.again(places), habits)[0]
        return features

    def _habits_of(self, sessions: Sessions, fold: Longs, places: Longs) -> View | None:
        return None if self.habits is None else self.habits.of(sessions, fold, places)

    def _parts(self, logs: Logs) -> Iterator[slice]:
        """Yield consecutive accounts that are described together."""
        first = 0
        while first < logs.accounts:
            stop = int(np.searchsorted(logs.offsets, logs.offsets[first] + EVENTS_AT_ONCE, side="right")) - 1
            yield slice(first, max(stop, first + 1))
            first = max(stop, first + 1)

    def sessions_of(self, items: Ints | Longs, times: Longs | None) -> Longs:
        """Return the session id of each event; raise an error for a history that `find` rejects."""
        return self._history(items, times).session

    def _sampled(self, logs: Logs, rows: Longs) -> tuple[Sessions, Longs, Iterator[tuple[Longs, Longs]]]:
        """Return all sessions, the fold of each account, and for accounts with equally many those to compare [B, N]."""
        fold = np.zeros(logs.accounts, dtype=np.int64)
        fold[rows != NEW] = self.learned.fold[rows[rows != NEW]]
        sessions = self.learned.described(logs, fold)
        bounds = np.searchsorted(sessions.owner, np.arange(logs.accounts + 1))
        size = np.diff(bounds)

        def samples() -> Iterator[tuple[Longs, Longs]]:
            for accounts in equal_sizes(np.minimum(size, MOST_SESSIONS)):
                chosen = [bounds[one] + sampled(int(size[one]), MOST_SESSIONS) for one in accounts.tolist()]
                yield accounts, np.stack(chosen)

        return sessions, fold, samples()

    def _people_of(self, logs: Logs, rows: Longs, counts: Longs | None) -> Iterator[People]:
        sessions, fold, samples = self._sampled(logs, rows)
        results: dict[int, tuple[Longs, Floats, Floats]] = {}  # account -> places, chances and people of its sample
        for accounts, places in samples:
            answers = self._answers(sessions, fold, places, None if counts is None else counts[accounts])
            for account, own, (likely, share) in zip(accounts.tolist(), places, answers, strict=True):
                results[account] = own, likely, share
        session = logs.session
        for account in range(logs.accounts):
            places, likely, share = results.pop(account)
            own = session[logs.offsets[account] : logs.offsets[account + 1]]
            share = self._with_rest(sessions, places, np.setdiff1d(np.arange(own[0], own[-1] + 1), places), share)
            count = share.shape[1]
            yield People(count, float(likely[count - 1]), likely, share[own - own[0]], own - own[0])

    def _answers(
        self, sessions: Sessions, fold: Longs, places: Longs, counts: Longs | None
    ) -> Iterator[tuple[Floats, Floats]]:
        """Yield the chances and the assigned sessions [N, K] of each account.

        Args:
            places: of the sessions of each account [B, N].
        """
        pairs, size = evidence(sessions, self._contrast, places), sessions.size[places]
        habits = self._habits_of(sessions, fold, places)
        if counts is not None:
            different = np.unique(counts)
            assigned = dict(zip(different.tolist(), assign_each(pairs, size, different.tolist(), habits), strict=True))
            for account, count in enumerate(counts.tolist()):
                yield np.eye(max(count, MOST_PEOPLE))[count - 1], assigned[count][account]
            return
        features, people = features_and_people(pairs, size, sessions.again(places), habits)
        likely = at_most(chances(self.head, features), places.shape[1])
        for account, count in enumerate(decide(likely, self.head.caution).tolist()):
            yield likely[account], people[count - 1][account]

    def _with_rest(self, sessions: Sessions, places: Longs, rest: Longs, share: Floats) -> Floats:
        """Return the shares of all sessions of an account; those that were not sampled are assigned to the people."""
        if not len(rest):
            return share
        known = landmarks(len(places))
        indices = np.repeat(rest, len(known)), np.tile(places[known], len(rest))
        evidence = pair_evidence(sessions, self._contrast, *indices).reshape(len(rest), len(known))
        whole = np.zeros((len(places) + len(rest), share.shape[1]))
        first = min(places[0], rest[0])
        whole[rest - first] = assign_others(evidence, np.sqrt(sessions.size[places[known]]), share[known])
        whole[places - first] = share
        return whole

    def _part(self, logs: Logs, part: slice) -> Logs:
        """Return the logs of these accounts."""
        start, stop = int(logs.offsets[part.start]), int(logs.offsets[part.stop])
        offsets, times = logs.offsets[part.start : part.stop + 1] - start, None
        if self.gap is not None:
            assert logs.times is not None
            times = logs.times[start:stop]
        return self._logs(offsets, logs.items[start:stop], times)

    def _history(self, items: Ints | Longs, times: Longs | None) -> Logs:
        if not len(items) or items.min() < 0 or items.max() >= self.catalogue:
            raise DataError(f"a history needs events, of items 0 to {self.catalogue - 1:,}.")
        if self.gap is None:
            times = None
        elif times is None or len(times) != len(items) or (np.diff(times) < 0).any():
            raise DataError(
                "a history needs a time for each event, oldest first, because the training logs have times."
            )
        return self._logs(np.array([0, len(items)]), items, times)

    def _logs(self, offsets: Longs, items: Ints | Longs, times: Longs | None) -> Logs:
        none = np.zeros((self.catalogue, 0), dtype=np.float32)
        return Logs(offsets, items.astype(np.int32), times, none, self.gap)


def save_finder(finder: PeopleFinder, folder: Path, force: bool = False, of: dict[str, Any] | None = None) -> None:
    """Write the finder to a new folder.

    Args:
        of: the data it was trained on, ready for JSON; `load_finder` can check it.
    """
    facts = {"made_by": f"lightgc2n {__version__}", "schema": SCHEMA, "of": of, **numbers_of(finder)}
    with new_folder(folder, force, kind=FINDER) as new:
        (new / FACTS).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
        save_file({name: np.ascontiguousarray(array) for name, array in arrays_of(finder).items()}, new / ARRAYS)


def load_finder(folder: Path, of: dict[str, Any] | None = None) -> PeopleFinder:
    """Load the finder that `save_finder` wrote; raise an error if it was trained on other data than `of`."""
    try:
        facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
        if facts["schema"] != SCHEMA:
            raise DataError(f"{folder}: finder schema {facts['schema']}, this version reads {SCHEMA}. Train it again.")
        if of is not None and facts.get("of") != of:
            raise DataError(
                f"{folder}: the people finder there was trained on other data or another split. "
                f"Remove that folder to train it again."
            )
        return finder_of(facts, load_file(folder / ARRAYS))
    except FileNotFoundError as problem:
        raise DataError(f"{folder}: no people finder ({FACTS}, {ARRAYS}): {problem}.") from None
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as problem:
        raise DataError(f"{folder}: incomplete people finder: {problem!r}. Train it again.") from None


def numbers_of(finder: PeopleFinder) -> dict[str, Any]:
    """Return the scalars of the finder by name."""
    return {"gap": finder.gap, "prior": finder.learned.contrast.prior, "caution": finder.head.caution}


def arrays_of(finder: PeopleFinder) -> dict[str, Any]:
    """Return the arrays of the finder by name."""
    learned, contrast, head = finder.learned, finder.learned.contrast, finder.head
    tables = {f"tables.{field.name}": getattr(learned.tables, field.name) for field in fields(ItemTables)}
    named = {f"contrast.{name}": part for name, part in zip(WEIGHTS, contrast.weights, strict=True)}
    rest = {
        "fold": learned.fold,
        "traits.centre": learned.centre,
        "traits.spread": learned.spread,
        "contrast.centre": contrast.centre,
        "contrast.spread": contrast.spread,
        "count.centre": head.centre,
        "count.spread": head.spread,
        "count.weights": head.weights,
    }
    habits = {} if finder.habits is None else _habit_arrays(finder.habits)
    return {name: array for name, array in (tables | named | rest | habits).items() if array is not None}


def _habit_arrays(habits: Habits) -> dict[str, Any]:
    return {
        GROUP: habits.group,
        TOGETHER: habits.together,
        TYPES: habits.hours,
        KINDS: habits.kinds,
        COUNTING: np.array(astuple(habits.weights)),
    }


def _habits_of_arrays(arrays: dict[str, Any]) -> Habits | None:
    if GROUP not in arrays:
        return None  # an earlier version told people apart by the evidence of pairs alone
    weights = Weights(*map(float, arrays[COUNTING]))
    return Habits(arrays[GROUP], arrays[TOGETHER], arrays.get(TYPES), arrays[KINDS], weights)


def finder_of(facts: dict[str, Any], arrays: dict[str, Any]) -> PeopleFinder:
    """Rebuild the finder from its scalars and arrays."""
    tables = ItemTables(
        arrays["tables.vectors"], arrays["tables.events"], arrays.get("tables.first"), arrays.get("tables.middle")
    )
    weights = tuple(arrays[f"contrast.{name}"] for name in WEIGHTS)
    contrast = Contrast(arrays["contrast.centre"], arrays["contrast.spread"], weights, float(facts["prior"]))
    learned = Learned(arrays["fold"], tables, arrays["traits.centre"], arrays["traits.spread"], contrast)
    head = CountHead(arrays["count.centre"], arrays["count.spread"], arrays["count.weights"], float(facts["caution"]))
    habits = _habits_of_arrays(arrays)
    readable = (OF_EVIDENCE, WITHOUT_HABITS) if habits is None else (OF_EVIDENCE, WITHOUT_HABITS, FEATURES)
    if len(head.centre) not in readable:  # earlier versions counted from the evidence alone
        raise ValueError(f"the count head has {len(head.centre)} features, this version reads {readable}")
    return PeopleFinder(learned, head, facts["gap"], habits)
