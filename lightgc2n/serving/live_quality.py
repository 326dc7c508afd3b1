"""Live quality: the rank that the live model gave to each event before it happened, beside two simple baselines.

Each new event is a query to the live model, with the account's history before the event.
A thread of its own computes the ranks, with a bounded queue and a bounded share of its time, so that writes never wait
for it. Under load events are skipped at random; how many of the received ones were scored is shown with every number.

An event is scored only if its account has a history, and if the event is newer than that history and than all events
that the model has counted.
"""

import random
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lightgc2n.data.dataset import Ints, Longs
from lightgc2n.recommending.onnx_scorer import OnnxScorer
from lightgc2n.serving.logs import log_problem
from lightgc2n.serving.recorder import RecordedEvent
from lightgc2n.serving.served_bundle import ServedBundle
from lightgc2n.store.databases import StoreUnavailableError
from lightgc2n.store.event_store import EventStore
from lightgc2n.store.events import NewEvent
from lightgc2n.store.quality import CUTOFF, DAY, DayQuality, Key, QualitySums, add_quality, read_quality

LONGEST_QUEUE = 256  # questions
MOST_OF_A_REQUEST = 8  # whose histories are read before the write
MOST_TOGETHER = 16  # questions of one graph run
WORKING_SHARE = 0.2  # largest share of the time in which the thread computes
FLUSH_SECONDS = 2.0  # seconds between two writes of the sums
SHOWN_DAYS = 90
MISS = float("inf")


@dataclass(frozen=True)
class Question:
    """An event, the bundle that was live, and the account's history before the event."""

    served: ServedBundle
    event: RecordedEvent


