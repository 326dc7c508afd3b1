"""Questions that wait at the same time are answered together; one that comes alone waits for nobody.

A worker has one thread that computes. While it does, questions gather; when it is done, they go in together.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field

from lightgc2n.recommending.recommender import Recommender
from lightgc2n.recommending.results import Recommendations
from lightgc2n.recommending.scorer import PreparedQuery
from lightgc2n.serving.errors import busy

MOST_ROWS = 64  # of one go: more gain nothing, and cost memory
MOST_SCORES, MOST_CELLS = 2**21, 2**16  # of one go: rows x items, rows x events


@dataclass(eq=False)
class Asked:
    """Questions of one request, and the answers found so far."""

    recommender: Recommender
    questions: Sequence[PreparedQuery]
    answered: "asyncio.Future[list[Recommendations]]"
    found: list[Recommendations] = field(default_factory=list)

    @property
    def left(self) -> int:
        return len(self.questions) - len(self.found)


@dataclass
class Batch:
    """What is computed in one go: for each request the questions that it brings."""

    recommender: Recommender
    parts: list[tuple[Asked, Sequence[PreparedQuery]]]


class Batcher:
    """Hands questions to the computing thread, as many at a time as there are.

    Args:
        most_waiting: questions that may wait; more are refused.
        observe: is told how many questions each batch has.
    """

    def __init__(self, lane: Executor, most_waiting: int, observe: Callable[[int], None] = lambda _rows: None) -> None:
        self._lane, self._most_waiting, self._observe = lane, most_waiting, observe
        self._asked: deque[Asked] = deque()
        self._busy = False
        self.waiting = 0

    async def answer(self, recommender: Recommender, questions: Sequence[PreparedQuery]) -> list[Recommendations]:
        """A list for each question, by the recommender that they were prepared with."""
        if not questions:
            return []
        if self.waiting and self.waiting + len(questions) > self._most_waiting:
            raise busy(f"{self.waiting:,} lists are waiting already; ask again in a moment.")
        loop = asyncio.get_running_loop()
        asked = Asked(recommender, questions, loop.create_future())
        self._asked.append(asked)
        self.waiting += len(questions)
        if not self._busy:
            self._busy = True
            loop.call_soon(self._go_on)  # requests that were read in the same moment come along
        try:
            return await asked.answered
        finally:
            self.waiting -= len(questions)

    def _go_on(self) -> None:
        batch = self._next_batch()
        if batch is None:
            self._busy = False
            return
        self._observe(sum(len(part) for _, part in batch.parts))
        done = asyncio.get_running_loop().run_in_executor(self._lane, _compute, batch)
        done.add_done_callback(lambda future: self._give(batch, future))

    def _give(self, batch: Batch, done: "asyncio.Future[list[list[Recommendations] | Exception]]") -> None:
        results = done.result()
        for (asked, _), result in zip(batch.parts, results, strict=True):
            if asked.answered.done():  # nobody waits any more
                continue
            if isinstance(result, Exception):
                asked.answered.set_exception(result)
                continue
            asked.found += result
            if not asked.left:
                asked.answered.set_result(asked.found)
            else:
                self._asked.append(asked)  # a long request lets others in between
        self._go_on()

    def _next_batch(self) -> Batch | None:
        """The questions that have waited longest, of one recommender, as many as fit."""
        batch, rows, widest = None, 0, 1
        while self._asked and rows < MOST_ROWS:
            asked = self._asked[0]
            if asked.answered.done():
                self._asked.popleft()
                continue
            batch = batch or Batch(asked.recommender, [])
            if asked.recommender is not batch.recommender:
                break
            part, widest = _fitting(asked, rows, widest)
            if not part:
                break
            self._asked.popleft()
            batch.parts.append((asked, part))
            rows += len(part)
        return batch


def _fitting(asked: Asked, rows: int, widest: int) -> tuple[Sequence[PreparedQuery], int]:
    """The next questions of a request that still fit beside `rows` others, and how long the longest history is then."""
    first = len(asked.found)
    room = min(MOST_ROWS, MOST_SCORES // len(asked.recommender.dataset.items)) - rows
    part: list[PreparedQuery] = []
    for question in asked.questions[first : first + max(room, 0 if rows else 1)]:
        wide = max(widest, len(question.events))
        if rows + len(part) and (rows + len(part) + 1) * wide > MOST_CELLS:
            break
        part.append(question)
        widest = wide
    return part, widest


def _compute(batch: Batch) -> list[list[Recommendations] | Exception]:
    """The answers of each part; one that fails does not take the others along."""
    try:
        answers = iter(batch.recommender.answer([question for _, part in batch.parts for question in part]))
        return [[next(answers) for _ in part] for _, part in batch.parts]
    except Exception as problem:  # whatever it is, it belongs to the request that caused it
        if len(batch.parts) == 1:
            return [problem]
        return [_compute(Batch(batch.recommender, [part]))[0] for part in batch.parts]
