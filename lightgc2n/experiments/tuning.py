"""Tuning: random search with successive halving, judged on validation targets only.

Every trial trains a few epochs; the best third continues with three times as many, until one has trained all of them.
The state of a search is in the run folders of its trials. An interrupted search resumes with the same result.
"""

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
from lightgc2n.errors import OutputError, ScoreError, SettingError
from lightgc2n.experiments.search_space import SAMPLERS, Range, learns_from_trials, propose, space_of
from lightgc2n.experiments.subprocesses import Runner, TimeBudget
from lightgc2n.experiments.table import csv_text, plain_table
from lightgc2n.experiments.trials import FAILED, LOG, Trial, train_trials
from lightgc2n.files.atomic_writes import new_file
from lightgc2n.files.folder_kinds import FolderKind, is_made_by_us, refuse_linked
from lightgc2n.files.writer_lock import make_folders
from lightgc2n.progress import say
from lightgc2n.training.run import OpenData, open_data
from lightgc2n.training.runs import RunPlan, start_run

TUNING, TRIALS, BEST_SETTINGS = "tuning.json", "trials.csv", "best.toml"
SEARCH = FolderKind("search", TUNING, (TRIALS, BEST_SETTINGS, f"trial-*/{FAILED}", f"trial-*/{LOG}"))
KEEP = 3  # one of three trials continues on the next rung, with three times the epochs
DEFAULT_TRIALS, DEFAULT_EPOCHS = 10, 45


