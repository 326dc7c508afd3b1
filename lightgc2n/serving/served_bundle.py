"""The bundle that is served, and a watcher that replaces it when a new one is at its path."""

import asyncio
import gc
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightgc2n.data.catalogue import Catalogue, read_titles
from lightgc2n.errors import LightGC2NError
from lightgc2n.recommending.bundle_files import CONFIG, PEOPLE, SERVER, SUMS
from lightgc2n.recommending.load_bundle import load_bundle
from lightgc2n.recommending.recommender import Recommender
from lightgc2n.serving.logs import log

SHORT = 12  # characters of a checksum that are shown
LONGEST_PAUSE = 60.0  # seconds between two attempts to load the same bundle
MOST_DOUBLINGS = 10  # how often that pause is doubled
MOST_ORIGINS = 10  # origins of images that a header lists
ORIGIN = re.compile(r"https?://[A-Za-z0-9.-]+(:\d{1,5})?(?=/|$)")  # no sign that could end a directive
Fingerprint = tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class ServedBundle:
    """A bundle in memory; a request keeps using the one that it started with."""

    folder: Path
    recommender: Recommender
    checksum: str
    card: str
    titles: dict[str, str]
    facts: dict[str, dict[str, Any]]  # fields of an item in responses, besides its id
    device_files: frozenset[str]
    image_sources: tuple[str, ...]  # what the page's Content-Security-Policy allows images from


@dataclass(frozen=True)
class ReloadFailure:
    """Why the bundle at the path is not being served."""

    reason: str
    since: float  # Unix time of the first failed attempt
    tries: int


def load_served(path: Path, titles: Path | None) -> ServedBundle:
    """Load the bundle at `path`; its graph runs once here, so that the first request is not slower."""
    folder = Path(os.path.realpath(path))
    recommender = load_bundle(folder)
    recommender.knows("anybody")
    named = recommender.titles | (read_titles(titles) if titles else {})
    return ServedBundle(
        folder=folder,
        recommender=recommender,
        checksum=recommender.dataset.checksum[:SHORT],
        card=recommender.source.card,
        titles=named,
        facts=item_facts(recommender.catalogue, named),
        device_files=frozenset({*recommender.source.config["files"], CONFIG, SUMS}),  # clients may download these
        image_sources=image_sources(entry.image for entry in recommender.catalogue.values()),
    )


def item_facts(catalogue: Catalogue, titles: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Title, categories, year and image of each item, as far as they are known."""
    facts: dict[str, dict[str, Any]] = {item: {"title": title} for item, title in titles.items()}
    for item, entry in catalogue.items():
        known = {"categories": list(entry.categories), "year": entry.year, "image": entry.image}
        if any(known.values()):
            facts.setdefault(item, {}).update({name: value for name, value in known.items() if value})
    return facts


def image_sources(addresses: Iterable[str]) -> tuple[str, ...]:
    """The origins of the addresses, such as `https://img.example.org`; of more than a few, the schemes alone."""
    origins = {match.group() for address in addresses if (match := ORIGIN.match(address))}
    if len(origins) > MOST_ORIGINS:
        origins = {origin.partition("//")[0] for origin in origins}
    return tuple(sorted(origins))


def fingerprint(path: Path) -> Fingerprint:
    """A value that changes when the bundle at `path`, or a file of it, is replaced."""
    real = os.path.realpath(path)
    return (real, *(_file_facts(os.path.join(real, part)) for part in ("", PEOPLE, SERVER)))


def _file_facts(folder: str) -> tuple[Any, ...] | None:
    """Name, inode, size and modification time of every file of a folder."""
    try:
        with os.scandir(folder) as entries:
            files = [(entry.name, entry.stat(follow_symlinks=False)) for entry in entries]
    except OSError:
        return None
    return tuple(sorted((name, one.st_ino, one.st_size, one.st_mtime_ns) for name, one in files))


class BundleWatcher:
    """Holds the bundle that is served, and checks periodically whether there is a new one at its path.

    A bundle that cannot be loaded is retried with exponential backoff until it loads or another one replaces it.

    Args:
        changed: called with True when a new bundle is served, with False when one cannot be loaded.
        stale: called with True while the bundle at the path is not the one that is served.
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
        # Taken before loading, so that a change meanwhile is noticed.
        self._served = self._seen = self._tried = fingerprint(path)
        self._tries, self._retry_at = 0, 0.0  # failed attempts, and the time of the next one
        self._logged: set[str] = set()  # reasons already logged for the bundle that was tried last
        self.fault: ReloadFailure | None = None
        self.current = load_served(path, titles)

    async def watch(self, executor: Executor) -> None:
        """Serve every new bundle that loads; if one does not, report it and keep serving the old one."""
        while True:
            await asyncio.sleep(self._seconds)
            try:
                await self._look(executor)
            except Exception as problem:  # keep watching after any error
                with suppress(Exception):
                    self._refuse(problem)

    async def _look(self, executor: Executor) -> None:
        now, before = fingerprint(self._path), self._seen
        self._seen = now
        if now == self._served:
            self._clear(now)
        elif now != before:
            return  # wait until a folder that is being written has not changed between two checks
        elif now != self._tried or time.monotonic() >= self._retry_at:
            if now != self._tried:
                self._tried, self._tries, self._logged = now, 0, set()
            new = await asyncio.get_running_loop().run_in_executor(executor, load_served, self._path, self._titles)
            self._serve(new, now)

    def _serve(self, new: ServedBundle, at: Fingerprint) -> None:
        accounts, before = (len(one.recommender.dataset.accounts) for one in (new, self.current))
        level = "warning" if before and not accounts else "info"  # a bundle without its server part has no accounts
        facts = {"checksum": new.checksum, "before": self.current.checksum, "accounts": accounts}
        self.current = new
        self._clear(at)
        log("bundle_taken", level, model=new.recommender.name, **facts)
        freeze_garbage_collector()
        self._changed(True)

    def _clear(self, served: Fingerprint) -> None:
        self._served = self._tried = served
        if self.fault is not None:
            self.fault = None
            self._stale(False)

    def _refuse(self, problem: Exception) -> None:
        """Record the failure, log it once, and double the time until the next attempt."""
        reason = str(problem) if isinstance(problem, LightGC2NError) else f"{type(problem).__name__}: {problem}"
        self._tries += 1
        self._retry_at = time.monotonic() + min(self._seconds * 2 ** min(self._tries, MOST_DOUBLINGS), LONGEST_PAUSE)
        self.fault = ReloadFailure(reason, self.fault.since if self.fault else time.time(), self._tries)
        self._stale(True)
        if reason not in self._logged:
            self._logged.add(reason)
            self._changed(False)
            log("bundle_refused", "error", reason=reason, serving=self.current.checksum)


def freeze_garbage_collector() -> None:
    """Call gc.freeze() so that collections skip long-lived objects; scanning a bundle takes 50 ms."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()
