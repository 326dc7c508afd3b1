"""What the run folders of an experiment hold: each run with its test, and the seeds of one setting together."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from lightgc2n.errors import DataError
from lightgc2n.evaluation.metrics import Floats, Longs, gains, interval, resampled_means
from lightgc2n.experiments.results import read_ranks, read_results
from lightgc2n.experiments.side_by_side import ERROR, last_word
from lightgc2n.reporting.measured import Key, Measured
from lightgc2n.training.record import epochs_of, read_rows
from lightgc2n.training.runs import RUN, read_run

EXPERIMENT = "experiment.json"
METRICS = ("RC@5", "RC@20", "MRR@5", "MRR@20")
DECISIVE = "MRR@20"
TWO_DOMAINS = ", two domains"
SEED = re.compile(r"-seed(\d+)$")


@dataclass(frozen=True)
class Run:
    """A finished run, and which of the domains that it was asked in is looked at."""

    folder: Path
    described: Mapping[str, Any]
    results: Mapping[str, Any]
    domain: int = 0

    @property
    def seed(self) -> int:
        return int(self.described["training"]["seed"])

    @property
    def two_domains(self) -> bool:
        return len(self.results["domains"]) > 1

    @property
    def source(self) -> str:
        """The name of the dataset's folder."""
        return Path(self.described["data"]["folder"]).name

    @property
    def dataset(self) -> str:
        # By its folder: merges of one log share the name in their manifests, and would share a table.
        domain = self.results["domains"][self.domain] if self.two_domains else self.described["data"]["domain"]
        return f"{self.source} {domain}".rstrip()

    @property
    def protocol(self) -> str:
        """The protocol, and for windows which step on the way to honest logs."""
        split = self.described["split"]
        if split["target_in_input"]:
            return "target-in-input"
        return str(split["protocol"]) + ("" if split.get("copies", True) else "-without-copies")

    @property
    def label(self) -> str:
        """What the plan calls it: its model, or a name in its place."""
        own = SEED.sub("", self.folder.name)
        for part in (self.source, self.described["data"]["domain"]):
            own = own.removeprefix(f"{part}-") if part else own
        return own + (TWO_DOMAINS if self.two_domains else "")

    @cached_property
    def ranks(self) -> tuple[Floats, Longs]:
        """The rank and the account of each target of the domain."""
        kept = read_ranks(self.folder)
        rows = kept.domain == self.domain
        return kept.rank[rows], kept.owner[rows]

    @cached_property
    def epoch_seconds(self) -> list[float]:
        """How long each epoch took, without validation; nothing for a floor."""
        return [float(row["seconds"]) for row in read_rows(self.folder)]

    @property
    def quickest_epoch(self) -> float | None:
        """The seconds of the quickest epoch: others also compile and record kernels, or wait for what runs beside."""
        return min(self.epoch_seconds, default=None)


@dataclass(frozen=True)
class Group:
    """The seeds of one setting."""

    runs: tuple[Run, ...]

    @property
    def first(self) -> Run:
        return self.runs[0]

    @property
    def label(self) -> str:
        return self.first.label

    @property
    def model(self) -> str:
        return str(self.first.described["model"])

    @property
    def dataset(self) -> str:
        return self.first.dataset

    @property
    def protocol(self) -> str:
        return self.first.protocol

    @property
    def settings(self) -> Mapping[str, Any]:
        return dict(self.first.described["settings"])

    @property
    def share(self) -> float:
        return float(self.first.described["split"].get("training_share", 1.0))

    @property
    def questions(self) -> str:
        """Equal where the same was asked of the same accounts."""
        return str(self.first.results["questions"][self.first.domain])

    def mean(self, name: str) -> float:
        """Of what results.json says of each seed."""
        return mean(float(run.results[name]) for run in self.runs)

    @property
    def parameters(self) -> int:
        return int(self.first.results["parameters"])

    @property
    def domains(self) -> int:
        return len(self.first.results["domains"])

    @property
    def seconds_an_epoch(self) -> float | None:
        """Of a typical epoch, the mean over the seeds."""
        found = [run.quickest_epoch for run in self.runs if run.quickest_epoch is not None]
        return mean(found) if found else None

    @cached_property
    def gained(self) -> dict[str, Floats]:
        """What each target adds to each metric, the mean over the seeds."""
        columns = [gains(run.ranks[0], (5, 20)) for run in self.runs]
        return {name: np.mean([column[name] for column in columns], axis=0) for name in METRICS}

    @cached_property
    def intervals(self) -> dict[str, tuple[float, float]]:
        """The middle 95 % of each metric over draws of accounts; the seeds are drawn together."""
        table = np.column_stack([self.gained[name] for name in METRICS])
        draws = resampled_means(table, self.first.ranks[1])
        return {name: interval(draws[:, place]) for place, name in enumerate(METRICS)}

    def metric(self, name: str) -> float:
        return float(self.gained[name].mean())


