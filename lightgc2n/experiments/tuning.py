"""Better settings for a model: random search with successive halving, judged by validation targets alone.

Every trial starts with a few epochs; the best third goes on with three times as many, until one has had them all.
All that is known stands in the folders of the trials, so a search that was stopped goes on and ends the same.
"""

import csv
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from lightgc2n import __version__, zoo
from lightgc2n.config import unknown_name
from lightgc2n.data.dataset import Dataset
from lightgc2n.data.files import new_file
from lightgc2n.errors import OutputError, ScoreError, SettingError
from lightgc2n.experiments.children import Slice
from lightgc2n.experiments.sampling import SAMPLERS, learns_from_trials, propose
from lightgc2n.experiments.single import open_data
from lightgc2n.experiments.spaces import Range, space_of
from lightgc2n.experiments.trials import Trial, take_all_on
from lightgc2n.progress import say
from lightgc2n.training.runs import RunPlan, start_run

TUNING, TRIALS = "tuning.json", "trials.csv"
KEEP = 3  # one trial of so many goes on to the next rung, with so many times the epochs
DEFAULT_TRIALS, DEFAULT_EPOCHS = 10, 45


@dataclass(frozen=True)
class TuningPlan:
    """What to search, and how long: `run` holds what is fixed, and its epochs are the most that a trial gets."""

    run: RunPlan
    fixed: frozenset[str] = field(default_factory=frozenset)  # settings, as `table.name`, that are not searched
    trials: int = DEFAULT_TRIALS
    sampler: str = "random"
    halving: bool = True  # or every trial gets all epochs

    @property
    def space(self) -> dict[str, Range]:
        return space_of(self.run.model, self.fixed)

    @property
    def rungs(self) -> list[tuple[int, int]]:
        """How many trials get how many epochs, rung by rung: 10 trials and 45 epochs are (10, 5), (3, 15), (1, 45)."""
        counts = [self.trials]
        while self.halving and counts[-1] >= KEEP:
            counts.append(counts[-1] // KEEP)
        every, most = self.run.training.evaluate_every, self.run.training.epochs
        shares = [-(-most // KEEP**level) for level in reversed(range(len(counts)))]
        # A rung ends with an evaluation, so that all its trials are judged by what they are at its end.
        return [(count, min(most, -(-share // every) * every)) for count, share in zip(counts, shares, strict=True)]

    @property
    def defaults(self) -> dict[str, Any]:
        """What the searched settings are without a search."""
        tables = {"training": self.run.training, self.run.model: zoo.model_config(self.run.model, self.run.settings)}
        return {path: getattr(tables[table], name) for path in self.space for table, name in [path.rsplit(".", 1)]}

    def with_settings(self, proposal: Mapping[str, Any]) -> RunPlan:
        """The run of one proposal."""
        settings: dict[str, Any] = dict(self.run.settings)
        training: dict[str, Any] = {}
        for path, value in proposal.items():
            table, name = path.rsplit(".", 1)
            (training if table == "training" else settings)[name] = value
        return replace(self.run, settings=settings, training=replace(self.run.training, **training))

    def describe(self, dataset: Dataset) -> dict[str, Any]:
        """The search in full, ready for JSON."""
        return {
            "made_by": f"lightgc2n {__version__}",
            "model": self.run.model,
            "data": {"checksum": dataset.checksum, "domain": self.run.domain},
            "split": asdict(self.run.split),
            "settings": asdict(zoo.model_config(self.run.model, self.run.settings)),
            "training": asdict(self.run.training),
            "space": {name: asdict(drawn) for name, drawn in self.space.items()},
            "trials": self.trials,
            "sampler": self.sampler,
            "halving": self.halving,
        }


@dataclass(frozen=True)
class Tuned:
    """How far a search has come."""

    plan: TuningPlan
    dataset: Dataset
    rows: list[dict[str, Any]]  # trial, rung, epochs, validation, ended_by, settings; the best first
    finished: bool

    @property
    def best(self) -> dict[str, Any]:
        return self.rows[0]

    @property
    def defaults(self) -> dict[str, Any]:
        return next(row for row in self.rows if row["trial"] == 0)


def tune(plan: TuningPlan, out: Path, device: str = "cpu", side_by_side: int = 1, seconds: float = math.inf) -> Tuned:
    """Searches in `out`; a search that was stopped there goes on.

    Args:
        seconds: how long this call may take; the search goes on with the next one.
    """
    _refuse_nonsense(plan, side_by_side)
    dataset, _ = open_data(plan.run)
    _start(plan, dataset, out)
    search = _Search(plan, dataset, out, device, side_by_side, Slice(seconds))
    finished = search.climb()
    tuned = Tuned(plan, dataset, search.rows(), finished)
    _write_csv(tuned, out / TRIALS)
    if finished and tuned.best["failure"]:
        raise ScoreError(f"{out}: all {plan.trials} trials failed, the defaults too: {tuned.best['failure']}")
    return tuned


class _Search:
    """The trials proposed so far, and which rung each has come to."""

    def __init__(
        self, plan: TuningPlan, dataset: Dataset, out: Path, device: str, side_by_side: int, time_slice: Slice
    ) -> None:
        self.plan, self.dataset, self.out = plan, dataset, out
        self.device, self.side_by_side, self.time_slice = device, side_by_side, time_slice
        self.trials: list[Trial] = []
        self.proposals: list[dict[str, Any]] = []
        self.rung_of: dict[int, int] = {}

    def climb(self) -> bool:
        """Whether the search came to its end in time."""
        (_, epochs), *higher = self.plan.rungs
        say(f"rung 1 of {len(higher) + 1}: {self.plan.trials} trials, to epoch {epochs}")
        if not self._first_rung(epochs):
            return False
        standing = self.trials
        for rung, (count, more) in enumerate(higher, start=1):
            standing = sorted(standing, key=partial(_standing, epochs))[:count]
            say(f"rung {rung + 1} of {len(higher) + 1}: {count} trials, to epoch {more}")
            if not self._rung(rung, standing, more):
                return False
            epochs = more
        return True

    def _first_rung(self, epochs: int) -> bool:
        """Proposes every trial: all at once, or one after the other where a proposal follows from earlier trials."""
        for number in range(self.plan.trials):
            self._propose(number, epochs)
            if learns_from_trials(self.plan.sampler) and not self._rung(0, self.trials[-1:], epochs):
                return False
        return self._rung(0, self.trials, epochs)

    def _propose(self, number: int, epochs: int) -> None:
        told = [(self.proposals[trial.number], trial.value_after(epochs)) for trial in self.trials]
        seed = self.plan.run.training.seed
        # Trial 0 is what the model is without a search.
        proposal = propose(self.plan.sampler, self.plan.space, number, seed, told) if number else self.plan.defaults
        trial = Trial(number, self.out / f"trial-{number:03}")
        start_run(trial.folder, self.plan.with_settings(proposal), self.dataset)
        self.trials.append(trial)
        self.proposals.append(proposal)
        self.rung_of[number] = 0

    def _rung(self, rung: int, trials: Sequence[Trial], epochs: int) -> bool:
        self.rung_of |= {trial.number: rung for trial in trials}
        return take_all_on(trials, epochs, self.device, self.side_by_side, self.time_slice, _tell)

    def rows(self) -> list[dict[str, Any]]:
        """One row a trial, the best first."""
        rows = [self._row(trial) for trial in self.trials]
        return sorted(rows, key=lambda row: (-row["rung"], -row["validation"], row["trial"]))

    def _row(self, trial: Trial) -> dict[str, Any]:
        progress, rung = trial.progress, self.rung_of[trial.number]
        halved = trial.reached(self.plan.rungs[rung][1])
        return {
            "trial": trial.number,
            "rung": rung + 1,
            "epochs": progress.epochs,
            "best_epoch": progress.best_epoch,
            "validation": -1.0 if trial.failed else progress.best_value,
            "ended_by": "failure" if trial.failed else progress.ended_by or ("halving" if halved else "not yet"),
            "failure": trial.failed,
            "seconds": round(progress.seconds, 1),
            "settings": self.proposals[trial.number],
        }


def _standing(epochs: int, trial: Trial) -> tuple[float, int]:
    """Sorts trials, the best first, by what they were after so many epochs."""
    return -trial.value_after(epochs), trial.number


def _tell(trial: Trial) -> None:
    progress = trial.progress
    found = trial.failed or f"validation MRR@20 {100 * progress.best_value:.2f} % after {progress.epochs} epochs"
    say(f"trial {trial.number}: {found}")


def _refuse_nonsense(plan: TuningPlan, side_by_side: int) -> None:
    if zoo.entry_of(plan.run.model).is_floor:
        raise SettingError(f"{plan.run.model} is a floor: it is not trained, so there is nothing to tune.")
    if not plan.run.split.validation:
        raise SettingError("split.validation is false: a search needs validation targets to judge by. Leave it out.")
    if plan.sampler not in SAMPLERS:
        raise SettingError(f"--sampler: {unknown_name('sampler', plan.sampler, SAMPLERS)}")
    for option, value in (("--trials", plan.trials), ("--side-by-side", side_by_side)):
        if value < 1:
            raise SettingError(f"{option}: expected a whole number from 1, found {value}.")


def _start(plan: TuningPlan, dataset: Dataset, out: Path) -> None:
    """Makes the folder of a search, or checks that the one that is there holds the same search."""
    wanted = json.loads(json.dumps(plan.describe(dataset)))
    path = out / TUNING
    if not path.is_file():
        if out.exists() and any(out.iterdir()):
            raise OutputError(f"{out} exists and holds no search (no {TUNING}). Choose another --out.")
        out.mkdir(parents=True, exist_ok=True)
        with new_file(path) as temporary:
            temporary.write_text(json.dumps(wanted, indent=1) + "\n", encoding="utf-8")
    found = json.loads(path.read_text(encoding="utf-8"))
    for part, value in wanted.items():
        if part != "made_by" and found.get(part) != value:
            raise OutputError(
                f"{out} holds another search ({part} differs). Choose another --out, or the same settings."
            )


def _write_csv(tuned: Tuned, path: Path) -> None:
    columns = ("trial", "rung", "epochs", "best_epoch", "validation", "ended_by", "seconds")
    with new_file(path, force=True) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow([*columns, *tuned.plan.space])
        for row in tuned.rows:
            rows.writerow([*(row[column] for column in columns), *(row["settings"][name] for name in tuned.plan.space)])
