"""Scores from the ONNX graph of a bundle, with onnxruntime and numpy.

Shapes: Q queries, M items, K list length, A latent users, T events of a history.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lightgc2n.data.dataset import Longs
from lightgc2n.data.splits import UNSEEN, Queries
from lightgc2n.errors import DataError, ScoreError, SettingError
from lightgc2n.recommending.bundle_parts import Device, ItemVectors, Server
from lightgc2n.recommending.bundle_schema import EXPORT_AGAIN, need
from lightgc2n.recommending.queries import Flags, Floats, ListOptions, QueryBatch, TopItems

NO_ITEM = -1
MOST_SCORES, MOST_CELLS = 2**22, 2**20  # of one graph run: rows x items, rows x events
Feed = dict[str, npt.NDArray[Any]]
# The inputs and outputs of the graph: type, and the length of each axis; "any" is free, others are as in the config.
LONG, FLOAT = "tensor(int64)", "tensor(float)"
INPUTS = {"history": (LONG, ("any", "any")), "handicap": (FLOAT, ("any", "items")), "k": (LONG, (1,))}
OPTIONAL_INPUTS = {"account": (FLOAT, ("any", "account_width")), "held": (LONG, ("any", "any"))}
OUTPUTS = {
    "best_scores": (FLOAT, ("any", "any")),
    "best_items": (LONG, ("any", "any")),
    "scores": (FLOAT, ("any", "items")),
}
USER_OUTPUTS = {"ownership": (FLOAT, ("any", "latent_users", "any")), "weights": (FLOAT, ("any", "latent_users"))}


class Row(NamedTuple):
    """One row of the graph's input."""

    account: int  # UNSEEN: an account that the bundle does not have
    events: npt.NDArray[np.int32]
    stored: bool  # the stored history of the account: items that it holds besides these events count too
    options: ListOptions