@dataclass(frozen=True)
class Found:
    """All that one experiment has run so far."""

    name: str
    groups: tuple[Group, ...]
    missing: Mapping[str, str]  # run -> why it is not there
    asked: Mapping[str, Mapping[str, Any]]  # dataset -> command, and the settings file of each run

    def tables(self) -> dict[tuple[str, str], list[Group]]:
        """The groups of each dataset and protocol."""
        found: dict[tuple[str, str], list[Group]] = {}
        for group in self.groups:
            found.setdefault((group.dataset, group.protocol), []).append(group)
        return found

    def datasets(self) -> dict[str, list[Group]]:
        """The groups of each dataset."""
        found: dict[str, list[Group]] = {}
        for group in self.groups:
            found.setdefault(group.dataset, []).append(group)
        return found

    def command(self, groups: Sequence[Group]) -> str:
        """All commands that were given for the datasets of these groups."""
        return " && ".join(self.commands(dict.fromkeys(group.first.source for group in groups)))

    def commands(self, sources: Iterable[str]) -> list[str]:
        """What was asked of these datasets, each command once."""
        return list(
            dict.fromkeys(str(one) for name in sources if name in self.asked for one in self.asked[name]["commands"])
        )

    def file(self, group: Group) -> str:
        """The file that a run's settings come from; nothing where they are the model's defaults."""
        asked = self.asked.get(group.first.source, {"runs": {}})
        return str(asked["runs"].get(SEED.sub("", group.first.folder.name), ""))


def read_experiment(folder: Path) -> dict[str, Any]:
    """What was asked of the experiment in `folder`."""
    try:
        described = dict(json.loads((folder / EXPERIMENT).read_text(encoding="utf-8")))
        for one in described["asked"].values():
            one.setdefault("commands", [one.pop("command")] if "command" in one else [])  # one of them, before
            one.setdefault("runs", {})
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        raise DataError(f"{folder}: not an experiment (no {EXPERIMENT}). Run: lightgc2n experiment NAME ...") from None
    return described


def find(folder: Path) -> Found:
    """What the run folders of an experiment say, in the order of its plans."""
    described = read_experiment(folder)
    asked: dict[str, dict[str, Any]] = described["asked"]
    order = {name: place for place, name in enumerate(name for one in asked.values() for name in one["runs"])}
    runs: dict[str, list[Run]] = {}
    missing: dict[str, str] = {}
    for path in sorted(folder.glob(f"*/{RUN}"), key=lambda path: (_place(path.parent, order), path.parent.name)):
        results = read_results(path.parent)
        if results is None:
            missing[path.parent.name] = _why_missing(folder, path.parent.name)
        else:
            name = SEED.sub("", path.parent.name)
            runs.setdefault(name, []).append(Run(path.parent, read_run(path.parent), results))
    for name in order:
        if name not in runs and not any(one.startswith(f"{name}-seed") for one in missing):
            missing[f"{name}-seed0"] = _why_missing(folder, f"{name}-seed0")
    groups = [group for seeds in runs.values() for group in _groups(seeds)]
    return Found(described["experiment"], tuple(groups), missing, asked)


def _place(run: Path, order: Mapping[str, int]) -> tuple[int, int]:
    seed = SEED.search(run.name)
    return order.get(SEED.sub("", run.name), len(order)), int(seed[1]) if seed else 0


def _groups(seeds: Sequence[Run]) -> Iterator[Group]:
    """The seeds together, once for each domain that they were asked in."""
    for number in range(len(seeds[0].results["domains"])):
        yield Group(tuple(Run(run.folder, run.described, run.results, number) for run in seeds))


def _why_missing(folder: Path, name: str) -> str:
    said = last_word(folder, name)
    return (
        said.removeprefix(ERROR)
        if said.startswith(ERROR)
        else f"not finished, {epochs_of(folder / name)} epochs so far"
    )


def measured(found: Found) -> dict[Key, list[Measured]]:
    """The runs as the claims of the paper read them."""
    return {
        Key(group.dataset, group.protocol, group.label): [_measured(run, group) for run in group.runs]
        for group in found.groups
    }


def _measured(run: Run, group: Group) -> Measured:
    rank, owner = run.ranks
    return Measured(
        model=group.model,
        seed=run.seed,
        metrics={name: float(column.mean()) for name, column in gains(rank, (5, 20)).items()},
        rank=rank,
        owner=owner,
        parameters=group.parameters,
        epochs=int(run.results["epochs"]),
        training_seconds=sum(run.epoch_seconds),
        device=str(run.results["device"]),
        settings=group.settings,
        data_share=group.share,
        domains=group.domains,
        peak_memory_mb=float(run.results["peak_memory_mb"]),
        quickest_epoch=run.quickest_epoch,
        most_epochs=run.described["training"].get("epochs"),
        at_once=int(run.results["side_by_side"]),
    )
