"""The bundle that is being served, and the one that comes after it."""

import asyncio
import gc
import os
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightgc2n.errors import LightGC2NError
from lightgc2n.recommending.bundle import BundleRecommender, load_bundle
from lightgc2n.recommending.bundle_files import CARD, CONFIG, SERVER, SUMS, identity
from lightgc2n.recommending.titles import read_titles
from lightgc2n.serving.logs import log

SHORT = 12  # letters of a checksum that are shown
Stamp = tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class Served:
    """A bundle in memory; a request holds on to the one that it began with."""

    folder: Path
    recommender: BundleRecommender
    checksum: str
    card: str
    titles: dict[str, str]
    device_files: frozenset[str]


def open_served(path: Path, titles: Path | None) -> Served:
    """Loads the bundle that `path` leads to now, and asks it once, so that the first request need not wait."""
    folder = path.resolve()
    recommender = load_bundle(folder)
    recommender.answer([recommender.prepare(history=[recommender.dataset.items[0]], k=1)])
    recommender.knows("anybody")
    return Served(
        folder=folder,
        recommender=recommender,
        checksum=identity(folder)[:SHORT],
        card=(folder / CARD).read_text(encoding="utf-8"),
        titles=recommender.titles | (read_titles(titles) if titles else {}),
        device_files=_device_files(folder, recommender.config),
    )


def _device_files(folder: Path, config: dict[str, Any]) -> frozenset[str]:
    """Names of the files of the device part, which may be given to whoever may ask at all."""
    return frozenset({*config["files"], CONFIG, SUMS})


def stamp(path: Path) -> Stamp:
    """What changes whenever another bundle stands at `path`."""
    real = os.path.realpath(path)
    return (real, *(_facts(os.path.join(real, *parts)) for parts in ((CONFIG,), (SUMS,), (SERVER, SUMS))))


def _facts(path: str) -> tuple[int, ...] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


class Shelf:
    """Holds the bundle that is served, and looks now and then whether another stands at its path.

    Args:
        changed: is told whether a new bundle was taken or refused.
    """

    def __init__(
        self, path: Path, titles: Path | None, seconds: float, changed: Callable[[bool], None] = lambda _taken: None
    ) -> None:
        self._path, self._titles, self._seconds, self._changed = path, titles, seconds, changed
        self._stamp = stamp(path)  # before loading: what changes meanwhile is seen later
        self.current = open_served(path, titles)

    async def watch(self, lane: Executor) -> None:
        """Takes every new bundle that is sound; one that is not is logged, and the old one stays."""
        seen = self._stamp
        while True:
            await asyncio.sleep(self._seconds)
            now = stamp(self._path)
            # Taken when it has stood still for one look: a folder that is being swapped is gone for a moment.
            if now != self._stamp and now == seen:
                self._stamp = now
                await self._take(lane)
            seen = now

    async def _take(self, lane: Executor) -> None:
        loop = asyncio.get_running_loop()
        try:
            new = await loop.run_in_executor(lane, open_served, self._path, self._titles)
        except (LightGC2NError, OSError, ValueError) as problem:
            log("bundle_refused", "error", reason=str(problem), serving=self.current.checksum)
            self._changed(False)
            return
        accounts, before = (len(one.recommender.dataset.accounts) for one in (new, self.current))
        level = "warning" if before and not accounts else "info"  # a bundle that has lost its server part knows nobody
        facts = {"checksum": new.checksum, "before": self.current.checksum, "accounts": accounts}
        log("bundle_taken", level, model=new.recommender.name, **facts)
        self.current = new
        spare_collector()
        self._changed(True)


def spare_collector() -> None:
    """Takes all that stays out of the search for garbage, which else holds everybody up for a twentieth of a second."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()