class OnnxScorer:
    """A scorer that runs the ONNX graph of a bundle."""

    def __init__(self, device: Device, server: Server, session: Any, vectors: ItemVectors) -> None:
        self.name, self.device, self.server = device.model, device, server
        self._session, self._vectors = session, vectors
        self._inputs = {one.name for one in session.get_inputs()}
        self.popularity: Longs = device.popularity.astype(np.int64)
        self.learned_items: Flags = device.popularity > 0
        self._everything = np.ones(len(device.items), dtype=bool)
        self._learned_handicap = _handicap(self.learned_items)[None]
        self._by_popularity = np.argsort(-self.popularity, kind="stable")

    def item_vectors(self) -> Floats:
        return self._vectors.unit

    def top_items(self, batches: Sequence[QueryBatch]) -> Iterator[TopItems]:
        yield from map(self._top_items, self._tiles(batches))

    def tiles(self, batch: QueryBatch) -> list[int]:
        return [len(tile) for tile in self._tiles([batch])]

    def _tiles(self, batches: Sequence[QueryBatch]) -> Iterator[list[Row]]:
        rows = (row for batch in batches for row in _rows(batch))
        width = int(self.device.config.get("pairs_per_event", 1))
        return _tiles(rows, len(self._everything), width)

    def scores(self, batch: QueryBatch) -> Floats:
        rows, scores = list(_rows(batch)), self.unfiltered_scores([batch])
        self._refuse_not_finite(scores)
        empty = np.array([not len(row.events) for row in rows])
        scores = np.where(empty[:, None], self.popularity.astype(np.float32), scores)
        return scores + self._handicaps(rows, self._everything)

    def unfiltered_scores(self, batches: Sequence[QueryBatch]) -> Floats:
        """The graph's scores of all items [Q, M], whatever may be listed."""
        rows = [row for batch in batches for row in _rows(batch)]
        (scores,) = self._session.run(["scores"], self._feed(rows, 1, self._learned_handicap))
        return np.asarray(scores)

    def latent_users(self, queries: Queries) -> tuple[Floats, Floats]:
        if not self.device.config["latent_users"]:
            raise SettingError("this model has no latent users, so it cannot say whose an event is.")
        (row,) = _rows(QueryBatch(queries.select(np.array([0])), self._unfiltered, fold_in=True))
        feed = self._feed([row], 1, self._learned_handicap)
        shares, weights = self._session.run(["ownership", "weights"], feed)
        return shares[0][:, shares.shape[2] - len(row.events) :], weights[0]

    def trial_run(self) -> Feed:
        """The graph's outputs for two histories, of two events and of one: of the first account, and of a new one."""
        events = np.array([0, len(self._everything) - 1], dtype=np.int32)
        account = 0 if len(self.server.dataset.accounts) else UNSEEN
        rows = [Row(account, events, True, self._unfiltered), Row(UNSEEN, events[1:], False, self._unfiltered)]
        names = [*OUTPUTS, *(USER_OUTPUTS if self.device.config["latent_users"] else ())]
        feed = self._feed(rows, 1, _handicap(self._everything)[None])
        return dict(zip(names, self._session.run(names, feed), strict=True))

    @property
    def _unfiltered(self) -> ListOptions:
        return ListOptions(1, False, self._everything)

    def _top_items(self, rows: Sequence[Row]) -> TopItems:
        """The best scores and items of each row [Q, K], K being the longest list of them."""
        k = min(max(row.options.k for row in rows), len(self._everything))
        values, items = self._ranked_by_graph(rows, k, self.learned_items)
        for place, row in enumerate(rows):
            if not len(row.events):
                values[place], items[place] = self._popular(row.options.listed, k)
        full = np.isfinite(values[:, -1]).tolist()
        short = [place for place, row in enumerate(rows) if not full[place] and len(row.events)]
        if short and not self.learned_items.all():  # items without training events fill the end of a short list
            more = self._ranked_by_graph([rows[place] for place in short], k, ~self.learned_items)
            for own, place in enumerate(short):
                values[place], items[place] = _extended(values[place], items[place], more[0][own], more[1][own])
        return values, items

    def _ranked_by_graph(self, rows: Sequence[Row], k: int, among: Flags) -> TopItems:
        feed = self._feed(rows, k, self._handicaps(rows, among))
        values, items = self._session.run(["best_scores", "best_items"], feed)
        self._refuse_not_finite(np.where(np.isneginf(values), 0, values))
        return values, items

    def _refuse_not_finite(self, scores: Floats) -> None:
        if not np.isfinite(scores).all():
            raise ScoreError(f"{self.name}: a score is not finite. Train with a lower learning rate.")

    def _handicaps(self, rows: Sequence[Row], among: Flags) -> Floats:
        """What is added to scores: 0, or minus infinity for items that may not be listed; one row if it fits all."""
        listed = rows[0].options.listed
        if not any(row.options.exclude_seen for row in rows) and all(row.options.listed is listed for row in rows):
            if among is self.learned_items and listed.all():
                return self._learned_handicap
            return _handicap(listed & among)[None]
        handicaps = np.stack([_handicap(row.options.listed & among) for row in rows])
        for handicap, row in zip(handicaps, rows, strict=True):
            if row.options.exclude_seen:
                handicap[row.events] = -np.inf
        return handicaps

    def _feed(self, rows: Sequence[Row], k: int, handicap: Floats) -> Feed:
        feed: Feed = {
            "history": _padded_left([row.events for row in rows]),
            "handicap": handicap,
            "k": np.array([k], dtype=np.int64),
        }
        if "account" in self._inputs:
            feed["account"] = self.server.vectors_of([row.account for row in rows])
        if "held" in self._inputs:
            held = (self.server.held_by(row.account) if row.stored else None for row in rows)
            feed["held"] = _padded_left([_NO_EVENTS if items is None else items for items in held])
        return feed

    def _popular(self, listed: Flags, k: int) -> TopItems:
        values, items = np.full(k, -np.inf, dtype=np.float32), np.zeros(k, dtype=np.int64)
        best = self._by_popularity[listed[self._by_popularity]][:k]
        values[: len(best)], items[: len(best)] = self.popularity[best], best
        return values, items


def open_session(path: Path, threads: int) -> Any:
    """The onnxruntime session of a graph."""
    # Official builds send telemetry unless this is set before they are imported.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # idle threads leave the cores to others
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as problem:  # onnxruntime has several error types and no common base
        raise DataError(f"{path}: onnxruntime cannot read it: {_one_line(problem)}.") from None


