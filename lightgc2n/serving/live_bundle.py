"""The bundle that is being served, and the one that comes after it."""

import asyncio
import gc
import os
import time
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightgc2n.errors import LightGC2NError
from lightgc2n.recommending.bundle_files import CONFIG, PEOPLE, SERVER, SUMS
from lightgc2n.recommending.load_bundle import load_bundle
from lightgc2n.recommending.recommender import Recommender
from lightgc2n.recommending.titles import read_titles
from lightgc2n.serving.logs import log

SHORT = 12  # letters of a checksum that are shown
LONGEST_PAUSE = 60.0  # seconds between two tries to load the same bundle
MOST_DOUBLINGS = 10  # of that pause
Stamp = tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class Served:
    """A bundle in memory; a request holds on to the one that it began with."""

    folder: Path
    recommender: Recommender
    checksum: str
    card: str
    titles: dict[str, str]
    device_files: frozenset[str]


@dataclass(frozen=True)
class Fault:
    """Why the bundle that stands at the path now is not the one that is served."""

    reason: str
    since: float  # the time of the first refusal, in seconds since 1970
    tries: int


def open_served(path: Path, titles: Path | None) -> Served:
    """Loads the bundle that `path` leads to now; loading asks it once, so that the first request need not wait."""
    folder = Path(os.path.realpath(path))
    recommender = load_bundle(folder)
    recommender.knows("anybody")
    return Served(
        folder=folder,
        recommender=recommender,
        checksum=recommender.dataset.checksum[:SHORT],
        card=recommender.source.card,
        titles=recommender.titles | (read_titles(titles) if titles else {}),
        device_files=frozenset({*recommender.source.config["files"], CONFIG, SUMS}),  # for whoever may ask at all
    )


def stamp(path: Path) -> Stamp:
    """What changes whenever another bundle, or another file of it, stands at `path`."""
    real = os.path.realpath(path)
    return (real, *(_facts(os.path.join(real, part)) for part in ("", PEOPLE, SERVER)))


def _facts(folder: str) -> tuple[Any, ...] | None:
    """Name, place, size and time of every file of a folder."""
    try:
        with os.scandir(folder) as entries:
            found = [(entry.name, entry.stat(follow_symlinks=False)) for entry in entries]
    except OSError:
        return None
    return tuple(sorted((name, one.st_ino, one.st_size, one.st_mtime_ns) for name, one in found))


class Shelf:
    """Holds the bundle that is served, and looks now and then whether another stands at its path.

    A bundle that cannot be loaded is tried again, at longer and longer intervals, until it can or another one comes.

    Args:
        changed: is called with True for a new bundle that is served, with False for one that is refused.
        stale: is called with whether the bundle at the path is another one than the one that is served.
    """

    def __init__(
        self,
        path: Path,
        titles: Path | None,
        seconds: float,
        changed: Callable[[bool], None] = lambda _taken: None,
        stale: Callable[[bool], None] = lambda _stale: None,
    ) -> None:
        self._path, self._titles, self._seconds, self._changed, self._stale = path, titles, seconds, changed, stale
        self._served = self._seen = self._tried = stamp(path)  # before loading: what changes meanwhile is seen later
        self._tries, self._again = 0, 0.0  # how often it could not be loaded, and when to try once more
        self._said: set[str] = set()  # what was logged of the bundle that was tried last
        self.fault: Fault | None = None
        self.current = open_served(path, titles)

    async def watch(self, lane: Executor) -> None:
        """Takes every new bundle that is sound; one that is not is reported, and the old one stays."""
        while True:
            await asyncio.sleep(self._seconds)
            try:
                await self._look(lane)
            except Exception as problem:  # whatever it is, the next bundle must be seen
                with suppress(Exception):
                    self._refuse(problem)

    async def _look(self, lane: Executor) -> None:
        now, before = stamp(self._path), self._seen
        self._seen = now
        if now == self._served:
            self._clear(now)
        elif now != before:
            return  # not yet: a folder that is being written or swapped must stand still for one look
        elif now != self._tried or time.monotonic() >= self._again:
            if now != self._tried:
                self._tried, self._tries, self._said = now, 0, set()
            new = await asyncio.get_running_loop().run_in_executor(lane, open_served, self._path, self._titles)
            self._take(new, now)

    def _take(self, new: Served, at: Stamp) -> None:
        accounts, before = (len(one.recommender.dataset.accounts) for one in (new, self.current))
        level = "warning" if before and not accounts else "info"  # a bundle that has lost its server part knows nobody
        facts = {"checksum": new.checksum, "before": self.current.checksum, "accounts": accounts}
        self.current = new
        self._clear(at)
        log("bundle_taken", level, model=new.recommender.name, **facts)
        spare_collector()
        self._changed(True)

    def _clear(self, served: Stamp) -> None:
        self._served = self._tried = served
        if self.fault is not None:
            self.fault = None
            self._stale(False)

    def _refuse(self, problem: Exception) -> None:
        """Keeps the fault to be shown, logs it once, and waits longer before the next try."""
        reason = str(problem) if isinstance(problem, LightGC2NError) else f"{type(problem).__name__}: {problem}"
        self._tries += 1
        self._again = time.monotonic() + min(self._seconds * 2 ** min(self._tries, MOST_DOUBLINGS), LONGEST_PAUSE)
        self.fault = Fault(reason, self.fault.since if self.fault else time.time(), self._tries)
        self._stale(True)
        if reason not in self._said:
            self._said.add(reason)
            self._changed(False)
            log("bundle_refused", "error", reason=reason, serving=self.current.checksum)


def spare_collector() -> None:
    """Takes all that stays out of the search for garbage, which else holds everybody up for a twentieth of a second."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()
