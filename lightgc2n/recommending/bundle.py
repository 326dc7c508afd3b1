"""A bundle that answers, with onnxruntime and numpy alone: the same questions and answers as a run."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lightgc2n.data.dataset import Longs
from lightgc2n.data.splits import Queries
from lightgc2n.errors import HISTORY, DataError, ScoreError, SettingError, option
from lightgc2n.people.finder import PeopleFinder
from lightgc2n.recommending.answering import Flags, Floats, Wish
from lightgc2n.recommending.answers import Recommendations
from lightgc2n.recommending.bundle_files import GRAPH, HISTORIES, SERVER, open_bundle
from lightgc2n.recommending.bundle_parts import Device, Server, read_device, read_server
from lightgc2n.recommending.bundle_people import read_finder
from lightgc2n.recommending.bundle_schema import OUTPUTS, USER_OUTPUTS, check_graph
from lightgc2n.recommending.checks import AGAIN, need
from lightgc2n.recommending.history_times import Times
from lightgc2n.recommending.persons import AnsweringForPeople
from lightgc2n.recommending.similar import ItemVectors
from lightgc2n.recommending.together import best_for_all

NOTHING = -1  # in place of an item
MOST_SCORES, MOST_CELLS = 2**22, 2**20  # of one batch
Feed = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Question:
    """What somebody asks, checked and ready; questions of different kinds may be answered together."""

    account_id: str | None
    account: int  # -1: nobody whom the bundle knows
    events: npt.NDArray[np.int32]
    stored: bool  # the events are those of the account, and what it holds besides them counts too
    notes: tuple[str, ...]
    wish: Wish
    people: tuple[npt.NDArray[np.int32], ...] = ()  # the events of each person, where the list is for all of them


def load_bundle(folder: Path, threads: int = 1) -> "BundleRecommender":
    """The recommender over the bundle in `folder`; a damaged one is refused before any of it is used.

    Args:
        threads: of one request; a service that answers several at once does well with one.
    """
    files = open_bundle(folder)
    device = read_device(files)
    server = read_server(files, device)
    finder, vectors = read_finder(files, len(server.dataset.accounts)), ItemVectors(files)
    timed = HISTORIES not in files.server or finder is None or finder.gap is None or server.dataset.times is not None
    need(timed, f"{files.folder / SERVER / HISTORIES}: times", "a table, as people are found by times", "nothing")
    session = _session(files.folder / GRAPH, threads)
    check_graph(session, files.config, str(files.folder / GRAPH))
    found = BundleRecommender(device, server, session, finder, vectors)
    try_out(found, str(files.folder / GRAPH))
    files.refuse_changed()
    return found


def _session(path: Path, threads: int) -> Any:
    # Official builds report to their maker unless told otherwise before they are imported.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # idle threads leave the cores to others
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as problem:  # whatever onnxruntime has to say of a graph, it is the graph that is wrong
        raise DataError(f"{path}: onnxruntime cannot read it: {_one_line(problem)}.") from None


def try_out(recommender: "BundleRecommender", where: str) -> None:
    """Asks a recommender once before anybody else does; raises an error unless all that it says is sound."""
    try:
        found = recommender.trial()
    except Exception as problem:  # onnxruntime has several kinds, and none in common
        raise DataError(f"{where}: cannot answer: {_one_line(problem)}.") from None
    size, users = len(recommender.dataset.items), recommender.config["latent_users"]
    shapes: dict[str, tuple[int, ...]] = {"best_scores": (2, 1), "best_items": (2, 1), "scores": (2, size)}
    shapes |= {"ownership": (2, users, 2), "weights": (2, users)} if users else {}
    for name, shape in shapes.items():
        need(found[name].shape == shape, f"{where}: output {name}", f"shape {shape}", found[name].shape)
        need(bool(np.isfinite(found[name]).all()), f"{where}: output {name}", "finite numbers", "others")
    best = found["best_items"]
    need(bool((best >= 0).all() and (best < size).all()), f"{where}: output best_items", f"items below {size:,}", best)
    scores = np.take_along_axis(found["scores"], best, axis=1)
    need(np.array_equal(found["best_scores"], scores), f"{where}: output best_scores", "those of best_items", "others")


def _one_line(problem: Exception) -> str:
    return " ".join(str(problem).split())[:200]


class BundleRecommender(AnsweringForPeople):
    """Lists of next items from a bundle."""

    def __init__(
        self, device: Device, server: Server, session: Any, finder: PeopleFinder | None, vectors: ItemVectors
    ) -> None:
        dataset = server.dataset
        super().__init__(device.model, dataset, np.ones(len(dataset.accounts), dtype=bool))
        self.device, self.server, self.config = device, server, device.config
        self.titles = device.titles
        self._session, self._kept_finder, self._vectors = session, finder, vectors
        self._asks = {one.name for one in session.get_inputs()}
        self._learned = device.popularity > 0
        self._all_listed = _handicap(self._learned)[None]
        self._by_popularity = np.argsort(-device.popularity.astype(np.int64), kind="stable")

    def prepare(
        self,
        account: str | None = None,
        history: Sequence[str] | None = None,
        *,
        k: int = 20,
        exclude_seen: bool = False,
        allow: Iterable[str] | None = None,
        deny: Iterable[str] | None = None,
        domain: str | None = None,
        times: Times | None = None,
        person: str | None = None,
        together: bool = False,
    ) -> Question:
        """What `recommend` would ask, refused here if it cannot be answered; people are found here too."""
        wish = self._wish(k, exclude_seen, allow, deny, domain)
        asked = self._whom(account, history, times, person, together)
        first = self._question(asked.queries, 0, wish, asked.fold_in, asked.name, asked.notes)
        if not asked.together:
            return first
        rows = range(len(asked.queries))
        return replace(first, people=tuple(self._question(asked.queries, row, wish, True).events for row in rows))

    def answer(self, questions: Sequence[Question]) -> list[Recommendations]:
        """A list for each question, made in one go; many of them cost little more than one."""
        found = iter(self._answer_for_one([asked for asked in questions if not asked.people]))
        return [self._answer_for_all(asked) if asked.people else next(found) for asked in questions]

    def similar(self, item: str, k: int = 20) -> Recommendations:
        """The k items whose vectors point most nearly the same way as that of an item; the score is the cosine."""
        if k < 1:
            raise SettingError(f"k must be at least 1, found {k}.")
        (place,) = self._indices([("similar", item)])
        items, cosines = self._vectors.nearest(place, self._learned, k)
        return self._told(None, items.tolist(), cosines.tolist(), 1, ())

    def trial(self) -> dict[str, npt.NDArray[Any]]:
        """What the graph gives for a history of two events and one of one: of the first account, and of nobody."""
        size, wish = len(self.dataset.items), Wish(1, False, self._everything)
        events = np.array([0, size - 1], dtype=np.int32)
        first = Question(None, 0 if len(self.dataset.accounts) else NOTHING, events, True, (), wish)
        feed = self._feed(
            [first, Question(None, NOTHING, events[1:], False, (), wish)], 1, _handicap(wish.listed)[None]
        )
        names = [*OUTPUTS, *(USER_OUTPUTS if self.config["latent_users"] else ())]
        return dict(zip(names, self._session.run(names, feed), strict=True))

    def _answer_for_one(self, questions: Sequence[Question]) -> list[Recommendations]:
        if not questions:
            return []
        values, items = self._best_of(questions)
        counts = np.isfinite(values).sum(axis=1)
        found = []
        for row, asked in enumerate(questions):
            count = min(int(counts[row]), asked.wish.k)
            listed = items[row, :count].tolist(), values[row, :count].tolist()
            found.append(self._told(asked.account_id, *listed, len(asked.events), asked.notes))
        return found

    def scores(self, questions: Sequence[Question]) -> Floats:
        """The scores of all items, whatever may be listed, [questions, items]."""
        (found,) = self._session.run(["scores"], self._feed(questions, 1, self._all_listed))
        return np.asarray(found)

    @property
    def _finder(self) -> PeopleFinder:
        if self._kept_finder is None:
            raise SettingError(
                f"this bundle cannot find people: it was exported with {option('--no-people', 'people=False')}, or "
                f"from data without whole logs. {AGAIN}"
            )
        return self._kept_finder

    @property
    def finds_people(self) -> bool:
        """Whether `people`, `person` and `together` can be asked for."""
        return self._kept_finder is not None

    @property
    def _counts(self) -> Longs:
        return self.device.popularity.astype(np.int64)

    def _answer_for_all(self, asked: Question) -> Recommendations:
        single = replace(asked, account=NOTHING, stored=False, people=())
        scores = self._scores_of([replace(single, events=events) for events in asked.people])
        values, items = best_for_all(scores, self._learned, asked.wish.k)
        return self._told(asked.account_id, items.tolist(), values.tolist(), 1, asked.notes)

    def _scores_of_people(self, queries: Queries, wish: Wish) -> Floats:
        return self._scores_of([self._question(queries, row, wish, fold_in=True) for row in range(len(queries))])

    def _scores_of(self, questions: Sequence[Question]) -> Floats:
        """The scores that lists are made by: popularity without a history, minus infinity for what is not listed."""
        found = self.scores(questions)
        self._refuse_not_finite(found)
        empty = np.array([not len(question.events) for question in questions])
        found = np.where(empty[:, None], self.device.popularity.astype(np.float32), found)
        return found + self._handicaps(questions, np.ones_like(self._learned))

    def _stored(self, accounts: list[str]) -> tuple[list[str | None], Queries, list[tuple[str, ...]]]:
        if self.server.without_histories:
            raise DataError(f"{self.dataset.name}: this bundle holds no histories. Give {HISTORY}.")
        return super()._stored(accounts)

    def _question(
        self, queries: Queries, row: int, wish: Wish, fold_in: bool, name: str | None = None, notes: Sequence[str] = ()
    ) -> Question:
        events = queries.events[queries.start[row] : queries.stop[row]]
        return Question(name, int(queries.account[row]), events, not fold_in, tuple(notes), wish)

    def _best(self, queries: Queries, wish: Wish, fold_in: bool) -> Iterator[tuple[Floats, Longs]]:
        for first, last in _tiles(queries.stop - queries.start, len(self.dataset.items)):
            yield self._best_of([self._question(queries, row, wish, fold_in) for row in range(first, last)])

    def _latent_users(self, queries: Queries) -> tuple[Floats, Floats]:
        if not self.config["latent_users"]:
            raise SettingError("this model has no latent users, so it cannot say whose an event is.")
        everything = Wish(1, False, np.ones(len(self._learned), dtype=bool))
        question = self._question(queries, 0, everything, fold_in=True)
        shares, weights = self._session.run(["ownership", "weights"], self._feed([question], 1, self._all_listed))
        return shares[0][:, shares.shape[2] - len(question.events) :], weights[0]

    def _best_of(self, questions: Sequence[Question]) -> tuple[Floats, Longs]:
        """The best scores and items of each question, [questions, K] with the largest K that is wished for."""
        k = min(max(question.wish.k for question in questions), len(self.dataset.items))
        values, items = self._ranked_by_graph(questions, k, self._learned)
        for row, question in enumerate(questions):
            if not len(question.events):
                values[row], items[row] = self._popular(question.wish.listed, k)
        full = np.isfinite(values[:, -1]).tolist()
        short = [row for row, question in enumerate(questions) if not full[row] and len(question.events)]
        if short and not self._learned.all():  # new items fill the end of a list when nothing else is left
            more = self._ranked_by_graph([questions[row] for row in short], k, ~self._learned)
            for place, row in enumerate(short):
                values[row], items[row] = _filled_up(values[row], items[row], more[0][place], more[1][place])
        return values, items

    def _ranked_by_graph(self, questions: Sequence[Question], k: int, among: Flags) -> tuple[Floats, Longs]:
        feed = self._feed(questions, k, self._handicaps(questions, among))
        values, items = self._session.run(["best_scores", "best_items"], feed)
        self._refuse_not_finite(np.where(np.isneginf(values), 0, values))
        return values, items

    def _refuse_not_finite(self, scores: Floats) -> None:
        if not np.isfinite(scores).all():
            raise ScoreError(f"{self.name}: a score is not finite. Train with a lower learning rate.")

    def _handicaps(self, questions: Sequence[Question], among: Flags) -> Floats:
        wishes = [question.wish for question in questions]
        listed = wishes[0].listed
        if not any(wish.exclude_seen for wish in wishes) and all(wish.listed is listed for wish in wishes):
            plain = among is self._learned and listed is self._everything
            return self._all_listed if plain else _handicap(listed & among)[None]
        rows = np.stack([_handicap(wish.listed & among) for wish in wishes])
        for row, question in zip(rows, questions, strict=True):
            if question.wish.exclude_seen:
                row[question.events] = -np.inf
        return rows

    def _feed(self, questions: Sequence[Question], k: int, handicap: Floats) -> Feed:
        feed: Feed = {
            "history": _filled_left([question.events for question in questions]),
            "handicap": handicap,
            "k": np.array([k], dtype=np.int64),
        }
        if "account" in self._asks:
            feed["account"] = self.server.vectors_of([question.account for question in questions])
        if "held" in self._asks:
            held = (self.server.held_by(question.account) if question.stored else None for question in questions)
            feed["held"] = _filled_left([_NO_EVENTS if items is None else items for items in held])
        return feed

    def _popular(self, listed: Flags, k: int) -> tuple[Floats, Longs]:
        values, items = np.full(k, -np.inf, dtype=np.float32), np.zeros(k, dtype=np.int64)
        best = self._by_popularity[listed[self._by_popularity]][:k]
        values[: len(best)], items[: len(best)] = self.device.popularity[best], best
        return values, items


_NO_EVENTS = np.empty(0, dtype=np.int32)


def _handicap(listed: Flags) -> Floats:
    return np.where(listed, np.float32(0), np.float32(-np.inf))


def _filled_left(rows: Sequence[npt.NDArray[np.int32]]) -> Longs:
    """Rows of items as one table, the last ones side by side."""
    table = np.full((len(rows), max(1, max(map(len, rows)))), NOTHING, dtype=np.int64)
    for row, events in zip(table, rows, strict=True):
        if len(events):
            row[-len(events) :] = events
    return table


def _filled_up(values: Floats, items: Longs, more_values: Floats, more_items: Longs) -> tuple[Floats, Longs]:
    """One list and another behind it, as long as the first."""
    count, size = int(np.isfinite(values).sum()), len(values)
    return np.append(values[:count], more_values)[:size], np.append(items[:count], more_items)[:size]


def _tiles(lengths: Longs, items: int) -> Iterator[tuple[int, int]]:
    """Runs of rows whose scores, and whose histories laid side by side, stay small."""
    rows, first = max(1, MOST_SCORES // max(items, 1)), 0
    while first < len(lengths):
        widest = np.maximum.accumulate(np.maximum(lengths[first : first + rows], 1))
        fits = int((widest * np.arange(1, len(widest) + 1) <= MOST_CELLS).sum())
        yield first, first + max(1, fits)
        first += max(1, fits)
