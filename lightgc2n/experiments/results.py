"""The result of a run as a typed record that carries its own identity, and the seeds of one setting as a group."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from lightgc2n.data.dataset import Longs
from lightgc2n.metrics.intervals import Estimate, estimates
from lightgc2n.metrics.ranking import Floats, gains

METRICS = ("RC@5", "RC@20", "MRR@5", "MRR@20")
TWO_DOMAINS = ", two domains"


def protocol_of(split: Mapping[str, Any]) -> str:
    """The protocol of a split; the variants of random windows have names of their own."""
    if split["target_in_input"]:
        return "target-in-input"
    return str(split["protocol"]) + ("" if split.get("copies", True) else "-without-copies")


def identity_of(description: Mapping[str, Any]) -> dict[str, Any]:
    """The identity of a run, from the description in its run.json; `label` is missing in old ones."""
    data, split = description["data"], description["split"]
    identity = {name: description[name] for name in ("label", "model", "settings", "split", "training", "commit")
                if name in description}  # fmt: skip
    names = {"dataset": Path(data["folder"]).name, "dataset_name": data["name"], "checksum": data["checksum"]}
    return names | {"domain": data["domain"], "protocol": protocol_of(split)} | identity


@dataclass(frozen=True, eq=False, kw_only=True)
class RunResult:
    """A finished run in one domain: its identity, the rank of every test target, and the cost of training."""

    # Identity
    model: str
    seed: int
    label: str = ""  # the plan's name of these settings: "lightgc2n", "alpha-2"
    dataset_folder: str = ""  # the folder name of the dataset
    data_domain: str = ""  # the domain that the run was restricted to; empty: all domains
    tested_domain: str = ""  # the domain of these targets, if the run was tested in several
    protocol: str = "last"
    checksum: str = ""  # of the data
    commit: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)  # all settings of the model
    training_share: float = 1.0  # share of the training sequences used
    most_epochs: int | None = None  # None if unknown
    # Test
    rank: Floats  # of every test target, from 1
    owner: Longs  # the account of every test target
    targets_checksum: str = ""  # equal for runs with the same target items of the same accounts
    # Cost
    domains: int = 1  # number of domains that one set of parameters serves
    parameters: int
    stored_numbers: int = 0
    epochs: int
    best_epoch: int = -1
    ended_by: str = ""
    training_seconds: float
    test_seconds: float = 0.0
    epoch_seconds: tuple[float, ...] = ()  # without validation
    validation: float | None = None
    peak_memory_mb: float = 0.0
    device: str = ""  # "cpu", or the name of the GPU
    at_once: int = 1  # runs that shared the machine, this one included
    # Notes
    stamps: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    folder: Path | None = None

    @property
    def name(self) -> str:
        """The plan's name of the run without its seed."""
        return run_name(self.dataset_folder, self.data_domain, self.label)

    @property
    def dataset(self) -> str:
        """The dataset, and the domain where there is one, as tables call it."""
        # Use the folder's name: merges of one log have the same name in their manifests.
        return f"{self.dataset_folder} {self.tested_domain or self.data_domain}".rstrip()

    @property
    def is_cut(self) -> bool:
        """Whether the run trained all its epochs: patience did not end it, and more epochs might change it."""
        return self.ended_by == "budget"

    @property
    def quickest_epoch(self) -> float | None:
        """Seconds of the fastest epoch; slower ones may include kernel compilation or other runs on the machine."""
        return min(self.epoch_seconds, default=None)

    @property
    def seconds_per_epoch(self) -> float:
        quickest = self.quickest_epoch
        return self.training_seconds / max(1, self.epochs) if quickest is None else quickest

    @property
    def seconds_per_domain(self) -> float:
        return self.seconds_per_epoch / self.domains

    @property
    def parameters_per_domain(self) -> float:
        return self.parameters / self.domains


@dataclass(frozen=True, eq=False)
class ResultGroup:
    """The seeds of one setting."""

    runs: tuple[RunResult, ...]

    @property
    def first(self) -> RunResult:
        return self.runs[0]

    @property
    def model(self) -> str:
        return self.first.model

    @property
    def label(self) -> str:
        return self.first.label

    @property
    def title(self) -> str:
        """The label, with a suffix if the run was on two domains at once."""
        return self.label + (TWO_DOMAINS if self.domains > 1 else "")

    @property
    def dataset(self) -> str:
        return self.first.dataset

    @property
    def protocol(self) -> str:
        return self.first.protocol

    @property
    def settings(self) -> Mapping[str, Any]:
        return self.first.settings

    @property
    def share(self) -> float:
        return self.first.training_share

    @property
    def parameters(self) -> int:
        return self.first.parameters

    @property
    def domains(self) -> int:
        return self.first.domains

    @property
    def seconds_per_epoch(self) -> float | None:
        """Seconds of the fastest epoch, averaged over seeds; None for a simple baseline."""
        quickest = [run.quickest_epoch for run in self.runs if run.quickest_epoch is not None]
        return mean(quickest) if quickest else None

    def mean(self, cost: str) -> float:
        """The mean of a cost over the seeds, such as `epochs` or `peak_memory_mb`."""
        return mean(float(getattr(run, cost)) for run in self.runs)

    @cached_property
    def by_seed(self) -> list[dict[str, Floats]]:
        """What each target adds to each metric, seed by seed."""
        return [gains(run.rank, (5, 20)) for run in self.runs]

    @cached_property
    def gained(self) -> dict[str, Floats]:
        """What each target adds to each metric, the mean over the seeds."""
        return {name: np.mean([columns[name] for columns in self.by_seed], axis=0) for name in METRICS}

    @cached_property
    def estimates(self) -> dict[str, Estimate]:
        """Each metric with the interval over draws of accounts; the seeds are drawn together."""
        return estimates(self.gained, self.first.owner)

    def metric(self, name: str) -> float:
        return float(self.gained[name].mean())

    def spread(self, name: str) -> float:
        """The maximum of a metric over the seeds minus the minimum."""
        values = [float(columns[name].mean()) for columns in self.by_seed]
        return max(values) - min(values)


def run_name(dataset: str, domain: str, label: str) -> str:
    """The name of a run without its seed."""
    return "-".join(filter(None, [dataset, domain, label]))