def check_graph(session: Any, config: dict[str, Any], where: str) -> None:
    """Check the names, types and shapes of the graph's inputs and outputs."""
    inputs = {one.name: one for one in session.get_inputs()}
    outputs = {one.name: one for one in session.get_outputs()}
    for name in inputs.keys() - INPUTS.keys() - OPTIONAL_INPUTS.keys():
        raise DataError(
            f"{where}: input {name!r} is not among {', '.join((*INPUTS, *OPTIONAL_INPUTS))}. {EXPORT_AGAIN}"
        )
    optional = {name: facts for name, facts in OPTIONAL_INPUTS.items() if name in inputs}
    wanted = OUTPUTS | (USER_OUTPUTS if config["latent_users"] else {})
    for kind, declared, actual in (("input", INPUTS | optional, inputs), ("output", wanted, outputs)):
        for name, (number, shape) in declared.items():
            at = f"{where}: {kind} {name}"
            need(name in actual, at, number, "nothing")
            need(actual[name].type == number, at, number, actual[name].type)
            lengths = tuple(config.get(one, one) if isinstance(one, str) else one for one in shape)
            need(_fits(actual[name].shape, lengths), at, f"shape {list(lengths)}", actual[name].shape)


def _fits(actual: list[Any], wanted: tuple[Any, ...]) -> bool:
    """Whether each axis is dynamic or has the expected length."""
    return len(actual) == len(wanted) and all(
        not isinstance(length, int) or length == one for length, one in zip(actual, wanted, strict=True)
    )


def check_trial_run(scorer: OnnxScorer, where: str) -> None:
    """Run the graph once before the first request; raise an error if an output has a wrong shape or value."""
    try:
        outputs = scorer.trial_run()
    except Exception as problem:  # onnxruntime has several error types and no common base
        raise DataError(f"{where}: cannot answer: {_one_line(problem)}.") from None
    size, users = len(scorer.device.items), scorer.device.config["latent_users"]
    shapes: dict[str, tuple[int, ...]] = {"best_scores": (2, 1), "best_items": (2, 1), "scores": (2, size)}
    shapes |= {"ownership": (2, users, 2), "weights": (2, users)} if users else {}
    for name, shape in shapes.items():
        need(outputs[name].shape == shape, f"{where}: output {name}", f"shape {shape}", outputs[name].shape)
        need(bool(np.isfinite(outputs[name]).all()), f"{where}: output {name}", "finite numbers", "others")
    best = outputs["best_items"]
    need(bool((best >= 0).all() and (best < size).all()), f"{where}: output best_items", f"items below {size:,}", best)
    scores = np.take_along_axis(outputs["scores"], best, axis=1)
    need(
        np.array_equal(outputs["best_scores"], scores), f"{where}: output best_scores", "those of best_items", "others"
    )


def _one_line(problem: Exception) -> str:
    return " ".join(str(problem).split())[:200]


_NO_EVENTS = np.empty(0, dtype=np.int32)


def _rows(batch: QueryBatch) -> Iterator[Row]:
    queries, stored, options = batch.queries, not batch.fold_in, batch.options
    columns = queries.account.tolist(), queries.start.tolist(), queries.stop.tolist()
    for account, start, stop in zip(*columns, strict=True):
        yield Row(account, queries.events[start:stop], stored, options)


def _handicap(listed: Flags) -> Floats:
    return np.where(listed, np.float32(0), np.float32(-np.inf))


def _padded_left(rows: Sequence[npt.NDArray[np.int32]]) -> Longs:
    """Rows of items as one table; the newest item of each row is in the last column."""
    table = np.full((len(rows), max(1, max(map(len, rows)))), NO_ITEM, dtype=np.int64)
    for row, events in zip(table, rows, strict=True):
        if len(events):
            row[-len(events) :] = events
    return table


def _extended(values: Floats, items: Longs, more_values: Floats, more_items: Longs) -> TopItems:
    """One list followed by another, cut at the length of the first."""
    count, size = int(np.isfinite(values).sum()), len(values)
    return np.append(values[:count], more_values)[:size], np.append(items[:count], more_items)[:size]


def _tiles(rows: Iterable[Row], items: int, width: int = 1) -> Iterator[list[Row]]:
    """The rows of each graph run, few enough that its scores and its padded histories stay small.

    Args:
        width: numbers that the graph looks up for each event.
    """
    most, tile, widest = max(1, MOST_SCORES // max(items, 1)), list[Row](), 1
    for row in rows:
        widest = max(widest, len(row.events))
        if tile and (len(tile) == most or (len(tile) + 1) * widest * width > MOST_CELLS):
            yield tile
            tile, widest = [], max(1, len(row.events))
        tile.append(row)
    if tile:
        yield tile