@dataclass(frozen=True)
class TuningPlan:
    """A search: `run` holds the fixed settings; its epochs are the maximum of a trial."""

    run: RunPlan
    fixed: frozenset[str] = field(default_factory=frozenset)  # settings, as `table.name`, that are not searched
    trials: int = DEFAULT_TRIALS
    sampler: str = "random"
    halving: bool = True  # otherwise every trial trains all epochs
    first: Mapping[str, Any] = field(default_factory=dict)  # settings of the first trial, as `table.name`
    first_file: str = ""  # the file that they come from

    @property
    def space(self) -> dict[str, Range]:
        return space_of(self.run.model, self.fixed)

    @property
    def rungs(self) -> list[tuple[int, int]]:
        """The number of trials and epochs of each rung: 10 trials and 45 epochs give (10, 5), (3, 15), (1, 45)."""
        counts = [self.trials]
        while self.halving and counts[-1] >= KEEP:
            counts.append(counts[-1] // KEEP)
        every, most = self.run.training.evaluate_every, self.run.training.epochs
        shares = [-(-most // KEEP**level) for level in reversed(range(len(counts)))]
        # A rung ends with an evaluation, so that all its trials are compared at the same epoch.
        return [(count, min(most, -(-share // every) * every)) for count, share in zip(counts, shares, strict=True)]

    @property
    def defaults(self) -> dict[str, Any]:
        """The default values of the searched settings."""
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
        """Return the full description of the search, ready for JSON."""
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
            **({"first_trains_all_epochs": True} if self.first else {}),
        }


@dataclass(frozen=True)
class Tuned:
    """The state of a search."""

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


def tune(
    plan: TuningPlan,
    out: Path,
    device: str = "cpu",
    side_by_side: int = 1,
    seconds: float = math.inf,
    data: OpenData | None = None,
    runner: Runner | None = None,
) -> Tuned:
    """Run a search in `out`, or resume the interrupted search there.

    Args:
        seconds: time budget of this call; the next call resumes.
        data: the dataset and split of the plan, if they are already loaded.
        runner: trains the trials elsewhere; none: on this machine.
    """
    _refuse_invalid(plan, side_by_side)
    data = data or open_data(plan.run)
    dataset, _ = data
    _start(plan, dataset, out)
    search = _Search(plan, data, out, device, side_by_side, TimeBudget(seconds), runner)
    finished = search.run_rungs()
    tuned = Tuned(plan, dataset, search.rows(), finished)
    _write_csv(tuned, out / TRIALS)
    if finished and tuned.best["failure"]:
        raise ScoreError(f"{out}: all {plan.trials} trials failed, the defaults too: {tuned.best['failure']}")
    return tuned


class _Search:
    """The trials proposed so far, and the rung that each has reached."""

    def __init__(
        self,
        plan: TuningPlan,
        data: OpenData,
        out: Path,
        device: str,
        side_by_side: int,
        budget: TimeBudget,
        runner: Runner | None,
    ) -> None:
        self.plan, self.data, self.out = plan, data, out
        self.device, self.side_by_side, self.budget, self.runner = device, side_by_side, budget, runner
        self.trials: list[Trial] = []
        self.proposals: list[dict[str, Any]] = []
        self.rung_of: dict[int, int] = {}

    def run_rungs(self) -> bool:
        """Run all rungs; return whether the search finished within its time budget."""
        (_, epochs), *higher = self.plan.rungs
        say(f"rung 1 of {len(higher) + 1}: {self.plan.trials} trials, to epoch {epochs}")
        if not self._first_rung(epochs):
            return False
        standing = self.trials
        for rung, (count, more) in enumerate(higher, start=1):
            standing = self._kept(sorted(standing, key=partial(_standing, epochs))[:count])
            say(f"rung {rung + 1} of {len(higher) + 1}: {len(standing)} trials, to epoch {more}")
            if not self._rung(rung, standing, more):
                return False
            epochs = more
        return True

    def _kept(self, best: list[Trial]) -> list[Trial]:
        """Add the first trial if its settings were given: they compete with those found after all epochs."""
        first = self.trials[0]
        return best if not self.plan.first or first in best or first.failed else [*best, first]

    def _first_rung(self, epochs: int) -> bool:
        """Propose every trial: all at once, or one by one if a proposal depends on earlier trials."""
        for number in range(self.plan.trials):
            self._propose(number, epochs)
            if learns_from_trials(self.plan.sampler) and not self._rung(0, self.trials[-1:], epochs):
                return False
        return self._rung(0, self.trials, epochs)

    def _propose(self, number: int, epochs: int) -> None:
        results = [(self.proposals[trial.number], trial.value_after(epochs)) for trial in self.trials]
        seed = self.plan.run.training.seed
        # Trial 0 has the default settings.
        proposal = propose(self.plan.sampler, self.plan.space, number, seed, results) if number else self.plan.defaults
        trial = Trial(number, self.out / f"trial-{number:03}")
        start_run(trial.folder, self.plan.with_settings(proposal), self.data[0])
        self.trials.append(trial)
        self.proposals.append(proposal)
        self.rung_of[number] = 0

    def _rung(self, rung: int, trials: Sequence[Trial], epochs: int) -> bool:
        self.rung_of |= {trial.number: rung for trial in trials}
        return train_trials(
            trials, epochs, self.device, self.side_by_side, self.budget, _report, self.data, self.runner
        )

    def rows(self) -> list[dict[str, Any]]:
        """One row per trial, the best first."""
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
    """Return a sort key: trials by their score after `epochs` epochs, the best first."""
    return -trial.value_after(epochs), trial.number


def _report(trial: Trial) -> None:
    progress = trial.progress
    outcome = trial.failed or f"validation MRR@20 {100 * progress.best_value:.2f} % after {progress.epochs} epochs"
    say(f"trial {trial.number}: {outcome}")


def _refuse_invalid(plan: TuningPlan, side_by_side: int) -> None:
    if zoo.entry_of(plan.run.model).is_simple:
        raise SettingError(f"{plan.run.model} is a simple baseline without training, so there is nothing to tune.")
    if not plan.run.split.validation:
        raise SettingError("split.validation is false, but a search needs validation targets. Leave it out.")
    if plan.sampler not in SAMPLERS:
        raise SettingError(f"--sampler: {unknown_name('sampler', plan.sampler, SAMPLERS)}")
    for option, value in (("--trials", plan.trials), ("--side-by-side", side_by_side)):
        if value < 1:
            raise SettingError(f"{option}: expected a whole number from 1, found {value}.")


def _start(plan: TuningPlan, dataset: Dataset, out: Path) -> None:
    """Create the folder of a search, or check that an existing one holds the same search."""
    wanted = json.loads(json.dumps(plan.describe(dataset)))
    path = out / TUNING
    if not path.is_file():
        if out.exists() and any(out.iterdir()):
            raise OutputError(f"{out} exists and holds no search (no {TUNING}). Choose another --out.")
        make_folders(out)
        with new_file(path) as temporary:
            temporary.write_text(json.dumps(wanted, indent=1) + "\n", encoding="utf-8")
    if path.is_symlink() or not is_made_by_us(path):
        raise OutputError(f"{path}: not the description of a search. Choose another --out.")
    refuse_linked(out, SEARCH)
    existing = json.loads(path.read_text(encoding="utf-8"))
    for part, value in wanted.items():
        if part != "made_by" and existing.get(part) != value:
            raise OutputError(
                f"{out} holds another search ({part} differs). Choose another --out, or the same settings."
            )


def _write_csv(tuned: Tuned, path: Path) -> None:
    columns = ("trial", "rung", "epochs", "best_epoch", "validation", "ended_by", "seconds")
    names = list(tuned.plan.space)
    rows = [[*(row[column] for column in columns), *(row["settings"][name] for name in names)] for row in tuned.rows]
    with new_file(path, force=True) as temporary:
        temporary.write_text(csv_text(plain_table("trials", [*columns, *names], rows)), encoding="utf-8")
