"""Runs a round of a pipeline from where it stopped, returns to an earlier bundle, and reports the state."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from lightgc2n.errors import DataError, LightGC2NError, OutputError, SettingError
from lightgc2n.pipeline import steps
from lightgc2n.pipeline.erasure import Erased
from lightgc2n.pipeline.rounds import PipelineFolder
from lightgc2n.pipeline.settings import PipelineSettings
from lightgc2n.pipeline.steps import Facts, LiveModel, Work
from lightgc2n.store.databases import StoreUnavailableError
from lightgc2n.store.event_store import EventStore, open_store

ENDED, FAILED = "ended", "failed"
NEWEST_EVENT = "SELECT MAX(number) FROM events"


@dataclass(frozen=True)
class Outcome:
    """The outcome of a round."""

    round: int
    promoted: bool
    reason: str
    judged: Facts | None


def run_round(settings: PipelineSettings) -> Outcome:
    """Run one round, or complete the one that was interrupted, and return what it came to."""
    folder = PipelineFolder(settings.folder)
    with _opened(settings) as store, folder.locked():
        _forget_erased(settings, folder, store)
        journal = _unfinished(settings, folder)
        if journal is None:
            live = _live(folder)
            if live is not None and not _has_newer(store, live):
                return _nothing_new(folder, live)
            journal = _new_journal(settings, folder, live)
        return _finish(settings, folder, store, journal)


def roll_back(settings: PipelineSettings, to: int | None = None) -> int:
    """Make the bundle live that was live before, or that of the round `to`, and return its round."""
    folder = PipelineFolder(settings.folder)
    folder.refuse_missing()
    with _opened(settings) as store, folder.locked():
        target = folder.round(_target(folder, to))
        _forget_erased(settings, folder, store)
        before = folder.linked()
        _drop_unfinished(folder, "a rollback changes the live model")
        folder.point_live_at(target)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        own = _promotion_of(folder, target.number)
        changed = {"at": now, "kind": "rollback", "before": before.number if before else None, "reason": "rollback"}
        folder.add_promotion(own | changed | {"judged": None})
        folder.log(f"rolled back to round {target.number}, model {own['model']}")
        return target.number


def forget_erased(settings: PipelineSettings) -> int:
    """Remove erased accounts from all rounds now, and return how many there were."""
    folder = PipelineFolder(settings.folder)
    folder.refuse_missing()
    with _opened(settings) as store, folder.locked():
        return _forget_erased(settings, folder, store)


def state(settings: PipelineSettings) -> dict[str, Any]:
    """Return the live round, the bundles that are kept, an unfinished round, and the last decisions."""
    folder = PipelineFolder(settings.folder)
    folder.refuse_missing()
    live, journal = folder.live_round(), folder.journal()
    unfinished = journal is not None and not journal[ENDED]
    return {
        "folder": str(folder.folder),
        "live": live.number if live is not None else None,
        "kept": [one.number for one in folder.kept()],
        "unfinished": {"round": journal["round"], "done": list(journal["done"])} if journal and unfinished else None,
        "history": folder.promotions(),
    }


@contextmanager
def _opened(settings: PipelineSettings) -> Iterator[EventStore]:
    store = open_store(settings.store)
    try:
        yield store
    finally:
        store.close()


def _finish(settings: PipelineSettings, folder: PipelineFolder, store: EventStore, journal: Facts) -> Outcome:
    """Run the steps that the journal does not have yet; it is written after each."""
    live = LiveModel(**journal["live"]) if journal["live"] is not None else None
    work = Work(settings, folder, store, folder.round(journal["round"]), live, journal["done"])
    if work.round.folder.is_symlink() or (work.round.folder.exists() and not work.round.folder.is_dir()):
        raise OutputError(f"{work.round.folder} is not a folder of the pipeline. Move it elsewhere, then try again.")
    work.round.folder.mkdir(exist_ok=True)
    try:
        _run_steps(work, steps.BEFORE_DECISION, journal)
        promotes = journal["done"]["compare"]["promote"]
        _run_steps(work, steps.PROMOTED if promotes else steps.KEPT, journal)
    except LightGC2NError as problem:
        if isinstance(problem, StoreUnavailableError | OutputError):
            work.say(f"stopped, and the next run resumes: {problem.command_line}")
        else:
            work.say(f"failed: {problem.command_line}")
            folder.write_journal(journal | {ENDED: True, FAILED: True})
        raise
    folder.write_journal(journal | {ENDED: True})
    decided = journal["done"]["compare"]
    return Outcome(work.round.number, decided["promote"], decided["reason"], decided["judged"])


def _run_steps(work: Work, some: dict[str, steps.Step], journal: Facts) -> None:
    for name, step in some.items():
        if name not in journal["done"]:
            journal["done"][name] = step(work)
            work.folder.write_journal(journal)


def _unfinished(settings: PipelineSettings, folder: PipelineFolder) -> Facts | None:
    """Return the journal of a round that can be resumed, or None."""
    journal = folder.journal()
    if journal is None or journal[ENDED]:
        return None
    now, before = folder.live_round(), journal["live"]
    number = now.number if now is not None else None
    if number != journal["round"]:  # the link of a round that was killed right after the swap leads to the round itself
        if journal["settings"] != settings.described():
            _drop_unfinished(folder, "the settings have changed")
            return None
        if number != (before["number"] if before is not None else None):
            _drop_unfinished(folder, "another bundle is live now")
            return None
    folder.log(f"round {journal['round']}: resumed after {', '.join(journal['done']) or 'its start'}")
    return journal


def _drop_unfinished(folder: PipelineFolder, why: str) -> None:
    """Record that the unfinished round, if there is one, will not be resumed."""
    journal = folder.journal()
    if journal is not None and not journal[ENDED]:
        folder.write_journal(journal | {ENDED: True, FAILED: True})
        folder.log(f"round {journal['round']}: given up: {why}")


def _new_journal(settings: PipelineSettings, folder: PipelineFolder, live: LiveModel | None) -> Facts:
    journal = {
        "round": folder.next_number(),
        "live": asdict(live) if live is not None else None,
        "settings": settings.described(),
        "done": {},
        ENDED: False,
    }
    folder.write_journal(journal)
    return journal


def _nothing_new(folder: PipelineFolder, live: LiveModel) -> Outcome:
    reason = f"no event is newer than round {live.number}, which is live"
    folder.log(reason)
    return Outcome(live.number, False, reason, None)


def _has_newer(store: EventStore, live: LiveModel) -> bool:
    last = store.database.query(NEWEST_EVENT)[0][0]
    return last is not None and int(last) > live.last_event


def _live(folder: PipelineFolder) -> LiveModel | None:
    one = folder.live_round()
    if one is None:
        return None
    facts = _promotion_of(folder, one.number)
    return LiveModel(one.number, facts["until"], facts["weights_until"], facts["last_event"])


def _promotion_of(folder: PipelineFolder, number: int) -> Facts:
    entries = [one for one in folder.promotions() if one["round"] == number and one["kind"] != "kept"]
    if not entries:
        raise DataError(f"{folder.live}: leads to round {number}, which was never promoted. Roll back to a kept round.")
    return entries[-1]


def _target(folder: PipelineFolder, to: int | None) -> int:
    """Return the round to roll back to: the kept one that was live before the present one."""
    kept = [one.number for one in folder.kept()]
    if to is not None:
        if to not in kept:
            raise SettingError(
                f"--to {to}: no bundle of that round is kept. Kept: {', '.join(map(str, kept)) or 'none'}."
            )
        return to
    earlier = [number for number in _lived_before(folder) if number in kept]
    if not earlier:
        raise DataError(f"{folder.folder}: no earlier bundle is kept, so there is nothing to roll back to.")
    return earlier[-1]


def _lived_before(folder: PipelineFolder) -> list[int]:
    """Return the rounds that were live before the present one, in that order, without those that were rolled back."""
    lived: list[int] = []
    now = folder.linked()
    for number in [int(one["round"]) for one in folder.promotions() if one["kind"] != "kept"]:
        lived = [*(lived[: lived.index(number)] if number in lived else lived), number]
    return lived[: lived.index(now.number)] if now is not None and now.number in lived else lived


def _forget_erased(settings: PipelineSettings, folder: PipelineFolder, store: EventStore) -> int:
    erased = Erased(store, settings.path("tombstones"))
    gone = 0
    for one in folder.rounds():
        if count := erased.forget_in_round(one):
            folder.log(f"round {one.number}: {count:,} erased accounts are removed from its files")
            gone = max(gone, count)
    return gone
