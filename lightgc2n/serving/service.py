"""What all routes of a worker share."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from lightgc2n.recommending.answers import Recommendations
from lightgc2n.recommending.bundle import Question
from lightgc2n.serving.batching import Batcher
from lightgc2n.serving.bundles import Served, Shelf
from lightgc2n.serving.metrics import Metrics
from lightgc2n.serving.settings import ServiceSettings

Result = TypeVar("Result")


class Service:
    """The bundle, the two threads that compute, and the numbers of one worker.

    Args:
        shared_metrics: the folder in which several workers add up their numbers.
    """

    def __init__(self, settings: ServiceSettings, shared_metrics: str | None = None) -> None:
        self.settings, self.limits = settings, settings.limits
        self.metrics = Metrics(shared_metrics)
        self._popular, self._personal = (self.metrics.lists.labels(flag) for flag in ("true", "false"))
        self.draining = False
        self.shelf = Shelf(settings.bundle, settings.titles, settings.watch_seconds, self._bundle_changed)
        # What takes long (people, searches, a new bundle) must not stand in the way of lists.
        self._lists = ThreadPoolExecutor(1, "lists")
        self._errands = ThreadPoolExecutor(1, "errands")
        self.batcher = Batcher(self._lists, self.limits.max_waiting, self.metrics.batches.observe)

    @property
    def served(self) -> Served:
        """The bundle of now; a request asks once and keeps it."""
        return self.shelf.current

    async def aside(self, work: Callable[[], Result]) -> Result:
        """The result of something slow, computed beside the lists."""
        return await asyncio.get_running_loop().run_in_executor(self._errands, work)

    async def watch(self) -> None:
        await self.shelf.watch(self._errands)

    async def lists(self, served: Served, questions: Sequence[Question]) -> list[Recommendations]:
        """A list for each question, made together with what others ask at the same time."""
        found = await self.batcher.answer(served.recommender, questions)
        popular = sum(one.fallback for one in found)
        self._popular.inc(popular)
        self._personal.inc(len(found) - popular)
        return found

    def close(self) -> None:
        self._lists.shutdown(wait=False, cancel_futures=True)
        self._errands.shutdown(wait=False, cancel_futures=True)

    def _bundle_changed(self, taken: bool) -> None:
        self.metrics.reloads.labels("taken" if taken else "refused").inc()
