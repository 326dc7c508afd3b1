"""The results of one experiment: the requests in its experiment.json, and its run folders."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightgc2n.errors import DataError
from lightgc2n.experiments.results import ResultGroup, RunResult
from lightgc2n.experiments.run_index import Unfinished, read_runs, unfinished_run
from lightgc2n.paper.run_records import read_records

EXPERIMENT = "experiment.json"


@dataclass(frozen=True)
class ExperimentResults:
    """The finished and missing runs of an experiment."""

    name: str
    groups: tuple[ResultGroup, ...]
    missing: tuple[Unfinished, ...]
    requests: Mapping[str, Mapping[str, Any]]  # dataset -> its commands, and the settings file of each run

    def command(self, groups: Sequence[ResultGroup]) -> str:
        """All commands that ran on the datasets of these groups."""
        return " && ".join(self.commands(dict.fromkeys(group.first.dataset_folder for group in groups)))

    def commands(self, datasets: Iterable[str]) -> list[str]:
        """The commands that ran on these datasets, each once."""
        known = [self.requests[name] for name in datasets if name in self.requests]
        return list(dict.fromkeys(str(command) for request in known for command in request["commands"]))

    def settings_file(self, group: ResultGroup) -> str:
        """The file with a run's settings; empty where they are the model's defaults."""
        request = self.requests.get(group.first.dataset_folder, {"runs": {}})
        return str(request["runs"].get(group.first.name, ""))


def read_experiment(folder: Path) -> dict[str, Any]:
    """The description of the experiment in `folder`."""
    try:
        described = dict(json.loads((folder / EXPERIMENT).read_text(encoding="utf-8")))
        for request in described["asked"].values():
            request.setdefault("commands", [request.pop("command")] if "command" in request else [])  # old format
            request.setdefault("runs", {})
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        raise DataError(f"{folder}: not an experiment (no {EXPERIMENT}). Run: lightgc2n experiment NAME ...") from None
    return described


def read_experiment_results(folder: Path) -> ExperimentResults:
    """The results of the experiment in `folder`, in the order of its plans."""
    described = read_experiment(folder)
    requests: dict[str, dict[str, Any]] = described["asked"]
    dataset_of = {name: dataset for dataset, request in requests.items() for name in request["runs"]}
    index = read_runs(folder, list(dataset_of))
    groups = with_records(index.groups, read_records(folder), list(dataset_of))
    there = {group.first.name for group in groups} | {run.name for run in index.unfinished}
    absent = [
        unfinished_run(folder, f"{name}-seed0", name, dataset)
        for name, dataset in dataset_of.items()
        if name not in there
    ]
    return ExperimentResults(described["experiment"], groups, (*index.unfinished, *absent), requests)


def with_records(
    groups: Sequence[ResultGroup], records: Sequence[ResultGroup], order: Sequence[str] = ()
) -> tuple[ResultGroup, ...]:
    """Return the groups of run folders with the seeds that only records have, and records of other runs.

    Records of the same name but of other settings or data are replaced.

    Args:
        order: the names of runs in the order of the plans.
    """
    recorded = {(group.first.name, group.protocol, group.first.tested_domain): group for group in records}
    every = []
    for group in groups:
        before = recorded.pop((group.first.name, group.protocol, group.first.tested_domain), None)
        every.append(group if before is None else _with_seeds(group, before))
    place = {name: number for number, name in enumerate(order)}
    every += recorded.values()
    return tuple(sorted(every, key=lambda group: place.get(group.first.name, len(place))))


def _with_seeds(group: ResultGroup, before: ResultGroup) -> ResultGroup:
    """Return the group with those seeds of `before` that it does not have, if both have one setting."""
    seeds = {run.seed for run in group.runs}
    alike = [run for run in before.runs if run.seed not in seeds and _setting(run) == _setting(group.first)]
    return ResultGroup(tuple(sorted((*group.runs, *alike), key=lambda run: run.seed)))


def _setting(run: RunResult) -> tuple[object, ...]:
    return run.model, run.settings, run.checksum, run.targets_checksum, run.most_epochs, run.training_share
