"""The steps of a round. Each replaces what a killed process left, and returns facts for the journal."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lightgc2n.data.dataset import load_dataset
from lightgc2n.errors import SettingError
from lightgc2n.export.write_bundle import ExportOptions, export_run
from lightgc2n.pipeline.erasure import Erased
from lightgc2n.pipeline.judge import Contender, Judgement, counts, domain_of, judge, questions
from lightgc2n.pipeline.rounds import BUNDLE_FOLDER, DATA, RUN, TRAIN, TRAINED, PipelineFolder, Round
from lightgc2n.pipeline.settings import SPLIT, TRAINING, PipelineSettings
from lightgc2n.pipeline.snapshot import catalogue_of, newest_period, write_before
from lightgc2n.recommending.bundle_files import open_bundle
from lightgc2n.recommending.load_bundle import load_bundle
from lightgc2n.store.dataset_exchange import export_store
from lightgc2n.store.event_store import EventStore
from lightgc2n.training.refresh_run import refresh_run
from lightgc2n.training.run import train_run
from lightgc2n.training.runs import RunPlan, plan_to_train

CHECKSUM_SHOWN = 12  # as `model` in the answers of the service
Facts = dict[str, Any]


@dataclass(frozen=True)
class LiveModel:
    """The round that is live, and what its model has seen."""

    number: int
    until: int  # time of the newest event that it counts
    weights_until: int  # time of the newest event that its weights may have been trained on
    last_event: int  # number of the newest event of the store in its snapshot


@dataclass(frozen=True)
class Work:
    """All that a step needs."""

    settings: PipelineSettings
    folder: PipelineFolder
    store: EventStore
    round: Round
    live: LiveModel | None
    done: dict[str, Facts]

    @property
    def trains(self) -> bool:
        """Whether this round trains a model."""
        if self.live is None:
            return not self.settings.pipeline.start_from
        return self.settings.pipeline.challenger == "train"

    @property
    def live_run(self) -> Path:
        """The run of the live model."""
        assert self.live is not None
        return self.folder.round(self.live.number).run

    @property
    def source(self) -> Path:
        """The run whose weights the challenger has."""
        if self.trains:
            return self.round[TRAINED]
        return self.live_run if self.live is not None else self._first_run()

    @property
    def erased(self) -> Erased:
        return Erased(self.store, self.settings.path("tombstones"))

    def say(self, sentence: str) -> None:
        self.folder.log(f"round {self.round.number}: {sentence}")

    def _first_run(self) -> Path:
        run = self.settings.path("start_from")
        assert run is not None
        return run


def snapshot(work: Work) -> Facts:
    """Write the events of the store as a dataset, without erased accounts, and the part before the newest period."""
    config, data = work.settings.pipeline, work.round[DATA]
    catalogue = catalogue_of(work.settings.path("catalogue"))
    manifest = export_store(work.store, data, name=work.settings.file.stem, force=True, catalogue=catalogue)
    work.erased.forget_in_data(data)
    dataset = load_dataset(data)
    newest, cut = newest_period(dataset, config.judge_hours)
    if work.live is not None:
        cut = max(cut, work.live.weights_until + 1)
    if work.trains:
        write_before(work.round[TRAIN], dataset, cut)
    work.say(
        f"snapshot of {len(dataset.events):,} events of {len(dataset.accounts):,} accounts until {_minute(newest)}; "
        f"models learn until {_minute(cut)}"
    )
    return {"newest": newest, "cut": cut, "last_event": manifest["source"]["last_event"]}


def train(work: Work) -> Facts:
    """Train the challenger on the events before the newest period: a warm start, or from nothing in the first round."""
    if not work.trains:
        return {}
    plan = _plan(work)
    progress = train_run(plan, work.round[TRAINED])
    best = f", best validation MRR@20 {100 * progress.best_value:.2f} %" if plan.split.validation else ""
    work.say(f"trained {plan.model} for {progress.epochs} epochs ({progress.ended_by}){best}")
    return {"epochs": progress.epochs}


def _plan(work: Work) -> RunPlan:
    model = work.settings.pipeline.model
    run = work.live_run if work.live is not None else None
    base = plan_to_train(work.round[TRAIN], None if run else model, run)
    tables = work.settings.tables
    settings = tables.get(base.model, {})
    return base.changed(settings=settings, split=tables.get(SPLIT, {}), training=tables.get(TRAINING, {}))


def compare(work: Work) -> Facts:
    """Judge the challenger beside the live model, and decide."""
    data = domain_of(load_dataset(work.round[DATA]), work.source)
    if not work.trains and not counts(work.source, data):
        raise SettingError(
            f"{work.settings.file}: {work.source} has no counts to refresh without training. "
            f'Set challenger = "train", or start from another model.'
        )
    if work.live is None:
        work.say("the first model: there is no live one to compare it with")
        return {"promote": True, "reason": "first model", "judged": None}
    facts, config = work.done["snapshot"], work.settings.pipeline
    queries = questions(data, facts["cut"], facts["newest"], config.most_questions)
    if len(queries) < config.least_questions:
        reason = f"only {len(queries):,} events to judge on, {config.least_questions:,} are needed"
        work.say(f"the live model stays: {reason}")
        return {"promote": False, "reason": reason, "judged": None}
    challenger = Contender(work.source, facts["cut"])
    live = Contender(work.live_run, min(facts["cut"], work.live.until + 1))
    judged = judge(data, queries, challenger, live)
    work.say(f"judged on {_minute(facts['cut'])} to {_minute(facts['newest'])}, {judged}")
    worse = judged.is_worse(config.tolerance)
    reason = _reason(judged, worse, config.tolerance)
    work.say(f"the live model stays: {reason}" if worse else f"the challenger may replace it: {reason}")
    return {"promote": not worse, "reason": reason, "judged": judged.facts()}


def _reason(judged: Judgement, worse: bool, tolerance: float) -> str:
    if not worse:
        return "the challenger is better" if judged.low > 0 else "the challenger is not worse"
    if judged.difference < -tolerance:
        return f"the challenger is {-judged.difference:.2f} points lower, {tolerance:g} are tolerated"
    return "the challenger is significantly worse"


def count(work: Work) -> Facts:
    """Count every event of the snapshot with the weights of the challenger: this run is what is served."""
    data = domain_of(load_dataset(work.round[DATA]), work.source)
    if not counts(work.source, data):
        work.erased.forget_in_round(work.round)
        work.say("the model has no counts: it is served as it was trained")
        return {"refreshed": False}
    work.erased.forget_in_data(work.round[DATA])
    counted = refresh_run(work.source, work.round[DATA], work.round[RUN], force=True)
    work.say(f"counted {counted.events:,} events until {counted.newest} UTC")
    return {"refreshed": True}


def export(work: Work) -> Facts:
    """Export the run as a bundle, and check that it answers."""
    config = work.settings.pipeline
    if work.round[RUN].is_dir():
        work.folder.remove(work.round, (TRAIN, TRAINED))
    options = ExportOptions(int8=config.int8, people=config.people)
    bundle = work.round[BUNDLE_FOLDER]
    export_run(work.round.run, bundle, options, data=work.round.data, force=True)
    name = load_bundle(bundle).name
    work.say(f"exported {name} to {bundle}")
    return {"model": name}


def promote(work: Work) -> Facts:
    """Point the link at the bundle. Accounts that were erased since the snapshot are removed from it first."""
    if gone := work.erased.forget_in_round(work.round):
        work.say(f"{gone:,} accounts that were erased meanwhile are left out")
    before = work.live.number if work.live is not None else None
    work.folder.point_live_at(work.round)
    entry = promotion(work, "promoted" if before is not None else "first", before)
    work.folder.add_promotion(entry)
    work.say(f"promoted: {work.folder.live} leads to {os.readlink(work.folder.live)}, model {entry['model']}")
    return {}


def promotion(work: Work, kind: str, before: int | None) -> Facts:
    """The entry of a round in the history of promotions."""
    taken, compared = work.done["snapshot"], work.done["compare"]
    if work.trains:
        weights_until = taken["cut"] - 1
    else:  # what a first run was trained on is not known, so the whole snapshot counts as seen
        weights_until = work.live.weights_until if work.live is not None else taken["newest"]
    entry = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "round": work.round.number,
        "kind": kind,
        "before": before,
        "reason": compared["reason"],
        "judged": compared["judged"],
        "until": taken["newest"],
        "weights_until": weights_until,
        "last_event": taken["last_event"],
    }
    if kind != "kept":
        entry |= {"model": open_bundle(work.round[BUNDLE_FOLDER]).checksum[:CHECKSUM_SHOWN]}
    return entry


def keep(work: Work) -> Facts:
    """Record that the live model stays."""
    assert work.live is not None
    work.folder.add_promotion(promotion(work, "kept", work.live.number))
    return {}


def retire(work: Work) -> Facts:
    """Remove rounds that are no longer needed, as far as the pipeline made them."""
    live = work.folder.live_round()
    newest = _kept_rounds(work.folder, work.settings.pipeline.keep)
    for one in work.folder.rounds():
        if one.number in newest or (live is not None and one.number == live.number):
            continue
        had_bundle = one.has(BUNDLE_FOLDER)
        work.folder.remove(one)
        if had_bundle:
            work.say(f"removed the bundle of round {one.number}")
    return {}


def _kept_rounds(folder: PipelineFolder, most: int) -> set[int]:
    """The rounds whose bundles were live last."""
    there = {one.number for one in folder.kept()}
    live = [int(one["round"]) for one in reversed(folder.promotions()) if one["kind"] != "kept"]
    return set([number for number in dict.fromkeys(live) if number in there][:most])


def _minute(time: int) -> str:
    return datetime.fromtimestamp(time / 1e6, UTC).strftime("%Y-%m-%d %H:%M UTC")


Step = Callable[[Work], Facts]
BEFORE_DECISION: dict[str, Step] = {"snapshot": snapshot, "train": train, "compare": compare}
PROMOTED: dict[str, Step] = {"count": count, "export": export, "promote": promote, "retire": retire}
KEPT: dict[str, Step] = {"keep": keep, "retire": retire}