class LiveQuality:
    """The recorder of one worker; see `recorder.EventRecorder`.

    Args:
        store: returns the open store; raises an error while it does not answer.
        served: returns the bundle that is live.
    """

    def __init__(self, store: Callable[[], EventStore], served: Callable[[], ServedBundle]) -> None:
        self._store, self._served = store, served
        self._queue: deque[Question] = deque()
        self._lock, self._wake, self._ended = threading.Lock(), threading.Event(), False
        self._sums: defaultdict[Key, QualitySums] = defaultdict(QualitySums)
        self._received: defaultdict[int, int] = defaultdict(int)  # events since the last flush, by day
        self.dropped = 0  # events that were not scored because the queue was full
        self.days: Sequence[DayQuality] = ()
        self._thread = threading.Thread(target=self._work, name="quality", daemon=True)
        self._thread.start()

    def select(self, events: Sequence[NewEvent]) -> Sequence[int]:
        """Choose events at random: all while the queue is empty, fewer the fuller it is."""
        room = 1 - len(self._queue) / LONGEST_QUEUE
        latest = _latest()
        with self._lock:
            for event in events:
                if event.time <= latest:
                    self._received[event.time // DAY] += 1
        places = [place for place in range(len(events)) if random.random() < room]
        if len(places) > MOST_OF_A_REQUEST:
            places = sorted(random.sample(places, MOST_OF_A_REQUEST))
        return places

    def record(self, served: ServedBundle, events: Sequence[RecordedEvent]) -> None:
        """Queue events to score; those that exceed the queue are dropped and counted."""
        room = max(0, LONGEST_QUEUE - len(self._queue))
        self.dropped += max(0, len(events) - room)
        self._queue.extend(Question(served, event) for event in events[:room])
        self._wake.set()

    def close(self) -> None:
        """Write the sums and end the thread."""
        self._ended = True
        self._wake.set()
        self._thread.join(timeout=5.0)

    def metrics_text(self) -> str:
        """Live quality of the newest days for Prometheus."""
        return metrics_text(self.days, self.dropped)

    def _work(self) -> None:
        flushed = -FLUSH_SECONDS  # read what is stored at once
        while not self._ended:
            try:
                if time.monotonic() - flushed > FLUSH_SECONDS:
                    flushed = time.monotonic()
                    self._flush()
                started = time.monotonic()
                if self._answer_some():
                    time.sleep(min((time.monotonic() - started) * (1 / WORKING_SHARE - 1), 1.0))
                else:
                    self._wake.wait(FLUSH_SECONDS)
                    self._wake.clear()
            except Exception as problem:  # keep recording after any error
                log_problem(problem, False)
                time.sleep(1.0)
        self._flush()

    def _answer_some(self) -> bool:
        """Score the oldest queued events of one bundle; return whether there were any."""
        some: list[Question] = []
        while self._queue and len(some) < MOST_TOGETHER and (not some or self._queue[0].served is some[0].served):
            some.append(self._queue.popleft())
        scored = [one for one in some if is_question(one)]
        if scored:
            served = scored[0].served
            for one, sums in zip(scored, answers(served, [one.event for one in scored]), strict=True):
                self._sums[(one.event.event.time // DAY, served.checksum)] += sums
        return bool(some)

    def _flush(self) -> None:
        """Add the sums to the store, and read what all workers have added; while it is down the sums stay here."""
        with self._lock:
            received, self._received = self._received, defaultdict(int)
        for day, count in received.items():
            self._sums[(day, self._served().checksum)] += QualitySums(received=count)
        try:
            database = self._store().database
            if self._sums:
                add_quality(database, self._sums)
                self._sums.clear()
            self.days = read_quality(database, SHOWN_DAYS)
        except StoreUnavailableError:
            return


def is_question(one: Question) -> bool:
    """Whether this event can be scored: it is the newest of its account, and the model has not counted it."""
    event, before, data = one.event.event, one.event.before, one.served.recommender.dataset
    if not len(before.items) or event.time > _latest():
        return False
    if before.times is not None and event.time < int(before.times[-1]):
        return False
    return event.time > _newest_counted(data.times)


def _latest() -> float:
    """The time a day from now; events with later times are ignored."""
    return 1e6 * time.time() + DAY


def _newest_counted(times: Longs | None) -> int:
    return int(times.max()) if times is not None and len(times) else -(2**62)


def answers(served: ServedBundle, events: Sequence[RecordedEvent]) -> list[QualitySums]:
    """The sums of each scored event."""
    recommender = served.recommender
    scorer = recommender.scorer
    assert isinstance(scorer, OnnxScorer), "a service serves bundles"
    queries = [recommender.prepare(one.event.account, one.before, k=1) for one in events]
    rows = scorer.unfiltered_scores([query.batch for query in queries])
    gained = []
    for one, scores in zip(events, rows, strict=True):
        target = recommender.dataset.item_index.get(one.event.item, -1)
        ranks = (
            rank_among(scores, target, scorer.learned_items),
            rank_among(scorer.popularity, target, scorer.learned_items),
            rank_after_recent(one.before.items, scorer.popularity, target),
        )
        gains = [gain for rank in ranks for gain in (1 / rank if rank <= CUTOFF else 0.0, float(rank <= CUTOFF))]
        gained.append(QualitySums(0, 1, *gains))
    return gained


def rank_among(scores: Any, target: int, listed: Any) -> float:
    """The rank of the target; equal scores share the mean of their ranks. An item that cannot be listed is a miss."""
    if target < 0 or not listed[target]:
        return MISS
    own, others = scores[target], scores[listed]
    return 1 + int((others > own).sum()) + (int((others == own).sum()) - 1) / 2


def rank_after_recent(history: Ints, popularity: Longs, target: int) -> float:
    """The rank of the target in a list of the history's items, the newest first, and then the most popular others."""
    if target < 0 or not popularity[target]:
        return MISS
    items, age = np.unique(history[::-1], return_index=True)
    place = np.flatnonzero(items == target)
    if len(place):
        return 1 + int((age < age[place[0]]).sum())
    others = popularity > 0
    others[items] = False
    return len(items) + rank_among(popularity, target, others)


def metrics_text(days: Sequence[DayQuality], dropped: int) -> str:
    """The sums of the newest seven days as Prometheus gauges; all workers report the same numbers except the last."""
    lines = list[str]()
    by_day = sums_by_day(days)
    newest = sorted(by_day)[-7:]
    for name, text, values in (
        ("events", "Events received.", lambda one: [("", one.received)]),
        ("questions", "Events whose rank was recorded before they were stored.", lambda one: [("", one.scored)]),
        ("mrr20", "MRR@20 of the live model and of simple baselines on these events.", lambda one: _means(one, "mrr")),
        ("rc20", "RC@20 likewise.", lambda one: _means(one, "rc")),
    ):
        lines += [f"# HELP lightgc2n_live_{name} {text}", f"# TYPE lightgc2n_live_{name} gauge"]
        for day in newest:
            for scorer, value in values(by_day[day]):
                labels = f'day="{np.datetime64(day, "D")}"' + (f',scorer="{scorer}"' if scorer else "")
                lines.append(f"lightgc2n_live_{name}{{{labels}}} {value}")
    lines += [
        "# HELP lightgc2n_live_dropped_total Events that were not scored because the queue of this worker was full.",
        "# TYPE lightgc2n_live_dropped_total counter",
        f"lightgc2n_live_dropped_total {dropped}",
    ]
    return "\n".join(lines) + "\n"


def sums_by_day(days: Sequence[DayQuality]) -> dict[int, QualitySums]:
    """The sums of each day over all models that were live on it."""
    by_day: defaultdict[int, QualitySums] = defaultdict(QualitySums)
    for one in days:
        by_day[one.day] += one.sums
    return dict(by_day)


def _means(sums: QualitySums, metric: str) -> list[tuple[str, float]]:
    names = ("model", "popular", "recent")
    return [(name, getattr(sums, f"{name}_{metric}") / sums.scored) for name in names] if sums.scored else []
